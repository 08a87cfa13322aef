//! What a policy is: a placement joined with a paging.
//!
//! The placement runs once an interval (1 s in DINO), the paging far more often (10 ms); on a live machine, the paging has
//! a thread of its own. The placement passes [`PlacedThread`] to the paging and, where it limits how much the paging may
//! move, [`Place::rations`].

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{
    AffinityScope, NewPages, Notice, PageOrder, PageOutcome, Placement, ProcessId, Release, Sample,
    Sharing, Signal, Snapshot, Thread, ThreadId,
};

use crate::losses::Losses;

/// The generator that policies draw from. It is fixed, so a recorded seed means the same everywhere.
pub type Random = rand_xoshiro::Xoshiro256PlusPlus;

/// Decides which core each thread runs on.
pub trait Place: Send {
    /// What it needs, and how it runs unless the user says otherwise.
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

    /// The pages that it wants moved together with its threads. Asked right after [`Place::place`], with the same snapshot.
    /// Orders of the paging are added to these.
    fn pages(&mut self, _snapshot: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    /// The most base pages of each process that its paging may order, counted since the process was first named here. A
    /// process that is not named has no limit. Asked right after [`Place::place`].
    fn rations(&self) -> Vec<(ProcessId, u64)> {
        Vec::new()
    }

    /// The longest that the next interval should be; `None`: as long as the loop's own. Asked before the first snapshot and
    /// after each [`Place::place`].
    fn next_look(&self) -> Option<Duration> {
        None
    }

    /// What the machine loses, if the placement estimates that. Asked right after [`Place::place`], for the same snapshot.
    fn losses(&mut self) -> Option<Losses> {
        None
    }

    /// Called with the outcomes of page orders, its own and others'.
    fn moved(&mut self, _outcomes: &[PageOutcome]) {}

    /// The threads that it gives back to the kernel: they get their own affinity back, and count as
    /// never placed until it names them again. Asked right after [`Place::place`], with the same
    /// snapshot; a thread that was just placed, or that holds no core of ours, is refused.
    fn release(&mut self, _snapshot: &Snapshot) -> Vec<Release> {
        Vec::new()
    }
}

/// What a placement needs, and how it runs unless the user says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs<'a> {
    /// The signals it cannot do without.
    pub signals: &'a [Signal],
    /// Signals that it uses where they are available.
    pub also: &'a [Optional],
    /// Whether it needs to know which threads share pages; the paging finds that out ([`Paging::shared`]).
    pub found_sharing: bool,
    /// How it runs unless the user says otherwise.
    pub own: Own,
}

/// A signal that is used where it is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optional {
    /// Which.
    pub signal: Signal,
    /// What the policy does without it: a sentence, shown once when a run begins without the signal.
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

/// How a placement runs unless the user says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// How often it decides: the cadence of its source. `None`: as often as the loop does.
    pub interval: Option<Duration>,
    /// How far from the core that it names a thread may run; within that, the kernel decides. `None`:
    /// [`AffinityScope::default`].
    pub scope: Option<AffinityScope>,
}

/// A thread that its placement has given a core: where it runs from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedThread {
    /// Which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// The node of the core that it has been given or, if that node has no memory, the nearest node that has.
    pub node: NodeId,
    /// The same for the core that it had before, if this interval's plan moved it.
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
    /// Signals that it uses where they are available.
    pub also: &'a [Optional],
    /// What a person should know about these signals: a sentence, shown once when a run begins.
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

    /// Called once, before any other call, with the machine.
    fn runs_on(&mut self, _machine: &Arc<Topology>) {}

    /// Whether it ever orders pages to move.
    fn moves_pages(&self) -> bool {
        true
    }

    /// Called once an interval, after the placement has been carried out, with all threads that have been given a core,
    /// ascending by thread. Threads that are no longer named are forgotten.
    fn placed(&mut self, _threads: &[PlacedThread], _snapshot: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Called once an interval, before [`Paging::placed`], with the placement's [`Place::rations`]. A process that is not
    /// named has no limit. Only a paging that lets the placement decide when memory moves must keep to them.
    fn rationed(&mut self, _rations: &[(ProcessId, u64)]) {}

    /// Whether samples or notices could lead to an order now. While they could not, the world need not provide them.
    fn listens(&self) -> bool {
        true
    }

    /// Called at the paging cadence with the accesses sampled since the last call, in time order.
    fn sampled(
        &mut self,
        _samples: &[Sample],
        _topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Called at the paging cadence, after [`Paging::sampled`], with the findings of a unit at the TLBs since the last
    /// call, in time order. Most pagings use samples alone.
    fn noticed(&mut self, _notices: &[Notice], _topology: &Topology) -> Vec<PageOrder> {
        Vec::new()
    }

    /// How much threads shared pages since the last call, if the paging finds that out itself. Asked once an interval; the
    /// placement sees it as [`numaherd_world::Process::sharing`] of a snapshot.
    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        Vec::new()
    }

    /// Called with the outcomes of its orders.
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
    /// Where pages go when they are first touched.
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

    /// The signals that its halves use where they are available.
    pub fn also(&self) -> Vec<Optional> {
        [self.placement.needs().also, self.paging.needs().also].concat()
    }
}
