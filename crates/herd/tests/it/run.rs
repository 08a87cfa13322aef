//! The loop: what it does, and in what order.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::needs::Alternative;
use numaherd_herd::{AffinityScope, Ending, Herd, Journal, Limits, Line, Record, Settings};
use numaherd_policy::{Needs, Place, Policy, Random};
use numaherd_topology::{NodeId, Topology};
use numaherd_world::{PageOutcome, Placement, Signal, SignalReport, SignalState, Snapshot};
use tempfile::TempDir;

use crate::fake::{
    Fake, MIB, Quick, Told, ToldPaging, all_pages, cpus, everyone_to, machine, moved,
    moves_when_placed, moving, pid, place, policy, policy_with, thread, tid, window,
};

pub static GO: AtomicBool = AtomicBool::new(false);

pub fn fake(threads: u32) -> Fake {
    let topology = machine(2, 4);
    let threads = (1..=threads).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads);
    world.ends_after = 5;
    world
}

pub fn journal(directory: &TempDir) -> Journal {
    Journal::open(&journal_path(directory), "this boot", "the test").unwrap()
}

pub fn journal_path(directory: &TempDir) -> PathBuf {
    directory.path().join("journal")
}

pub fn dry() -> Settings {
    Settings {
        dry_run: true,
        ..Settings::default()
    }
}

#[test]
fn threads_move_and_are_given_back_at_the_end() {
    let mut world = fake(3);
    let found = world.masks();
    let herd = Herd::new(&mut world, policy(everyone_to(5)));
    let summary = herd.run(&GO).unwrap();
    assert_eq!(
        (
            summary.totals.thread_moves,
            summary.totals.planned_thread_moves
        ),
        (3, 3)
    );
    assert_eq!(summary.totals.restored, Some(3));
    assert_eq!(summary.totals.intervals, 5);
    assert_eq!(summary.totals.duration_ns, 4_500_000_000);
    assert_eq!(summary.totals.counted.local_access_ratio(), Some(0.75));
    assert_eq!(summary.totals.counted.miss_rate(), Some(1.0));
    assert_eq!(world.masks(), found);
    let masks = &world.applied[0].affinities;
    assert!(masks.iter().all(|order| *order.cpus == cpus("4-7")));
}

#[test]
fn a_thread_that_leaves_the_selection_is_given_back_unless_someone_changed_its_mask() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(3).scripted(|interval, world| {
        if interval == 2 {
            world.unseen = vec![tid(1), tid(2)];
            world.thread(2).affinity = Arc::new(cpus("5"));
        }
    });
    let journal = Some(journal(&directory));
    let placing = policy(everyone_to(5));
    let summary = Herd::new(&mut world, placing)
        .journal(journal)
        .run(&GO)
        .unwrap();
    let left = &world.applied[1].affinities;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].thread, left[0].core), (tid(1), None));
    assert_eq!(world.masks()[&tid(1)], cpus("0-7"));
    assert_eq!(world.masks()[&tid(2)], cpus("5"));
    assert_eq!(
        summary.notices,
        [
            "someone else has changed the affinity of thread 2 (t2) in the meantime; it is left \
             unchanged"
        ]
    );
    assert!(!journal_path(&directory).exists(), "nothing is owed");
}

#[test]
fn the_first_decision_does_not_wait_for_a_whole_interval() {
    let settings = Settings::default();
    let lengths = [0, 1, 2].map(|seen| settings.placement_interval(seen).as_millis());
    assert_eq!(lengths, [500, 1000, 1000]);
    let quick = Settings {
        placement_interval_ms: Some(100),
        ..Settings::default()
    };
    assert_eq!(quick.placement_interval(0).as_millis(), 100);
}

/// Places nothing, ten times in 100 ms.
fn brisk() -> Quick<fn(&Snapshot) -> Vec<Placement>> {
    Quick(10, |_| Vec::new())
}

#[test]
fn cadence_and_stray_are_the_users_or_else_the_placements_or_else_the_usual() {
    let of = |settings: Settings, placement: &dyn Place| {
        let used = settings.resolved(&placement.needs().own.into());
        (used.placement_interval_ms, used.limits.scope)
    };
    let usual = Told(|_: &Snapshot| Vec::new());
    assert_eq!(
        of(Settings::default(), &usual),
        (Some(1000), Some(AffinityScope::Domain))
    );
    assert_eq!(
        of(Settings::default(), &brisk()),
        (Some(10), Some(AffinityScope::Node))
    );
    let limits = Limits {
        scope: Some(AffinityScope::Core),
        ..Limits::default()
    };
    let told = Settings {
        placement_interval_ms: Some(250),
        limits,
        ..Settings::default()
    };
    assert_eq!(of(told, &brisk()), (Some(250), Some(AffinityScope::Core)));
}

#[test]
fn a_placement_is_asked_at_its_own_cadence_and_the_first_interval_is_no_longer() {
    let mut world = fake(1);
    world.ends_after = 3;
    let brisk = Policy {
        placement: Box::new(brisk()),
        ..policy(everyone_to(5))
    };
    let mut times = Vec::new();
    let mut used = None;
    let settings = Settings {
        record_interval_ms: 0,
        ..Settings::default()
    };
    Herd::new(&mut world, brisk)
        .settings(settings)
        .watched(|line| match &line.record {
            Record::Start(start) => used = Some(start.settings.clone()),
            Record::Snapshot(snapshot) => times.push(snapshot.time_ns),
            _ => {}
        })
        .run(&GO)
        .unwrap();
    assert_eq!(times, [10_000_000, 20_000_000, 30_000_000]);
    let used = used.unwrap();
    assert_eq!(used.placement_interval_ms, Some(10), "as used");
    assert_eq!(used.limits.scope, Some(AffinityScope::Node), "as used");
}

#[test]
fn a_run_of_a_set_length_ends_to_the_millisecond() {
    let times = |length_ms| {
        let mut world = fake(1);
        let settings = Settings {
            length_ms: Some(length_ms),
            ..Settings::default()
        };
        let mut times = Vec::new();
        let summary = Herd::new(&mut world, policy(everyone_to(5)))
            .settings(settings)
            .watched(|line| {
                if let Record::Snapshot(snapshot) = &line.record {
                    times.push(snapshot.time_ns / 1_000_000);
                }
            })
            .run(&GO)
            .unwrap();
        assert_eq!(summary.ending, Ending::Length);
        times
    };
    assert_eq!(times(200), [200]);
    assert_eq!(times(2000), [500, 1500, 2000]);
    assert_eq!(
        times(2550),
        [500, 1500, 2500],
        "what is too short is not begun"
    );
}

#[test]
fn every_placing_is_drawn_from_a_snapshot_that_is_recorded() {
    let mut world = fake(2);
    let mut recorded = Vec::new();
    let mut drawn_from = Vec::new();
    Herd::new(&mut world, policy(everyone_to(5)))
        .watched(|line| match &line.record {
            Record::Snapshot(snapshot) => recorded.push(snapshot.sequence),
            Record::Placing(placing) => drawn_from.push(placing.snapshot),
            _ => {}
        })
        .run(&GO)
        .unwrap();
    assert_eq!(recorded, [0, 1, 2, 3, 4]);
    assert_eq!(drawn_from, [0, 1, 2, 3, 4, 4], "the last gives back");
}

#[test]
fn a_dry_run_asks_the_world_for_nothing_and_records_what_it_would_do() {
    let mut world = fake(3);
    let mut lines: Vec<Line> = Vec::new();
    let herd = Herd::new(&mut world, policy(everyone_to(5))).settings(dry());
    let summary = herd
        .watched(|line| lines.push(line.clone()))
        .run(&GO)
        .unwrap();
    assert!(world.applied.is_empty());
    assert_eq!(
        (summary.totals.thread_moves, summary.totals.restored),
        (0, Some(0))
    );
    assert_eq!(
        summary.totals.planned_thread_moves,
        3 * summary.totals.intervals,
        "they never go, and are wanted elsewhere in each interval"
    );
    let placing = lines.iter().find_map(|line| match &line.record {
        Record::Placing(placing) => Some(placing),
        _ => None,
    });
    let placing = placing.unwrap();
    assert!(!placing.carried_out);
    assert_eq!(placing.affinities.len(), 3);
}

#[test]
fn the_first_thing_recorded_is_how_it_began_and_the_last_how_it_ended() {
    let mut world = fake(1);
    let mut lines: Vec<Line> = Vec::new();
    let settings = Settings {
        seed: 42,
        intervals: Some(2),
        ..Settings::default()
    };
    let herd = Herd::new(&mut world, policy(everyone_to(5))).settings(settings.clone());
    let summary = herd
        .watched(|line| lines.push(line.clone()))
        .run(&GO)
        .unwrap();
    let Record::Start(start) = &lines[0].record else {
        panic!("{:?}", lines[0]);
    };
    assert_eq!((start.policy.as_str(), start.seed), ("as-told", 42));
    let used = settings.resolved(&Told(|_: &Snapshot| Vec::new()).needs().own.into());
    assert_eq!(start.settings, used);
    assert_eq!(start.topology.nodes().len(), 2);
    assert_eq!(start.signals.len(), Signal::ALL.len());
    assert_eq!(summary.ending, Ending::Intervals);
    assert_eq!(lines.last().unwrap().record, Record::End(summary));
    let sequence: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
    assert_eq!(sequence, (0..lines.len() as u64).collect::<Vec<_>>());
}

#[test]
fn the_paging_is_told_after_the_placement_who_is_where() {
    let mut world = fake(2);
    world.ends_after = 2;
    let paging = ToldPaging::stay();
    let heard = paging.heard.clone();
    let one = |snapshot: &Snapshot| match snapshot.sequence {
        0 => vec![place(&snapshot.threads[1], 5)],
        _ => Vec::new(),
    };
    let herd = Herd::new(&mut world, policy_with(one, paging));
    herd.run(&GO).unwrap();
    let placed = |moved_from| numaherd_policy::PlacedThread {
        thread: tid(2),
        process: pid(2),
        node: NodeId(1),
        moved_from,
    };
    assert_eq!(
        heard.lock().unwrap().placed,
        [vec![placed(Some(NodeId(0)))], vec![placed(None)]]
    );
}

#[test]
fn a_dry_run_counts_the_pages_that_it_would_ask_for() {
    let mut world = fake(2);
    world.ends_after = 1;
    let paging = ToldPaging {
        on_placed: vec![
            all_pages(&world.threads[0], 1),
            window(&world.threads[1], 0, 256, 1),
            window(&world.threads[1], 0, 256, 9),
        ],
        ..ToldPaging::stay()
    };
    let placing = policy_with(everyone_to(5), paging);
    let summary = Herd::new(&mut world, placing)
        .settings(dry())
        .run(&GO)
        .unwrap();
    assert_eq!(summary.totals.pages_moved, 0);
    // All 4096 pages of the first process are on node 0; there is no node 9.
    assert_eq!(summary.totals.planned_pages, 4096 + 256);
}

/// A placement that hears what became of page orders.
struct Hearing(Arc<Mutex<Vec<PageOutcome>>>);

impl Place for Hearing {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.0.lock().unwrap().extend_from_slice(outcomes);
    }
}

#[test]
fn a_placement_hears_what_became_of_the_orders_of_the_paging() {
    for has_pager in [false, true] {
        let world = fake(4);
        let order = window(&world.threads[0], 0, 1, 1);
        let (mut world, paging) = match has_pager {
            true => moving(world, &Arc::default()),
            false => {
                let paging = moves_when_placed(&world, 0);
                (world, paging)
            }
        };
        let heard = Arc::default();
        let policy = Policy {
            placement: Box::new(Hearing(Arc::clone(&heard))),
            ..policy_with(|_| Vec::new(), paging)
        };
        Herd::new(&mut world, policy).run(&GO).unwrap();
        let heard = heard.lock().unwrap();
        let is_of_order = |outcome: &PageOutcome| outcome.pages == order.pages;
        assert!(
            !heard.is_empty() && heard.iter().all(is_of_order),
            "{has_pager}: {heard:?}"
        );
    }
}

#[test]
fn without_a_pager_pages_are_moved_in_the_loop() {
    let mut world = fake(1);
    world.ends_after = 1;
    let order = all_pages(&world.threads[0], 1);
    let paging = ToldPaging {
        on_placed: vec![order.clone()],
        ..ToldPaging::stay()
    };
    let heard = paging.heard.clone();
    let herd = Herd::new(&mut world, policy_with(everyone_to(5), paging));
    let summary = herd.run(&GO).unwrap();
    assert_eq!(summary.totals.pages_moved, 1);
    assert_eq!(heard.lock().unwrap().outcomes, [moved(&order, 1)]);
    let order_of_things: Vec<(usize, usize)> = world
        .applied
        .iter()
        .map(|orders| (orders.affinities.len(), orders.pages.len()))
        .collect();
    assert_eq!(
        order_of_things,
        [(1, 0), (0, 1), (1, 0)],
        "threads, pages, release"
    );
}

#[test]
fn the_same_seed_gives_the_same_ledger() {
    let run = || {
        let mut world = fake(4);
        let mut lines: Vec<String> = Vec::new();
        let herd = Herd::new(&mut world, policy(everyone_to(6)));
        herd.watched(|line| lines.push(format!("{line:?}")))
            .run(&GO)
            .unwrap();
        lines
    };
    assert_eq!(run(), run());
}

#[test]
fn a_policy_whose_signals_are_missing_is_refused_with_what_would_help() {
    let mut world = fake(1);
    world.signals = Signal::ALL
        .into_iter()
        .map(|signal| SignalReport {
            signal,
            state: SignalState::Missing {
                reason: "perf_event_open: EACCES (perf_event_paranoid is 4).".to_owned(),
                remedy: "set kernel.perf_event_paranoid to 1, or grant CAP_PERFMON".to_owned(),
            },
        })
        .collect();
    let others = [("n-mass", vec![Signal::MissRate]), ("linux", Vec::new())];
    let others = others.map(|(name, needs)| Alternative {
        name: name.to_owned(),
        needs,
    });
    let error = Herd::new(&mut world, policy(everyone_to(5)))
        .or_else(others.to_vec())
        .run(&GO)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the policy as-told needs the signal miss rate, which is not available here: \
         perf_event_open: EACCES (perf_event_paranoid is 4). Remedy: set kernel.perf_event_paranoid to 1, or grant \
         CAP_PERFMON.\nWithout it, the policy linux works here."
    );
    assert!(world.applied.is_empty());
}

#[test]
fn a_run_is_read_back_as_it_was_recorded() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let writer = Writer::create(&path, "numaherd test", None, 100 * MIB).unwrap();
    let mut world = fake(3);
    let mut lines: Vec<Line> = Vec::new();
    let herd = Herd::new(&mut world, policy(everyone_to(5))).ledger(writer);
    herd.watched(|line| lines.push(line.clone()))
        .run(&GO)
        .unwrap();
    let ledger = Ledger::read(&path).unwrap();
    assert!(ledger.damage.is_none());
    assert_eq!(ledger.lines, lines);
}

// The paging thread.
