//! What the loop does when counters, threads, the kernel, the journal or the ledger fail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::{Ending, Guard, Herd, Line, Record};
use numaherd_world::{Counts, ThreadId};
use tempfile::TempDir;

use crate::fake::{Fake, cpus, everyone_to, machine, policy, thread, tid};
use crate::run::{GO, fake, journal, journal_path};

#[test]
fn counters_gone_mad_do_not_end_a_run() {
    let mut world = fake(2);
    world.ends_after = 2;
    for thread in &mut world.threads {
        thread.counts = Some(Counts {
            instructions: u64::MAX,
            cycles: None,
            lines: u64::MAX,
            local: Some(u64::MAX),
            remote: Some(u64::MAX),
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share: 1.0,
        });
    }
    let placing = policy(everyone_to(5));
    let summary = Herd::new(&mut world, placing).run(&GO).unwrap();
    assert_eq!(summary.totals.counted.instructions, u64::MAX);
    assert_eq!(summary.totals.counted.local_access_ratio(), Some(1.0));
}

#[test]
fn a_thread_that_dies_mid_move_is_recorded_as_gone_and_nothing_is_lost() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(3);
    world.dies = vec![tid(2)];
    let mut gone: Vec<ThreadId> = Vec::new();
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal(&directory));
    let watch = |line: &Line| {
        if let Record::Outcome(outcome) = &line.record {
            let of = outcome.affinities.iter();
            gone.extend(
                of.filter(|o| o.result == numaherd_world::AffinityResult::Gone)
                    .map(|o| o.thread),
            );
        }
    };
    let summary = herd.watched(watch).run(&GO).unwrap();
    assert_eq!(gone, [tid(2)]);
    assert_eq!(
        (summary.totals.thread_moves, summary.totals.restored),
        (2, Some(2))
    );
    assert!(!journal_path(&directory).exists(), "nothing is owed");
}

#[test]
fn the_journal_has_no_line_of_a_thread_that_has_ended_before_it_was_to_be_placed() {
    let directory = TempDir::new().unwrap();
    let path = journal_path(&directory);
    let mut world = fake(3).scripted(|interval, world| {
        if interval == 2 {
            world.threads.retain(|thread| thread.id != tid(3));
        }
    });
    world.ends = vec![tid(2)];
    let (mut refused, mut longest) = (Vec::new(), String::new());
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal(&directory));
    let herd = herd.watched(|line| {
        if let Record::Placing(placing) = &line.record {
            refused.extend(placing.refusals.clone());
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        longest = written.max(std::mem::take(&mut longest));
    });
    let summary = herd.run(&GO).unwrap();
    let [refusal] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (refusal.thread, refusal.guard),
        (tid(2), Guard::UnknownThread)
    );
    assert_eq!(refusal.why, "it has ended since it was observed");
    let lines_of = |number| {
        let thread = serde_json::to_string(&tid(number)).unwrap();
        longest
            .lines()
            .filter(|line| line.contains(&thread))
            .count()
    };
    assert_eq!(lines_of(1), 1, "{longest}");
    assert_eq!(lines_of(2), 0, "{longest}");
    assert_eq!(lines_of(3), 2, "placed, and settled when it has ended");
    assert_eq!(summary.totals.restored, Some(1));
}

#[test]
fn an_affinity_that_its_user_has_chosen_since_the_thread_was_observed_is_kept() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1);
    world.thread(1).affinity = Arc::new(cpus("2"));
    world.shown.insert(tid(1), cpus("0-7"));
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal(&directory));
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.totals.refusals[&Guard::ForeignAffinity], 5);
    assert_eq!(world.masks()[&tid(1)], cpus("2"));
}

#[test]
fn what_the_kernel_refuses_is_said_once_and_the_rest_goes_on() {
    let mut world = fake(2);
    let error = "sched_setaffinity: EPERM: run as root or with CAP_SYS_NICE".to_owned();
    world.refuses.insert(tid(1), error);
    let herd = Herd::new(&mut world, policy(everyone_to(5)));
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.totals.thread_moves, 1);
    assert_eq!(
        summary.notices,
        [
            "the affinity of thread 1 (t1) could not be set: sched_setaffinity: EPERM: run as root \
             or with CAP_SYS_NICE; further failures in this process are in the ledger only"
        ]
    );
}

#[test]
fn what_the_kernel_refused_to_set_is_not_owed() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(2);
    let refused = "sched_setaffinity: EPERM".to_owned();
    world.refuses.insert(tid(1), refused);
    let mut owed = Vec::new();
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal(&directory));
    // Seen after each line of the ledger, and so after each change.
    let herd = herd.watched(|_| {
        owed.push(numaherd_herd::journal::owed(&journal_path(&directory), "this boot").unwrap());
    });
    herd.run(&GO).unwrap();
    assert_eq!(owed[owed.len() / 2], 1, "of two, one was set");
    assert!(!journal_path(&directory).exists(), "nothing is owed");
}

#[test]
fn a_cpuset_that_forbids_every_target_is_said_once() {
    let mut world = fake(1);
    world.thread(1).cpuset = Arc::new(cpus("0-3"));
    world.thread(1).affinity = Arc::new(cpus("0-3"));
    let herd = Herd::new(&mut world, policy(everyone_to(5)));
    let summary = herd.run(&GO).unwrap();
    assert!(world.applied.is_empty());
    assert_eq!(summary.totals.refusals[&Guard::Cpuset], 5);
    assert_eq!(
        summary.notices,
        [
            "thread 1 (t1) is not moved: CPU 5 is beyond its cpuset (0-3); widen its cpuset to let \
             it spread. Further refusals of this kind in its process are in the ledger only"
        ]
    );
}

#[test]
fn a_world_that_cannot_be_seen_any_more_ends_the_run_and_threads_are_given_back() {
    let mut world = fake(2);
    let found = world.masks();
    world.blind_from = 3;
    let herd = Herd::new(&mut world, policy(everyone_to(5)));
    let summary = herd.run(&GO).unwrap();
    let error = "cannot observe the made-up machine: reading /proc: EIO".to_owned();
    assert_eq!(summary.ending, Ending::Failed { error });
    assert_eq!(world.masks(), found);
}

#[test]
fn a_stop_in_the_middle_gives_everything_back() {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let mut world = fake(2).scripted(move |interval, _| {
        flag.store(interval == 2, Ordering::Relaxed);
    });
    let found = world.masks();
    let herd = Herd::new(&mut world, policy(everyone_to(5)));
    let summary = herd.run(&stop).unwrap();
    assert_eq!(summary.ending, Ending::Stopped);
    assert_eq!(summary.totals.intervals, 3);
    assert_eq!(world.masks(), found);
}

#[test]
fn nothing_is_moved_that_could_not_be_written_down() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(2);
    let journal = journal(&directory);
    // A directory in the place of the file: the journal cannot be written.
    std::fs::create_dir(directory.path().join("journal.new")).unwrap();
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal);
    let summary = herd.run(&GO).unwrap();
    assert!(world.applied.is_empty());
    assert_eq!(summary.totals.refusals[&Guard::Journal], 10);
    assert_eq!(summary.notices.len(), 1);
    assert!(
        summary.notices[0]
            .starts_with("threads are not moved, because their original affinities cannot"),
        "{:?}",
        summary.notices
    );
}

#[test]
fn the_journal_is_on_disk_before_the_world_is_asked() {
    let directory = TempDir::new().unwrap();
    let path = journal_path(&directory);
    let topology = machine(2, 4);
    let threads = vec![thread(1, 1, 0, &topology)];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sees, at) = (seen.clone(), path.clone());
    let mut world = Fake::new(topology, threads).scripted(move |_, _| {
        let text = std::fs::read_to_string(&at).unwrap_or_default();
        sees.lock().unwrap().push(text.lines().count());
    });
    world.ends_after = 3;
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(journal(&directory));
    herd.run(&GO).unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [0, 2, 2],
        "header and one change, once"
    );
    assert!(!path.exists(), "all was given back");
}

#[test]
fn a_ledger_that_cannot_be_written_ends_with_one_message_and_herding_goes_on() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    // The ledger is small, and the place of its earlier half is taken.
    std::fs::create_dir_all(directory.path().join("run.ledger.1/taken")).unwrap();
    let writer = Writer::create(&path, "numaherd test", None, 8192).unwrap();
    let mut world = fake(1);
    let herd = Herd::new(&mut world, policy(everyone_to(5))).ledger(writer);
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.totals.thread_moves, 1);
    assert_eq!(summary.totals.intervals, 5);
    assert_eq!(summary.notices.len(), 1, "{:?}", summary.notices);
    assert!(summary.notices[0].ends_with("the ledger ends here; herding continues"));
    assert!(
        Ledger::read(&path).unwrap().damage.is_none(),
        "what was written is whole"
    );
}
