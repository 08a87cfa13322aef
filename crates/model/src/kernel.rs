//! The modelled kernel's scheduler: where it runs threads that nobody has placed.
//!
//! This file has the rules of Linux, and [`credit`] those of Xen; [`Scheduler`] says which apply. Linux: a new thread
//! goes to the least loaded memory domain and there to the least loaded CPU, chance deciding between equals; load is
//! moved when one domain has two threads more than another, or one CPU two more than another. It knows nothing of
//! caches, memory or links. Threads with a mask are balanced within it.

pub(crate) mod credit;

use numaherd_files::choices;
use numaherd_topology::{CpuId, CpuSet, Topology};
use rand::Rng;
use rand::seq::IndexedRandom;

choices! {
    /// What runs threads that nobody has placed.
    pub enum Scheduler {
        /// Linux, which balances threads between memory domains.
        #[default]
        Linux = "linux",
        /// Xen's credit scheduler, with a vCPU in place of each thread.
        XenCredit = "xen-credit",
    }
}

/// Loads that differ by less are the same.
const ROUNDING: f64 = 1e-9;

/// Load by CPU: how many threads want it, each counted with the share of the time that it does.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    by_cpu: Vec<f64>,
    domain_of: Vec<usize>,
    by_domain: Vec<f64>,
    /// CPUs of each domain.
    sizes: Vec<f64>,
    online: CpuSet,
    /// The smallest load of one thread.
    smallest: f64,
}

impl Loads {
    pub(crate) fn new(topology: &Topology) -> Self {
        let ids = topology.cpus().iter().map(|cpu| cpu.id.index());
        let numbers = ids.max().map_or(0, |last| last + 1);
        let mut domain_of = vec![0; numbers];
        for cpu in topology.cpus() {
            domain_of[cpu.id.index()] = cpu.domain.index();
        }
        let online = topology.online_cpus();
        let size = |domain: &numaherd_topology::Domain| domain.cpus.intersection(&online).len();
        Self {
            by_cpu: vec![0.0; numbers],
            domain_of,
            by_domain: vec![0.0; topology.domains().len()],
            sizes: topology.domains().iter().map(|d| size(d) as f64).collect(),
            online,
            smallest: f64::INFINITY,
        }
    }

    pub(crate) fn add(&mut self, cpu: CpuId, load: f64) {
        if load > 0.0 {
            self.smallest = self.smallest.min(load);
        }
        self.by_cpu[cpu.index()] += load;
        self.by_domain[self.domain_of[cpu.index()]] += load;
    }

    pub(crate) fn of(&self, cpu: CpuId) -> f64 {
        self.by_cpu[cpu.index()]
    }

    /// Share of a CPU that a thread with such a load gets there, its own load counted already.
    pub(crate) fn share(&self, cpu: CpuId, load: f64) -> f64 {
        load / self.of(cpu).max(1.0)
    }

    /// Whether balancing could be necessary: CPUs or domains differ by two threads or more.
    pub(crate) fn is_lopsided(&self) -> bool {
        let cpus = || self.online.iter().map(|cpu| self.of(cpu));
        let domains = || {
            let sizes = self.sizes.iter().zip(&self.by_domain);
            sizes
                .filter(|&(&size, _)| size > 0.0)
                .map(|(_, &load)| load)
        };
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let two = 2.0 * self.smallest - ROUNDING;
        most(&mut cpus()) - least(cpus()) >= two || most(&mut domains()) - least(domains()) >= two
    }

    /// The CPU for a thread that may run on `allowed`, or anywhere when `allowed` is offline.
    pub(crate) fn idlest(&self, allowed: &CpuSet, random: &mut impl Rng) -> CpuId {
        let cpus = allowed.intersection(&self.online);
        let cpus = if cpus.is_empty() { &self.online } else { &cpus };
        let full = |domain: usize| self.by_domain[domain] / self.sizes[domain].max(1.0);
        let domains: Vec<usize> = cpus.iter().map(|cpu| self.domain_of[cpu.index()]).collect();
        let least = least(domains.iter().map(|&domain| full(domain)));
        let mut tied: Vec<usize> = domains
            .into_iter()
            .filter(|&d| full(d) <= least + ROUNDING)
            .collect();
        tied.sort_unstable();
        tied.dedup();
        let domain = *tied.choose(random).expect("a set that is not empty");
        let there = || {
            cpus.iter()
                .filter(|cpu| self.domain_of[cpu.index()] == domain)
        };
        let idle = self::least(there().map(|cpu| self.of(cpu)));
        let tied: Vec<CpuId> = there()
            .filter(|&cpu| self.of(cpu) <= idle + ROUNDING)
            .collect();
        *tied.choose(random).expect("a CPU of the domain")
    }

    /// Whether the balancer would leave a thread of that load on `to` if it came there from `from`: the CPU has room
    /// for it, and its domain is less loaded than the one that it leaves.
    pub(crate) fn leaves(&self, from: CpuId, to: CpuId, load: f64) -> bool {
        let (here, there) = (self.domain_of[from.index()], self.domain_of[to.index()]);
        let lessens = self.by_domain[there] + ROUNDING < self.by_domain[here];
        self.of(to) + load <= 1.0 + ROUNDING && (here == there || lessens)
    }

    /// Where the balancer would pull a thread of that load that runs on `from`: the idlest CPU that
    /// it may have, when that lessens an imbalance of two threads or more.
    pub(crate) fn pulls(
        &self,
        from: CpuId,
        load: f64,
        allowed: &CpuSet,
        random: &mut impl Rng,
    ) -> Option<CpuId> {
        let to = self.idlest(allowed, random);
        let (here, there) = (self.domain_of[from.index()], self.domain_of[to.index()]);
        let crowded = self.of(from) - load >= self.of(to) + load - ROUNDING;
        let lopsided = here != there
            && self.by_domain[here] - load >= self.by_domain[there] + load - ROUNDING
            && self.of(from) >= self.of(to) + load - ROUNDING;
        (to != from && (crowded || lopsided)).then_some(to)
    }
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}
