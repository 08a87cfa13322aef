//! A paging on two nodes of two CPUs, for tests: what it orders on which accesses.

use numaherd_world::{Notice, PageOrder, Pages, Sample};
use rand::SeedableRng;

use super::single::STANDS_NS;
use crate::policy::{Paging, Random};
use numaherd_testing::Scene;

/// Two nodes of two CPUs; threads 0 to 3 of process 1, each on the CPU of its number.
pub(super) struct Bench<P> {
    pub(super) scene: Scene,
    pub(super) paging: P,
    /// Time of the next access, in ns.
    pub(super) now_ns: u64,
}

impl<P: Paging> Bench<P> {
    pub(super) fn new(paging: P) -> Self {
        let mut scene = Scene::uniform(2, 2);
        for cpu in 0..4 {
            scene.thread(1, 1.0, cpu);
        }
        scene.home(1, "p", 0);
        let mut bench = Self {
            scene,
            paging,
            now_ns: 0,
        };
        bench.interval();
        bench
    }

    /// An interval ends, in which the placement moved no thread.
    pub(super) fn interval(&mut self) {
        assert_eq!(self.paging.placed(&[], &self.scene.snapshot), []);
    }

    /// So much time passes that no order stands any more.
    pub(super) fn later(&mut self) {
        self.now_ns += STANDS_NS;
    }

    /// Accesses of threads (each on the CPU of its number) to pages that are on nodes.
    pub(super) fn samples(&mut self, accesses: &[(u32, u64, u32)]) -> Vec<Sample> {
        let accesses = accesses.iter().map(|&(thread, page, home)| {
            self.now_ns += 1000;
            self.scene.access(thread, thread, page, home, self.now_ns)
        });
        accesses.collect()
    }

    /// First page, count and node of each order on accesses that are looked at together.
    pub(super) fn on(&mut self, accesses: &[(u32, u64, u32)]) -> Vec<(u64, u64, u32)> {
        let samples = self.samples(accesses);
        let mut random = Random::seed_from_u64(0);
        told(
            &self
                .paging
                .sampled(&samples, &self.scene.topology, &mut random),
        )
    }

    /// The same on notices.
    pub(super) fn on_notices(&mut self, notices: &[Notice]) -> Vec<(u64, u64, u32)> {
        told(&self.paging.noticed(notices, &self.scene.topology))
    }
}

/// First page, count and node of each order.
pub(super) fn told(orders: &[PageOrder]) -> Vec<(u64, u64, u32)> {
    let told = |order: &PageOrder| match order.pages {
        Pages::Window { first, count } => (first, count, order.to.0),
        Pages::All | Pages::OfKind { .. } => panic!("pages are judged one by one"),
    };
    orders.iter().map(told).collect()
}
