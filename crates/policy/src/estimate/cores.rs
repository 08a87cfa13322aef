//! The cores of each domain, and how the kernel spreads over them the threads that it finds there.
//!
//! Problem: two threads on one core get less done than on two, but the kernel decides which threads of a domain share a
//! core, and changes that all the time. Rule: the kernel leaves no core of a domain idle while two threads share another.
//! Threads that want `w` CPUs together fill its cores to `o = w / cores`, each to one of the two whole numbers next to it.
//! So a thread has `k (k - 1 + 2 f) / o` busy siblings on average, with `k` the whole part of `o` and `f` the rest: none up
//! to one thread per core, and one if both hardware threads of all cores are busy.
//!
//! Threads that are not watched take their part of a domain's CPUs and cores: what all threads of the machine had of its
//! node, less what the watched ones had there, in that of the last two intervals in which it was less, since a thread
//! counts on the CPU that it was on last. Less than a quarter of a CPU is within the error of the kernel's ticks.
//!
//! Properties: siblings never fall as more CPUs are wanted, and are at most those that a core has.

use numaherd_topology::{CpuSet, Domain};

use crate::stage::Stage;

/// CPUs of a node count from here on if threads that are not watched keep them busy (chosen here).
const LEAST_OTHERS: f64 = 0.25;

/// The CPUs of each node (place) that threads that are not watched keep busy.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwatched {
    /// In the last interval in which that was known.
    last: Option<Vec<f64>>,
}

impl Unwatched {
    /// Takes in an interval.
    pub(super) fn take(&mut self, stage: &Stage<'_>) -> Vec<f64> {
        let (topology, snapshot) = (stage.topology, stage.snapshot);
        let mut now = vec![0.0; topology.nodes().len()];
        let mut is_known = false;
        for state in &snapshot.nodes {
            if let (Some(node), Some(busy)) = (topology.node_index(state.id), state.busy_cpus) {
                (now[node], is_known) = (busy, true);
            }
        }
        for thread in &snapshot.threads {
            let cpu = topology.cpu(thread.cpu);
            if let Some(node) = cpu.and_then(|cpu| topology.node_index(cpu.node)) {
                now[node] -= thread.cpu_share;
            }
        }
        let others: Vec<f64> = if is_known {
            let before = self
                .last
                .replace(now.clone())
                .unwrap_or_else(|| now.clone());
            let both = now.into_iter().zip(before);
            both.map(|(now, before)| now.min(before)).collect()
        } else {
            self.last.clone().unwrap_or_else(|| vec![0.0; now.len()])
        };
        let counts = |others: f64| if others < LEAST_OTHERS { 0.0 } else { others };
        others.into_iter().map(counts).collect()
    }
}

/// What the kernel has of each domain, by its place.
#[derive(Clone, Debug)]
pub struct Cores {
    online_cpus: Vec<f64>,
    online_cores: Vec<f64>,
    /// CPUs that threads that are not watched keep busy.
    others: Vec<f64>,
    /// What these leave of the CPUs and of the cores.
    cpus: Vec<f64>,
    cores: Vec<f64>,
}

impl Cores {
    /// The cores of a stage, where threads that are not watched keep `others` CPUs of each node (place) busy.
    pub(super) fn of(stage: &Stage<'_>, others: &[f64]) -> Self {
        let (topology, online) = (stage.topology, &stage.snapshot.online);
        let mut cores = vec![0.0; topology.domains().len()];
        for core in topology.cores() {
            cores[core.domain.index()] += f64::from(u8::from(core.cpus.intersects(online)));
        }
        let online = |cpus: &CpuSet| cpus.intersection(online).len() as f64;
        let domains = topology.domains().iter();
        let of_others = |domain: &Domain| {
            let node = topology.node_index(domain.node)?;
            let share = online(&domain.cpus) / online(&topology.nodes()[node].cpus).max(1.0);
            Some(others[node] * share)
        };
        let of_others = domains
            .clone()
            .map(|domain| of_others(domain).unwrap_or(0.0));
        Self::new(
            domains.map(|domain| online(&domain.cpus)).collect(),
            cores,
            of_others.collect(),
        )
    }

    fn new(online_cpus: Vec<f64>, online_cores: Vec<f64>, others: Vec<f64>) -> Self {
        let left = |online: &[f64]| -> Vec<f64> {
            let left = online.iter().zip(&others);
            left.map(|(online, others)| (online - others).max(0.0))
                .collect()
        };
        Self {
            cpus: left(&online_cpus),
            cores: left(&online_cores),
            online_cpus,
            online_cores,
            others,
        }
    }

    /// CPUs of each domain that are online, less those that threads that are not watched keep busy.
    pub fn cpus(&self) -> &[f64] {
        &self.cpus
    }

    /// Cores of each domain with a CPU that is online, less those of such threads.
    pub fn cores(&self) -> &[f64] {
        &self.cores
    }

    /// Whether threads that are not watched keep some of a domain's CPUs busy.
    pub fn has_others(&self, domain: usize) -> bool {
        self.others[domain] > 0.0
    }

    /// The share that threads get of the CPUs of a domain that they want together.
    pub(super) fn share(&self, domain: usize, wanted: f64) -> f64 {
        (self.online_cpus[domain] / (wanted + self.others[domain])).min(1.0)
    }

    /// Busy siblings that each of these threads has on average.
    pub(super) fn siblings(&self, domain: usize, wanted: f64) -> f64 {
        let busy = (wanted + self.others[domain]).min(self.online_cpus[domain]);
        let on_each = busy / self.online_cores[domain].max(1.0);
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
        let two_a_core = Cores::new(vec![8.0], vec![4.0], vec![0.0]);
        let siblings = [1.0, 4.0, 6.0, 8.0, 20.0].map(|wanted| two_a_core.siblings(0, wanted));
        // Of six, two pairs share a core, and two have their own.
        assert_eq!(siblings, [0.0, 0.0, 4.0 / 6.0, 1.0, 1.0]);
        let one_a_core = Cores::new(vec![4.0], vec![4.0], vec![0.0]);
        assert_eq!(one_a_core.siblings(0, 20.0), 0.0);
    }

    #[test]
    fn who_is_not_watched_takes_cpus_and_makes_siblings() {
        let shared = Cores::new(vec![8.0], vec![4.0], vec![5.0]);
        assert_eq!((shared.cpus()[0], shared.cores()[0]), (3.0, 0.0));
        assert_eq!(shared.share(0, 3.0), 1.0);
        assert_eq!(shared.share(0, 11.0), 0.5);
        assert_eq!(shared.siblings(0, 3.0), 1.0);
    }
}
