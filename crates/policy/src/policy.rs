//! What a policy is: a placement joined with a paging.
//!
//! The placement runs once an interval (1 s in DINO), the paging far more often (10 ms), on a live
//! machine in a thread of its own. What passes from the first to the second is [`PlacedThread`], and where the first limits
//! how much the second may move, [`Place::rations`].

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{
    AffinityScope, NewPages, Notice, PageOrder, PageOutcome, Placement, ProcessId, Release, Sample,
    Sharing, Signal, Snapshot, Thread, ThreadId,
};

use crate::losses::Losses;

/// The generator that policies draw from. Named, so that a recorded seed means the same anywhere.
pub type Random = rand_xoshiro::Xoshiro256PlusPlus;

/// Decides which core each thread runs on.
pub trait Place: Send {
    /// What it needs, and how it runs where the user does not say.
    fn needs(&self) -> Needs<'_>;

    /// The threads that are to move, each with its reason. A thread that is not named stays.
    ///
    /// A thread that was never given a core may be named with the one it is on (`from == to`): it
    /// is held there from now on, and is placed. That is no move.
    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Placement>;

    /// The pages that it wants moved together with its threads. Asked right after [`Place::place`], with the
    /// same snapshot; what its paging wants comes on top.
    fn pages(&mut self, _snapshot: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    /// How many base pages of a process its paging may order in all, since the process was first named here, where that is
    /// limited. Asked right after [`Place::place`].
    fn rations(&self) -> Vec<(ProcessId, u64)> {
        Vec::new()
    }

    /// How long the next interval should be at most; `None`: as long as the loop's own. Asked before the first
    /// snapshot and after each [`Place::place`].
    fn next_look(&self) -> Option<Duration> {
        None
    }

    /// What the machine loses, where it estimates that to decide. Asked right after [`Place::place`], of the same
    /// snapshot.
    fn losses(&mut self) -> Option<Losses> {
        None
    }

    /// Told what became of page orders, its own and others'.
    fn moved(&mut self, _outcomes: &[PageOutcome]) {}

    /// The threads that it gives back to the kernel: they get their own affinity back, and count as
    /// never placed until it names them again. Asked right after [`Place::place`], with the same
    /// snapshot; a thread that was just placed, or that holds no core of ours, is refused.
    fn release(&mut self, _snapshot: &Snapshot) -> Vec<Release> {
        Vec::new()
    }
}

/// What a placement needs, and how it runs where the user does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs<'a> {
    /// The signals it cannot do without.
    pub signals: &'a [Signal],
    /// Signals that it uses where they can be had.
    pub also: &'a [Optional],
    /// Whether it needs to know who shares pages, which the paging finds out ([`Paging::shared`]).
    pub found_sharing: bool,
    /// How it runs where the user does not say.
    pub own: Own,
}

/// A signal that is used where it can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optional {
    /// Which.
    pub signal: Signal,
    /// What is done without it: a sentence, said once when a run begins where the signal is missing.
    pub without: &'static str,
}

impl<'a> Needs<'a> {
    /// These signals and nothing else.
    pub const fn of(signals: &'a [Signal]) -> Self {
        Self {
            signals,
            also: &[],
            found_sharing: false,
            own: Own {
                interval: None,
                scope: None,
            },
        }
    }
}

/// How a placement runs where the user does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// How often it decides: its source's cadence. `None`: as often as most.
    pub interval: Option<Duration>,
    /// How far from the cores that it names its threads may run: what it decides, and what it leaves to
    /// the kernel. `None`: as far as with most.
    pub scope: Option<AffinityScope>,
}

/// A thread that its placement has given a core: where it runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedThread {
    /// Which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// Where its pages would be near: the node of the core that it has been given, or, where that has no
    /// memory, the nearest that has.
    pub node: NodeId,
    /// The same of the core that it had before, when this interval's plan moved it.
    pub moved_from: Option<NodeId>,
}

impl PlacedThread {
    /// A thread of a snapshot that has been given this core; `None` where the machine has no such core.
    pub fn on(thread: &Thread, core: CpuId, topology: &Topology) -> Option<Self> {
        let near = |cpu| Some(topology.memory_near(topology.node_of(cpu)?));
        let before = near(thread.place());
        Some(Self {
            thread: thread.id,
            process: thread.process,
            node: near(core)?,
            moved_from: before.filter(|_| thread.place() != core),
        })
    }
}

/// What a paging needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagingNeeds<'a> {
    /// The signals it cannot do without.
    pub signals: &'a [Signal],
    /// Signals that it uses where they can be had.
    pub also: &'a [Optional],
    /// What a person should know about these, a sentence; said once when a run begins.
    pub caveat: Option<&'static str>,
    /// Whether it finds out from samples how much threads share pages.
    pub finds_sharing: bool,
}

impl<'a> PagingNeeds<'a> {
    /// These signals and nothing else.
    pub const fn of(signals: &'a [Signal]) -> Self {
        Self {
            signals,
            also: &[],
            caveat: None,
            finds_sharing: false,
        }
    }

    /// These signals, which also show how much threads share pages.
    pub const fn finding_sharing(signals: &'a [Signal]) -> Self {
        Self {
            finds_sharing: true,
            ..Self::of(signals)
        }
    }
}

/// Decides which node each page lives on.
pub trait Paging: Send {
    /// What it decides from.
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::default()
    }

    /// Told once, before anything else: the machine.
    fn runs_on(&mut self, _machine: &Arc<Topology>) {}

    /// Whether it ever orders pages to move.
    fn moves_pages(&self) -> bool {
        true
    }

    /// Told once an interval, after the placement has been carried out: all threads that have been
    /// given a core, ascending by thread. Threads that are not named any more are forgotten.
    fn placed(&mut self, _threads: &[PlacedThread], _snapshot: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Told once an interval, before [`Paging::placed`]: the placement's [`Place::rations`]. Of a process that is not named, it
    /// may order as much as it likes. Only a paging that leaves it to the placement when memory is to move needs to follow
    /// this.
    fn rationed(&mut self, _rations: &[(ProcessId, u64)]) {}

    /// Whether samples or notices could lead to an order now. A world is spared them until this says so again.
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
        let mut needs = [self.placement.needs().signals, self.paging.needs().signals].concat();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// The signals that its halves use where they can be had.
    pub fn also(&self) -> Vec<Optional> {
        [self.placement.needs().also, self.paging.needs().also].concat()
    }
}
