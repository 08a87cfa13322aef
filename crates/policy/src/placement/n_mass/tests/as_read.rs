//! The paper's pseudo-code (Algorithms 1 to 3) for two processors, line by line, not as it is printed but as the
//! top of `refine.rs` reads it; and that the code does the same with two processors.

use std::collections::VecDeque;

use super::super::processors::{Item, Processors};
use super::super::{maximum_local, refine};
use crate::placement::slots::PoolSlots;
use crate::pools::Taken;
use crate::settings::{MostMoved, NMassSettings};
use crate::stage::Stage;
use numaherd_testing::Scene;
use numaherd_topology::NodeId;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    number: usize,
    home: usize,
    np: f64,
    mpki: f64,
}

/// What is not printed, or printed so that it cannot be run.
#[derive(Clone, Copy)]
struct Reading {
    most_moved: MostMoved,
    /// Reading 5: remote processes weigh more wherever they come from. Printed: what is added is
    /// multiplied, and nothing else.
    weigh_by_place: bool,
}

struct Machine {
    cores: usize,
    used: [usize; 2],
}

impl Machine {
    /// A free core, preferably of `processor`: the processor that it is of.
    fn get_next_available_core(&self, processor: usize) -> usize {
        [processor, 1 - processor]
            .into_iter()
            .find(|&p| self.used[p] < self.cores)
            .unwrap_or(1 - processor)
    }
}

/// Algorithm 1, lines 2 and 3.
fn sort_descending_by_np(mut processes: Vec<Process>) -> VecDeque<Process> {
    processes.sort_by(|a, b| b.np.total_cmp(&a.np));
    processes.into()
}

/// Algorithm 2.
fn map_maxlocal(
    mut sorted: [VecDeque<Process>; 2],
    machine: &mut Machine,
) -> VecDeque<(Process, usize)> {
    let mut mapping = VecDeque::new();
    let mut p = [sorted[0].pop_front(), sorted[1].pop_front()]; // 2
    while p[0].is_some() || p[1].is_some() {
        let take = match p {
            [Some(_), None] => 0,                       // 4
            [Some(p0), Some(p1)] if p0.np > p1.np => 0, // 4
            _ => 1,                                     // 8
        };
        let core = machine.get_next_available_core(take); // 5, 9
        machine.used[core] += 1;
        mapping.push_back((p[take].expect("taken above"), core)); // 6, 10
        p[take] = sorted[take].pop_front(); // 7, 11
    }
    mapping
}

/// Algorithm 3.
fn refine_mapping(
    mapping: &VecDeque<(Process, usize)>,
    machine: &mut Machine,
    threshold: f64,
    reading: Reading,
) -> [VecDeque<Process>; 2] {
    let weight = |p: &Process, on: usize, added: bool| {
        let remote = if reading.weigh_by_place {
            p.home != on
        } else {
            added
        };
        if remote { p.mpki * p.np } else { p.mpki }
    };
    let of = |processor: usize| -> VecDeque<Process> {
        let there = mapping.iter().filter(|(_, core)| *core == processor);
        there.map(|(p, _)| *p).collect()
    };
    let mut m = [of(0), of(1)]; // 1, 2
    let sum = |processor: usize| {
        m[processor]
            .iter()
            .fold(0.0, |sum, p| sum + weight(p, processor, false))
    };
    let mut pressure = [sum(0), sum(1)]; // 3, 4
    let mut moved: Vec<usize> = Vec::new();
    loop {
        let last = |from: usize| {
            m[from]
                .back()
                .filter(|p| !moved.contains(&p.number))
                .copied()
        };
        let back = [last(0), last(1)]; // 7
        let delta_move = |from: usize| back[from].map_or(f64::INFINITY, |p| p.mpki * p.np); // 8, 9
        let first = usize::from(delta_move(0) >= delta_move(1)); // 10, 24
        let mut decision = None;
        for from in [first, 1 - first] {
            let to = 1 - from;
            let Some(p) = back[from] else { continue };
            let delta = pressure[from] - pressure[to]; // 6
            let after = [
                pressure[from] - weight(&p, from, false), // 11
                pressure[to] + weight(&p, to, true),      // 12
            ];
            let core = machine.get_next_available_core(to); // 13
            let remote = p.home != to;
            let helps = after
                .iter()
                .all(|&a| pressure[to] < a && a < pressure[from])
                && (!remote || reading.most_moved != MostMoved::Half || p.mpki < delta / 2.0);
            if core == to && helps && (!remote || after[1] < threshold) {
                m[from].pop_back(); // 17
                m[to].push_front(p); // 18
                moved.push(p.number);
                machine.used[from] -= 1;
                machine.used[to] += 1;
                pressure[from] = after[0];
                pressure[to] = after[1];
                decision = Some(from); // 19
                break;
            }
        }
        if decision.is_none() || reading.most_moved == MostMoved::One {
            return m; // 28, 29
        }
    }
}

/// The processor of each process by the pseudo-code: after Algorithm 2, and in the end.
fn by_the_paper(
    processes: &[Process],
    cores: usize,
    settings: &NMassSettings,
    weigh_by_place: bool,
) -> (Vec<usize>, Vec<usize>) {
    let homed = |home: usize| {
        let there = processes.iter().filter(|p| p.home == home);
        sort_descending_by_np(there.copied().collect())
    };
    let mut machine = Machine {
        cores,
        used: [0, 0],
    };
    let mapping = map_maxlocal([homed(0), homed(1)], &mut machine);
    let mut local = vec![0; processes.len()];
    for (p, core) in &mapping {
        local[p.number] = *core;
    }
    let reading = Reading {
        most_moved: settings.most_moved,
        weigh_by_place,
    };
    let refined = refine_mapping(&mapping, &mut machine, settings.threshold, reading);
    let mut last = vec![0; processes.len()];
    for (processor, list) in refined.iter().enumerate() {
        list.iter().for_each(|p| last[p.number] = processor);
    }
    (local, last)
}

/// The same by the code.
fn by_the_code(
    processes: &[Process],
    cores: usize,
    settings: &NMassSettings,
) -> (Vec<usize>, Vec<usize>) {
    if processes.is_empty() {
        return (Vec::new(), Vec::new()); // There is no pool without threads.
    }
    let mut scene = Scene::uniform(2, u32::try_from(cores).expect("few"));
    for _ in processes {
        scene.thread(0, 0.0, 0);
    }
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    let slots = PoolSlots::new(&stage, &stage.pools[0], &Taken::default());
    let item = |p: &Process| Item {
        home: NodeId(u32::try_from(p.home).expect("two")),
        miss_rate: p.mpki,
        penalty: p.np,
    };
    let items: Vec<Item> = processes.iter().map(item).collect();
    let mut processors = Processors::new(&slots, &scene.topology, items.len(), &[0.0; 2]);
    let mut mapping = maximum_local::map(&items, &mut processors);
    let local = mapping.processor.clone();
    refine::refine(&items, &mut mapping, &mut processors, settings);
    (local, mapping.processor)
}

fn process() -> impl Strategy<Value = Process> {
    // Few different values, so that there are ties; and any.
    let mpki = prop_oneof![(0..6u32).prop_map(|n| f64::from(n) * 8.0), 0.0..80.0f64];
    let np = prop_oneof![
        (0..4u32).prop_map(|n| 1.0 + f64::from(n) / 8.0),
        1.0..1.5f64
    ];
    (0usize..2, np, mpki).prop_map(|(home, np, mpki)| Process {
        number: 0,
        home,
        np,
        mpki,
    })
}

fn workloads() -> impl Strategy<Value = (usize, Vec<Process>)> {
    (1usize..6).prop_flat_map(|cores| {
        let processes = proptest::collection::vec(process(), 0..=2 * cores);
        processes.prop_map(move |mut processes| {
            for (number, process) in processes.iter_mut().enumerate() {
                process.number = number;
            }
            (cores, processes)
        })
    })
}

fn readings() -> impl Strategy<Value = MostMoved> {
    prop_oneof![
        Just(MostMoved::Half),
        Just(MostMoved::Difference),
        Just(MostMoved::One)
    ]
}

fn settings() -> impl Strategy<Value = NMassSettings> {
    let most_moved = readings();
    (most_moved, prop_oneof![Just(60.0), 0.0..200.0f64]).prop_map(|(most_moved, threshold)| {
        NMassSettings {
            most_moved,
            threshold,
            ..NMassSettings::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn with_two_processors_it_is_the_papers_algorithm_as_it_is_read(
        (cores, processes) in workloads(), settings in settings(),
    ) {
        let paper = by_the_paper(&processes, cores, &settings, true);
        prop_assert_eq!(by_the_code(&processes, cores, &settings), paper);
    }

    #[test]
    fn where_every_process_finds_a_core_at_home_the_weights_are_those_printed(
        (_, processes) in workloads(), spare in 0usize..4, settings in settings(),
    ) {
        let homed = |home| processes.iter().filter(|p| p.home == home).count();
        let cores = homed(0).max(homed(1)).max(1) + spare;
        let paper = by_the_paper(&processes, cores, &settings, false);
        prop_assert_eq!(by_the_code(&processes, cores, &settings), paper);
    }
}
