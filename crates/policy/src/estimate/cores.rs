//! The cores of each domain, and how the kernel spreads over them the threads that it finds there.
//!
//! Problem: two threads on one core get less done than on two, but which threads of a domain share a core is the
//! kernel's affair, and changes while one looks. Rule: the kernel leaves no core of a domain idle while two threads
//! share another. Threads that want `w` CPUs together fill its cores to `o = w / cores`, each to one of the two whole
//! numbers next to it, so that a thread has `k (k - 1 + 2 f) / o` busy siblings on average, with `k` the whole part
//! of `o` and `f` the rest: none up to a thread a core, and one where all hardware threads of two are busy.
//!
//! Properties: siblings never fall as more CPUs are wanted, and are at most those that a core has.

use numaherd_topology::{CpuSet, Topology};

/// What the kernel has of each domain, by its place.
#[derive(Clone, Debug)]
pub struct Cores {
    cpus: Vec<f64>,
    cores: Vec<f64>,
}

impl Cores {
    pub(super) fn of(topology: &Topology, online: &CpuSet) -> Self {
        let mut cores = vec![0.0; topology.domains().len()];
        for core in topology.cores() {
            cores[core.domain.index()] += f64::from(u8::from(core.cpus.intersects(online)));
        }
        let domains = topology.domains().iter();
        Self {
            cpus: domains
                .map(|domain| domain.cpus.intersection(online).len() as f64)
                .collect(),
            cores,
        }
    }

    /// CPUs of each domain that are online.
    pub fn cpus(&self) -> &[f64] {
        &self.cpus
    }

    /// Cores of each domain with a CPU that is online.
    pub fn cores(&self) -> &[f64] {
        &self.cores
    }

    /// The share that threads have of what they want of a domain's CPUs together.
    pub(super) fn share(&self, domain: usize, wanted: f64) -> f64 {
        (self.cpus[domain] / wanted).min(1.0)
    }

    /// Busy siblings that each of these threads has on average.
    pub(super) fn siblings(&self, domain: usize, wanted: f64) -> f64 {
        let on_each = wanted.min(self.cpus[domain]) / self.cores[domain].max(1.0);
        if on_each <= 1.0 {
            return 0.0;
        }
        let whole = on_each.floor();
        whole * (whole - 1.0 + 2.0 * (on_each - whole)) / on_each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_siblings_once_there_are_more_than_cores() {
        let two_a_core = Cores {
            cpus: vec![8.0],
            cores: vec![4.0],
        };
        let siblings = [1.0, 4.0, 6.0, 8.0, 20.0].map(|wanted| two_a_core.siblings(0, wanted));
        // Of six, two pairs share a core, and two have their own.
        assert_eq!(siblings, [0.0, 0.0, 4.0 / 6.0, 1.0, 1.0]);
        let one_a_core = Cores {
            cpus: vec![4.0],
            cores: vec![4.0],
        };
        assert_eq!(one_a_core.siblings(0, 20.0), 0.0);
    }
}
