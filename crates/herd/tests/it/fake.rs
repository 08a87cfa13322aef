//! Policies that do as a test says, and what they were told; a world as `release` sees it. Everything else is made up
//! by `numaherd-testing`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_herd::AffinityScope;
use numaherd_policy::{Needs, Own, Paging, Place, PlacedThread, Policy, Random};
pub use numaherd_testing::*;
use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{
    Affinities, AffinityOrder, AffinityResult, Bounds, Effort, NewPages, Notice, Orders, PageOrder,
    PageOutcome, Placement, ProcessId, Sample, Search, Sharing, Signal, Snapshot, Thread, ThreadId,
    World,
};

/// The machine of these tests.
pub use FakeWorld as Fake;

/// A placement that does as the test says.
pub struct Told<F>(pub F);

impl<F: FnMut(&Snapshot) -> Vec<Placement> + Send> Place for Told<F> {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::MissRate])
    }

    fn place(&mut self, snapshot: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        (self.0)(snapshot)
    }
}

/// A placement with a cadence of its own, in ms, that leaves nodes to the kernel and does as the test says.
pub struct Quick<F>(pub u64, pub F);

impl<F: FnMut(&Snapshot) -> Vec<Placement> + Send> Place for Quick<F> {
    fn needs(&self) -> Needs<'_> {
        Needs {
            own: Own {
                interval: Some(Duration::from_millis(self.0)),
                scope: Some(AffinityScope::Node),
            },
            ..Needs::of(&[])
        }
    }

    fn place(&mut self, snapshot: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        (self.1)(snapshot)
    }
}

/// What a paging was told and asked, shared with the test.
#[derive(Debug, Default)]
pub struct Heard {
    pub placed: Vec<Vec<PlacedThread>>,
    pub outcomes: Vec<PageOutcome>,
    pub notices: Vec<Notice>,
}

/// A paging that orders what the test says: once for what is placed, and for each lot of samples or
/// notices.
pub struct ToldPaging {
    pub on_placed: Vec<PageOrder>,
    pub on_samples: Vec<PageOrder>,
    pub on_notices: Vec<PageOrder>,
    /// How much two threads of process 1 shared since they were asked after last.
    pub shared: u64,
    pub listens: bool,
    pub heard: Arc<Mutex<Heard>>,
}

impl ToldPaging {
    pub fn stay() -> Self {
        Self {
            on_placed: Vec::new(),
            on_samples: Vec::new(),
            on_notices: Vec::new(),
            shared: 0,
            listens: true,
            heard: Arc::default(),
        }
    }
}

/// A paging that orders one page of the first thread to be moved when threads are placed, and listens to nothing.
pub fn moves_when_placed(world: &Fake, first: u64) -> ToldPaging {
    ToldPaging {
        on_placed: vec![window(&world.threads[0], first, 1, 1)],
        listens: false,
        ..ToldPaging::stay()
    }
}

/// The same world with a pager that has been ordered to move a page once interval 3 is over, and by what.
pub fn moving(world: Fake, applied: &Arc<Mutex<Vec<PageOrder>>>) -> (Fake, ToldPaging) {
    let paging = moves_when_placed(&world, 0);
    let heard = paging.heard.clone();
    let mut world = world.scripted(move |interval, _| {
        // Made-up time is over in no time; the pager's thread needs a real moment.
        while interval == 3 && heard.lock().unwrap().placed.is_empty() {
            std::thread::yield_now();
        }
    });
    let pager = FakePager::new(|| panic!("nobody listens"), applied);
    world.pager = Some(Box::new(pager));
    (world, paging)
}

impl Paging for ToldPaging {
    fn placed(&mut self, threads: &[PlacedThread], _: &Snapshot) -> Vec<PageOrder> {
        self.heard.lock().unwrap().placed.push(threads.to_vec());
        self.on_placed.clone()
    }

    fn listens(&self) -> bool {
        self.listens
    }

    fn sampled(&mut self, _: &[Sample], _: &Topology, _: &mut Random) -> Vec<PageOrder> {
        self.on_samples.clone()
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let sharing = Sharing::of([(tid(1), tid(2), self.shared)]);
        vec![(pid(1), sharing)]
    }

    fn noticed(&mut self, notices: &[Notice], _: &Topology) -> Vec<PageOrder> {
        let mut heard = self.heard.lock().unwrap();
        heard.notices.extend_from_slice(notices);
        self.on_notices.clone()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let mut heard = self.heard.lock().unwrap();
        heard.outcomes.extend_from_slice(outcomes);
    }
}

/// A policy of a placement that does as told and leaves pages where they are.
pub fn policy(told: impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static) -> Policy {
    policy_with(told, ToldPaging::stay())
}

pub fn policy_with(
    told: impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static,
    paging: ToldPaging,
) -> Policy {
    Policy {
        name: "as-told".to_owned(),
        placement: Box::new(Told(told)),
        paging: Box::new(paging),
        new_pages: NewPages::FirstTouch,
    }
}

/// Moves every thread that is not there yet to CPU `to`.
pub fn everyone_to(to: u32) -> impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static {
    move |snapshot| {
        let elsewhere = |thread: &&Thread| thread.assigned != Some(CpuId(to));
        let threads = snapshot.threads.iter().filter(elsewhere);
        threads.map(|thread| place(thread, to)).collect()
    }
}

/// An access of thread 1 on CPU 5 to page 1, which is on node 0, in a round of a pager.
pub fn remote(round: usize) -> Sample {
    let thread = thread(1, 1, 5, &machine(2, 4));
    Sample {
        time_ns: 1_000_000_000 + round as u64 * 10_000_000,
        ..sample(&thread, 1, 0, &machine(2, 4))
    }
}

/// A world as `release` sees it.
pub struct Released<'w, W>(pub &'w mut W);

impl<W: World> Affinities for Released<'_, W> {
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        Ok(self.0.bounds_of(thread))
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search {
        self.0.bound_to(masks, since, Effort::Thorough)
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        let orders = Orders {
            affinities: vec![order.clone()],
            pages: Vec::new(),
        };
        self.0.apply(&orders).affinities.remove(0).result
    }

    fn let_masks_settle(&mut self) {
        self.0.let_masks_settle();
    }

    fn now(&self) -> Duration {
        self.0.now()
    }
}
