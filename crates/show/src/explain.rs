//! Why a run did what it did: what was seen, what was decided by which rule, what the governor said,
//! what happened, and what followed.
//!
//! A [`Reading`] takes in a ledger line by line and becomes an [`Explanation`], a value whose JSON form is what
//! `numaherd explain --json` prints ([`SCHEMA`] counts its versions). [`short()`] is its first page, for a reader at
//! three in the morning: what, why, whether it helped, how to stop it; [`text()`] puts what was chosen into sentences,
//! and [`whole()`] everything. A damaged ledger is explained up to the damage.
//!
//! *Folding*: between two moves of a thread, decisions that agree in what was wanted, in the rule, in the governor's
//! verdict and in the kind of outcome become one [`Decision`], with their number, their span of time and the sum of
//! their pages; its reasons and figures are those of the first.
//!
//! *What followed* compares up to [`SIDE`] intervals before and after (see [`Followed`]). It says what followed, not
//! what the decision caused: other threads moved too.

mod alternative;
mod choice;
mod followed;
mod history;
mod reading;
mod short;
mod story;
mod text;

use std::collections::BTreeMap;

use numaherd_herd::{Ending, Guard, Settings, Totals};
use numaherd_policy::classes::Class;
use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::{MemoryKind, PageFailure, SignalReport};
use serde::Serialize;

use crate::guests::Guest;
pub use crate::reading::{Homes, Source};
pub use crate::run::Sentence;
pub use alternative::{Alternative, Cost};
pub use choice::Choice;
pub use reading::Reading;
pub(crate) use reading::{about, cited};
pub use short::{Effects, short};
pub use text::{text, whole};

/// Version of the JSON form. It goes up when a member is removed or changes its meaning. Since 2, a last line that is
/// still being written is not reported as `damage`.
pub const SCHEMA: u32 = 2;

/// Most intervals that are averaged on either side of a decision.
pub const SIDE: usize = 3;

/// Why a run did what it did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The ledger that this is drawn from.
    pub ledger: Source,
    /// The run as a whole; `None` when the ledger ends before its start was recorded.
    pub run: Option<Run>,
    /// What was chosen to be explained.
    pub chosen: Choice,
    /// The processes of the chosen threads, ascending; without a choice, those of all threads that the policy or the
    /// governor did or refused something for.
    pub processes: Vec<ProcessStory>,
    /// Threads that were seen but left out, because nothing was wanted of them.
    pub left_out_threads: u64,
}

/// The run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// The policy's name, at the start.
    pub policy: String,
    /// The policy's name at the end, which differs if the policy was changed.
    pub policy_now: String,
    /// Whether it was paused at the end.
    pub paused: bool,
    /// What was asked of the running herd, and the outcome, in time order.
    pub asked: Vec<Asked>,
    /// What the policy does and its source, if this program knows it.
    pub about: Option<About>,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The settings, as used.
    pub settings: Settings,
    /// Whether pages were handled in a thread of their own.
    pub pager: bool,
    /// What could be measured, and what not and why.
    pub signals: Vec<SignalReport>,
    /// Why it ended; `None` when the ledger does not say.
    pub ending: Option<Ending>,
    /// What was done: in the whole run if the ledger holds its end, otherwise as counted from its whole lines.
    pub totals: Totals,
    /// The local access ratio at the beginning and at the end; `None` if it was not counted.
    pub local_access_ratio: Option<Trend>,
    /// What a person should know, in time order.
    pub notices: Vec<Sentence>,
    /// What could not be seen in some intervals.
    pub gaps: Vec<Gap>,
}

/// The machine, in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Nodes.
    pub nodes: usize,
    /// Memory domains.
    pub domains: usize,
    /// Online CPUs.
    pub cpus: usize,
}

/// What a policy does, and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// In one line.
    pub what: String,
    /// Paper and section.
    pub source: String,
}

/// What was asked of the running herd, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The number of the record.
    pub record: u64,
    /// When, in ns since the world began.
    pub time_ns: u64,
    /// Whether it was refused and changed nothing.
    pub refused: bool,
    /// A sentence without its full stop.
    pub text: String,
}

/// A share at the beginning and at the end, over all threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// In the first tenth of the counted intervals.
    pub first: f64,
    /// In the last tenth.
    pub last: f64,
    /// How many intervals a tenth has.
    pub intervals: u64,
}

/// What could not be seen in some intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// In how many intervals.
    pub intervals: u64,
    /// What could not be seen, as a sentence.
    pub text: String,
}

/// What became of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessStory {
    /// Its number; `None` for threads that were named but never observed.
    pub pid: Option<u32>,
    /// Its name, where it was observed.
    pub name: Option<String>,
    /// The virtual machine that it runs, where it does, as last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
    /// The group of the configuration that it belongs to, as last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The memory policy that its user gave it, as last seen: its pages are left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_policy: Option<String>,
    /// Where its pages were when first and last read; `None` where they never were.
    pub pages: Option<Homes>,
    /// Its threads, ascending.
    pub threads: Vec<ThreadStory>,
}

/// What became of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStory {
    /// The kernel's thread number.
    pub tid: u32,
    /// The kernel's short name for it; empty where it was never observed.
    pub name: String,
    /// Why it had to be left alone, if it had, as last seen.
    pub hands_off: Option<String>,
    /// Recorded snapshots in which it was observed; at a quick cadence one may stand for several
    /// intervals.
    pub intervals: u64,
    /// Its miss rate over the intervals in which it was counted and ran.
    pub miss_rate: Option<Range>,
    /// In how many of these intervals it was in each class, by DINO's own borders (2 and 100 lines per 1000
    /// instructions), without the votes by which a policy changes a class.
    pub classes: BTreeMap<Class, u64>,
    /// Where it was found at the end of each interval, by node, in the order in which it first came to each.
    pub ran: Vec<Ran>,
    /// How often it had to leave its CPU by order.
    pub moves: u64,
    /// Pages moved for it.
    pub pages_moved: u64,
    /// What was refused, by guard.
    pub refusals: BTreeMap<Guard, u64>,
    /// What was decided, in the order in which each decision was first taken.
    pub decisions: Vec<Decision>,
}

/// A figure over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Lowest.
    pub min: f64,
    /// Mean over all work that was counted.
    pub mean: f64,
    /// Highest.
    pub max: f64,
    /// Intervals that it is drawn from.
    pub intervals: u64,
}

/// A stay on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// The node; `None` when the machine's description has no such CPU.
    pub node: Option<NodeId>,
    /// The CPUs.
    pub cpus: CpuSet,
    /// The number of intervals at whose end the thread was there.
    pub intervals: u64,
}

/// One decision, or several that agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decision {
    /// The number of the record that first holds it: its name, as `--decision` takes it.
    pub first_record: u64,
    /// The number of the record that last holds it.
    pub last_record: u64,
    /// When first, in ns since the world began.
    pub first_ns: u64,
    /// When last.
    pub last_ns: u64,
    /// How often.
    pub times: u64,
    /// What was wanted.
    pub wanted: Wanted,
    /// Pages named by windows, summed; `None` for threads and for whole processes.
    pub wanted_pages: Option<u64>,
    /// By which rule; `None` if a move was undone or a thread was given back.
    pub rule: Option<CitedRule>,
    /// What was seen of the thread then; `None` when it was not observed.
    pub seen: Option<Seen>,
    /// Accesses that were sampled in the interval before pages were wanted elsewhere, the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Why, in the words of the rule, the first time.
    pub why: Option<String>,
    /// The alternative that it was preferred to, the first time.
    pub instead_of: Option<String>,
    /// What staying and going would cost, estimated from what was seen the first time.
    pub alternative: Option<Alternative>,
    /// What the governor said.
    pub governor: Verdict,
    /// What happened; `None` when nothing was ordered.
    pub happened: Option<Happened>,
    /// What followed; `None` where either side has no interval.
    pub followed: Option<Followed>,
}

impl Decision {
    /// Whether it set a mask.
    pub(crate) fn is_done(&self) -> bool {
        matches!(
            self.happened,
            Some(Happened::Done | Happened::Narrowed { .. })
        )
    }
}

/// What was wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Wanted {
    /// A thread to be elsewhere.
    Move(Way),
    /// A thread to be held on a CPU, where it may be already.
    Hold {
        /// The CPU it is given.
        cpu: CpuId,
        /// The node of that.
        node: Option<NodeId>,
    },
    /// A thread that has to wait where it is held, to be on an idle node.
    Steal(Way),
    /// A move to be undone.
    Undo {
        /// Where it was.
        from: CpuId,
        /// Where it goes back to; `None` if that is left to the kernel.
        to: Option<CpuId>,
    },
    /// A thread to be the kernel's again, as it was found.
    #[default]
    GiveBack,
    /// Pages to be elsewhere.
    Pages {
        /// The node; `None` when the order is in an earlier part of the ledger.
        to: Option<NodeId>,
        /// Whether the order is for all pages of the process.
        all: bool,
        /// The kind of memory, where the order is for one.
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<MemoryKind>,
    },
}

/// Where a thread was, and where it was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Way {
    /// Where it was.
    pub from: CpuId,
    /// The node of that.
    pub from_node: Option<NodeId>,
    /// Where it is to be.
    pub to: CpuId,
    /// The node of that.
    pub to_node: Option<NodeId>,
}

/// A rule with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CitedRule {
    /// Its name in the policy.
    pub name: String,
    /// Paper and section, where this program knows the rule.
    pub source: Option<&'static str>,
    /// What it does, where this program knows it.
    pub what: Option<&'static str>,
}

/// What was seen of a thread in the interval before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Share of those from the core's own node, where counted.
    pub local_access_ratio: Option<f64>,
    /// Cycles per request to the uncore, where counted.
    pub uncore_penalty: Option<f64>,
    /// Share of one CPU that it used.
    pub cpu_share: f64,
    /// The node that held most of its process's memory.
    pub home: Option<NodeId>,
}

/// Memory accesses that were sampled, of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sampled {
    /// All.
    pub accesses: u64,
    /// Those that left the core's node.
    pub remote: u64,
}

/// What the governor said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It let it through.
    Ordered {
        /// With these CPUs to run on; `None` for pages.
        cpus: Option<CpuSet>,
    },
    /// It refused.
    Refused {
        /// The guard that refused.
        guard: Guard,
        /// Why, the first time.
        why: String,
        /// What a refusal by this guard means.
        meaning: &'static str,
        /// The settings under `[herd.limits]` that say when it refuses.
        settings: &'static [&'static str],
    },
    /// It makes it wait for bandwidth.
    #[default]
    Waiting,
}

/// What happened, verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Happened {
    /// The mask was set, and read back equal.
    Done,
    /// The thread had ended; nothing was touched.
    Gone,
    /// The kernel kept the thread to fewer CPUs than ordered.
    Narrowed {
        /// The CPUs it kept.
        now: CpuSet,
    },
    /// The kernel refused.
    Failed {
        /// Its reason.
        error: String,
    },
    /// The outcome for pages.
    Pages(PagesMoved),
    /// Nothing: a dry run.
    DryRun,
    /// The ledger ends before the outcome.
    NotRecorded,
}

/// What became of pages, summed, in base pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PagesMoved {
    /// Pages on the target now, as read back.
    pub moved: u64,
    /// Pages that were there already.
    pub already_there: u64,
    /// Pages that did not get there, by the kernel's status.
    pub failed: BTreeMap<PageFailure, u64>,
    /// Not tried.
    pub not_tried: u64,
    /// Time that the calls took, in ns.
    pub took_ns: u64,
    /// Longest single batch, in ns: the longest pause that a thread can have seen.
    pub longest_batch_ns: u64,
    /// What first stopped an order short.
    pub error: Option<String>,
}

/// The thread before and after a decision that was carried out.
///
/// *Before* and *after* are up to [`SIDE`] intervals next to the decision, between the thread's previous and next
/// moves; for a decision that was taken several times, before the first and after the last. *Settled* are the last
/// intervals, up to [`SIDE`], before the thread's next move or the end, if they are not those of *after*.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Followed {
    /// Before it.
    pub before: Side,
    /// Right after it.
    pub after: Side,
    /// The node that the thread or the pages were to be on; `None` if that was left to the kernel.
    pub node: Option<NodeId>,
    /// In how many intervals of *after* the thread was found on a CPU that it was ordered to; `None`
    /// for pages.
    pub as_ordered: Option<u64>,
    /// Other threads that were moved by order between the first interval of *before* and the last of *after*: they may
    /// be the cause of the change.
    pub others_moved: u64,
    /// The change of speed from before to after, if both were measured.
    pub speed: Option<SpeedChange>,
    /// Once things had settled.
    pub settled: Option<Side>,
    /// The change of speed from before to settled, if both were measured.
    pub settled_speed: Option<SpeedChange>,
}

/// Means over some intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// How many intervals.
    pub intervals: u64,
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Share of lines from the core's own node.
    pub local_access_ratio: Option<f64>,
    /// Cycles per request to the uncore.
    pub uncore_penalty: Option<f64>,
    /// Instructions per second of CPU time. Intervals in which the thread ran, or was counted, for less than a tenth of
    /// the time are skipped.
    pub instructions_per_second: Option<f64>,
    /// The same for the slowest interval.
    pub slowest: Option<f64>,
    /// The same for the fastest interval.
    pub fastest: Option<f64>,
    /// Where the thread was found at the end of each interval.
    pub ran: Vec<Ran>,
    /// Share of its process's pages that were on [`Followed::node`] when last read in these intervals.
    pub pages_on_node: Option<f64>,
}

/// How a thread's speed changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedChange {
    /// Faster, slower or unchanged.
    pub change: Change,
    /// Speed after / speed before - 1, in percent.
    pub percent: f64,
}

/// Which way a speed changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// By 2 % or more, and faster than the fastest interval before.
    Faster,
    /// By 2 % or more, and slower than the slowest interval before.
    Slower,
    /// By less than 2 %, or by no more than it varied before.
    Unchanged,
}
