//! What is asked of a running herd holds for its pages too, in whichever thread they are looked after.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use numaherd_herd::control::pair;
use numaherd_herd::{Guard, Herd, Limits, Line, Record, Request, Settings};
use numaherd_world::{PageOrder, Pages};

use crate::asking::{asked, change, fake, ran};
use crate::fake::{
    Fake, FakePager, Heard, Round, ToldPaging, all_pages, everyone_to, policy, policy_with, remote,
    window,
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
