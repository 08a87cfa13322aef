//! Candidates in turn: who moves while another has the turn, where it ends, and what becomes of a turn
//! whose owner is gone.

use super::*;

/// A machine whose candidates take turns.
fn in_turn(nodes: usize, cpus: &[u32]) -> Run {
    let mut run = Run::new(&Shape::uniform(nodes, 4), &Settings::default());
    run.brm.rule = Brm::in_turn(&Settings::default());
    for &cpu in cpus {
        run.vcpu(cpu);
    }
    run
}

/// A tick in which the penalty of all grows with how far threads that share data are apart.
fn tick_apart(run: &mut Run) -> Vec<Placement> {
    let threads = run.scene.snapshot.threads.len();
    let on_first = (0..threads).filter(|&at| run.node(at) == 0).count();
    let apart = on_first.min(threads - on_first);
    run.tick(|_, _| 100.0 + 80.0 * apart as f64)
}

fn moved(plan: &[Placement]) -> impl Iterator<Item = &Placement> {
    plan.iter()
        .filter(|placement| placement.from != placement.to)
}

#[test]
fn threads_that_share_data_come_together_and_stay() {
    for seed in 0..20 {
        let mut run = in_turn(2, &[0, 1, 4, 5]);
        run.random = Random::seed_from_u64(seed);
        // Some ten turns of two moves each, and as many ticks until one begins.
        for _ in 0..600 {
            tick_apart(&mut run);
        }
        let mut together = 0;
        for _ in 0..1000 {
            tick_apart(&mut run);
            let first = run.node(0);
            together += usize::from((1..4).all(|at| run.node(at) == first));
        }
        assert!(
            together > 900,
            "seed {seed}: together in {together} of 1000 ticks"
        );
    }
}

#[test]
fn nobody_else_moves_until_a_turn_is_over() {
    let mut run = in_turn(2, &[0, 1, 4, 5]);
    let mut turn: Option<(u32, usize)> = None;
    for tick in 0..3000 {
        let plan = tick_apart(&mut run);
        let mut movers = moved(&plan).map(|placement| placement.thread.tid);
        let mover = movers.next();
        assert_eq!(movers.next(), None, "two at once");
        if let (Some(mover), Some((owner, since))) = (mover, turn) {
            // Its own next move comes once averages have settled, another's after that.
            assert!(
                tick - since > 8,
                "{mover} {} ticks after {owner}",
                tick - since
            );
        }
        turn = mover.map(|mover| (mover, tick)).or(turn);
    }
    assert!(turn.is_some());
}

#[test]
fn a_turn_goes_to_every_node_and_ends_on_the_least() {
    let mut run = in_turn(4, &[0]);
    let penalty = |_: usize, node: u32| [200.0, 180.0, 90.0, 250.0][node as usize];
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        run.tick(penalty);
        seen.insert(run.node(0));
    }
    assert_eq!(seen.len(), 4);
    assert_eq!(run.node(0), 2);
}

#[test]
fn a_turn_whose_owner_ends_or_sleeps_lapses() {
    for sleeps in [false, true] {
        let mut run = in_turn(2, &[0, 4]);
        let first = until_it_moves(&mut run, |_, _| 200.0).thread;
        if sleeps {
            let owner = run
                .scene
                .snapshot
                .threads
                .iter_mut()
                .find(|t| t.id == first);
            owner.expect("it is there").tag = Some(Tag::Clear);
        } else {
            run.scene
                .snapshot
                .threads
                .retain(|thread| thread.id != first);
        }
        let next = until_it_moves(&mut run, |_, _| 200.0).thread;
        assert_ne!(next, first);
    }
}
