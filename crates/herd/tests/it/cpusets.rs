//! Cpusets that change while a herd runs and stops: every thread gets its own affinity back, and none is left in the journal.

use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::{Herd, Limits, Settings, Summary};
use tempfile::TempDir;

use crate::fake::{Fake, cpus, everyone_to, policy, tid};
use crate::heirs::daemon;
use crate::run::{GO, fake, journal, journal_path};

/// Runs a herd that gives all threads CPUs 4-7. Afterwards nothing is owed.
fn run(world: &mut Fake, settings: Settings) -> Summary {
    let directory = TempDir::new().unwrap();
    let journal = Some(journal(&directory));
    let herd = Herd::new(world, policy(everyone_to(5))).settings(settings);
    let summary = herd.journal(journal).run(&GO).unwrap();
    assert!(!journal_path(&directory).exists(), "nothing is owed");
    summary
}

#[test]
fn a_mask_that_was_read_before_its_cpuset_was_widened_is_asked_for_again() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 3 {
            // So it was while its cpuset had no CPU of the mask.
            world.shown.insert(tid(1), cpus("0-1"));
        }
    });
    let summary = run(&mut world, Settings::default());
    assert_eq!(world.masks()[&tid(1)], cpus("0-7"));
    assert_eq!(summary.notices, Vec::<String>::new());
}

#[test]
fn a_mask_that_is_set_anew_a_moment_later_is_nobodys_choice() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 3 {
            // So it was while its cpuset had no CPU of the mask.
            world.thread(1).affinity = Arc::new(cpus("0-1"));
            world.settles.insert(tid(1), cpus("4-7"));
        }
    });
    let summary = run(&mut world, Settings::default());
    assert_eq!(world.masks()[&tid(1)], cpus("0-7"));
    assert_eq!(summary.notices, Vec::<String>::new());
}

#[test]
fn a_mask_that_was_narrowed_as_it_was_set_is_ours_when_its_cpuset_is_widened() {
    let mut world = fake(1).scripted(|interval, world| match interval {
        0 => {
            world.narrows.insert(tid(1), cpus("0-5"));
        }
        2 => {
            assert_eq!(world.masks()[&tid(1)], cpus("4-5"));
            world.thread(1).cpuset = Arc::new(cpus("0-7"));
            world.thread(1).affinity = Arc::new(cpus("4-7"));
        }
        _ => {}
    });
    let summary = run(&mut world, Settings::default());
    assert_eq!(world.masks()[&tid(1)], cpus("0-7"));
    assert_eq!(summary.notices, Vec::<String>::new());
}

/// The kernel refuses a mask while the cpuset has none of its CPUs, and shows just these once the cpuset has no others.
#[test]
fn a_mask_that_was_refused_and_shows_all_the_same_is_given_back() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 1 {
            world.refuses.clear();
        }
    });
    world.refuses.insert(tid(1), "EINVAL".to_owned());
    world.narrows.insert(tid(1), cpus("4-7"));
    let summary = run(&mut world, Settings::default());
    assert_eq!(
        *world.applied.last().unwrap().affinities[0].cpus,
        cpus("0-7")
    );
    assert_eq!(summary.totals.restored, Some(1));
}

#[test]
fn an_affinity_of_which_the_cpuset_has_nothing_left_is_given_back_with_the_cpuset() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 2 {
            world.thread(1).cpuset = Arc::new(cpus("2-5"));
            world.thread(1).affinity = Arc::new(cpus("4-5"));
        }
    });
    world.thread(1).affinity = Arc::new(cpus("0"));
    let take_over = Limits {
        take_over: true,
        ..Limits::default()
    };
    let settings = Settings {
        limits: take_over,
        ..Settings::default()
    };
    let summary = run(&mut world, settings);
    let last = world.applied.last().unwrap();
    assert_eq!(*last.affinities[0].cpus, cpus("0,2-5"));
    assert_eq!(summary.totals.restored, Some(1));
}

#[test]
fn a_stop_on_a_slow_machine_looks_once_more_for_heirs_before_it_gives_up() {
    let mut world = fake(1);
    let heir = daemon(&mut world, 9);
    world.search_takes = Duration::from_secs(6);
    world = world.scripted(move |interval, world| {
        if interval == 4 {
            world.starts = vec![heir.clone()];
        }
    });
    world.unseen = vec![tid(9)];
    let summary = run(&mut world, Settings::default());
    assert_eq!(world.masks()[&tid(9)], cpus("0-7"));
    assert_eq!(summary.totals.restored, Some(2));
    assert_eq!(summary.notices, Vec::<String>::new());
}
