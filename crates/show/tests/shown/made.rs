//! Ledgers made by hand: on the preset `lab-4x2` (CPUs 0-1 on node 0, 2-3 on node 1, and so on), an
//! interval a second. Every one of them goes through the real writer and reader.

use std::path::Path;
use std::sync::Arc;

use numaherd_herd::ledger::{
    Asked, Controlled, Ledger, Notice, PagingTick, Placing, Reader, Start, Trial,
};
use numaherd_herd::{
    AffinityScope, Ending, Guard, Limits, Line, Record, Refusal, Settings, Summary, Totals,
};
use numaherd_policy::losses::Losses;
use numaherd_show::ShowError;
use numaherd_show::explain::{Choice, Explanation, Reading};
use numaherd_testing::MadeLedger;
use numaherd_testing::ledger::start;
use numaherd_testing::seen;
pub use numaherd_testing::seen::{SECOND_NS as SECOND, cpus, pid as process_id, tid as thread_id};
use numaherd_topology::{CpuId, Machine, NodeId, Topology};
use numaherd_world::{
    AffinityOrder, AffinityResult, Enforcement, PageOrder, PageOutcome, Pages, Placement, Plan,
    Process, Signal, SignalReport, SignalState, Snapshot, Thread,
};
use proptest::sample::Index;

/// What a run's last record says, before its totals are filled in.
pub fn ended(policy: &str) -> Summary {
    Summary {
        policy: policy.to_owned(),
        dry_run: false,
        enforce: Enforcement::Affinity,
        ending: Ending::World,
        totals: Totals::default(),
        notices: Vec::new(),
    }
}

pub fn topology() -> Topology {
    Machine::preset("lab-4x2").unwrap().topology().unwrap()
}

/// A thread that ran all the time, with `millions` of instructions, at a miss rate.
pub fn thread(
    tid: u32,
    pid: u32,
    name: &str,
    cpu: u32,
    millions: u64,
    miss_rate: f64,
    local: f64,
) -> Thread {
    Thread {
        name: name.to_owned(),
        counts: Some(seen::counts(millions * 1_000_000, miss_rate, local)),
        ..seen::thread_on(tid, pid, cpu, &Arc::new(cpus("0-7")))
    }
}

/// A process whose pages are on these nodes.
pub fn process(pid: u32, name: &str, pages: &[(u32, u64)]) -> Process {
    seen::process_on(pid, name, pages, &Arc::new(seen::nodes("0-3")))
}

pub fn placement(
    tid: u32,
    from: u32,
    to: u32,
    rule: &'static str,
    why: &str,
    instead_of: &str,
) -> Placement {
    Placement {
        thread: thread_id(tid),
        from: CpuId(from),
        to: CpuId(to),
        rule: rule.into(),
        why: why.to_owned(),
        instead_of: instead_of.to_owned(),
    }
}

pub fn order(tid: u32, core: Option<u32>, list: &str) -> AffinityOrder {
    AffinityOrder {
        thread: thread_id(tid),
        core: core.map(CpuId),
        cpus: Arc::new(cpus(list)),
    }
}

pub fn window(tid: u32, pid: u32, first: u64, count: u64, to: u32) -> PageOrder {
    PageOrder {
        process: process_id(pid),
        thread: thread_id(tid),
        pages: Pages::Window { first, count },
        to: NodeId(to),
        rule: "window: around a remote access".into(),
        why: format!(
            "thread {tid} on node {to} read address {:#x} on node 0; {count} of 4096 pages around it",
            first << 12
        ),
    }
}

pub fn whole_set(tid: u32, pid: u32, to: u32) -> PageOrder {
    PageOrder {
        process: process_id(pid),
        thread: thread_id(tid),
        pages: Pages::All,
        to: NodeId(to),
        rule: "whole-set: follow the process".into(),
        why: format!("thread {tid} moved from node 0 to node {to}"),
    }
}

/// What became of an order: all moved but those that failed.
pub fn page_outcome(order: &PageOrder, moved: u64) -> PageOutcome {
    PageOutcome {
        took_ns: 3_000_000,
        longest_batch_ns: 250_000,
        ..numaherd_testing::moved(order, moved)
    }
}

pub fn refusal(entry: Option<usize>, tid: u32, guard: Guard, why: &str) -> Refusal {
    Refusal {
        entry,
        thread: thread_id(tid),
        guard,
        why: why.to_owned(),
    }
}

/// A ledger with a byte changed, or without what follows it. A damaged header is the reader's to refuse.
pub fn damaged(bytes: &[u8], at: Index, is_cut: bool) -> Option<Reader> {
    let mut bytes = bytes.to_vec();
    let at = at.index(bytes.len());
    if is_cut {
        bytes.truncate(at);
    } else {
        bytes[at] ^= 4;
    }
    Reader::of_bytes(Path::new("run.ledger"), bytes).ok()
}

/// A ledger that grows.
pub struct Made {
    ledger: MadeLedger,
    /// What is seen where there are neither threads nor processes.
    nothing: Snapshot,
    snapshots: u64,
    interval_ns: u64,
}

impl Made {
    /// Of a run whose threads are placed once a second.
    pub fn new(policy: &str) -> Self {
        Self::every(1000, policy)
    }

    /// Of such a run that carries nothing out.
    pub fn in_dry_run(policy: &str) -> Self {
        let dry = Settings {
            dry_run: true,
            ..Settings::default()
        };
        Self::of(dry, 1000, policy)
    }

    /// Of a run whose threads are placed once in so many ms.
    pub fn every(interval_ms: u64, policy: &str) -> Self {
        Self::of(Settings::default(), interval_ms, policy)
    }

    fn of(settings: Settings, interval_ms: u64, policy: &str) -> Self {
        let measured = |signal, source: &str, caveat: Option<&str>| SignalReport {
            signal,
            state: SignalState::Measured {
                source: source.to_owned(),
                caveat: caveat.map(str::to_owned),
            },
        };
        let signals = vec![
            measured(Signal::CpuUse, "/proc/PID/task/TID/schedstat", None),
            measured(
                Signal::MissRate,
                "cpu/LLC-load-misses/",
                Some("prefetches are not counted"),
            ),
            measured(
                Signal::LocalRemote,
                "cpu/node-loads/ and cpu/node-load-misses/",
                None,
            ),
            SignalReport {
                signal: Signal::MemorySamples,
                state: SignalState::Missing {
                    reason: "opening cpu/mem-loads/ on CPU 0 was denied (EACCES)".to_owned(),
                    remedy: "CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less".to_owned(),
                },
            },
            measured(Signal::Residency, "/proc/PID/numa_maps", None),
        ];
        let settings = Settings {
            seed: 7,
            placement_interval_ms: Some(interval_ms),
            limits: Limits {
                scope: Some(AffinityScope::Domain),
                ..Limits::default()
            },
            ..settings
        };
        let start = Start {
            signals,
            settings,
            seed: 7,
            ..start(&topology(), policy)
        };
        Self {
            nothing: seen::empty(&start.topology),
            ledger: MadeLedger::begun(start),
            snapshots: 0,
            interval_ns: interval_ms * 1_000_000,
        }
    }

    /// An interval, of a second unless said otherwise, with what was seen at its end.
    pub fn second(&mut self, threads: Vec<Thread>, processes: Vec<Process>) {
        self.second_with_gaps(threads, processes, Vec::new());
    }

    pub fn second_with_gaps(
        &mut self,
        threads: Vec<Thread>,
        processes: Vec<Process>,
        gaps: Vec<String>,
    ) {
        self.ledger.saw(Snapshot {
            sequence: self.snapshots,
            time_ns: (self.snapshots + 1) * self.interval_ns,
            interval_ns: self.interval_ns,
            threads,
            processes,
            gaps,
            ..self.nothing.clone()
        });
        self.snapshots += 1;
    }

    /// What the placement wanted and what came of the orders.
    pub fn placing(&mut self, placing: Placing, results: Vec<AffinityResult>) {
        let snapshot = self.snapshots.saturating_sub(1);
        self.ledger.placed(
            Placing {
                snapshot,
                ..placing
            },
            results,
        );
    }

    /// A placing without refusals, carried out to the full.
    pub fn placed(&mut self, placements: Vec<Placement>, affinities: Vec<AffinityOrder>) {
        let results = vec![AffinityResult::Done; affinities.len()];
        let placing = Placing {
            plan: Plan {
                placements,
                ..Plan::default()
            },
            affinities,
            carried_out: true,
            ..Placing::default()
        };
        self.placing(placing, results);
    }

    /// A round of paging, `ms` after the last snapshot.
    pub fn paging(&mut self, ms: u64, tick: PagingTick) {
        self.ledger.time_ns = self.snapshots * SECOND + ms * 1_000_000;
        self.ledger.add(Record::Paging(tick));
    }

    pub fn notice(&mut self, text: &str) {
        self.ledger.add(Record::Notice(Notice {
            text: text.to_owned(),
        }));
    }

    pub fn asked(&mut self, by: &str, asked: Asked) {
        self.ledger.add(Record::Control(Controlled {
            by: by.to_owned(),
            asked,
            refused: None,
        }));
    }

    /// What the machine lost in the latest interval.
    pub fn lost(&mut self, losses: Losses) {
        self.ledger.add(Record::Losses(losses));
    }

    /// A record of a trial.
    pub fn trial(&mut self, trial: Trial) {
        self.ledger.add(Record::Trial(trial));
    }

    pub fn end(&mut self, summary: Summary) {
        self.ledger.add(Record::End(Summary {
            totals: Totals {
                intervals: self.snapshots,
                duration_ns: self.snapshots * SECOND,
                restored: summary.totals.restored.or(Some(0)),
                ..summary.totals
            },
            ..summary
        }));
    }

    pub fn lines(&self) -> &[Line] {
        &self.ledger.lines
    }

    /// The lines as readers take them.
    pub fn shared(&self) -> impl Iterator<Item = Arc<Line>> {
        self.ledger.shared()
    }

    /// The ledger as it is on disk.
    pub fn bytes(&self) -> Vec<u8> {
        self.written(1 << 30)
    }

    /// What is left of it under its own name when it may not grow beyond 20 kB.
    pub fn later_bytes(&self) -> Vec<u8> {
        self.written(20_000)
    }

    fn written(&self, most_bytes: u64) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        self.ledger.write(&path, most_bytes);
        std::fs::read(&path).unwrap()
    }

    /// The ledger as it is read back.
    pub fn ledger(&self) -> Ledger {
        read(self.bytes())
    }
}

/// Reads a ledger from bytes.
pub fn read(bytes: Vec<u8>) -> Ledger {
    Ledger::of(Reader::of_bytes(Path::new("run.ledger"), bytes).unwrap())
}

/// Explains a ledger.
pub fn explain(ledger: &Ledger, choice: Choice) -> Result<Explanation, ShowError> {
    let mut reading = Reading::new(&ledger.header, choice);
    let lines = ledger.lines.iter().cloned().map(Arc::new);
    lines.for_each(|line| reading.line(&line));
    reading.finish(ledger.skipped, ledger.damage.as_ref())
}
