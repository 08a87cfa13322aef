//! Candidates: which threads BRM moves at all.
//!
//! Problem: moving between nodes helps only threads that wait much for what is beyond their own caches; all
//! others are better left to the kernel (BRM §4.3).
//!
//! Rules; the settings choose one of them for every process:
//! * *By tags* (§4.3): a thread is a candidate where its own mask, or the agent in its virtual
//!   machine, says so ([`Tag`]).
//! * *Inferred* (§8, the paper's future work), each interval in which something was seen of the
//!   thread:
//!   1. *Often*: a thread becomes a candidate ([`Standing::Frequent`]) when its requests to the uncore per
//!      second, averaged as the penalty is ([`Average`]), reach `requests_per_s`, and stays one until they
//!      fall below half of that ([`Standing::Quiet`]).
//!   2. *Does not care*: when a candidate has come to another node and has been seen there in 8
//!      intervals, the mean of its own penalty in these is compared with its average when it left
//!      the node before. If they differ by less than `least_change`, it is no longer a candidate
//!      ([`Standing::Insensitive`]) for about the time after which BRM forgets all that it knows (the middle
//!      of the two settings, without chance).
//!   3. Then it is judged by 1 again.
//! * *Auto*: by tags if the process has any (a tag on any of its threads, or an agent that is being heard),
//!   else inferred.
//!
//! Choices:
//! * *Per second, not per instruction.* A request costs at most some 50 ns more on the wrong node
//!   (the difference of local and remote memory on the machines of BRM, N-MASS and their
//!   successors), so requests per second times that is the share of its time that a thread could
//!   gain. 1,000,000 per second make 5 %, several times what exploring costs it. By the same scale, a vCPU
//!   that seldom wakes is no candidate, whatever its rate per instruction. Of SPEC CPU2006, this takes in what
//!   DINO calls devils and leaves out its turtles (povray, calculix, h264ref). Programs that prefetching helps
//!   (lbm, bwaves) make few demand requests, and are left out although they need bandwidth: the uncore penalty
//!   does not show it either.
//! * *Half of it*, so that a thread stays a candidate if a move slows it down and it therefore makes fewer
//!   requests.
//! * *8 intervals*: as many as an average with a weight of 1/8 looks back on.
//!
//! Standings depend neither on chance nor on orders, so the same snapshots always give the same standings: see
//! [`Accuracy`].
//!
//! Properties: by tags, candidates are exactly the threads that a tag makes candidates; inferred, a thread
//! that never reaches the rate is never one, and a thread that has been on one node only is never dropped.

use std::collections::HashSet;
use std::fmt;

use numaherd_files::choices;
use numaherd_topology::Topology;
use numaherd_world::{Agent, ProcessId, Snapshot, Tag, Thread};

use crate::memory::PerThread;
use crate::settings::{BrmSettings, Settings};
use crate::uncore::{self, Average};

choices! {
    /// What makes a thread a candidate: one that BRM moves at all.
    pub enum CandidatesBy {
        /// Tags in processes that have any; in others, what is observed of the thread.
        #[default]
        Auto = "auto",
        /// Tags alone, which users or agents in virtual machines set (BRM 4.3).
        Tagged = "tagged",
        /// What is observed of the thread alone (BRM 8).
        Inferred = "inferred",
        /// Every thread is a candidate.
        All = "all",
    }
}

/// Intervals with a sample after which a stay on a node can be compared with another: see the top.
const COMPARABLE: u32 = 8;
/// The share of `requests_per_s` below which a candidate is no longer one.
const STAYS_FREQUENT: f64 = 0.5;

/// Whether a thread is a candidate, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// All threads are.
    Everybody,
    /// It is tagged: a candidate where the tag makes it one.
    Tagged(Tag),
    /// Tags decide, and it has none: no candidate.
    Untagged,
    /// Inferred: it goes to the uncore often. A candidate.
    Frequent {
        /// Its requests per second, averaged.
        requests_per_s: f64,
    },
    /// Inferred: it does not go there often. No candidate.
    Quiet {
        /// Its requests per second, averaged; 0 where none were measured.
        requests_per_s: f64,
    },
    /// Inferred: it goes there often, but fared as well on one node as on another. No candidate.
    Insensitive {
        /// The share by which its penalty changed.
        changed_by: f64,
    },
}

impl Standing {
    /// Whether the thread is a candidate.
    pub fn is_candidate(self) -> bool {
        match self {
            Self::Everybody | Self::Frequent { .. } => true,
            Self::Tagged(tag) => tag.is_candidate(),
            Self::Untagged | Self::Quiet { .. } | Self::Insensitive { .. } => false,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_s = |f: &mut fmt::Formatter<'_>, before: &str, rate: f64| {
            let millions = rate / 1e6;
            write!(
                f,
                "{before} to the uncore ({millions:.2} million requests/s)"
            )
        };
        match *self {
            Self::Everybody => f.write_str("all threads are candidates"),
            Self::Tagged(Tag::Mask) => f.write_str("its CPU mask is smaller than the machine"),
            Self::Tagged(Tag::Agent) => f.write_str("the agent in its machine says so"),
            Self::Tagged(Tag::Clear) => {
                f.write_str("the agent in its machine says that it is none")
            }
            Self::Untagged => f.write_str("nobody says so"),
            Self::Frequent { requests_per_s } => per_s(f, "goes often", requests_per_s),
            Self::Quiet { requests_per_s } => per_s(f, "goes seldom", requests_per_s),
            Self::Insensitive { changed_by } => {
                let percent = changed_by * 100.0;
                write!(f, "another node changed its penalty by {percent:.1} % only")
            }
        }
    }
}

/// Judges which threads are candidates; see the top of this file.
#[derive(Clone, Debug)]
pub struct Candidates {
    settings: BrmSettings,
    threads: PerThread<Watched>,
    standings: Vec<Standing>,
}

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    requests_per_s: Average,
    state: State,
    here: Stay,
    /// The last stay on another node that can be compared.
    before: Option<(usize, f64)>,
}

/// What an inferred standing remembers.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Quiet,
    Frequent,
    Insensitive {
        until_ns: u64,
        changed_by: f64,
    },
}

/// A thread's stay on a node.
#[derive(Clone, Copy, Debug, Default)]
struct Stay {
    /// By its place in the topology.
    node: usize,
    samples: u32,
    /// Of the first [`COMPARABLE`] samples.
    sum: f64,
    average: Average,
}

impl Candidates {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.brm,
            threads: PerThread::default(),
            standings: Vec::new(),
        }
    }

    /// Takes in an interval. Returns the standing of each thread, in the snapshot's order.
    pub fn judge(&mut self, snapshot: &Snapshot, topology: &Topology) -> &[Standing] {
        let by = self.settings.candidates;
        let tells = match by {
            CandidatesBy::Auto => who_tells(snapshot),
            _ => HashSet::new(),
        };
        let until_ns = snapshot
            .time_ns
            .saturating_add(self.judged_again_after_ns(topology));
        let settings = self.settings;
        let judge = |(thread, watched): (&Thread, &mut Watched)| match by {
            CandidatesBy::All => Standing::Everybody,
            CandidatesBy::Auto | CandidatesBy::Inferred if !tells.contains(&thread.process) => {
                let another = watched.see(thread, snapshot, topology);
                watched.infer(&settings, another, snapshot.time_ns, until_ns)
            }
            _ => thread.tag.map_or(Standing::Untagged, Standing::Tagged),
        };
        let watched = self.threads.line_up(&snapshot.threads);
        self.standings = snapshot.threads.iter().zip(watched).map(judge).collect();
        &self.standings
    }

    /// The standing of a thread in the interval that was judged last, by its place in the snapshot.
    pub fn standing(&self, thread: usize) -> Standing {
        self.standings[thread]
    }

    /// For how many ns a thread that does not care is left out.
    fn judged_again_after_ns(&self, topology: &Topology) -> u64 {
        let BrmSettings {
            forget_after_least_ms: least,
            forget_after_most_ms: most,
            ..
        } = self.settings;
        let with_cpus = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
        let others = with_cpus.count().saturating_sub(1).max(1) as u64;
        (least.midpoint(most))
            .saturating_mul(1_000_000)
            .saturating_mul(others)
    }
}

/// The processes for which users or agents say which threads are candidates.
fn who_tells(snapshot: &Snapshot) -> HashSet<ProcessId> {
    let tagged = snapshot
        .threads
        .iter()
        .filter(|thread| thread.tag.is_some());
    let heard = snapshot.processes.iter().filter(|process| {
        let machine = process.machine.as_ref();
        machine.is_some_and(|machine| machine.agent == Agent::Telling)
    });
    let tagged = tagged.map(|thread| thread.process);
    tagged.chain(heard.map(|process| process.id)).collect()
}

impl Watched {
    /// Takes in an interval of the thread. Returns the share by which another node changed its penalty, in the
    /// first interval in which that is known.
    fn see(&mut self, thread: &Thread, snapshot: &Snapshot, topology: &Topology) -> Option<f64> {
        let slept = || (thread.cpu_share == 0.0).then_some(0);
        let requests = thread
            .counts
            .map_or_else(slept, |counts| counts.uncore_requests);
        let seconds = snapshot.interval_ns.max(1) as f64 / 1e9;
        self.requests_per_s
            .observe(requests.map(|requests| requests as f64 / seconds));
        let sample = uncore::sample(thread.counts.as_ref()?)?;
        let node = topology.node_index(topology.node_of(thread.cpu)?)?;
        if self.here.node != node {
            let comparable = self.here.samples >= COMPARABLE;
            let left = self.here.average.value().filter(|_| comparable);
            self.before = left.map(|mean| (self.here.node, mean)).or(self.before);
            self.here = Stay {
                node,
                ..Stay::default()
            };
        }
        self.here.samples = self.here.samples.saturating_add(1);
        self.here.average.observe(Some(sample));
        if self.here.samples <= COMPARABLE {
            self.here.sum += sample;
        }
        let (elsewhere, then) = self.before?;
        let mean = self.here.sum / f64::from(COMPARABLE);
        let told = self.here.samples == COMPARABLE && elsewhere != node && then > 0.0;
        told.then(|| (mean - then).abs() / then)
    }

    /// The standing that follows; `another` is what [`Watched::see`] gave.
    fn infer(
        &mut self,
        settings: &BrmSettings,
        another: Option<f64>,
        now_ns: u64,
        until_ns: u64,
    ) -> Standing {
        let requests_per_s = self.requests_per_s.value().unwrap_or_default();
        let often = requests_per_s >= settings.requests_per_s;
        let still = requests_per_s >= settings.requests_per_s * STAYS_FREQUENT;
        let little = another.filter(|&changed_by| changed_by < settings.least_change);
        self.state = match (self.state, little) {
            (State::Frequent, Some(changed_by)) => State::Insensitive {
                until_ns,
                changed_by,
            },
            (State::Insensitive { until_ns, .. }, _) if now_ns < until_ns => self.state,
            (State::Frequent, None) if still => State::Frequent,
            _ if often => State::Frequent,
            _ => State::Quiet,
        };
        match self.state {
            State::Quiet => Standing::Quiet { requests_per_s },
            State::Frequent => Standing::Frequent { requests_per_s },
            State::Insensitive { changed_by, .. } => Standing::Insensitive { changed_by },
        }
    }
}

/// How well inferred standings agree with what users and agents say: of the threads about which they say
/// anything, how many are which.
///
/// To measure it on any run: keep a [`Candidates`] with `candidates = "inferred"`, show it the
/// run's snapshots, and count each with [`Accuracy::count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Candidates by both.
    pub both: u64,
    /// Candidates by their tags alone: missed.
    pub missed: u64,
    /// Candidates by what was seen alone: taken wrongly.
    pub wrong: u64,
    /// Candidates by neither.
    pub neither: u64,
}

impl Accuracy {
    /// Counts the threads of an interval, with the standings that [`Candidates::judge`] gave of it.
    /// If a process has a tag on any thread, or an agent that is heard, its threads without a tag count as no
    /// candidates; other processes do not count.
    pub fn count(&mut self, snapshot: &Snapshot, standings: &[Standing]) {
        let tells = who_tells(snapshot);
        for (thread, standing) in snapshot.threads.iter().zip(standings) {
            if !tells.contains(&thread.process) {
                continue;
            }
            let tagged = thread.tag.is_some_and(Tag::is_candidate);
            *match (tagged, standing.is_candidate()) {
                (true, true) => &mut self.both,
                (true, false) => &mut self.missed,
                (false, true) => &mut self.wrong,
                (false, false) => &mut self.neither,
            } += 1;
        }
    }

    /// Of those inferred, the share that is tagged; `None` where none was inferred.
    pub fn precision(&self) -> Option<f64> {
        share(self.both, self.wrong)
    }

    /// Of those tagged, the share that was inferred; `None` where none is tagged.
    pub fn recall(&self) -> Option<f64> {
        share(self.both, self.missed)
    }
}

fn share(of: u64, and: u64) -> Option<f64> {
    let all = of + and;
    (all > 0).then(|| of as f64 / all as f64)
}

#[cfg(test)]
mod tests;
