//! Algorithm 1 as printed, line by line; and that the code is the same.

use super::super::algorithm::Vcpu as Code;
use crate::policy::Random;
use crate::settings::Steps;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};

/// Line 1. `unc` of a node is 0 where nothing is known (§4.2: "reset").
struct Vcpu {
    n: usize,
    bias: usize,
    prob: i32,
    unc: Vec<f64>,
}

/// Lines 14 to 27, with the global penalty that line 16 comes to.
fn update(v: &mut Vcpu, global: f64) {
    let n = v.n; // 15
    v.unc[n] = global; // 16
    for i in (0..v.unc.len()).filter(|&i| i != n) {
        // 17
        if v.unc[n] > v.unc[i] {
            // 18
            v.prob += 1;
            v.prob = if v.prob > 100 { 100 } else { v.prob }; // 19
            if v.unc[v.bias] > v.unc[i] {
                // 20
                v.bias = i; // 21
            }
        } else {
            v.prob -= 1;
            v.prob = if v.prob < 0 { 0 } else { v.prob }; // 24
        }
    }
}

/// The same in the words of §4.4: "If current penalty is larger than the recorded penalty on any
/// other node, the probability of migrating this vCPU increases. The node bias […] is then modified
/// to point to the node with the minimum penalty. Otherwise […] the migration probability
/// decreases".
fn update_as_told(v: &mut Vcpu, global: f64) {
    v.unc[v.n] = global;
    let mut others = (0..v.unc.len()).filter(|&i| i != v.n);
    if others.any(|i| v.unc[v.n] > v.unc[i]) {
        v.prob = (v.prob + 1).min(100);
        for i in 0..v.unc.len() {
            if v.unc[v.bias] > v.unc[i] {
                v.bias = i;
            }
        }
    } else {
        v.prob = (v.prob - 1).max(0);
    }
}

/// Lines 29 to 37: the node to go to.
fn bias_random_pick(v: &mut Vcpu, random: &mut Random) -> usize {
    let rand = random.random_range(0..100); // 30
    if rand < v.prob {
        // 31
        v.prob = 0; // 33
        v.bias // 32
    } else {
        v.n // 35
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick(f64),
    Forget,
    /// Something else moves it.
    Moved(usize),
}

fn events() -> impl Strategy<Value = (usize, Vec<Event>)> {
    (2usize..20).prop_flat_map(|nodes| {
        // Few different penalties, so that there are ties; and any.
        let penalty = prop_oneof![(1..6u32).prop_map(|p| f64::from(p) * 50.0), 1.0..1000.0f64];
        let event = prop_oneof![
            60 => penalty.prop_map(Event::Tick),
            1 => Just(Event::Forget),
            2 => (0..nodes).prop_map(Event::Moved),
        ];
        (Just(nodes), proptest::collection::vec(event, 0..300))
    })
}

/// Runs both on the same events and the same random numbers; they must agree at each.
fn compare(
    nodes: usize,
    events: &[Event],
    seed: u64,
    steps: Steps,
    by_the_paper: fn(&mut Vcpu, f64),
) -> Result<(), TestCaseError> {
    let mut random = (Random::seed_from_u64(seed), Random::seed_from_u64(seed));
    let all: Vec<usize> = (0..nodes).collect();
    let mut paper = Vcpu {
        n: 0,
        bias: 0,
        prob: 0,
        unc: vec![0.0; nodes],
    };
    let (mut code, mut n) = (Code::default(), 0);
    for &event in events {
        match event {
            Event::Moved(to) => (paper.n, n) = (to, to),
            Event::Forget => {
                paper.unc.fill(0.0);
                code.forget();
            }
            Event::Tick(penalty) => {
                by_the_paper(&mut paper, penalty);
                code.update(n, &all, penalty, 0.0, steps);
                paper.n = bias_random_pick(&mut paper, &mut random.0);
                n = code.bias_random_pick(&mut random.1).map_or(n, |p| p.node);
                prop_assert_eq!(n, paper.n);
                prop_assert_eq!(i64::from(code.probability()), i64::from(paper.prob));
            }
        }
        for node in 0..nodes {
            prop_assert_eq!(code.penalty_on(node).unwrap_or(0.0), paper.unc[node]);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn with_steps_as_printed_it_is_the_printed_algorithm(
        (nodes, events) in events(), seed in any::<u64>(),
    ) {
        // Unless it is moved before its first tick: the paper does not print what bias is at first.
        let mut events = events;
        events.insert(0, Event::Tick(100.0));
        compare(nodes, &events, seed, Steps::Printed, update)?;
    }

    #[test]
    fn with_steps_as_told_it_is_the_text(
        (nodes, events) in events(), seed in any::<u64>(),
    ) {
        let mut events = events;
        events.insert(0, Event::Tick(100.0));
        compare(nodes, &events, seed, Steps::Text, update_as_told)?;
    }

    #[test]
    fn with_two_nodes_the_text_is_what_is_printed(
        (_, events) in events(), seed in any::<u64>(),
    ) {
        let within = |&event: &Event| match event {
            Event::Moved(to) => Event::Moved(to % 2),
            other => other,
        };
        let mut events: Vec<Event> = events.iter().map(within).collect();
        events.insert(0, Event::Tick(100.0));
        compare(2, &events, seed, Steps::Text, update)?;
    }
}
