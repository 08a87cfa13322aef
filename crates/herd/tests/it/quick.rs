//! A cadence of 10 ms: limits mean what they mean at 1 s, and the ledger keeps within bounds.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use numaherd_herd::governor::Guard;
use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::{Herd, Record, Settings, Summary};
use numaherd_policy::settings::CandidatesBy;
use numaherd_policy::{Policy, registry};
use numaherd_world::{Placement, Snapshot, Thread};
use tempfile::TempDir;

use crate::fake::{Fake, MIB, Quick, ToldPaging, machine, place, policy, policy_with, thread};
use crate::replay::played;

static GO: AtomicBool = AtomicBool::new(false);

fn brisk(told: impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static) -> Policy {
    Policy {
        placement: Box::new(Quick(10, told)),
        ..policy_with(|_| Vec::new(), ToldPaging::stay())
    }
}

/// Threads on node 0 of two nodes of four CPUs, whose instructions and use change from interval to
/// interval.
fn world(threads: u32, intervals: u64) -> Fake {
    let topology = machine(2, 4);
    let threads = (1..=threads).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads).scripted(|interval, world| {
        for thread in &mut world.threads {
            thread.cpu_share = (interval % 5) as f64 / 4.0;
            let counts = thread.counts.as_mut().unwrap();
            counts.instructions = 1_000 + interval;
            counts.uncore_busy_cycles = Some(200 + interval);
            counts.uncore_requests = Some(10);
        }
    });
    world.ends_after = intervals;
    world
}

/// Moves the first thread to and fro at these intervals.
fn at(intervals: &'static [u64]) -> impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static {
    move |snapshot| {
        if !intervals.contains(&snapshot.sequence) {
            return Vec::new();
        }
        let first = &snapshot.threads[0];
        vec![place(first, (first.place().0 + 4) % 8)]
    }
}

/// What is recorded: snapshots with their sequence and length in ms, and placings with theirs.
fn recorded(policy: Policy, settings: Settings, intervals: u64) -> (Vec<Record>, Summary) {
    let mut world = world(2, intervals);
    let mut records = Vec::new();
    let summary = Herd::new(&mut world, policy)
        .settings(settings)
        .watched(|line| records.push(line.record.clone()))
        .run(&GO)
        .unwrap();
    (records, summary)
}

fn snapshots(records: &[Record]) -> Vec<&Snapshot> {
    let snapshots = records.iter().filter_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    snapshots.collect()
}

#[test]
fn what_lies_between_two_records_is_in_the_later_one() {
    let (records, summary) = recorded(brisk(|_| Vec::new()), Settings::default(), 250);
    let ended: Vec<(u64, u64)> = snapshots(&records)
        .iter()
        .map(|s| ((s.time_ns + 1) / 1_000_000, s.interval_ns / 1_000_000))
        .collect();
    assert_eq!(ended, [(10, 10), (1010, 1000), (2010, 1000), (2500, 490)]);
    assert_eq!(summary.totals.intervals, 250);
    let sum = |of: fn(&Thread) -> u64| -> u64 {
        let threads = snapshots(&records).into_iter().flat_map(|s| &s.threads);
        threads.map(of).sum()
    };
    assert_eq!(
        sum(|t| t.counts.unwrap().instructions),
        summary.totals.counted.instructions
    );
    assert_eq!(
        sum(|t| t.counts.unwrap().uncore_busy_cycles.unwrap()),
        summary.totals.counted.uncore_busy_cycles
    );
    let second = &snapshots(&records)[1].threads[0];
    assert!((second.cpu_share - 0.5).abs() < 1e-9, "the mean");
}

#[test]
fn what_is_decided_is_recorded_with_the_interval_that_it_was_decided_on() {
    let (records, _) = recorded(brisk(at(&[30, 31, 120])), Settings::default(), 150);
    let mut seen = None;
    let mut decided = Vec::new();
    for record in &records {
        match record {
            Record::Snapshot(snapshot) => {
                seen = Some((snapshot.sequence, snapshot.interval_ns / 1_000_000));
            }
            Record::Placing(placing) if !placing.plan.is_empty() => {
                let (sequence, length_ms) = seen.unwrap();
                assert_eq!(placing.snapshot, sequence);
                decided.push((sequence, length_ms));
            }
            _ => {}
        }
    }
    assert_eq!(decided, [(30, 10), (31, 10), (120, 10)]);
    let sequences: Vec<u64> = snapshots(&records).iter().map(|s| s.sequence).collect();
    assert_eq!(sequences, [0, 29, 30, 31, 100, 119, 120, 149]);
}

#[test]
fn a_policy_that_insists_is_recorded_once_in_the_record_interval() {
    let insist = |snapshot: &Snapshot| vec![place(&snapshot.threads[0], 99)];
    let (records, summary) = recorded(brisk(insist), Settings::default(), 201);
    assert_eq!(
        summary.totals.refusals[&Guard::UnknownCpu],
        201,
        "all are counted"
    );
    let placings = records.iter().filter_map(|record| match record {
        Record::Placing(placing) if !placing.refusals.is_empty() => Some(placing.snapshot),
        _ => None,
    });
    assert_eq!(placings.collect::<Vec<_>>(), [0, 100, 200]);
}

#[test]
fn where_there_is_too_much_to_record_decisions_are_recorded_without_what_was_seen() {
    let mut world = world(100, 300);
    // The first thread goes to and fro in every interval.
    let mut records = Vec::new();
    let summary = Herd::new(
        &mut world,
        brisk(|snapshot| {
            let first = &snapshot.threads[0];
            vec![place(first, (first.place().0 + 4) % 8)]
        }),
    )
    .watched(|line| records.push(line.record.clone()))
    .run(&GO)
    .unwrap();
    let placings = records
        .iter()
        .filter(|record| matches!(record, Record::Placing(placing) if !placing.plan.is_empty()));
    // None is lost; the last refusals are of the rate, and told once a second.
    assert!(placings.count() as u64 >= summary.totals.thread_moves);
    let seen = snapshots(&records);
    let threads: usize = seen.iter().map(|s| s.threads.len()).sum();
    // A second's worth at once and three seconds'; two snapshots in debt, and the last one.
    assert!(threads <= 4 * 800 + 3 * 100, "{threads}");
    let instructions = seen.iter().flat_map(|s| &s.threads);
    let instructions: u64 = instructions.map(|t| t.counts.unwrap().instructions).sum();
    assert_eq!(
        instructions, summary.totals.counted.instructions,
        "nothing counted is lost"
    );
    let lengths: u64 = seen.iter().map(|s| s.interval_ns).sum();
    assert_eq!(lengths, 3_000_000_000, "no time is left out");
}

#[test]
fn every_interval_is_recorded_at_the_usual_cadence_or_when_that_is_set() {
    let usual = recorded(policy(|_| Vec::new()), Settings::default(), 20).0;
    assert_eq!(snapshots(&usual).len(), 20);
    let all = Settings {
        record_interval_ms: 0,
        ..Settings::default()
    };
    let all = recorded(brisk(|_| Vec::new()), all, 20).0;
    assert_eq!(snapshots(&all).len(), 20);
}

#[test]
fn a_replay_sees_what_was_recorded_and_decides_there_as_it_did() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let writer = Writer::create(&path, "numaherd test", None, 100 * MIB).unwrap();
    let decide = || at(&[30, 31, 120]);
    let mut world = world(2, 150);
    Herd::new(&mut world, brisk(decide()))
        .ledger(writer)
        .run(&GO)
        .unwrap();
    let plans = |lines: &[numaherd_herd::Line]| -> Vec<(u64, Vec<Placement>)> {
        let placings = lines.iter().filter_map(|line| match &line.record {
            Record::Placing(placing) if !placing.plan.is_empty() => {
                Some((placing.snapshot, placing.plan.placements.clone()))
            }
            _ => None,
        });
        placings.collect()
    };
    let recorded = Ledger::read(&path).unwrap();
    assert_eq!(plans(&recorded.lines).len(), 3);

    let (start, mut world) = played(&recorded);
    let settings = Settings {
        dry_run: true,
        ..start.settings
    };
    let mut replayed = Vec::new();
    Herd::new(&mut world, brisk(decide()))
        .settings(settings)
        .watched(|line| replayed.push(line.clone()))
        .run(&GO)
        .unwrap();
    assert_eq!(plans(&replayed), plans(&recorded.lines));
}

/// What a placement is told to do.
type Told = Box<dyn FnMut(&Snapshot) -> Vec<Placement> + Send>;

/// Moves a thread to node 1 after 9 s, where it is half as fast; when the move was undone, in s.
fn undone_at(policy: fn(Told) -> Policy) -> f64 {
    let topology = machine(2, 4);
    let threads = vec![thread(1, 1, 0, &topology), thread(2, 2, 2, &topology)];
    let mut world = Fake::new(topology, threads).scripted(|_, world| {
        let away = world.thread(1).cpu.0 >= 4;
        let counts = world.thread(1).counts.as_mut().unwrap();
        counts.instructions = if away { 500 } else { 1_000 };
    });
    let mut moved = false;
    let once = move |snapshot: &Snapshot| {
        if moved || snapshot.time_ns < 9_500_000_000 {
            return Vec::new();
        }
        moved = true;
        vec![place(&snapshot.threads[0], 5)]
    };
    let settings = Settings {
        length_ms: Some(30_000),
        ..Settings::default()
    };
    let undone = Arc::new(Mutex::new(None));
    let seen = undone.clone();
    let summary = Herd::new(&mut world, policy(Box::new(once)))
        .settings(settings)
        .watched(move |line| {
            if let Record::Placing(placing) = &line.record
                && !placing.undone.is_empty()
            {
                *seen.lock().unwrap() = Some(line.time_ns as f64 / 1e9);
            }
        })
        .run(&GO)
        .unwrap();
    assert_eq!(summary.totals.undone, 1);
    undone.lock().unwrap().unwrap()
}

#[test]
fn a_move_is_judged_after_the_same_time_at_any_cadence() {
    assert_eq!(undone_at(|told| policy(told)), 14.5);
    assert_eq!(undone_at(|told| brisk(told)), 14.5);
}

/// Moves a thread to and fro every so many intervals of 10 ms for two minutes.
fn exploring(every: u64) -> Summary {
    let topology = machine(2, 4);
    let threads = vec![thread(1, 1, 0, &topology)];
    let mut world = Fake::new(topology, threads).scripted(|_, world| {
        // Node 1 is bad for it.
        let away = world.thread(1).cpu.0 >= 4;
        let counts = world.thread(1).counts.as_mut().unwrap();
        counts.instructions = if away { 400 } else { 1_000 };
    });
    let explore = move |snapshot: &Snapshot| {
        if snapshot.sequence % every != every - 1 {
            return Vec::new();
        }
        let thread = &snapshot.threads[0];
        vec![place(thread, (thread.place().0 + 4) % 8)]
    };
    let settings = Settings {
        length_ms: Some(120_000),
        ..Settings::default()
    };
    Herd::new(&mut world, brisk(explore))
        .settings(settings)
        .run(&GO)
        .unwrap()
}

#[test]
fn a_policy_that_tries_nodes_out_by_design_is_neither_frozen_nor_undone() {
    // As often as BRM's Algorithm 1 can on average, 12.2 decisions apart, all the time.
    let summary = exploring(13);
    assert_eq!(summary.totals.refusals.get(&Guard::Bounce), None);
    assert_eq!(summary.totals.refusals.get(&Guard::Worse), None);
    assert_eq!(
        (summary.totals.undone, summary.totals.thread_moves),
        (0, 12_000 / 13)
    );
}

#[test]
fn brm_goes_its_way_on_penalties_that_say_nothing() {
    let mut world = world(4, u64::MAX);
    let mut chance = 1u64;
    world = world.scripted(move |_, world| {
        for thread in &mut world.threads {
            // Knuth's generator (TAOCP 3.3.4): the same on every node, and never the same.
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let counts = thread.counts.as_mut().unwrap();
            counts.uncore_requests = Some(100_000);
            counts.uncore_busy_cycles = Some(3_000_000 + (chance >> 44));
        }
    });
    let mut of_policy = numaherd_policy::Settings::default();
    of_policy.brm.candidates = CandidatesBy::All;
    // As printed: any difference is a reason to go.
    of_policy.brm.least_gain = 0.0;
    let brm = registry::build("brm", &of_policy).unwrap();
    let settings = Settings {
        length_ms: Some(120_000),
        ..Settings::default()
    };
    let summary = Herd::new(&mut world, brm)
        .settings(settings)
        .run(&GO)
        .unwrap();
    assert_eq!(summary.totals.intervals, 12_000);
    assert!(
        summary.totals.thread_moves > 100,
        "{}",
        summary.totals.thread_moves
    );
    let hindered = [Guard::Bounce, Guard::Worse, Guard::Rate];
    let refused: Vec<_> = hindered
        .iter()
        .filter_map(|g| summary.totals.refusals.get(g))
        .collect();
    assert!(refused.is_empty(), "{:?}", summary.totals.refusals);
}

#[test]
fn one_that_does_nothing_but_go_to_and_fro_is_frozen() {
    let summary = exploring(2);
    assert!(summary.totals.refusals[&Guard::Bounce] > 0);
    // 500 in the first minute at most, and none while it is frozen for another.
    assert!(
        summary.totals.thread_moves <= 2 * 500,
        "{}",
        summary.totals.thread_moves
    );
}

#[test]
fn the_limit_of_bounces_follows_the_placements_own_cadence_and_not_the_users() {
    let of = |settings: Settings, policy: &Policy| {
        let used = settings.resolved(&policy.placement.needs().own.into());
        used.limits.thread_bounce_limit
    };
    let (slow, quick) = (policy(|_| Vec::new()), brisk(|_| Vec::new()));
    assert_eq!(of(Settings::default(), &slow), Some(5));
    assert_eq!(of(Settings::default(), &quick), Some(500));
    let hurried = Settings {
        placement_interval_ms: Some(10),
        ..Settings::default()
    };
    assert_eq!(of(hurried, &slow), Some(5));
    let mut strict = Settings::default();
    strict.limits.thread_bounce_limit = Some(7);
    assert_eq!(of(strict, &quick), Some(7));
    let mut lax = Settings::default();
    lax.limits.bounce_limit = u32::MAX;
    assert_eq!(of(lax, &quick), Some(u32::MAX));
}

#[test]
fn moves_per_second_mean_a_second_at_any_cadence() {
    let run = |policy: Policy| {
        let mut world = world(4, u64::MAX);
        let mut settings = Settings {
            length_ms: Some(20_000),
            ..Settings::default()
        };
        settings.limits.moves_per_second = 2.0;
        settings.limits.bounce_limit = u32::MAX;
        settings.limits.worse.undo = false;
        Herd::new(&mut world, policy)
            .settings(settings)
            .run(&GO)
            .unwrap()
            .totals
            .thread_moves
    };
    let everyone = |snapshot: &Snapshot| -> Vec<Placement> {
        let threads = snapshot.threads.iter();
        threads.map(|t| place(t, (t.place().0 + 4) % 8)).collect()
    };
    // Two at once, and two a second from the first snapshot on.
    assert_eq!(run(policy(everyone)), 2 + 2 * 19 + 1);
    assert_eq!(run(brisk(everyone)), 2 + 2 * 20 - 1);
}
