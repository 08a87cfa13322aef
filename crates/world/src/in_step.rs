//! What worlds share if their time passes only when it is asked for: one machine behind two halves,
//! the world and its pager, which are called from one thread ([`crate::World`] says in which order).
//!
//! Such a world defines what its snapshots hold ([`InStep::snapshot`]); its machine defines how time
//! passes and what orders do ([`Machine`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};

use crate::notice::Notice;
use crate::orders::{AffinityOrder, AffinityOutcome, AffinityResult, Orders, Outcome, PageOutcome};
use crate::plan::PageOrder;
use crate::sample::Sample;
use crate::signal::{Signal, SignalReport};
use crate::snapshot::{Snapshot, ThreadId};
use crate::world::{NewPages, Pager, Progress, World, WorldError};

/// A machine whose time passes only when it is asked for.
pub trait Machine: Send + 'static {
    /// Whether everything has run to its end.
    fn is_over(&self) -> bool;

    /// Lets time pass; accesses of that time are not sampled.
    fn advance(&mut self, interval: Duration);

    /// Lets time pass, and keeps the samples and notices of that time alone.
    fn advance_sampled(&mut self, interval: Duration) {
        self.advance(interval);
    }

    /// The samples of the last [`Machine::advance_sampled`], in time order.
    fn samples(&mut self) -> Vec<Sample>;

    /// Its notices, in time order.
    fn notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// As [`World::attend`].
    fn attend(&mut self, _needs: &[Signal]) {}

    /// As [`World::place_new_pages`].
    ///
    /// # Errors
    /// When new pages cannot go there.
    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError>;

    /// The mask of a thread that has not ended.
    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet>;

    /// Carries out an order.
    fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult;

    /// Called when all affinities of an interval are set.
    fn placed(&mut self) {}

    /// Carries out an order.
    fn move_pages(&mut self, order: &PageOrder) -> PageOutcome;
}

/// A machine with what the world's half of it knows.
#[derive(Debug)]
pub struct Shared<M> {
    machine: Arc<Mutex<M>>,
    topology: Arc<Topology>,
    signals: Vec<SignalReport>,
    observed: u64,
    pager_out: bool,
}

impl<M> Shared<M> {
    /// A machine before its time begins.
    pub fn new(machine: M, topology: Arc<Topology>, signals: Vec<SignalReport>) -> Self {
        Self {
            machine: Arc::new(Mutex::new(machine)),
            topology,
            signals,
            observed: 0,
            pager_out: false,
        }
    }

    /// The machine.
    pub fn machine(&self) -> MutexGuard<'_, M> {
        lock(&self.machine)
    }

    /// The machine, for a caller that changes the world's half meanwhile.
    pub fn handle(&self) -> Arc<Mutex<M>> {
        self.machine.clone()
    }
}

/// Locks a machine. A panic elsewhere leaves it between two events, so its state can be trusted.
pub fn lock<M>(machine: &Mutex<M>) -> MutexGuard<'_, M> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A world with a pager in step: [`World`] and [`Pager`] follow from it.
pub trait InStep {
    /// What the two halves share.
    type Machine: Machine;

    /// The machine.
    fn shared(&self) -> &Shared<Self::Machine>;

    /// The machine.
    fn shared_mut(&mut self) -> &mut Shared<Self::Machine>;

    /// What happened since the last call, as the snapshot of this number.
    fn snapshot(&mut self, sequence: u64) -> Snapshot;
}

impl<W: InStep> World for W {
    fn topology(&self) -> &Arc<Topology> {
        &self.shared().topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.shared().signals
    }

    fn attend(&mut self, needs: &[Signal]) {
        self.shared().machine().attend(needs);
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        self.shared().machine().place_new_pages(rule)
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        let mut machine = self.shared().machine();
        if machine.is_over() {
            return Progress::Ended;
        }
        machine.advance(interval);
        Progress::Ran
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let sequence = self.shared().observed;
        self.shared_mut().observed += 1;
        Ok(self.snapshot(sequence))
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        self.shared().machine().affinity_of(thread)
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let mut machine = self.shared().machine();
        let affinities = orders.affinities.iter().map(|order| AffinityOutcome {
            thread: order.thread,
            result: machine.set_affinity(order),
        });
        let affinities = affinities.collect();
        machine.placed();
        let pages = orders.pages.iter().map(|order| machine.move_pages(order));
        let pages = pages.collect();
        Outcome { affinities, pages }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        let shared = self.shared_mut();
        if std::mem::replace(&mut shared.pager_out, true) {
            return None;
        }
        Some(Box::new(InStepPager {
            machine: shared.handle(),
        }))
    }
}

/// The half that samples accesses and moves pages.
struct InStepPager<M> {
    machine: Arc<Mutex<M>>,
}

impl<M: Machine> Pager for InStepPager<M> {
    fn in_step(&self) -> bool {
        true
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        let mut machine = lock(&self.machine);
        if machine.is_over() {
            return Progress::Ended;
        }
        machine.advance_sampled(interval);
        Progress::Ran
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        Ok(lock(&self.machine).samples())
    }

    fn notices(&mut self) -> Vec<Notice> {
        lock(&self.machine).notices()
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let mut machine = lock(&self.machine);
        let outcomes = orders.iter().map(|order| machine.move_pages(order));
        outcomes.collect()
    }
}
