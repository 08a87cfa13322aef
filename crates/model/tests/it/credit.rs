//! Xen's credit scheduler on the model: when vCPUs move, and that memory plays no part in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_model::program::Library;
use numaherd_model::{Binding, Hardware, Job, Model, Options, Program, Scheduler, Until};
use numaherd_topology::{CpuId, Machine, NodeId};
use numaherd_world::{AffinityOrder, Orders, World};

/// BRM's machine, two sockets of four cores.
fn hardware() -> Hardware {
    Hardware::of(&Machine::preset("xeon-e5620-2s").unwrap()).unwrap()
}

/// A program that never goes to memory and takes many hours.
fn busy() -> Arc<Program> {
    let text = "source = \"made up for tests\"\n[[program]]\nname = \"busy\"\nabout = \"for tests\"\n\
                footprint_mib = 16\n[[program.phase]]\ninstructions = 1e14\ncycles_per_instruction = 1\n\
                cache_accesses = 0\nlines = [[1, 0]]\nmisses_in_flight = 1\nwritten_per_line = 0\n";
    let library = Library::parse(text, Path::new("tests.toml")).unwrap();
    library.get("busy").unwrap().clone()
}

fn model(jobs: Vec<Job>, options: Options) -> Model {
    Model::new(
        hardware(),
        jobs,
        Until::Time(Duration::from_secs(1000)),
        options,
    )
    .unwrap()
}

fn credit() -> Options {
    Options {
        scheduler: Scheduler::XenCredit,
        ..Options::default()
    }
}

fn on(cpus: &[CpuId]) -> Vec<Job> {
    let job = |&cpu| Job {
        binding: Binding::StartOn(vec![cpu]),
        ..Job::new(busy()).homed(NodeId(0))
    };
    cpus.iter().map(job).collect()
}

fn cpus(node: u32) -> Vec<CpuId> {
    let hardware = hardware();
    let cpus = hardware.topology().cpus().iter();
    let there = cpus.filter(|cpu| cpu.node == NodeId(node));
    there.map(|cpu| cpu.id).collect()
}

/// How many threads are on each node.
fn split(model: &mut Model) -> [usize; 2] {
    let seen = model.observe().unwrap();
    let topology = model.topology().clone();
    let there = |node| {
        let threads = seen.threads.iter();
        threads
            .filter(|thread| topology.node_of(thread.cpu) == Some(NodeId(node)))
            .count()
    };
    [there(0), there(1)]
}

fn moves(model: &Model) -> u64 {
    model.work().iter().map(|work| work.thread_moves).sum()
}

#[test]
fn threads_start_on_either_node_by_chance() {
    let splits: Vec<usize> = (0..40)
        .map(|seed| {
            let jobs = (0..4).map(|_| Job::new(busy()).homed(NodeId(0))).collect();
            let mut model = model(jobs, Options { seed, ..credit() });
            model.run_for(Duration::from_millis(1));
            split(&mut model)[0]
        })
        .collect();
    // 2 of 70 ways are all on one node, 32 three, 36 two.
    assert!((1..=3).all(|count| splits.contains(&count)), "{splits:?}");
}

#[test]
fn at_a_tick_one_of_four_leaves_a_full_socket_and_the_others_stay() {
    let mut model = model(on(&cpus(0)), credit());
    model.run_for(Duration::from_millis(9));
    assert_eq!(split(&mut model), [4, 0]);
    model.run_for(Duration::from_millis(2));
    assert_eq!(split(&mut model), [3, 1]);
    model.run_for(Duration::from_secs(100));
    assert_eq!((split(&mut model), moves(&model)), ([3, 1], 1));
}

#[test]
fn an_idle_cpu_steals_at_once_what_waits() {
    let mut both = model(on(&[cpus(0)[0], cpus(0)[0]]), credit());
    both.run_for(Duration::from_secs(1));
    let seen = both.observe().unwrap();
    assert_ne!(seen.threads[0].cpu, seen.threads[1].cpu);
    assert!(seen.threads.iter().all(|thread| thread.wait_share == 0.0));
}

#[test]
fn what_wakes_up_beside_a_vcpu_goes_first_and_an_idle_cpu_takes_the_vcpu() {
    let options = Options {
        wakes_elsewhere_s: 0.1,
        ..credit()
    };
    let mut alone = model(on(&cpus(0)[..1]), options);
    alone.run_for(Duration::from_secs(100));
    // Ten a second, to one of seven idle CPUs, of which four are on the other node, and three on its own.
    let expected = 1000.0 * 4.0 / 7.0;
    let moves = moves(&alone) as f64;
    assert!(
        (moves / expected - 1.0).abs() < 0.15,
        "{moves}, not {expected}"
    );
}

#[test]
fn without_an_idle_cpu_and_where_a_policy_has_placed_it_a_vcpu_stays() {
    let options = Options {
        wakes_elsewhere_s: 0.1,
        ..credit()
    };
    let all = [cpus(0), cpus(1)].concat();
    let mut full = model(on(&all), options);
    full.run_for(Duration::from_secs(100));
    assert_eq!(moves(&full), 0);

    let mut placed = model(on(&cpus(0)), options);
    placed.run_for(Duration::from_millis(1));
    let seen = placed.observe().unwrap();
    let order = |thread: &numaherd_world::Thread| AffinityOrder {
        thread: thread.id,
        core: Some(thread.cpu),
        cpus: thread.affinity.clone(),
    };
    placed.apply(&Orders {
        affinities: seen.threads.iter().map(order).collect(),
        pages: Vec::new(),
    });
    placed.run_for(Duration::from_secs(100));
    assert_eq!((split(&mut placed), moves(&placed)), ([4, 0], 0));
}
