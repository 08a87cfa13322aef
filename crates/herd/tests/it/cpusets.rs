//! Cpusets that change while a herd runs, after it is killed, and while it stops: every thread gets its own affinity back, and
//! none is left in the journal.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::{Herd, Limits, Settings, Summary};
use numaherd_topology::CpuSet;
use tempfile::TempDir;

use crate::fake::{Fake, Released, cpus, everyone_to, policy, tid};
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

/// Settings with which threads are placed that have affinities of their own.
fn taking_over() -> Settings {
    let limits = Limits {
        take_over: true,
        ..Limits::default()
    };
    Settings {
        limits,
        ..Settings::default()
    }
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
    let summary = run(&mut world, taking_over());
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

/// Kills a herd that has given thread 1, found with this cpuset and mask, CPUs 4-7 or what its cpuset has of them. Then the
/// cpuset changes, which leaves the thread a mask, and `release` runs. Returns the mask with which it restores.
fn released(found: (&str, &str), then: (&str, &str)) -> CpuSet {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1).scripted(|interval, _| {
        if interval == 2 {
            resume_unwind(Box::new("killed"));
        }
    });
    let bind = |world: &mut Fake, (cpuset, mask): (&str, &str)| {
        world.thread(1).cpuset = Arc::new(cpus(cpuset));
        world.thread(1).affinity = Arc::new(cpus(mask));
    };
    bind(&mut world, found);
    let herd = Herd::new(&mut world, policy(everyone_to(5))).settings(taking_over());
    let herd = herd.journal(Some(journal(&directory)));
    let killed = catch_unwind(AssertUnwindSafe(|| herd.run(&GO)));
    assert!(killed.is_err() && journal_path(&directory).exists());
    bind(&mut world, then);
    world.applied.clear();
    let report = journal(&directory).restore(&mut Released(&mut world));
    assert_eq!(report.restored, [tid(1)], "{found:?}, {then:?}: {report:?}");
    assert!(!journal_path(&directory).exists(), "nothing is owed");
    (*world.applied[0].affinities[0].cpus).clone()
}

#[test]
fn a_thread_that_was_placed_in_a_narrow_cpuset_is_given_back_in_a_wide_one() {
    let all = cpus("0-7");
    assert_eq!(released(("2-5", "2-5"), ("0-7", "4-5")), all);
    assert_eq!(released(("2-5", "2-5"), ("4-7", "4-5")), all);
    let own = released(("2-5", "2-3"), ("0-7", "4-5"));
    assert_eq!(own, cpus("2-3"), "its user's");
}

#[test]
fn a_thread_that_was_placed_in_a_wide_cpuset_is_given_back_in_a_narrow_one() {
    let all = cpus("0-7");
    assert_eq!(released(("0-7", "0-7"), ("2-5", "4-5")), all);
    assert_eq!(released(("0-7", "0-7"), ("0-3", "0-3")), all);
    let own = released(("0-7", "0-1"), ("1-5", "4-5"));
    assert_eq!(own, cpus("0-1"), "its user's");
    let own = released(("0-7", "0-1"), ("2-5", "4-5"));
    assert_eq!(own, cpus("0-5"), "the kernel refuses one without a CPU");
}
