//! What is counted from the lines of a ledger without an end is what the herd itself counted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use numaherd_herd::ledger::{Ledger, PagingTick, Writer};
use numaherd_herd::{Herd, Record, Settings, Totals};
use numaherd_policy::registry;
use numaherd_show::explain::Choice;
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{
    AffinityOutcome, AffinityResult, NodeState, Orders, Outcome, PageOutcome, Pager, Pages,
    Progress, Signal, SignalReport, SignalState, Snapshot, Thread, World, WorldError,
};

use crate::made::*;

/// A machine with eight threads on two CPUs that does as it is told, but for every fifth order.
pub struct Obedient {
    topology: Arc<Topology>,
    signals: Vec<SignalReport>,
    threads: Vec<Thread>,
    seconds: u64,
    orders: usize,
}

impl Obedient {
    pub fn new() -> Self {
        let report = |signal| SignalReport {
            signal,
            state: SignalState::Measured {
                source: "the test".to_owned(),
                caveat: None,
            },
        };
        let rate = |n: u32| if n.is_multiple_of(2) { 40.0 } else { 0.5 };
        Self {
            topology: Arc::new(topology()),
            signals: Signal::ALL.into_iter().map(report).collect(),
            threads: (0..8)
                .map(|n| thread(900 + n, 900, "crew", n % 2, 900, rate(n), 0.5))
                .collect(),
            seconds: 0,
            orders: 0,
        }
    }
}

impl World for Obedient {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn run_for(&mut self, _: Duration) -> Progress {
        self.seconds += 1;
        if self.seconds > 12 {
            Progress::Ended
        } else {
            Progress::Ran
        }
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let node = |node: &numaherd_topology::Node| NodeState {
            id: node.id,
            total_bytes: node.memory_bytes,
            free_bytes: node.memory_bytes / 2,
            old_file_bytes: 0,
            busy_cpus: None,
        };
        Ok(Snapshot {
            sequence: self.seconds - 1,
            time_ns: self.seconds * SECOND,
            interval_ns: SECOND,
            page_bytes: 4096,
            online: cpus("0-7"),
            threads: self.threads.clone(),
            processes: vec![process(900, "crew", &[(0, 1_000)])],
            nodes: self.topology.nodes().iter().map(node).collect(),
            gaps: Vec::new(),
        })
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        None
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let mut outcome = Outcome::default();
        for order in &orders.affinities {
            self.orders += 1;
            let thread = self
                .threads
                .iter_mut()
                .find(|t| t.id == order.thread)
                .unwrap();
            let fails = self.orders.is_multiple_of(5);
            if !fails {
                thread.affinity = order.cpus.clone();
                thread.assigned = order.core;
                if !order.cpus.contains(thread.cpu) {
                    thread.cpu = order.core.or(order.cpus.first()).unwrap_or(CpuId(0));
                }
            }
            let result = if fails {
                AffinityResult::Failed {
                    error: "the fifth".to_owned(),
                }
            } else {
                AffinityResult::Done
            };
            outcome.affinities.push(AffinityOutcome {
                thread: order.thread,
                result,
            });
        }
        for order in &orders.pages {
            let pages = match order.pages {
                Pages::All | Pages::OfKind { .. } => 1_000,
                Pages::Window { count, .. } => count,
            };
            outcome.pages.push(PageOutcome {
                failed: [(numaherd_world::PageFailure::Busy, 10)].into(),
                ..page_outcome(order, pages - 10)
            });
        }
        outcome
    }
}

fn counted_equals_summary(policy: &str, settings: Settings) -> Totals {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut world = Obedient::new();
    let policy = registry::build(policy, &numaherd_policy::Settings::default()).unwrap();
    let writer = Writer::create(&path, "test", None, 1 << 30).unwrap();
    let herd = Herd::new(&mut world, policy)
        .settings(settings)
        .ledger(writer);
    let summary = herd.run(&AtomicBool::new(false)).unwrap();
    let mut ledger = Ledger::read(&path).unwrap();
    assert!(matches!(ledger.lines.pop().unwrap().record, Record::End(_)));
    let run = explain(&ledger, Choice::default()).unwrap().run.unwrap();
    assert_eq!(run.ending, None);
    let expected = Totals {
        restored: None,
        ..summary.totals
    };
    assert_eq!(run.totals, expected);
    run.totals
}

#[test]
fn moves_and_refusals() {
    let settings = Settings {
        limits: numaherd_herd::Limits {
            moves_per_interval: 2,
            ..numaherd_herd::Limits::default()
        },
        ..Settings::default()
    };
    let totals = counted_equals_summary("di-plain", settings);
    assert!(
        totals.thread_moves > 0 && !totals.refusals.is_empty(),
        "{totals:?}"
    );
}

#[test]
fn pages_that_follow() {
    let totals = counted_equals_summary("random+whole-set", Settings::default());
    assert!(totals.thread_moves > 0, "{totals:?}");
    counted_equals_summary("dino+whole-set", Settings::default());
}

#[test]
fn a_dry_run_did_nothing() {
    let settings = Settings {
        dry_run: true,
        ..Settings::default()
    };
    let totals = counted_equals_summary("di-plain", settings);
    assert_eq!((totals.thread_moves, totals.pages_moved), (0, 0));
    assert!(totals.planned_thread_moves > 0, "{totals:?}");
}

#[test]
fn figures_gone_mad_are_told_and_not_summed_beyond_their_range() {
    let mut made = Made::new("random+window");
    let mad = |tid| {
        let mut thread = thread(tid, 900, "crew", 0, 1, 1.0, 1.0);
        thread.counts = Some(numaherd_world::Counts {
            instructions: u64::MAX,
            cycles: None,
            lines: u64::MAX,
            local: Some(u64::MAX),
            remote: Some(u64::MAX),
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share: 1.0,
        });
        thread
    };
    let home = || vec![process(900, "crew", &[(0, u64::MAX), (1, u64::MAX)])];
    made.second(vec![mad(900), mad(901)], home());
    made.placed(
        vec![placement(900, 0, 6, "random: draw once", "drawn", "")],
        vec![order(900, Some(6), "6-7")],
    );
    let window = window(900, 900, 0, u64::MAX, 1);
    for ms in [10, 20] {
        let outcome = PageOutcome {
            failed: [(numaherd_world::PageFailure::Busy, u64::MAX)].into(),
            ..page_outcome(&window, u64::MAX)
        };
        let tick = PagingTick {
            plan: vec![window.clone()],
            outcomes: vec![outcome],
            carried_out: true,
            ..PagingTick::default()
        };
        made.paging(ms, tick);
    }
    made.second(vec![mad(900), mad(901)], home());
    let mut live = numaherd_show::live::Live::new();
    for line in made.shared() {
        live.line(&line);
    }
    let explanation = explain(&made.ledger(), Choice::default()).unwrap();
    assert!(numaherd_show::explain::text(&explanation).contains("1 thread move carried out"));
    let totals = explanation.run.unwrap().totals;
    assert_eq!(
        (totals.counted.instructions, totals.counted.lines),
        (u64::MAX, u64::MAX)
    );
    assert_eq!(totals.pages_moved, u64::MAX);
    assert_eq!(totals.counted.local_access_ratio(), Some(1.0));
}
