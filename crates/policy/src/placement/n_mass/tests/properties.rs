//! What must hold of every mapping, on machines of any number of processors.

use super::super::*;
use crate::pools::Taken;
use crate::settings::MostMoved;
use numaherd_testing::{Scene, Shape};
use numaherd_topology::NodeId;
use proptest::prelude::*;

/// Cores of each domain of each node, and threads as home, miss rate and penalty.
#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<Vec<u32>>,
    threads: Vec<(u32, f64, f64)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let node = proptest::collection::vec(1u32..4, 1..3);
    let rate = prop_oneof![Just(0.0), Just(20.0), 0.0..80.0f64];
    let penalty = prop_oneof![Just(1.0), Just(1.2), 1.0..2.5f64];
    let threads = proptest::collection::vec((0u32..5, rate, penalty), 0..24);
    (proptest::collection::vec(node, 1..5), threads)
        .prop_map(|(nodes, threads)| Case { nodes, threads })
}

impl Case {
    /// The case without the threads that find no core of their own.
    fn with_a_core_each(mut self) -> Self {
        let cores: u32 = self.nodes.iter().flatten().sum();
        self.threads.truncate(cores as usize);
        self
    }
}

fn decide(case: &Case, refined: Option<&NMassSettings>) -> (PoolSlots, Vec<Item>, Decision) {
    let mut scene = Scene::new(&Shape {
        nodes: case.nodes.clone(),
        ..Shape::uniform(1, 1)
    });
    for _ in &case.threads {
        scene.thread(0, 0.0, 0);
    }
    let nodes = u32::try_from(case.nodes.len()).expect("few");
    let item = |&(home, miss_rate, penalty): &(u32, f64, f64)| Item {
        home: NodeId(home % nodes),
        miss_rate,
        penalty,
    };
    let items: Vec<Item> = case.threads.iter().map(item).collect();
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    let none = Pool {
        cpus: scene.snapshot.online.clone(),
        threads: Vec::new(),
        busy: Vec::new(),
    };
    let pool = stage.pools.first().unwrap_or(&none);
    let slots = PoolSlots::new(&stage, pool, &Taken::default());
    let outside = vec![0.0; slots.domains.len()];
    let processors = Processors::new(&slots, &scene.topology, items.len(), &outside);
    let decision = Decision::new(&slots, &items, processors, refined);
    (slots, items, decision)
}

fn settings() -> impl Strategy<Value = NMassSettings> {
    let most_moved = prop_oneof![
        Just(MostMoved::Half),
        Just(MostMoved::Difference),
        Just(MostMoved::One)
    ];
    (most_moved, any::<bool>(), 0.0..150.0f64).prop_map(|(most_moved, exchange, threshold)| {
        NMassSettings {
            most_moved,
            exchange,
            threshold,
            ..NMassSettings::default()
        }
    })
}

/// What the top of `refine.rs` says of any number of processors, tried pair by pair every time.
fn refine_naively(case: &Case, settings: &NMassSettings) -> Vec<usize> {
    let (slots, items, local) = decide(case, None);
    let mut processors = local.processors;
    let mut on = local.processor;
    let mut moved = vec![false; items.len()];
    loop {
        let mut all: Vec<usize> = (0..slots.domains.len()).collect();
        all.sort_by(|&a, &b| {
            let pressure = |at: usize| processors.all[at].pressure;
            pressure(a).total_cmp(&pressure(b)).then(a.cmp(&b))
        });
        let found = all.iter().rev().find_map(|&from| {
            let there = |t: &&usize| on[**t] == from && !moved[**t];
            let &thread = local.local.order.iter().rev().find(there)?;
            let item = &items[thread];
            let homes = all
                .iter()
                .filter(|&&to| slots.domains[to].node == item.home);
            let others = all
                .iter()
                .filter(|&&to| slots.domains[to].node != item.home);
            let to = homes.chain(others).copied().find(|&to| {
                let (giver, taker) = (&processors.all[from], &processors.all[to]);
                let remote = slots.domains[to].node != item.home;
                let (high, low) = (giver.pressure, taker.pressure);
                let gives = high - giver.weight(item);
                let takes = low + taker.weight(item);
                let little =
                    settings.most_moved != MostMoved::Half || item.miss_rate < (high - low) / 2.0;
                to != from
                    && processors.has_core(from, to)
                    && (low < gives && gives < high)
                    && (low < takes && takes < high)
                    && (!remote || (little && takes < settings.threshold))
            })?;
            Some((thread, from, to))
        });
        let Some((thread, from, to)) = found else {
            return on;
        };
        processors.take(&items[thread], from);
        processors.put(&items[thread], to);
        (on[thread], moved[thread]) = (to, true);
        if settings.most_moved == MostMoved::One {
            return on;
        }
    }
}

/// The pressures of a mapping, worked out anew.
fn pressures(items: &[Item], slots: &PoolSlots, processor: &[usize]) -> Vec<f64> {
    let mut pressures = vec![0.0; slots.domains.len()];
    for (item, &on) in items.iter().zip(processor) {
        let remote = slots.domains[on].node != item.home;
        pressures[on] += item.miss_rate * if remote { item.penalty } else { 1.0 };
    }
    pressures
}

fn threads_on(slots: &PoolSlots, processor: &[usize]) -> Vec<usize> {
    let on = |at| processor.iter().filter(|&&on| on == at).count();
    (0..slots.domains.len()).map(on).collect()
}

/// The first move changes the rank of both processors at once, each past the other's old place.
#[test]
fn both_ends_of_a_move_find_their_new_rank() {
    let case = Case {
        nodes: vec![vec![1], vec![2], vec![2], vec![2]],
        threads: vec![
            (0, 20.0, 1.2),
            (2, 20.0, 1.0),
            (4, 0.0, 2.1),
            (0, 20.0, 1.0),
            (1, 72.0, 1.0),
        ],
    };
    let settings = NMassSettings {
        threshold: 115.7,
        most_moved: MostMoved::Difference,
        ..NMassSettings::default()
    };
    let (_, _, decision) = decide(&case, Some(&settings));
    assert_eq!(decision.processor, [1, 3, 0, 3, 2]);
    assert_eq!(decision.processor, refine_naively(&case, &settings));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn maximum_local_makes_no_thread_remote_while_a_core_of_its_home_is_free(case in cases()) {
        let (slots, items, decision) = decide(&case.with_a_core_each(), None);
        let threads = threads_on(&slots, &decision.processor);
        for (item, &on) in items.iter().zip(&decision.processor) {
            if slots.domains[on].node == item.home {
                continue;
            }
            for (domain, &threads) in slots.domains.iter().zip(&threads) {
                prop_assert!(domain.node != item.home || threads == domain.cpus.len());
            }
        }
    }

    #[test]
    fn maximum_local_keeps_those_of_high_penalty_at_home(case in cases()) {
        let (slots, items, decision) = decide(&case.with_a_core_each(), None);
        let homed: Vec<bool> = items
            .iter()
            .zip(&decision.processor)
            .map(|(item, &on)| slots.domains[on].node == item.home)
            .collect();
        for (a, x) in items.iter().enumerate() {
            for (b, y) in items.iter().enumerate() {
                let jumped = x.home == y.home && x.penalty > y.penalty && homed[b] && !homed[a];
                prop_assert!(!jumped, "{a} {b}");
            }
        }
    }

    #[test]
    fn refining_never_raises_the_highest_pressure_nor_lowers_the_lowest(
        case in cases(), settings in settings(),
    ) {
        let (slots, items, decision) = decide(&case, Some(&settings));
        let before = pressures(&items, &slots, &decision.local.processor);
        let after = pressures(&items, &slots, &decision.processor);
        let highest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        let lowest = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
        // Sums in another order differ in the last digits.
        prop_assert!(highest(&after) <= highest(&before) + 1e-9);
        prop_assert!(lowest(&after) >= lowest(&before) - 1e-9);
        for (at, processor) in decision.processors.all.iter().enumerate() {
            prop_assert!((processor.pressure - after[at]).abs() < 1e-9);
        }
        for made in decision.moves.iter().flatten() {
            let apart = |(a, b): (f64, f64)| (a - b).abs();
            prop_assert!(apart(made.after) < apart(made.before));
        }
    }

    #[test]
    fn what_is_passed_over_would_not_have_helped(case in cases(), settings in settings()) {
        let settings = NMassSettings { exchange: false, ..settings };
        let (_, _, decision) = decide(&case, Some(&settings));
        prop_assert_eq!(decision.processor, refine_naively(&case, &settings));
    }

    #[test]
    fn a_thread_that_is_made_remote_leaves_its_processor_below_the_threshold(
        case in cases(), settings in settings(),
    ) {
        let (slots, items, decision) = decide(&case, Some(&settings));
        for (item, made) in items.iter().zip(&decision.moves) {
            if let Some(made) = made.filter(|m| slots.domains[m.to].node != item.home) {
                prop_assert!(made.after.1 < settings.threshold, "{made:?}");
            }
        }
    }

    #[test]
    fn what_refining_leaves_helps_nobody(case in cases(), most_moved in prop_oneof![
        Just(MostMoved::Half), Just(MostMoved::Difference),
    ]) {
        // No last thread of those that were not moved has a move that helps.
        let settings = NMassSettings { most_moved, ..NMassSettings::default() };
        let case = case.with_a_core_each();
        let (slots, items, decision) = decide(&case, Some(&settings));
        let pressure = pressures(&items, &slots, &decision.processor);
        let threads = threads_on(&slots, &decision.processor);
        for from in 0..slots.domains.len() {
            let there = |&&at: &&usize| {
                decision.processor[at] == from && decision.moves[at].is_none()
            };
            let Some(&last) = decision.local.order.iter().rev().find(there) else { continue };
            for to in 0..slots.domains.len() {
                let item = &items[last];
                let weight = |at: usize| pressures(&[*item], &slots, &[at])[at];
                let after = (pressure[from] - weight(from), pressure[to] + weight(to));
                let remote = slots.domains[to].node != item.home;
                let between = |p: f64| pressure[to] + 1e-9 < p && p + 1e-9 < pressure[from];
                let little = most_moved == MostMoved::Difference
                    || item.miss_rate + 1e-9 < (pressure[from] - pressure[to]) / 2.0;
                let helps = between(after.0)
                    && between(after.1)
                    && (!remote || (little && after.1 + 1e-9 < settings.threshold))
                    && threads[to] < slots.domains[to].cpus.len();
                prop_assert!(!helps, "{last} from {from} to {to}");
            }
        }
    }

    #[test]
    fn cpus_have_as_many_threads_as_their_domains_say(case in cases(), settings in settings()) {
        let (slots, items, decision) = decide(&case, Some(&settings));
        let cpus: usize = slots.domains.iter().map(|domain| domain.cpus.len()).sum();
        let most = items.len().div_ceil(cpus);
        for (at, seat) in decision.seats.iter().enumerate() {
            prop_assert_eq!(seat.domain, decision.processor[at]);
            let there = decision.seats.iter().filter(|&other| other == seat).count();
            prop_assert!(there <= most);
        }
    }
}
