//! What a policy is: a placement joined with a paging.
//!
//! The placement runs once an interval (1 s in DINO), the paging far more often (10 ms), on a live
//! machine in a thread of its own. What passes from the first to the second is [`Settled`].

use std::time::Duration;

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{
    NewPages, Notice, PageOrder, PageOutcome, Placement, ProcessId, Release, Sample, Sharing,
    Signal, Snapshot, Stray, ThreadId,
};

/// The generator that policies draw from. Named, so that a recorded seed means the same anywhere.
pub type Random = rand_xoshiro::Xoshiro256PlusPlus;

/// Decides which core each thread runs on.
pub trait Place: Send {
    /// The signals it cannot do without.
    fn needs(&self) -> &[Signal];

    /// Whether it goes by what the paging finds out about who shares pages ([`Paging::shared`]).
    fn needs_found_sharing(&self) -> bool {
        false
    }

    /// How often it is to be asked where nobody sets that, if not as often as most: its source's
    /// cadence.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// How far its threads may stray from the cores that it names where nobody sets that, if not as
    /// far as most: what it decides, and what it leaves to the kernel.
    fn stray(&self) -> Option<Stray> {
        None
    }

    /// The threads that are to move, each with its reason. A thread that is not named stays.
    ///
    /// A thread that was never given a core may be named with the one it is on (`from == to`): it
    /// is held there from now on, and is settled. That is no move.
    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Placement>;

    /// The threads that it gives back to the kernel: they get their own affinity back, and count as
    /// never placed until it names them again. Asked right after [`Place::place`], with the same
    /// snapshot; a thread that was just placed, or that holds no core of ours, is refused.
    fn release(&mut self, _snapshot: &Snapshot) -> Vec<Release> {
        Vec::new()
    }
}

/// What a placement says itself of how it is to be run, where nobody sets that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// See [`Place::interval`].
    pub interval: Option<Duration>,
    /// See [`Place::stray`].
    pub stray: Option<Stray>,
}

impl Own {
    /// What a placement says of itself.
    pub fn of(placement: &dyn Place) -> Self {
        Self {
            interval: placement.interval(),
            stray: placement.stray(),
        }
    }
}

/// A thread that the placement has settled: where it is to run from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// The node of the core that it has been given.
    pub node: NodeId,
    /// The node of the core that it had before, when this interval's plan moved it.
    pub moved_from: Option<NodeId>,
}

/// Decides which node each page lives on.
pub trait Paging: Send {
    /// The signals it cannot do without.
    fn needs(&self) -> &[Signal] {
        &[]
    }

    /// What a person should know about what it goes by, a sentence; said once when a run begins.
    fn caveat(&self) -> Option<&'static str> {
        None
    }

    /// Told once an interval, after the placement has been carried out: all threads that have been
    /// given a core, ascending by thread. Threads that are not named any more are forgotten.
    fn settled(&mut self, _threads: &[Settled], _snapshot: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Whether samples or notices could lead to an order now. A world that computes its samples (a model) is
    /// spared them until this says so again; one that takes them anyway hands them on all the same.
    fn listens(&self) -> bool {
        true
    }

    /// Told at the paging cadence: the accesses sampled since the last call, in time order.
    fn sampled(
        &mut self,
        _samples: &[Sample],
        _topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Told at the paging cadence, after [`Paging::sampled`]: the findings of a unit at the TLBs
    /// since the last call, in time order. Most pagings go by samples alone.
    fn noticed(&mut self, _notices: &[Notice], _topology: &Topology) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Whether it finds out from samples how much threads share pages.
    fn finds_sharing(&self) -> bool {
        false
    }

    /// How much threads shared pages since the last call, as far as it finds that out itself. Asked
    /// once an interval; it becomes [`numaherd_world::Process::sharing`] of a snapshot that the
    /// placement sees.
    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        Vec::new()
    }

    /// Told what became of its orders.
    fn moved(&mut self, _outcomes: &[PageOutcome]) {}
}

/// A placement joined with a paging, under a name.
pub struct Policy {
    /// The name that was asked for, for instance `dino` or `dino+whole-set`.
    pub name: String,
    /// Which core each thread runs on.
    pub placement: Box<dyn Place>,
    /// Which node each page lives on.
    pub paging: Box<dyn Paging>,
    /// Where pages go that are touched for the first time.
    pub new_pages: NewPages,
}

impl Policy {
    /// All signals that its halves cannot do without, each once.
    pub fn needs(&self) -> Vec<Signal> {
        let mut needs = [self.placement.needs(), self.paging.needs()].concat();
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}
