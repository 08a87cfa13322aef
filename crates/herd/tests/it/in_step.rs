//! Paging in step with a world that computes its time: which calls the world gets, in which order,
//! and that the same seed gives the same record.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_herd::ledger::{PagingTick, Writer};
use numaherd_herd::{Ending, Herd, Limits, Line, Record, Settings, Summary};
use numaherd_policy::{Policy, registry};
use numaherd_topology::{CpuId, CpuSet, NodeId, Topology};
use numaherd_world::{
    MemorySource, Notice, Orders, Outcome, PageOrder, PageOutcome, Pager, Pages, Progress,
    Residency, Sample, SignalReport, Snapshot, Thread, ThreadId, World, WorldError,
};
use proptest::prelude::*;

use crate::fake::{
    Fake, MIB, ToldPaging, everyone_to, machine, moved, notice, pid, policy_with, thread, tid,
    window,
};

/// Pages of the process: four windows of 4096.
const PAGES: u64 = 4 * 4096;

/// What the world was asked for, times in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `World::run_for`.
    Ran(u64),
    /// `Pager::run_for`.
    Sampled(u64),
    /// `Pager::samples`.
    Samples,
    Observed,
    /// `World::apply`, so many threads.
    Placed(usize),
    /// `Pager::apply`, to that node.
    Moved(NodeId),
}

/// What the two halves share: one thread, and the pages of its process.
struct Shared {
    now_ns: u64,
    ends_at_ns: u64,
    blind_from_ns: u64,
    cpu: CpuId,
    node: NodeId,
    pages: Vec<NodeId>,
    sample: Option<Sample>,
    /// The unit at the TLBs finds a page in every step.
    finds: bool,
    calls: Vec<Call>,
}

impl Shared {
    fn pass(&mut self, interval: Duration, call: impl FnOnce(u64) -> Call) -> Progress {
        let ns = u64::try_from(interval.as_nanos()).unwrap();
        assert!(ns > 0, "no time is no interval");
        self.calls.push(call(ns / 1_000_000));
        self.now_ns += ns;
        if self.now_ns >= self.ends_at_ns {
            return Progress::Ended;
        }
        Progress::Ran
    }
}

/// A machine in step: [`Fake`] with a time and pages of its own.
pub struct Stepped {
    fake: Fake,
    shared: Arc<Mutex<Shared>>,
}

struct SteppedPager(Arc<Mutex<Shared>>);

impl Stepped {
    /// Thread 1 on CPU 0 of node 0, all of its memory there; nodes of two CPUs.
    pub fn new() -> Self {
        let topology = machine(2, 2);
        let threads = vec![thread(1, 1, 0, &topology)];
        Self {
            fake: Fake::new(topology, threads),
            shared: Arc::new(Mutex::new(Shared {
                now_ns: 0,
                ends_at_ns: u64::MAX,
                blind_from_ns: u64::MAX,
                cpu: CpuId(0),
                node: NodeId(0),
                pages: vec![NodeId(0); PAGES as usize],
                sample: None,
                finds: false,
                calls: Vec::new(),
            })),
        }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.lock().unwrap().calls.clone()
    }
}

impl World for Stepped {
    fn topology(&self) -> &Arc<Topology> {
        self.fake.topology()
    }

    fn signals(&self) -> &[SignalReport] {
        self.fake.signals()
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        self.shared.lock().unwrap().pass(interval, Call::Ran)
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let mut snapshot = self.fake.observe()?;
        let mut shared = self.shared.lock().unwrap();
        shared.calls.push(Call::Observed);
        snapshot.time_ns = shared.now_ns;
        let on = |node| shared.pages.iter().filter(|&&at| at == node).count() as u64;
        let pages = [0, 1].map(|node| (NodeId(node), on(NodeId(node))));
        snapshot.processes[0].residency = Some(Residency {
            pages: pages.into_iter().filter(|&(_, pages)| pages > 0).collect(),
            kinds: None,
        });
        Ok(snapshot)
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        self.fake.affinity_of(thread)
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        assert!(orders.pages.is_empty(), "there is a pager for them");
        let outcome = self.fake.apply(orders);
        let mut shared = self.shared.lock().unwrap();
        shared.calls.push(Call::Placed(orders.affinities.len()));
        shared.cpu = self.fake.threads[0].cpu;
        shared.node = self.fake.topology.node_of(shared.cpu).unwrap();
        outcome
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        Some(Box::new(SteppedPager(self.shared.clone())))
    }
}

impl Pager for SteppedPager {
    fn in_step(&self) -> bool {
        true
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        let mut shared = self.0.lock().unwrap();
        let progress = shared.pass(interval, Call::Sampled);
        // The middle of one window after the other.
        let page = 2048 + shared.now_ns / 10_000_000 * 4096 % PAGES;
        let node = shared.pages[page as usize];
        shared.sample = Some(Sample {
            time_ns: shared.now_ns,
            thread: tid(1),
            process: pid(1),
            address: page * 4096 + 8,
            cpu: shared.cpu,
            latency: None,
            source: if node == shared.node {
                MemorySource::LocalMemory
            } else {
                MemorySource::RemoteMemory
            },
            node: Some(node),
            store: false,
        });
        progress
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        let mut shared = self.0.lock().unwrap();
        shared.calls.push(Call::Samples);
        if shared.now_ns >= shared.blind_from_ns {
            return Err(WorldError {
                world: "the made-up machine".to_owned(),
                reason: "no more samples".to_owned(),
            });
        }
        Ok(shared.sample.take().into_iter().collect())
    }

    fn notices(&mut self) -> Vec<Notice> {
        let shared = self.0.lock().unwrap();
        let found = shared.finds.then(|| notice(shared.now_ns, 1));
        found.into_iter().collect()
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let mut shared = self.0.lock().unwrap();
        let carry_out = |order: &PageOrder| {
            shared.calls.push(Call::Moved(order.to));
            let wanted = match order.pages {
                Pages::All | Pages::OfKind { .. } => 0..PAGES,
                Pages::Window { first, count } => first..(first + count).min(PAGES),
            };
            let mut away = 0;
            for page in wanted {
                away += u64::from(shared.pages[page as usize] != order.to);
                shared.pages[page as usize] = order.to;
            }
            moved(order, away)
        };
        orders.iter().map(carry_out).collect()
    }
}

/// Placement every 100 ms, pages every 30 ms, three intervals, each recorded.
pub fn quick() -> Settings {
    Settings {
        placement_interval_ms: Some(100),
        record_interval_ms: 0,
        paging_interval_ms: 30,
        intervals: Some(3),
        ..Settings::default()
    }
}

/// Moves the thread to node 1 and has its pages follow as the policy of that name says.
fn following(paging: &str) -> Policy {
    let defaults = numaherd_policy::Settings::default();
    let policy = registry::build(&format!("linux+{paging}"), &defaults).unwrap();
    Policy {
        paging: policy.paging,
        ..policy_with(everyone_to(2), ToldPaging::stay())
    }
}

fn run(world: &mut Stepped, policy: Policy, settings: Settings) -> (Summary, Vec<Line>) {
    let mut lines = Vec::new();
    let summary = Herd::new(world, policy)
        .settings(settings)
        .watched(|line| lines.push(line.clone()))
        .run(&AtomicBool::new(false))
        .unwrap();
    (summary, lines)
}

/// The rounds of paging that were recorded, with their times in ms.
fn rounds(lines: &[Line]) -> Vec<(u64, &PagingTick)> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            Record::Paging(tick) => Some((line.time_ns / 1_000_000, tick)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_paging_that_listens_is_asked_at_its_cadence_and_the_last_step_is_cut() {
    let mut world = Stepped::new();
    let (summary, _) = run(
        &mut world,
        policy_with(|_| Vec::new(), ToldPaging::stay()),
        quick(),
    );
    assert_eq!(summary.ending, Ending::Intervals);
    let steps = [30, 30, 30, 10].map(|ms| [Call::Sampled(ms), Call::Samples]);
    let interval = [steps.as_flattened(), &[Call::Observed]].concat();
    assert_eq!(world.calls(), interval.repeat(3));
}

#[test]
fn what_a_unit_at_the_tlbs_finds_is_acted_on_in_the_same_step() {
    let mut world = Stepped::new();
    world.shared.lock().unwrap().finds = true;
    let paging = ToldPaging {
        on_notices: vec![window(&world.fake.threads[0], 1, 1, 1)],
        ..ToldPaging::stay()
    };
    let heard = paging.heard.clone();
    let settings = Settings {
        intervals: Some(2),
        ..quick()
    };
    let (_, lines) = run(&mut world, policy_with(|_| Vec::new(), paging), settings);
    let noticed: Vec<u64> = heard
        .lock()
        .unwrap()
        .notices
        .iter()
        .map(|n| n.time_ns)
        .collect();
    let steps = [30, 60, 90, 100, 130, 160, 190, 200].map(|ms| ms * 1_000_000);
    assert_eq!(noticed, steps);
    // The process is known from the first snapshot on: before, the governor knows nothing of it.
    let moved = rounds(&lines)
        .into_iter()
        .filter(|(_, tick)| !tick.outcomes.is_empty());
    let moved: Vec<(u64, u64)> = moved.map(|(ms, tick)| (ms, tick.notices)).collect();
    assert_eq!(moved, [(130, 1), (160, 1), (190, 1), (200, 1)]);
}

#[test]
fn sharing_that_the_paging_finds_is_in_the_snapshot_of_the_same_interval() {
    let mut world = Stepped::new();
    let paging = ToldPaging {
        shared: 7,
        ..ToldPaging::stay()
    };
    let (_, lines) = run(&mut world, policy_with(|_| Vec::new(), paging), quick());
    let shared = lines.iter().filter_map(|line| match &line.record {
        Record::Snapshot(snapshot) => snapshot.processes[0].sharing.as_ref(),
        _ => None,
    });
    let shared: Vec<u64> = shared.map(|s| s.between(tid(1), tid(2))).collect();
    assert_eq!(shared, [7, 7, 7]);
}

#[test]
fn one_that_does_not_listen_leaves_the_interval_whole() {
    let mut world = Stepped::new();
    let (summary, _) = run(&mut world, following("stay"), quick());
    assert_eq!(summary.totals.thread_moves, 1);
    let interval = [Call::Ran(100), Call::Observed];
    let expected = [
        &interval[..],
        &[Call::Placed(1)],
        &interval.repeat(2),
        &[Call::Observed, Call::Placed(1)],
    ];
    assert_eq!(world.calls(), expected.concat());
}

#[test]
fn a_window_listens_from_the_move_until_all_memory_has_followed() {
    let mut world = Stepped::new();
    let settings = Settings {
        intervals: Some(4),
        ..Settings::default()
    };
    let (summary, lines) = run(&mut world, following("window"), settings);
    assert_eq!(summary.totals.pages_moved, PAGES);
    let ran: Vec<Call> = world
        .calls()
        .into_iter()
        .filter(|call| matches!(call, Call::Ran(_) | Call::Sampled(_)))
        .collect();
    let listening = vec![Call::Sampled(10); 100];
    let expected = [
        &[Call::Ran(500)][..],
        &listening,
        &[Call::Ran(1000), Call::Ran(1000)],
    ];
    assert_eq!(ran, expected.concat());
    let rounds = rounds(&lines);
    let times: Vec<u64> = rounds.iter().map(|&(ms, _)| ms).collect();
    assert!(times.is_sorted() && times.iter().all(|ms| ms % 10 == 0));
    assert!((510..=1500).contains(&times[0]) && times[times.len() - 1] <= 1500);
    let samples: u64 = rounds.iter().map(|(_, tick)| tick.samples).sum();
    assert_eq!(samples, (times[times.len() - 1] - 500) / 10);
}

#[test]
fn what_is_done_within_an_interval_is_recorded_before_its_end_is_seen() {
    let mut world = Stepped::new();
    let settings = Settings {
        intervals: Some(3),
        ..Settings::default()
    };
    let (_, lines) = run(&mut world, following("window"), settings);
    assert!(lines.is_sorted_by_key(|line| line.time_ns));
    let kinds: Vec<char> = lines
        .iter()
        .filter_map(|line| match line.record {
            Record::Snapshot(_) => Some('s'),
            Record::Paging(_) => Some('p'),
            _ => None,
        })
        .collect();
    let kinds: String = kinds.into_iter().collect();
    assert_eq!(
        kinds
            .trim_start_matches('s')
            .trim_end_matches('s')
            .trim_matches('p'),
        ""
    );
    assert!(kinds.starts_with("sp") && kinds.ends_with("pss"), "{kinds}");
}

#[test]
fn one_seed_gives_one_ledger_to_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = |name: &str| {
        let path = directory.path().join(name);
        let writer = Writer::create(&path, "test", None, 100 * MIB).unwrap();
        let defaults = numaherd_policy::Settings::default();
        let policy = registry::build("random+window", &defaults).unwrap();
        let settings = Settings {
            intervals: Some(6),
            seed: 1,
            ..Settings::default()
        };
        let mut world = Stepped::new();
        let herd = Herd::new(&mut world, policy)
            .settings(settings)
            .ledger(writer);
        let summary = herd.run(&AtomicBool::new(false)).unwrap();
        assert!(summary.totals.pages_moved > 0, "or little is shown");
        std::fs::read(path).unwrap()
    };
    let first = ledger("first");
    assert!(first == ledger("second"), "the ledgers differ");
}

#[test]
fn an_end_in_the_middle_of_an_interval_ends_the_run() {
    let mut world = Stepped::new();
    world.shared.lock().unwrap().ends_at_ns = 160_000_000;
    let policy = policy_with(everyone_to(2), ToldPaging::stay());
    let (summary, _) = run(&mut world, policy, quick());
    assert_eq!(summary.ending, Ending::World);
    assert_eq!(
        (summary.totals.intervals, summary.totals.duration_ns),
        (1, 100_000_000)
    );
    assert_eq!(summary.totals.restored, Some(1));
    let last = [
        Call::Sampled(30),
        Call::Samples,
        Call::Sampled(30),
        Call::Observed,
        Call::Placed(1),
    ];
    let calls = world.calls();
    assert_eq!(calls[calls.len() - 5..], last, "{calls:?}");
}

#[test]
fn a_dry_run_samples_and_moves_nothing() {
    let mut world = Stepped::new();
    let settings = Settings {
        dry_run: true,
        ..quick()
    };
    let (summary, lines) = run(&mut world, following("window"), settings);
    let calls = world.calls();
    let changes = |call: &Call| matches!(call, Call::Placed(_) | Call::Moved(_));
    assert!(!calls.iter().any(changes), "{calls:?}");
    // The plan would have moved the thread after the first interval, and its pages are sampled from
    // then on.
    assert_eq!(calls[..2], [Call::Ran(100), Call::Observed]);
    assert_eq!(calls[2..4], [Call::Sampled(30), Call::Samples]);
    assert_eq!(summary.totals.pages_moved, 0);
    assert!(summary.totals.planned_pages > 0);
    let rounds = rounds(&lines);
    assert_eq!(rounds[0].0, 130);
    assert!(rounds.iter().all(|(_, tick)| !tick.carried_out));
}

#[test]
fn samples_that_cannot_be_had_end_the_paging_and_the_rest_of_the_interval_runs_on() {
    let mut world = Stepped::new();
    world.shared.lock().unwrap().blind_from_ns = 150_000_000;
    let policy = policy_with(|_| Vec::new(), ToldPaging::stay());
    let (summary, _) = run(&mut world, policy, quick());
    assert_eq!(
        summary.notices,
        [
            "pages are no longer moved: cannot observe the made-up machine: no more samples; \
             threads still are"
        ]
    );
    assert_eq!(summary.totals.duration_ns, 300_000_000);
    let calls = world.calls();
    let last = [
        Call::Sampled(30),
        Call::Samples,
        Call::Ran(40),
        Call::Observed,
        Call::Ran(100),
        Call::Observed,
    ];
    assert_eq!(calls[calls.len() - 6..], last, "{calls:?}");
}

#[test]
fn orders_that_wait_for_bandwidth_are_tried_again_at_the_paging_cadence() {
    let mut world = Stepped::new();
    // The thread goes to and fro, its 64 MiB with it.
    let there_and_back = |snapshot: &Snapshot| {
        let to = if snapshot.sequence == 0 { 2 } else { 0 };
        let threads = snapshot.threads.iter();
        let go = |thread: &Thread| crate::fake::place(thread, to);
        threads.map(go).collect()
    };
    let policy = Policy {
        paging: following("whole-set").paging,
        ..policy_with(there_and_back, ToldPaging::stay())
    };
    let settings = Settings {
        limits: Limits {
            pages_mib_per_s: 400.0,
            pages_burst_ms: 1,
            ..Limits::default()
        },
        ..quick()
    };
    let (summary, lines) = run(&mut world, policy, settings);
    assert_eq!(summary.totals.pages_moved, 2 * PAGES);
    let calls = world.calls();
    let expected = [
        Call::Ran(100),
        Call::Observed,
        Call::Placed(1),
        Call::Moved(NodeId(1)),
        // 64 MiB at 400 MiB/s are 160 ms, of which 100 have passed when it is to go back.
        Call::Ran(100),
        Call::Observed,
        Call::Placed(1),
        Call::Ran(30),
        Call::Ran(30),
        Call::Moved(NodeId(0)),
        Call::Ran(40),
        Call::Observed,
    ];
    assert_eq!(calls[..expected.len()], expected);
    let done: Vec<u64> = rounds(&lines)
        .into_iter()
        .filter(|(_, tick)| !tick.outcomes.is_empty())
        .map(|(ms, _)| ms)
        .collect();
    assert_eq!(done, [100, 260]);
}

#[test]
fn orders_are_carried_out_by_the_pager_in_the_round_of_their_samples() {
    let mut world = Stepped::new();
    let paging = ToldPaging {
        on_samples: vec![window(&world.fake.threads[0], 0, 1, 1)],
        ..ToldPaging::stay()
    };
    let settings = Settings {
        intervals: Some(2),
        ..quick()
    };
    let (_, lines) = run(&mut world, policy_with(|_| Vec::new(), paging), settings);
    let round = |ms| [Call::Sampled(ms), Call::Samples, Call::Moved(NodeId(1))];
    let second = [30, 30, 30, 10].map(round);
    // Before anything was observed the governor lets nothing through.
    assert_eq!(world.calls()[9..21], *second.as_flattened());
    let times: Vec<u64> = rounds(&lines).iter().map(|&(ms, _)| ms).collect();
    assert_eq!(times, [30, 60, 90, 100, 130, 160, 190, 200]);
}

proptest! {
    #[test]
    fn steps_add_up_to_the_interval(
        placement in 1u64..3000,
        paging in 1u64..3000,
        listens in any::<bool>(),
    ) {
        let mut world = Stepped::new();
        let settings = Settings {
            placement_interval_ms: Some(placement),
            paging_interval_ms: paging,
            intervals: Some(3),
            ..Settings::default()
        };
        let lengths = [0, 1, 2].map(|seen| settings.placement_interval(seen).as_millis());
        let policy = if listens {
            policy_with(|_| Vec::new(), ToldPaging::stay())
        } else {
            following("stay")
        };
        run(&mut world, policy, settings);
        let calls = world.calls();
        let intervals = calls.split(|&call| call == Call::Observed).take(3);
        for (calls, length) in intervals.zip(lengths) {
            let steps = calls.iter().filter_map(|call| match call {
                Call::Ran(ms) | Call::Sampled(ms) => Some(u128::from(*ms)),
                _ => None,
            });
            prop_assert_eq!(steps.clone().sum::<u128>(), length);
            let most = if listens { u128::from(paging) } else { length };
            prop_assert_eq!(steps.count() as u128, length.div_ceil(most));
        }
    }
}
