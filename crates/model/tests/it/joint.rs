//! Layouts and homes of memory together: what the model foresees is what then happens, and nothing is below
//! its bound.

use std::sync::Arc;
use std::time::Duration;

use numaherd_model::{Hardware, Job, Library, Model, Options, Placement, Until};
use numaherd_topology::{CpuId, CpuSet, Machine, NodeId};
use numaherd_world::{AffinityOrder, MemoryPart, Orders, PageOrder, Pages, ThreadId, World};

/// Four programs of one thread, and one whose threads share pages, all memory on node 0.
fn model() -> Model {
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    let library = Library::built_in();
    let job = |name: &str| Job {
        memory: Placement::On(NodeId(0)),
        ..Job::new(library.get(name).unwrap().clone())
    };
    let jobs = ["mcf", "milc", "povray", "lbm"].map(job).to_vec();
    let until = Until::Time(Duration::from_secs(1000));
    let mut model = Model::new(hardware, jobs, until, Options::default()).unwrap();
    model.run_for(Duration::from_millis(1));
    model
}

/// The layout: thread by thread on CPUs of the two nodes in turn.
fn layout(model: &mut Model) -> Vec<(ThreadId, CpuId)> {
    let seen = model.observe().unwrap();
    let domains = model.topology().domains().to_vec();
    let cpus: Vec<Vec<CpuId>> = domains.iter().map(|d| d.cpus.iter().collect()).collect();
    let threads = seen.threads.iter().enumerate();
    threads
        .map(|(at, thread)| (thread.id, cpus[at % cpus.len()][at / cpus.len()]))
        .collect()
}

fn order(part: &MemoryPart, first: u64, count: u64, to: u32) -> PageOrder {
    PageOrder {
        process: part.process,
        thread: part.thread,
        pages: Pages::Window { first, count },
        to: NodeId(to),
        rule: "test".into(),
        why: String::new(),
    }
}

#[test]
fn what_is_foreseen_is_what_it_then_costs() {
    let mut model = model();
    let layout = layout(&mut model);
    let asked = model.cost_model();
    let parts = asked.parts();
    assert_eq!(parts.len(), 4);
    // A quarter, all, nothing and half of each program's memory go to node 1.
    let quarters = [1, 4, 0, 2];
    let homes: Vec<_> = quarters
        .map(|quarters| Some(vec![(NodeId(0), 4 - quarters), (NodeId(1), quarters)]))
        .to_vec();
    let before = asked.slowdown(&layout, &[]).unwrap();
    let foreseen = asked.slowdown(&layout, &homes).unwrap();
    assert_eq!(asked.slowdown(&layout, &vec![None; 4]), Some(before));
    let affinities = layout.iter().map(|&(thread, cpu)| AffinityOrder {
        thread,
        core: Some(cpu),
        cpus: Arc::new(CpuSet::from_iter([cpu])),
    });
    model.apply(&Orders {
        affinities: affinities.collect(),
        pages: Vec::new(),
    });
    let mut orders = Vec::new();
    for (part, quarters) in parts.iter().zip(quarters) {
        for run in &part.runs {
            let pages = run.end - run.start;
            let stay = pages * u64::from(4 - quarters) / 4;
            orders.push(order(part, run.start + stay, pages - stay, 1));
        }
    }
    let orders: Vec<_> = orders
        .into_iter()
        .filter(|order| !matches!(order.pages, Pages::Window { count: 0, .. }))
        .collect();
    model.pager().unwrap().apply(&orders);
    model.run_for(Duration::from_secs(10));
    let then = asked.slowdown(&layout, &[]).unwrap();
    // `alone` is measured where a thread runs; both nodes of this machine are alike.
    assert!(
        (then / foreseen - 1.0).abs() < 1e-4,
        "{then}, foreseen {foreseen}"
    );
    assert!((before / foreseen - 1.0).abs() > 1e-2, "it matters");
}

#[test]
fn no_pair_is_below_the_bound_and_the_bound_is_below_that_of_memory_that_stays() {
    let mut model = model();
    let layout = layout(&mut model);
    let asked = model.cost_model();
    let joint = asked.least_joint_slowdown().unwrap();
    assert!(joint <= asked.least_slowdown().unwrap() + 1e-12);
    let mut least = f64::INFINITY;
    for code in 0..3_u32.pow(4) {
        let homes: Vec<_> = (0..4)
            .map(|part| {
                let there = code / 3_u32.pow(part) % 3;
                Some(vec![(NodeId(0), 2 - there), (NodeId(1), there)])
            })
            .collect();
        for turned in [false, true] {
            let layout: Vec<_> = match turned {
                false => layout.clone(),
                true => layout
                    .iter()
                    .map(|&(thread, _)| thread)
                    .zip(layout.iter().rev().map(|&(_, cpu)| cpu))
                    .collect(),
            };
            least = least.min(asked.slowdown(&layout, &homes).unwrap());
        }
    }
    assert!(joint <= least, "{joint} and {least}");
    assert!(least < asked.slowdown(&layout, &[]).unwrap());
}

#[test]
fn what_has_no_room_cannot_be_told() {
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    let library = Library::built_in();
    let bytes = hardware.topology().nodes()[0].memory_bytes;
    let program = library.get("mcf").unwrap().clone();
    // More than half of the machine's memory.
    let copies = (1.1 * bytes as f64 / program.footprint_bytes as f64).ceil() as usize;
    let jobs = vec![
        Job {
            memory: Placement::Interleave,
            ..Job::new(program)
        };
        copies
    ];
    let until = Until::Time(Duration::from_secs(1000));
    let mut model = Model::new(hardware, jobs, until, Options::default()).unwrap();
    model.run_for(Duration::from_millis(1));
    let layout: Vec<_> = {
        let seen = model.observe().unwrap();
        seen.threads
            .iter()
            .map(|thread| (thread.id, thread.cpu))
            .collect()
    };
    let asked = model.cost_model();
    let all_on = |node: u32| vec![Some(vec![(NodeId(node), 1)]); copies];
    assert_eq!(asked.slowdown(&layout, &all_on(0)), None);
    assert!(asked.slowdown(&layout, &vec![None; copies]).is_some());
}
