//! What the world is asked for before time passes: where new pages go, and what it is to measure.

use std::sync::atomic::AtomicBool;

use numaherd_herd::{Herd, HerdError, Settings};
use numaherd_policy::Policy;
use numaherd_world::{NewPages, Signal};

use crate::fake::{Asked, Fake, machine, policy, thread};

static GO: AtomicBool = AtomicBool::new(false);

fn fake() -> Fake {
    let topology = machine(2, 2);
    let threads = vec![thread(1, 1, 0, &topology)];
    Fake::new(topology, threads)
}

fn interleaving() -> Policy {
    Policy {
        new_pages: NewPages::Interleave,
        ..policy(|_| Vec::new())
    }
}

fn settings(dry_run: bool) -> Settings {
    Settings {
        intervals: Some(1),
        dry_run,
        ..Settings::default()
    }
}

#[test]
fn new_pages_then_signals_then_the_pager() {
    let mut world = fake();
    world.can_place_new_pages.push(NewPages::Interleave);
    Herd::new(&mut world, interleaving())
        .settings(settings(false))
        .run(&GO)
        .unwrap();
    let asked = [
        Asked::NewPages(NewPages::Interleave),
        Asked::Attend(vec![Signal::MissRate]),
        Asked::Pager,
    ];
    assert_eq!(world.asked, asked);
}

#[test]
fn a_world_that_cannot_place_new_pages_is_not_run() {
    let mut world = fake();
    let error = Herd::new(&mut world, interleaving())
        .settings(settings(false))
        .run(&GO)
        .unwrap_err();
    assert!(matches!(error, HerdError::NewPages { .. }));
    assert_eq!(
        error.to_string(),
        "the policy as-told places new pages by the rule interleave, which the made-up machine \
         does not support: it cannot place new pages by the rule interleave; have it learn that; or choose a \
         policy that leaves new pages where they are first touched, such as linux"
    );
    assert_eq!(world.asked, [Asked::NewPages(NewPages::Interleave)]);
}

#[test]
fn a_dry_run_leaves_new_pages_where_they_are_first_touched() {
    let mut world = fake();
    Herd::new(&mut world, interleaving())
        .settings(settings(true))
        .run(&GO)
        .unwrap();
    let asked = [
        Asked::NewPages(NewPages::FirstTouch),
        Asked::Attend(vec![Signal::MissRate]),
        Asked::Pager,
    ];
    assert_eq!(world.asked, asked);
}
