//! What always holds of the equations, whatever the machine and its threads.

use numaherd_contention::shares::{User, shares};
use numaherd_contention::{
    Channel, Curve, Demands, Factors, Figures, LINE_BYTES, Running, Seat, Solution, Speed, solve,
    speeds,
};
use proptest::prelude::*;

const MIB: f64 = (1 << 20) as f64;

/// Nodes of one domain each, every two of them with a link in each direction.
fn figures(nodes: usize) -> Figures {
    let channel = |gb_per_s: f64, service_ns: f64| Channel {
        capacity: gb_per_s / LINE_BYTES,
        service_ns,
    };
    let mut channels = vec![channel(12.8, 80.0); nodes];
    let mut ways = Vec::new();
    let mut latency_ns = Vec::new();
    for from in 0..nodes {
        for to in 0..nodes {
            latency_ns.push(if from == to { 80.0 } else { 140.0 });
            ways.push(if from == to {
                Vec::new()
            } else {
                channels.push(channel(6.4, 60.0));
                vec![channels.len() as u32 - 1]
            });
        }
    }
    Figures {
        nodes,
        latency_ns,
        channels,
        caches: None,
        ways,
        broadcast_probes: false,
        llc_bytes: vec![8.0 * MIB; nodes],
        llc_ns: 20.0,
        private_bytes: 0.0,
        own_bytes: 0.0,
        own_ns: 20.0,
        in_flight: 10.0,
        clock_ghz: 2.0,
        smt_throughput: 2.0,
        write_turnaround: 0.0,
        own_lines_wait: true,
        ns_per_reference_cycle: 0.5,
    }
}

/// Four nodes in a square: a line takes two links to the opposite one.
fn square() -> Figures {
    let mut figures = figures(4);
    let neighbours = figures.ways.clone();
    let way = |from: usize, to: usize| &neighbours[from * 4 + to];
    for (from, to) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
        let between = (from + 1) % 4;
        let links = [&way(from, between)[..], way(between, to)].concat();
        figures.ways[from * 4 + to] = links;
        figures.latency_ns[from * 4 + to] = 200.0;
    }
    figures
}

/// A program: how it answers to cache, and what it does at its lines.
#[derive(Clone, Debug)]
struct Kind {
    curve: Curve,
    cycles_per_instruction: f64,
    misses_in_flight: f64,
    written_per_line: f64,
}

impl Kind {
    fn demands(&self) -> Demands<'_> {
        Demands {
            cycles_per_instruction: self.cycles_per_instruction,
            lines: &self.curve,
            demand: None,
            misses_in_flight: self.misses_in_flight,
            written_per_line: self.written_per_line,
        }
    }
}

/// A thread of the kind, all of whose memory is on one node.
fn thread(kind: &Kind, node: usize, home: usize) -> Running<'_> {
    let seat = Seat { domain: node, node };
    Running::new(kind.demands(), seat, 1.0, vec![(home, 1.0)])
}

fn solved(figures: &Figures, running: &[Running<'_>]) -> Vec<Speed> {
    speeds(figures, running, Factors::ALL)
}

prop_compose! {
    /// Lines fall from `most` by two steps, perhaps by nothing.
    fn kinds(falls: bool)(
        most in 0.0..60.0_f64,
        steps in (0.0..1.0_f64, 0.0..1.0_f64),
        cycles_per_instruction in 0.3..3.0_f64,
        misses_in_flight in 1.0..16.0_f64,
        written_per_line in 0.0..1.0_f64,
    ) -> Kind {
        let (first, second) = if falls { steps } else { (1.0, 1.0) };
        let points = [(MIB, most * first), (6.0 * MIB, most * first * second)];
        Kind {
            curve: Curve::new(most, &points, 512.0 * MIB).unwrap(),
            cycles_per_instruction,
            misses_in_flight,
            written_per_line,
        }
    }
}

/// Any threads: kind, node, home.
fn crowds() -> impl Strategy<Value = Vec<(Kind, usize, usize)>> {
    prop::collection::vec((kinds(true), 0..3_usize, 0..3_usize), 1..12)
}

fn threads(crowd: &[(Kind, usize, usize)]) -> Vec<Running<'_>> {
    let each = crowd.iter();
    each.map(|(kind, node, home)| thread(kind, *node, *home))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One memory controller and no answer to cache: who comes takes from all, and gives to nobody.
    #[test]
    fn a_thread_more_makes_no_other_faster(
        threads in prop::collection::vec(kinds(false), 2..12),
    ) {
        let figures = figures(1);
        let running: Vec<_> = threads.iter().map(|kind| thread(kind, 0, 0)).collect();
        let (few, all) = (solved(&figures, &running[1..]), solved(&figures, &running));
        for (without, with) in few.iter().zip(&all[1..]) {
            prop_assert!(with.ns >= without.ns * (1.0 - 1e-4), "{} after {}", with.ns, without.ns);
        }
    }

    /// Also where they take cache from each other.
    #[test]
    fn the_more_threads_of_a_kind_the_slower_each(kind in kinds(true), threads in 1..12_usize) {
        let figures = figures(1);
        let running = vec![thread(&kind, 0, 0); threads + 1];
        let (few, all) = (solved(&figures, &running[1..]), solved(&figures, &running));
        prop_assert!(all[0].ns >= few[0].ns * (1.0 - 1e-4));
    }

    #[test]
    fn threads_that_are_alike_go_on_together_as_each_by_itself(
        kinds in prop::collection::vec(kinds(true), 1..4),
        alike in 1..6_usize,
    ) {
        let figures = figures(1);
        let each: Vec<_> = kinds.iter().flat_map(|kind| vec![thread(kind, 0, 0); alike]).collect();
        let together: Vec<_> = kinds
            .iter()
            .map(|kind| Running { alike: alike as f64, ..thread(kind, 0, 0) })
            .collect();
        let (each, together) = (solved(&figures, &each), solved(&figures, &together));
        for (each, together) in each.iter().step_by(alike).zip(&together) {
            prop_assert!((each.ns / together.ns - 1.0).abs() < 1e-3, "{} and {}", each.ns, together.ns);
        }
    }

    #[test]
    fn shares_fill_a_cache_that_is_wanted_and_never_more(
        threads in prop::collection::vec((kinds(true), 0.01..4.0_f64), 1..12),
        cache_mib in 0.1..64.0_f64,
    ) {
        let cache = cache_mib * MIB;
        let mut users: Vec<User<'_>> = threads
            .iter()
            .map(|(kind, rate)| User::new(&kind.curve, *rate, 0.0, 1.0))
            .collect();
        shares(&mut users, cache, 1e-6, &mut 1e6);
        let sum: f64 = users.iter().map(|user| user.held).sum();
        let wanted: f64 = users.iter().map(|user| user.curve.held_after(f64::MAX).min(cache)).sum();
        let full = wanted.min(cache);
        prop_assert!((sum - full).abs() <= 1e-4 * cache, "{sum} of {full}");
        prop_assert!(users.iter().all(|user| (0.0..=cache).contains(&user.held)));
    }

    #[test]
    fn no_channel_carries_more_than_it_can(crowd in crowds(), is_square: bool) {
        let figures = if is_square { square() } else { figures(3) };
        let running = threads(&crowd);
        let mut carried = vec![0.0; figures.channels.len()];
        for (running, speed) in running.iter().zip(solved(&figures, &running)) {
            let home = running.memory[0].0;
            let lines = speed.lines / speed.ns;
            let written = lines * running.demands.written_per_line;
            carried[home] += lines + written;
            for &link in figures.way(home, running.seat.node) {
                carried[link as usize] += lines;
            }
            for &link in figures.way(running.seat.node, home) {
                carried[link as usize] += written;
            }
        }
        for (channel, carried) in figures.channels.iter().zip(carried) {
            prop_assert!(carried <= channel.capacity * (1.0 + 1e-3), "{carried} of {}", channel.capacity);
        }
    }

    /// The answer is a fixed point: asked again from there, it stays, and it is the one that is found
    /// from nowhere.
    #[test]
    fn an_answer_is_the_start_of_itself(crowd in crowds()) {
        let figures = figures(3);
        let running = threads(&crowd);
        let mut solution = Solution::default();
        solve(&figures, &running, Factors::ALL, &mut solution);
        let first = solution.speeds.clone();
        solve(&figures, &running, Factors::ALL, &mut solution);
        for (first, again) in first.iter().zip(&solution.speeds) {
            prop_assert!(first.ns.is_finite() && first.ns > 0.0);
            prop_assert!((again.ns / first.ns - 1.0).abs() < 1e-3, "{} after {}", again.ns, first.ns);
        }
    }

    /// Where nobody answers to cache, there is one answer, and other threads before lead to it, too.
    #[test]
    fn what_was_there_before_changes_no_answer(
        both in prop::collection::vec([(kinds(false), 0..4_usize, 0..4_usize), (kinds(false), 0..4_usize, 0..4_usize)], 1..12),
    ) {
        let figures = square();
        let (before, now): (Vec<_>, Vec<_>) = both.into_iter().map(|[before, now]| (before, now)).unzip();
        let (before, now) = (threads(&before), threads(&now));
        let mut solution = Solution::default();
        solve(&figures, &before, Factors::ALL, &mut solution);
        solve(&figures, &now, Factors::ALL, &mut solution);
        for (first, then) in solved(&figures, &now).iter().zip(&solution.speeds) {
            prop_assert!((then.ns / first.ns - 1.0).abs() < 1e-4, "{} and {}", first.ns, then.ns);
        }
    }

    /// Nodes that are alike have no names: turned round, everything goes on as fast as before.
    #[test]
    fn like_nodes_and_like_threads_are_treated_alike(crowd in crowds(), turn in 1..3_usize) {
        let figures = figures(3);
        let here = threads(&crowd);
        let turned = crowd.iter().rev();
        let there: Vec<_> = turned
            .map(|(kind, node, home)| thread(kind, (node + turn) % 3, (home + turn) % 3))
            .collect();
        let (here, there) = (solved(&figures, &here), solved(&figures, &there));
        for (here, there) in here.iter().zip(there.iter().rev()) {
            prop_assert!((here.ns / there.ns - 1.0).abs() < 1e-3, "{} and {}", here.ns, there.ns);
        }
    }

    /// Each factor of contention only costs.
    #[test]
    fn nobody_is_slower_than_with_all_contention_when_alone(crowd in crowds()) {
        let figures = figures(3);
        let running = threads(&crowd);
        let with = solved(&figures, &running);
        for (running, with) in running.iter().zip(with) {
            let alone = solved(&figures, std::slice::from_ref(running))[0];
            prop_assert!(with.ns >= alone.ns * (1.0 - 1e-4));
        }
    }
}
