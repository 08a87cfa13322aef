//! What is asked of a running herd holds for its pages too, in whichever thread they are looked after.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use numaherd_herd::control::pair;
use numaherd_herd::{Guard, Herd, Limits, Line, Record, Request, Settings};
use numaherd_world::{PageOrder, Pages};

use crate::asking::{asked, change, fake, ran};
use crate::fake::{
    Fake, FakePager, Heard, Round, ToldPaging, all_pages, everyone_to, moves_when_placed, moving,
    policy, policy_with, remote, window,
};
use crate::in_step::{Call, Stepped, quick};

fn windows(world: &Fake, first: u64) -> ToldPaging {
    ToldPaging {
        on_samples: vec![window(&world.threads[0], first, 1, 1)],
        ..ToldPaging::stay()
    }
}

#[test]
fn a_pause_quiets_the_paging_thread_and_a_change_replaces_its_paging() {
    let (control, requests) = pair();
    let rounds = Arc::new(AtomicUsize::new(0));
    let applied: Arc<Mutex<Vec<PageOrder>>> = Arc::default();
    let counts: Arc<Mutex<BTreeMap<u64, usize>>> = Arc::default();
    let mut world = fake();
    let later = policy_with(everyone_to(5), windows(&world, 9000));
    let mut later = Some(later);
    let (seen, moved, noted) = (rounds.clone(), applied.clone(), counts.clone());
    world = world.scripted(move |interval, _| {
        // Made-up time is over in no time; the pager's thread needs some rounds. While it is paused it has none.
        let is_paused = (4..=5).contains(&interval);
        let until = seen.load(Ordering::SeqCst) + if is_paused { 0 } else { 5 };
        while seen.load(Ordering::SeqCst) < until {
            std::thread::yield_now();
        }
        let so_far = moved.lock().unwrap().len();
        noted.lock().unwrap().insert(interval, so_far);
        match interval {
            3 => control.tell(Request::Pause { give_back: false }).unwrap(),
            5 => {
                let later = later.take();
                control.tell(change(later, None)).unwrap();
                control.tell(Request::Resume).unwrap();
            }
            _ => {}
        }
    });
    let earlier = windows(&world, 100);
    world.pager = Some(Box::new(FakePager::new(
        move || {
            std::thread::yield_now();
            Round::Sees(
                vec![remote(rounds.fetch_add(1, Ordering::SeqCst))],
                Vec::new(),
            )
        },
        &applied,
    )));
    let placing = policy_with(everyone_to(5), earlier);
    let settings = Settings {
        limits: Limits {
            bounce_limit: 1_000_000,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let ran = ran(Herd::new(&mut world, placing)
        .settings(settings)
        .controlled(requests));
    assert_eq!(ran.refusals(), Vec::<&str>::new());
    let counts = counts.lock().unwrap();
    assert!(counts[&2] < counts[&3], "{counts:?}");
    assert_eq!(counts[&4], counts[&5], "{counts:?}");
    assert!(counts[&5] < counts[&7], "{counts:?}");
    let applied = applied.lock().unwrap();
    let later_window = Pages::Window {
        first: 9000,
        count: 1,
    };
    let of_later = |order: &PageOrder| order.pages == later_window;
    let first = applied.iter().position(of_later).unwrap();
    assert!(applied[first..].iter().all(of_later), "none of before");
    // In the ledger nothing is done between pause and resumption.
    let between: Vec<&Line> = ran
        .lines
        .iter()
        .skip_while(|line| !matches!(line.record, Record::Control(_)))
        .skip(1)
        .take_while(|line| !matches!(line.record, Record::Control(_)))
        .collect();
    assert!(
        between
            .iter()
            .all(|line| matches!(line.record, Record::Snapshot(_))),
        "{between:?}"
    );
}

#[test]
fn a_pause_gives_threads_back_before_it_waits_for_pages_that_are_being_moved() {
    let (control, requests) = pair();
    let applied: Arc<Mutex<Vec<PageOrder>>> = Arc::default();
    let (mut world, paging) = moving(fake(), &applied);
    // The pager moves no page until the threads have been given back.
    let mut held = Some(applied.lock().unwrap());
    let mut lines = Vec::new();
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging));
    let herd = herd.controlled(requests).watched(|line| {
        match &line.record {
            Record::Snapshot(seen) if seen.sequence == 3 => {
                control.tell(Request::Pause { give_back: true }).unwrap();
            }
            Record::Placing(placing)
                if placing.affinities.iter().any(|order| order.core.is_none()) =>
            {
                held.take();
            }
            _ => {}
        }
        lines.push(line.clone());
    });
    let summary = herd.run(&AtomicBool::new(false)).unwrap();
    assert!(summary.totals.pages_moved > 0);
    assert_eq!(summary.notices, Vec::<String>::new());
    let at = |is: fn(&Record) -> bool| lines.iter().position(|line| is(&line.record)).unwrap();
    let moved = at(|record| matches!(record, Record::Paging(_)));
    let paused = at(|record| matches!(record, Record::Control(_)));
    assert!(moved < paused, "nothing is done after it");
}

#[test]
fn a_change_does_not_wait_for_pages_that_are_being_moved() {
    let (control, requests) = pair();
    let applied: Arc<Mutex<Vec<PageOrder>>> = Arc::default();
    let (world, paging) = moving(fake(), &applied);
    let later = moves_when_placed(&world, 9000);
    let (earlier_heard, later_heard) = (paging.heard.clone(), later.heard.clone());
    let mut world = world.scripted(move |interval, _| {
        let heard = if interval < 6 {
            &earlier_heard
        } else {
            &later_heard
        };
        while [3, 6].contains(&interval) && heard.lock().unwrap().placed.is_empty() {
            std::thread::yield_now();
        }
    });
    let mut later = Some(policy_with(everyone_to(5), later));
    // The pager moves no page until the change has been made.
    let mut held = Some(applied.lock().unwrap());
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging));
    let herd = herd
        .controlled(requests)
        .watched(|line| match &line.record {
            Record::Snapshot(seen) if seen.sequence == 3 => {
                control.tell(change(later.take(), None)).unwrap();
            }
            Record::Control(_) => {
                held.take();
            }
            _ => {}
        });
    herd.run(&AtomicBool::new(false)).unwrap();
    assert!(held.is_none());
    let applied = applied.lock().unwrap();
    let is_of_later = |order: &PageOrder| matches!(order.pages, Pages::Window { first: 9000, .. });
    assert!(applied.iter().any(|order| !is_of_later(order)));
    assert!(applied.is_sorted_by_key(is_of_later), "none of before");
}

#[test]
fn page_orders_that_wait_when_another_policy_takes_over_are_refused() {
    let mut world = fake();
    let paging = ToldPaging {
        on_placed: vec![all_pages(&world.threads[0], 1)],
        ..ToldPaging::stay()
    };
    let heard: Arc<Mutex<Heard>> = paging.heard.clone();
    let other = policy(everyone_to(5));
    let (scripted, requests) = asked(world, vec![(2, change(Some(other), None))]);
    world = scripted;
    let limits = Limits {
        pages_mib_per_s: 0.0,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::default()
    };
    let placing = policy_with(everyone_to(5), paging);
    let ran = ran(Herd::new(&mut world, placing)
        .settings(settings)
        .controlled(requests));
    // The first by the second, the second by the change.
    assert_eq!(ran.summary.totals.refusals[&Guard::Superseded], 2);
    let asked = heard.lock().unwrap().placed.len();
    assert_eq!(asked, 2, "the former paging is told nothing more");
    let why = ran.lines.iter().find_map(|line| match &line.record {
        Record::Paging(tick) => tick
            .refusals
            .iter()
            .find(|refusal| refusal.why == "another policy decides now"),
        _ => None,
    });
    assert!(why.is_some());
}

#[test]
fn a_pause_quiets_a_paging_in_step_and_its_time_passes_without_samples() {
    let (control, requests) = pair();
    let mut world = Stepped::new();
    let settings = Settings {
        intervals: Some(5),
        ..quick()
    };
    let paging = policy_with(|_| Vec::new(), ToldPaging::stay());
    Herd::new(&mut world, paging)
        .settings(settings)
        // Heard when the interval after is over.
        .watched(|line| match &line.record {
            Record::Snapshot(seen) if seen.sequence == 0 => {
                control.tell(Request::Pause { give_back: false }).unwrap();
            }
            Record::Snapshot(seen) if seen.sequence == 2 => {
                control.tell(Request::Resume).unwrap();
            }
            _ => {}
        })
        .controlled(requests)
        .run(&AtomicBool::new(false))
        .unwrap();
    let calls = world.calls();
    let listening = [
        Call::Sampled(30),
        Call::Samples,
        Call::Sampled(30),
        Call::Samples,
        Call::Sampled(30),
        Call::Samples,
        Call::Sampled(10),
        Call::Samples,
        Call::Observed,
    ];
    let paused = [Call::Ran(100), Call::Observed];
    let expected = [&listening[..], &listening, &paused, &paused, &listening];
    assert_eq!(calls, expected.concat());
}
