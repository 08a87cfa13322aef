//! Losses: how many cores the machine loses to caches and memory, and how many of them are recoverable, whatever
//! policy places threads.
//!
//! Problem: CPU use does not show whether a policy is worth having on a machine, since a thread that waits for
//! memory counts as busy. Rule: the estimates that `adaptive` decides by ([`crate::estimate`]) are made under
//! every policy. What the threads lose where they are is one figure; what the best layout that a search finds
//! would lose is another, and their difference is *recoverable*. A search costs more, so it is made only while
//! something is lost, in every [`SEARCHED_EACH`]th look.
//!
//! What the figures are estimated from decides how far they go ([`Basis`]):
//! * with counters and the uncore penalty, the draws of the estimate give a mean, a least and a most;
//! * with lines from memory alone, nothing says how many are in flight. The least is that of the draws, the most
//!   what the threads lose if each line is waited for in turn, and what is recoverable is not known;
//! * without counters, nothing says how much a thread uses memory. The least is 0, if it uses none; the most is
//!   what its process's remote pages cost if it waits for memory all the time. Caches and controllers are left
//!   out, and what is recoverable is not known;
//! * where not even that is known, only the reason is given ([`Unknown`]).
//!
//! The mean is shared out by cause ([`Parts`]), by taking away one cause after the other and solving the equations
//! again, and by process ([`ProcessLost`]), by what the equations say of each thread.
//!
//! Terms: a thread is *judged* if it wants at least [`LEAST_CPU_SHARE`] of a CPU; *lost cores* as in
//! [`crate::estimate`]. Source: chosen here.
//!
//! Properties: a range's figures ascend and are within the CPUs that the threads judged want; no more is
//! recoverable than is lost; processes lose no more together than the mean; equal input gives equal output.

use std::time::Duration;

use numaherd_topology::Topology;
use numaherd_world::{ProcessId, Snapshot};
use serde::{Deserialize, Serialize};

use crate::busy::{LEAST_CPU_SHARE, wanted};
pub use crate::estimate::{Basis, Parts};
use crate::estimate::{Estimator, Lost, Picture};
use crate::placement::adaptive::LEAST_GAIN;
use crate::placement::adaptive::search::{self, Balanced};
use crate::policy::{Needs, Random};
use crate::settings::{PlacementSettings, Settings};
use crate::stage::{PlacementRule, Seat, Stage, Staged};

/// The least time between two looks (chosen here; policies may decide more often).
const EACH: Duration = Duration::from_secs(1);
/// In a shorter interval nothing is judged: counters have hardly begun.
const LEAST_INTERVAL: Duration = Duration::from_millis(20);
/// While something is lost, a search is made in one of so many looks, beginning with the first.
const SEARCHED_EACH: u32 = 10;
/// What a search may cost: layouts times threads, and layouts.
const MOST_THREADS_TRIED: usize = 16_384;
const MOST_LAYOUTS: usize = 128;
/// The most processes that are named, and the least part of a core that each of them loses.
const MOST_PROCESSES: usize = 64;
const LEAST_OF_A_PROCESS: f64 = 0.005;
/// Threads that are not judged may use this much of a CPU together and still be left out.
const LITTLE: f64 = 1.0;

/// What the machine lost in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// CPUs that are online.
    pub cpus: u64,
    /// CPUs that the threads judged want together.
    pub judged: f64,
    /// What they lose.
    pub estimate: Estimate,
    /// The processes that lose most of the mean, those first; `None` where there is no mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessLost>>,
    /// Why the policy leaves what is recoverable; `None` where nothing is, or the policy does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
}

/// Why a policy leaves what is recoverable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Withheld {
    /// Hardly anything has been counted of most busy threads.
    New,
    /// What it did last is still being judged.
    Judging,
    /// What it did last gained nothing, so it tries nothing for a while.
    Resting,
    /// The processes lack credit for what it would cost.
    Credit,
    /// What it finds gains less than must be gained.
    Little,
    /// By some of the estimates, what it finds would lose.
    Unsure,
    /// In the last looks together, what it finds would not have gained enough, or no more than by chance.
    Fleeting,
    /// What it finds cannot be undone, and does not gain enough for that.
    ForGood,
    /// The kernel is about to move a thread by itself.
    Kernel,
    /// Over the time that the threads have been seen, the gain would not have paid for the moves.
    Young,
}

/// What the threads of a process lose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessLost {
    /// Which process.
    pub id: ProcessId,
    /// Cores, of the mean.
    pub lost: f64,
}

impl Losses {
    /// The same with why the policy leaves what is recoverable, if anything is.
    pub(crate) fn withheld(self, why: Option<Withheld>) -> Self {
        let could = match &self.estimate {
            Estimate::Known(known) => known.recoverable.as_ref().and_then(|range| range.mean),
            Estimate::Idle | Estimate::Unknown(_) => None,
        };
        let withheld = why.filter(|_| could.is_some_and(|cores| cores > 0.0));
        Self { withheld, ..self }
    }
}

/// What is known of what threads lose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimate {
    /// No thread wants enough of a CPU to lose much.
    Idle,
    /// Figures.
    Known(Known),
    /// None, and why.
    Unknown(Unknown),
}

/// Lost cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// What they are estimated from.
    pub from: Basis,
    /// Cores lost.
    pub lost: Range,
    /// Of these, cores that another placement would give back, as of the latest search; `None` before one, and
    /// where none can be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recoverable: Option<Range>,
    /// What the mean is lost to; `None` where there is no mean, or hardly anything is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
}

/// Why lost cores are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// Nothing was counted, and with one memory node there is no remote memory to judge by.
    NotCounted,
    /// Nothing was counted, and it is not known where most threads' memory is.
    NotSeen,
    /// Most of the CPU time is used by threads that each use little.
    FewJudged,
}

/// Cores: the least and the most that are possible, given what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// At least.
    pub least: f64,
    /// The mean over all draws; `None` where nothing says what is likely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// At most.
    pub most: f64,
}

impl Range {
    /// The range of the figures of all draws, each kept between 0 and `bound`.
    fn of(cores: &Lost, bound: f64) -> Self {
        let cores = cores.map(|cores| cores.clamp(0.0, bound));
        Self {
            least: rounded(cores.iter().copied().fold(bound, f64::min)),
            mean: Some(rounded(cores.iter().sum::<f64>() / cores.len() as f64)),
            most: rounded(cores.into_iter().fold(0.0, f64::max)),
        }
    }

    /// Adds another range of the same basis, so many times.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.least += other.least * times;
        self.mean = (other.mean).map(|mean| self.mean.unwrap_or(0.0) + mean * times);
        self.most += other.most * times;
    }

    /// Limits each figure to that of another range.
    fn within(self, other: &Self) -> Self {
        let mean = self.mean.zip(other.mean);
        Self {
            least: self.least.min(other.least),
            mean: mean.map(|(mean, other)| mean.min(other)),
            most: self.most.min(other.most),
        }
    }
}

/// Thousandths are enough.
fn rounded(cores: f64) -> f64 {
    (cores * 1000.0).round() / 1000.0
}

/// Divides a figure in proportion to these parts.
fn shared_out(figure: f64, parts: Parts) -> Parts {
    let parts = parts.times(figure / parts.sum().max(f64::MIN_POSITIVE));
    Parts {
        controllers: rounded(parts.controllers),
        remote: rounded(parts.remote),
        caches: rounded(parts.caches),
        cpus: rounded(parts.cpus),
    }
}

/// The processes that lose most of a mean of so many cores, and how much each loses.
fn by_process(picture: &Picture, mean: f64) -> Vec<ProcessLost> {
    let lost = picture.lost_by_process();
    let times = mean / lost.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let each = picture.processes.iter().zip(lost);
    let mut processes: Vec<ProcessLost> = each
        .map(|(process, lost)| ProcessLost {
            id: process.id,
            lost: rounded((lost * times).clamp(0.0, mean)),
        })
        .filter(|process| process.lost >= LEAST_OF_A_PROCESS)
        .collect();
    processes.sort_by(|a, b| b.lost.total_cmp(&a.lost).then(a.id.cmp(&b.id)));
    processes.truncate(MOST_PROCESSES);
    processes
}

/// Losses of one look after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    recoverable: Option<Range>,
}

impl Meter {
    /// Takes in what a search found: what is lost by each draw, and what would be lost then.
    pub(crate) fn searched(&mut self, lost: &Lost, then: &Lost) {
        let gained = std::array::from_fn(|draw| lost[draw] - then[draw]);
        self.recoverable = Some(Range::of(&gained, f64::INFINITY));
    }

    /// What the threads of a picture lose. `None` where the interval was too short to say.
    pub(crate) fn read(&self, stage: &Stage<'_>, picture: &Picture) -> Option<Losses> {
        if u128::from(stage.snapshot.interval_ns) < LEAST_INTERVAL.as_nanos() {
            return None;
        }
        let judged = picture.busy_cores();
        let estimate = self.estimate(stage, picture, judged);
        let processes = match &estimate {
            Estimate::Known(known) => known.lost.mean.map(|mean| match known.parts {
                Some(_) => by_process(picture, mean),
                None => Vec::new(),
            }),
            Estimate::Idle | Estimate::Unknown(_) => None,
        };
        Some(Losses {
            cpus: stage.snapshot.online.len() as u64,
            judged: rounded(judged),
            estimate,
            processes,
            withheld: None,
        })
    }

    fn estimate(&self, stage: &Stage<'_>, picture: &Picture, judged: f64) -> Estimate {
        let threads = stage.snapshot.threads.iter();
        let others = threads.map(|thread| wanted(thread).min(1.0)).sum::<f64>() - judged;
        if others >= LITTLE.max(judged) {
            return Estimate::Unknown(Unknown::FewJudged);
        }
        if picture.threads.is_empty() {
            return Estimate::Idle;
        }
        let covered = picture.covered();
        let is_counted = covered.counted >= judged / 2.0;
        if !is_counted && stage.topology.memory_nodes().len() < 2 {
            return Estimate::Unknown(Unknown::NotCounted);
        }
        if !is_counted && covered.resident < judged / 2.0 {
            return Estimate::Unknown(Unknown::NotSeen);
        }
        let mut lost = Range::of(&picture.lost_now(), judged);
        if picture.from == Basis::Residency {
            // Assumed figures are good enough to choose by, but not to show.
            lost = Range::default();
        }
        let recoverable = self.recoverable.map(|range| range.within(&lost));
        // For a thread that was not counted, only this is known.
        let uncounted = lost.most + picture.remote_at_most();
        lost.most = rounded(uncounted.max(picture.in_turn_at_most()).min(judged));
        let from = match is_counted {
            true if covered.with_uncore >= judged / 2.0 => Basis::Uncore,
            true => Basis::Counters,
            false => Basis::Residency,
        };
        lost.mean = lost.mean.filter(|_| from == Basis::Uncore);
        let worth = lost.mean.filter(|mean| *mean > LEAST_GAIN * judged);
        Estimate::Known(Known {
            from,
            lost,
            parts: worth.map(|mean| shared_out(mean, picture.parts_now())),
            recoverable: recoverable.filter(|_| from == Basis::Uncore),
        })
    }
}

/// Looks at a run for what its threads lose, whatever policy places them.
#[derive(Clone, Debug)]
pub struct Observer {
    staged: Staged<Observing>,
    looked_ns: Option<u64>,
}

impl Default for Observer {
    /// Nothing seen yet.
    fn default() -> Self {
        let settings = Settings {
            placement: PlacementSettings {
                least_cpu_share: LEAST_CPU_SHARE,
            },
            ..Settings::default()
        };
        Self {
            staged: Staged::new(&settings, Observing::default()),
            looked_ns: None,
        }
    }
}

impl Observer {
    /// What the machine lost in an interval; `None` where that was too short, or a look is not due yet. `own` is
    /// what the policy found itself; it is not worked out again.
    pub fn look(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        own: Option<Losses>,
    ) -> Option<Losses> {
        let until = snapshot.time_ns.saturating_add(snapshot.interval_ns / 2);
        let due = |since: u64| u128::from(until.saturating_sub(since)) >= EACH.as_nanos();
        if !self.looked_ns.is_none_or(due) {
            return None;
        }
        let losses = own.filter(|own| own.estimate != Estimate::Unknown(Unknown::FewJudged));
        let losses = losses.or_else(|| self.observe(snapshot, topology))?;
        self.looked_ns = Some(snapshot.time_ns);
        Some(losses)
    }

    fn observe(&mut self, snapshot: &Snapshot, topology: &Topology) -> Option<Losses> {
        // A machine at rest is not examined.
        if snapshot.threads.iter().map(wanted).sum::<f64>() < LEAST_CPU_SHARE {
            return Some(Losses {
                cpus: snapshot.online.len() as u64,
                judged: 0.0,
                estimate: Estimate::Idle,
                processes: None,
                withheld: None,
            });
        }
        let (stage, rule) = self.staged.set(snapshot, topology);
        rule.look(&stage)
    }
}

/// The observer's part on a stage.
#[derive(Clone, Debug, Default)]
struct Observing {
    estimator: Estimator,
    meter: Meter,
    /// Looks since a search.
    looks: u32,
}

impl Observing {
    fn look(&mut self, stage: &Stage<'_>) -> Option<Losses> {
        let picture = self.estimator.observe(stage);
        let now = picture.lost_now();
        let mean = now.iter().sum::<f64>() / now.len() as f64;
        self.looks = self.looks.saturating_sub(1);
        if mean <= LEAST_GAIN * picture.busy_cores() {
            self.meter.searched(&now, &now);
        } else if self.looks == 0 {
            self.looks = SEARCHED_EACH;
            self.search(stage, &picture, &now);
        }
        self.meter.read(stage, &picture)
    }

    fn search(&mut self, stage: &Stage<'_>, picture: &Picture, now: &Lost) {
        let balanced = Balanced::of(stage, picture);
        let most = MOST_THREADS_TRIED.div_ceil(picture.threads.len());
        let credit = vec![f64::INFINITY; picture.processes.len()];
        let most = most.min(MOST_LAYOUTS);
        let found = search::best(stage, picture, Vec::new(), &credit, balanced, most);
        let then = found.lost(picture);
        self.meter.searched(now, &then);
    }
}

impl PlacementRule for Observing {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn seat(&mut self, _: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
