//! The trait of all worlds, and the order in which its methods may be called.
//!
//! [`World::topology`], [`World::signals`], [`World::waker`], [`World::affinity_of`] and [`World::bounds_of`] may be called
//! at any time. [`World::place_new_pages`] and then [`World::attend`] are called before time passes, and both again
//! whenever another policy takes over while the world runs (not between a [`World::run_for`] that has run its time and the
//! [`World::apply`] that follows). After their first calls, also before time passes, [`World::pager`] is called once: it
//! hands out the half of the world that samples accesses and moves pages at the faster cadence. What follows depends on
//! that half.
//!
//! *No pager.* For each placement interval [`World::run_for`], [`World::observe`], then
//! [`World::apply`], with page orders too, as often as there are orders. If [`World::sees_starts`], an interval's
//! [`World::run_for`] may be several, with [`World::started_with`] and [`World::apply`] in between.
//!
//! *A pager that runs by itself* (a live machine: time passes for everyone at once). The same, and
//! meanwhile, in a thread of its own, at the paging cadence: [`Pager::run_for`],
//! [`Pager::samples`], [`Pager::apply`] when there are orders. Neither waits for the other.
//!
//! *A pager in step* ([`Pager::in_step`]; a modelled machine: time passes because someone asks for
//! it). World and pager have one time. All calls come from one thread, so that the same orders
//! always meet the same state, and for each placement interval in this order:
//!
//! 1. until its time is used up, to the nanosecond, either [`Pager::run_for`] and then
//!    [`Pager::samples`] and [`Pager::notices`], or [`World::run_for`] where samples of that time are not wanted; after
//!    each, [`Pager::apply`] when there are orders. [`Pager::run_for`] is asked for at most the paging cadence,
//!    [`World::run_for`] for up to the whole interval;
//! 2. [`World::observe`], which covers all of that time;
//! 3. [`World::apply`] when there are affinity orders, then [`Pager::apply`] when there are page
//!    orders.
//!
//! [`Progress::Ended`] from either half ends the run: nothing follows except, for every world, one more [`World::observe`]
//! and [`World::apply`] that give back what was changed. After an error of [`Pager::samples`] the pager is dropped, and the
//! world goes on as one without.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::kinship::{Bound, Effort, Kinship, Search};
use crate::notice::Notice;
use crate::orders::{Orders, Outcome, PageOutcome};
use crate::plan::{Enforcement, PageOrder};
use crate::sample::Sample;
use crate::signal::{Signal, SignalReport};
use crate::snapshot::{ProcessId, Snapshot, ThreadId};

/// Whether a world goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The time has passed.
    Ran,
    /// Someone asked to stop, or what was watched has ended.
    Ended,
    /// Its waker was used ([`World::waker`]): the interval is not over, and goes on with another
    /// [`World::run_for`] or is ended early by [`World::observe`].
    Woken {
        /// What is left of the interval.
        left: Duration,
    },
}

/// Wakes a world that waits, from any thread. A world that does not wait just then is woken when it
/// begins to.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Where pages go when they are first touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewPages {
    /// The node of the thread that touches them first: the kernel's own rule.
    #[default]
    FirstTouch,
    /// All nodes in turn.
    Interleave,
    /// Any node, drawn from the world's own seed.
    Random,
}

impl fmt::Display for NewPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstTouch => "first touch",
            Self::Interleave => "interleave",
            Self::Random => "random",
        })
    }
}

/// Why a world cannot be observed any more. Failures on single threads or pages are no errors:
/// they are gaps in the snapshot or outcomes.
#[derive(Debug, thiserror::Error)]
#[error("cannot observe {world}: {reason}")]
pub struct WorldError {
    /// Which world.
    pub world: String,
    /// What was tried, on what, why it failed, what to do.
    pub reason: String,
}

/// A machine: observes and applies, never decides.
pub trait World {
    /// The machine.
    fn topology(&self) -> &Arc<Topology>;

    /// What can be measured here, in the order of [`crate::Signal::ALL`].
    fn signals(&self) -> &[SignalReport];

    /// How it carries out affinity orders.
    fn enforcement(&self) -> Enforcement {
        Enforcement::Affinity
    }

    /// What wakes it from [`World::run_for`], where that waits and can be woken. A pager's
    /// [`Pager::run_for`] is not woken by it.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Called with the signals that the policy needs. A world for which signals have a price need not pay for others. They
    /// also decide which accesses [`Pager::samples`] hands out where there are several kinds: TLB misses if
    /// [`Signal::TlbMisses`] is among them, else hint faults if [`Signal::HintFaults`] is, else memory samples. Without
    /// this call, a world measures what it likes.
    fn attend(&mut self, _needs: &[Signal]) {}

    /// Sets where pages go that are first touched from now on.
    ///
    /// # Errors
    /// When this world cannot place new pages there; then nothing has changed.
    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        match rule {
            NewPages::FirstTouch => Ok(()),
            NewPages::Interleave | NewPages::Random => Err(WorldError {
                world: "this kind of machine".to_owned(),
                reason: format!(
                    "new pages cannot be placed by the rule {rule} here; choose another policy"
                ),
            }),
        }
    }

    /// Lets the machine run for an interval of its own time (live: waits; modelled: computes). With a
    /// pager in step, accesses of that time are not sampled.
    fn run_for(&mut self, interval: Duration) -> Progress;

    /// What happened since the last call (or since the world began).
    ///
    /// # Errors
    /// When the world as a whole cannot be seen any more.
    fn observe(&mut self) -> Result<Snapshot, WorldError>;

    /// The mask that a thread has now, even if it has left the selection and is no longer in snapshots. `None` when it has
    /// ended, or when this world does not know.
    fn affinity_of(&self, _thread: ThreadId) -> Option<CpuSet> {
        None
    }

    /// The mask that a thread has now, with the CPUs that it may use; `None` as for [`World::affinity_of`].
    fn bounds_of(&mut self, thread: ThreadId) -> Option<Bounds> {
        let mask = self.affinity_of(thread)?;
        Some(Bounds::new(mask, self.topology().online_cpus()))
    }

    /// Gives the kernel some time to renew the masks of threads whose cpuset has just changed. A world in which that takes
    /// no time need not do anything.
    fn let_masks_settle(&mut self) {}

    /// Now, on the clock of threads' births.
    fn births_now(&self) -> u64 {
        0
    }

    /// Now, on a clock that does not jump; by it, the herd bounds what others may prolong. A world in which nothing happens
    /// unless it is asked for needs none.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// From which processes a process descends.
    fn kinship(&self, _process: ProcessId) -> Kinship {
        Kinship::default()
    }

    /// The threads of the whole machine, observed or not, that were born at `since` or later and have one of
    /// these masks, or what the kernel has left of one.
    fn bound_to(&mut self, _masks: &[Arc<CpuSet>], _since: u64, _effort: Effort) -> Search {
        Search::default()
    }

    /// Whether [`World::started_with`] finds any. Then a herd asks for them between two intervals, too.
    fn sees_starts(&self) -> bool {
        false
    }

    /// The threads of the whole machine that were started since the last call or observation, at `since` or later, with one
    /// of these masks. It costs little, and may miss some; [`World::bound_to`] does not.
    fn started_with(&mut self, _masks: &[Arc<CpuSet>], _since: u64) -> Vec<Bound> {
        Vec::new()
    }

    /// Carries out affinity orders, and page orders too when the pager has not been handed out.
    fn apply(&mut self, orders: &Orders) -> Outcome;

    /// Hands out the paging half; `None` when it cannot page, or has been handed out already.
    fn pager(&mut self) -> Option<Box<dyn Pager>>;
}

/// The half of a world that samples accesses and moves pages.
pub trait Pager: Send {
    /// Whether its time is the world's own and passes only when asked for, so that it must be run
    /// within the placement's loop. Otherwise it is run in a thread of its own.
    fn in_step(&self) -> bool {
        false
    }

    /// Lets the machine run for an interval of its own time.
    fn run_for(&mut self, interval: Duration) -> Progress;

    /// The accesses sampled since the last call, in time order. In step: those of the last
    /// [`Pager::run_for`].
    ///
    /// # Errors
    /// When samples are no longer available.
    fn samples(&mut self) -> Result<Vec<Sample>, WorldError>;

    /// The notices of [`Signal::TlbResidency`] since the last call, in time order; none where that is
    /// not measured.
    fn notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// Called when nothing that happens from now on is wanted before [`Pager::samples`] or [`Pager::notices`] is called
    /// again: until then, a pager need not sample, and forgets what has not been taken.
    fn rest(&mut self) {}

    /// Moves pages; one outcome per order, in their order.
    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome>;
}
