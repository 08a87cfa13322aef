//! Counts how often two policies would have threads in the same places.

use std::collections::BTreeMap;

use numaherd_topology::{CpuId, NodeId, Topology};
use serde::Serialize;

/// Thread-intervals by how near two policies would have the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    core: u64,
    domain: u64,
    node: u64,
    other: u64,
    /// By the first policy's node and the second policy's node.
    nodes: BTreeMap<(NodeId, NodeId), u64>,
}

/// An agreement as shares of 0 to 1, which add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Thread-intervals that were compared.
    pub compared: u64,
    /// On the same core.
    pub same_core: f64,
    /// On another core of the same memory domain.
    pub same_domain: f64,
    /// In another memory domain of the same node.
    pub same_node: f64,
    /// On different nodes.
    pub other_node: f64,
    /// Cohen's kappa of the nodes; `None` if both have all threads on one node.
    pub kappa: Option<f64>,
}

impl Agreement {
    /// Counts one thread in one interval. CPUs that the machine does not have are not compared.
    pub fn add(&mut self, topology: &Topology, one: CpuId, other: CpuId) {
        let (Some(one), Some(other)) = (topology.cpu(one), topology.cpu(other)) else {
            return;
        };
        *self.nodes.entry((one.node, other.node)).or_default() += 1;
        let kind = if one.core == other.core {
            &mut self.core
        } else if one.domain == other.domain {
            &mut self.domain
        } else if one.node == other.node {
            &mut self.node
        } else {
            &mut self.other
        };
        *kind += 1;
    }

    /// Adds what was counted elsewhere.
    pub fn extend(&mut self, more: &Self) {
        self.core += more.core;
        self.domain += more.domain;
        self.node += more.node;
        self.other += more.other;
        for (&nodes, &times) in &more.nodes {
            *self.nodes.entry(nodes).or_default() += times;
        }
    }

    /// Thread-intervals that were compared.
    pub fn compared(&self) -> u64 {
        self.core + self.domain + self.node + self.other
    }

    /// Share of thread-intervals on the same node; `None` where nothing was compared.
    pub fn on_same_node(&self) -> Option<f64> {
        let all = self.compared();
        (all > 0).then(|| (all - self.other) as f64 / all as f64)
    }

    /// The counts as shares; `None` where nothing was compared.
    pub fn shares(&self) -> Option<Shares> {
        let all = self.compared();
        let share = |part: u64| part as f64 / all as f64;
        (all > 0).then(|| Shares {
            compared: all,
            same_core: share(self.core),
            same_domain: share(self.domain),
            same_node: share(self.node),
            other_node: share(self.other),
            kappa: self.kappa(),
        })
    }

    /// Cohen's kappa over the nodes.
    pub fn kappa(&self) -> Option<f64> {
        let all = self.compared() as f64;
        let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
        for (&(a, b), &times) in &self.nodes {
            *one.entry(a).or_insert(0.0) += times as f64 / all;
            *other.entry(b).or_insert(0.0) += times as f64 / all;
        }
        let both = one
            .iter()
            .map(|(node, a)| a * other.get(node).unwrap_or(&0.0));
        let by_chance: f64 = both.sum();
        let observed = self.on_same_node()?;
        // If both have everything on one node, chance could have had no other result.
        let defined = self.nodes.len() > 1 || self.other > 0;
        defined.then(|| (observed - by_chance) / (1.0 - by_chance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::Machine;
    use proptest::prelude::*;

    /// Two nodes of four cores each.
    fn machine() -> Topology {
        Machine::preset("xeon-e5520-2s")
            .unwrap()
            .topology()
            .unwrap()
    }

    fn counted(pairs: &[(u32, u32)]) -> Agreement {
        let topology = machine();
        let mut agreement = Agreement::default();
        for &(one, other) in pairs {
            agreement.add(&topology, CpuId(one), CpuId(other));
        }
        agreement
    }

    /// The first CPU of each node.
    fn of_nodes() -> (u32, u32) {
        let topology = machine();
        let first = |at: usize| topology.nodes()[at].cpus.iter().next().unwrap().0;
        (first(0), first(1))
    }

    #[test]
    fn kappa_is_as_in_cohens_formula() {
        let (a, b) = of_nodes();
        // 20 on node 0 by both, 15 on node 1 by both, 5 and 10 apart: o = 0.7, e = 0.5.
        let pairs: Vec<_> = [((a, a), 20), ((a, b), 5), ((b, a), 10), ((b, b), 15)]
            .into_iter()
            .flat_map(|(pair, times)| std::iter::repeat_n(pair, times))
            .collect();
        let kappa = counted(&pairs).kappa().unwrap();
        assert!((kappa - 0.4).abs() < 1e-12, "{kappa}");
    }

    #[test]
    fn kappa_is_not_defined_where_there_is_one_node() {
        let (a, b) = of_nodes();
        assert_eq!(counted(&[(a, a), (a, a)]).kappa(), None);
        assert_eq!(counted(&[]).shares(), None);
        assert_eq!(counted(&[(a, b)]).kappa(), Some(0.0));
    }

    #[test]
    fn what_the_machine_does_not_have_is_not_compared() {
        assert_eq!(counted(&[(0, 4096)]).compared(), 0);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_kappa_is_at_most_one(
            pairs in prop::collection::vec((0_u32..8, 0_u32..8), 1..60)
        ) {
            let agreement = counted(&pairs);
            let shares = agreement.shares().unwrap();
            let sum = shares.same_core + shares.same_domain + shares.same_node + shares.other_node;
            prop_assert!((sum - 1.0).abs() < 1e-12);
            prop_assert_eq!(shares.compared, pairs.len() as u64);
            if let Some(kappa) = shares.kappa {
                prop_assert!((-1.0..=1.0).contains(&kappa));
            }
        }

        #[test]
        fn who_agrees_with_itself_agrees_wholly(cpus in prop::collection::vec(0_u32..8, 1..60)) {
            let pairs: Vec<_> = cpus.iter().map(|&cpu| (cpu, cpu)).collect();
            let shares = counted(&pairs).shares().unwrap();
            prop_assert_eq!(shares.same_core, 1.0);
            prop_assert!(shares.kappa.is_none_or(|kappa| (kappa - 1.0).abs() < 1e-12));
        }
    }
}
