//! Paging in a thread of its own: what it is told, what it records, and how it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use numaherd_herd::{Herd, Line, Record, Settings};
use numaherd_world::{PageFailure, PageOrder, PageOutcome};

use crate::fake::{
    FakePager, Heard, Round, ToldPaging, everyone_to, moved, moving, notice, policy_with, remote,
    tid, window,
};
use crate::run::{GO, dry, fake};

const ROUNDS: usize = 20;

#[derive(Clone, Copy, PartialEq)]
enum Then {
    End,
    Fail,
    Panic,
}

/// What a pager brings whose gate has been open for `round` rounds.
fn brings(round: usize, then: Then) -> Round {
    let time_ns = 1_000_000_000 + round as u64 * 10_000_000;
    match then {
        _ if round <= ROUNDS => Round::Sees(vec![remote(round)], vec![notice(time_ns, 1)]),
        Then::End => Round::Ends,
        Then::Fail => Round::Fails("the ring buffer is gone".to_owned()),
        Then::Panic => panic!("out of pages"),
    }
}

/// What a run with a pager came to.
struct Paged {
    summary: numaherd_herd::Summary,
    heard: Arc<Mutex<Heard>>,
    applied: Arc<Mutex<Vec<PageOrder>>>,
    lines: Vec<Line>,
}

/// Runs five intervals; the pager's rounds are in the second.
fn run_with_pager(then: Then, settings: Settings) -> Paged {
    let rounds = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(AtomicBool::new(false));
    let (opens, seen) = (gate.clone(), rounds.clone());
    let mut world = fake(1).scripted(move |interval, _| {
        // Made-up time is over in no time; the pager's thread needs a real moment.
        if interval == 1 {
            opens.store(true, Ordering::SeqCst);
            while seen.load(Ordering::SeqCst) <= ROUNDS {
                std::thread::yield_now();
            }
        }
    });
    let applied = Arc::new(Mutex::new(Vec::new()));
    let pager = FakePager::new(
        move || {
            if gate.load(Ordering::SeqCst) {
                brings(rounds.fetch_add(1, Ordering::SeqCst) + 1, then)
            } else {
                std::thread::yield_now();
                Round::Sees(Vec::new(), Vec::new())
            }
        },
        &applied,
    );
    world.pager = Some(Box::new(pager.answering(|order| PageOutcome {
        failed: BTreeMap::from([(PageFailure::Busy, 2)]),
        ..moved(order, 3)
    })));
    let paging = ToldPaging {
        on_samples: vec![window(&world.threads[0], 0, 4096, 1)],
        shared: 7,
        ..ToldPaging::stay()
    };
    let heard = paging.heard.clone();
    let mut lines = Vec::new();
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging)).settings(settings);
    let summary = herd
        .watched(|line| lines.push(line.clone()))
        .run(&GO)
        .unwrap();
    Paged {
        summary,
        heard,
        applied,
        lines,
    }
}

#[test]
fn pages_are_moved_in_a_thread_of_their_own_and_recorded() {
    let paged = run_with_pager(Then::End, Settings::default());
    assert_eq!(paged.summary.totals.intervals, 5);
    assert_eq!(paged.summary.totals.thread_moves, 1);
    assert!(
        paged.summary.notices.is_empty(),
        "{:?}",
        paged.summary.notices
    );
    assert_eq!(paged.applied.lock().unwrap().len(), ROUNDS);
    assert_eq!(paged.heard.lock().unwrap().outcomes.len(), ROUNDS);
    assert_eq!(paged.summary.totals.pages_moved, 3 * ROUNDS as u64);
    assert_eq!(
        paged.summary.totals.pages_failed[&PageFailure::Busy],
        2 * ROUNDS as u64
    );
    let seen = paged.lines.iter().filter_map(|line| match &line.record {
        Record::Paging(tick) => Some((tick.remote, tick.notices)),
        _ => None,
    });
    let (samples, notices): (Vec<u64>, Vec<u64>) = seen.unzip();
    assert_eq!(samples.iter().sum::<u64>(), ROUNDS as u64);
    assert_eq!(notices.iter().sum::<u64>(), ROUNDS as u64);
    assert_eq!(paged.heard.lock().unwrap().notices.len(), ROUNDS);
    // Who shares pages is asked once for each time that the paging is told what is placed.
    let told = paged.heard.lock().unwrap().placed.len() as u64;
    let shared = paged.lines.iter().filter_map(|line| match &line.record {
        Record::Snapshot(snapshot) => snapshot.processes[0].sharing.as_ref(),
        _ => None,
    });
    let shared: u64 = shared.map(|s| s.between(tid(1), tid(2))).sum();
    assert!(shared <= 7 * told, "{shared} in {told} intervals");
}

#[test]
fn a_paging_that_does_not_listen_moves_what_it_wants_when_threads_are_placed_and_nothing_is_sampled()
 {
    let (mut world, paging) = moving(fake(1), &Arc::default());
    let policy = policy_with(everyone_to(5), paging);
    let herd = Herd::new(&mut world, policy);
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.notices, Vec::<String>::new());
    assert!(summary.totals.pages_moved > 0);
}

#[test]
fn a_dry_run_moves_no_page_and_records_what_it_would_move() {
    let paged = run_with_pager(Then::End, dry());
    assert!(paged.applied.lock().unwrap().is_empty());
    // Orders beyond the bandwidth come back as not tried, dry or not.
    let heard = paged.heard.lock().unwrap();
    assert!(
        heard
            .outcomes
            .iter()
            .all(|o| (o.moved, o.not_tried) == (0, 4096))
    );
    let planned = paged.lines.iter().filter_map(|line| match &line.record {
        Record::Paging(tick) => Some((tick.plan.len(), tick.carried_out)),
        _ => None,
    });
    assert!(planned.clone().count() > 0);
    assert!(planned.into_iter().all(|tick| tick == (1, false)));
}

#[test]
fn a_pager_that_fails_ends_paging_with_a_message() {
    let paged = run_with_pager(Then::Fail, Settings::default());
    assert_eq!(paged.summary.totals.intervals, 5);
    assert_eq!(
        paged.summary.notices,
        [
            "pages are no longer moved: cannot observe the made-up machine: the ring buffer \
             is gone; threads still are"
        ]
    );
}

#[test]
fn a_pager_that_panics_ends_paging_with_a_message() {
    let paged = run_with_pager(Then::Panic, Settings::default());
    assert_eq!(paged.summary.totals.intervals, 5);
    assert_eq!(
        paged.summary.notices,
        [
            "pages are no longer moved: the paging thread panicked (out of pages), which is \
             a bug: please report it; threads still are"
        ]
    );
}

#[test]
fn a_stop_gives_threads_back_before_it_waits_for_pages_that_are_being_moved() {
    let applied: Arc<Mutex<Vec<PageOrder>>> = Arc::default();
    let (mut world, paging) = moving(fake(1), &applied);
    // The pager moves no page until the thread has been given back.
    let mut held = Some(applied.lock().unwrap());
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging)).watched(|line| {
        if let Record::Placing(placing) = &line.record
            && placing.affinities.iter().any(|order| order.core.is_none())
        {
            held.take();
        }
    });
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.totals.restored, Some(1));
    assert!(summary.totals.pages_moved > 0, "they are recorded");
    assert_eq!(summary.notices, Vec::<String>::new());
}

#[test]
fn a_stop_that_waits_for_pages_that_are_being_moved_says_so() {
    let applied: Arc<Mutex<Vec<PageOrder>>> = Arc::default();
    let (mut world, paging) = moving(fake(1), &applied);
    // The pager moves no page until it has been said.
    let mut held = Some(applied.lock().unwrap());
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging)).watched(|line| {
        if let Record::Notice(_) = &line.record {
            held.take();
        }
    });
    let summary = herd.run(&GO).unwrap();
    assert_eq!(
        summary.notices,
        ["the stop waits for the kernel, which is moving pages, for at most 10 s"]
    );
    assert!(summary.totals.pages_moved > 0, "they are recorded");
}
