//! What layouts and homes of memory would cost together, without moving anything.

use std::collections::BTreeMap;

use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{MemoryPart, ProcessId, ThreadId};

use super::{Engine, PAGE_BYTES, Thread};

/// A part of a process's memory: the index of the thread that owns it, or `None` for what all threads share.
type Key = (ProcessId, Option<usize>);

impl Engine {
    /// Each process's shared pages, then each thread's own; empty parts, and those of threads that have ended, are left
    /// out.
    fn keyed_parts(&self) -> Vec<(Key, MemoryPart)> {
        let mut parts = Vec::new();
        let mut threads: BTreeMap<ProcessId, Vec<&Thread>> = BTreeMap::new();
        for thread in self.threads.values() {
            threads.entry(thread.process).or_default().push(thread);
        }
        for (process, threads) in threads {
            let memory = &self.processes[&process].memory;
            let shared = [(None, threads[0])];
            let own = threads.iter().map(|&thread| (Some(thread.index), thread));
            for (index, thread) in shared.into_iter().chain(own) {
                let runs = memory.alike(index);
                if !runs.is_empty() {
                    let thread = thread.id;
                    let part = MemoryPart {
                        process,
                        thread,
                        is_shared: index.is_none(),
                        runs,
                    };
                    parts.push(((process, index), part));
                }
            }
        }
        parts
    }

    /// See [`crate::CostModel::parts`].
    pub(crate) fn parts(&self) -> Vec<MemoryPart> {
        let parts = self.keyed_parts().into_iter();
        parts.map(|(_, part)| part).collect()
    }

    /// See [`crate::CostModel::slowdown`].
    pub(crate) fn slowdown(
        &self,
        layout: &[(ThreadId, CpuId)],
        homes: &[Option<Vec<(NodeId, u32)>>],
    ) -> Option<f64> {
        if homes.iter().all(Option::is_none) {
            return self.slowdown_with(layout, &BTreeMap::new());
        }
        let topology = self.hardware.topology();
        let nodes = topology.nodes();
        let mut used: Vec<f64> = self.used_pages.iter().map(|&pages| pages as f64).collect();
        let mut placed: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
        for ((key, part), home) in self.keyed_parts().into_iter().zip(homes) {
            let Some(home) = home else {
                continue;
            };
            let all: f64 = home.iter().map(|&(_, weight)| f64::from(weight)).sum();
            let mut shares = vec![0.0; nodes.len()];
            for &(node, weight) in home {
                shares[topology.node_index(node)?] += f64::from(weight) / all;
            }
            let memory = &self.processes[&part.process].memory;
            let pages: u64 = part.runs.iter().map(|run| run.end - run.start).sum();
            for (used, there) in used.iter_mut().zip(memory.in_runs(&part.runs, nodes.len())) {
                *used -= there as f64;
            }
            for (used, share) in used.iter_mut().zip(&shares) {
                *used += pages as f64 * share;
            }
            placed.insert(key, shares);
        }
        // Runs are dealt out in whole pages, so that a node may get one page less than its share.
        let is_full = |(node, &used): (&numaherd_topology::Node, &f64)| {
            used > (node.memory_bytes / PAGE_BYTES) as f64 + 1.0
        };
        if nodes.iter().zip(&used).any(is_full) {
            return None;
        }
        let memory = self.threads.values().filter_map(|thread| {
            let shared = placed.get(&(thread.process, None));
            let own = placed.get(&(thread.process, Some(thread.index)));
            if shared.is_none() && own.is_none() {
                return None;
            }
            let memory = &self.processes[&thread.process].memory;
            let given = |home: Option<&Vec<f64>>| home.cloned();
            let parts = memory.answered_given(thread.index, nodes.len(), given(shared), given(own));
            Some((thread.id, parts))
        });
        self.slowdown_with(layout, &memory.collect())
    }

    /// See [`crate::CostModel::least_joint_slowdown`].
    pub(crate) fn least_joint_slowdown(&self) -> Option<f64> {
        let nodes = self.hardware.topology().nodes().iter().enumerate();
        let with_memory = nodes.filter(|(_, node)| node.has_memory());
        let homes: Vec<Vec<(usize, f64)>> = with_memory.map(|(at, _)| vec![(at, 1.0)]).collect();
        // A mixture of nodes is never faster than the best of them.
        self.least_with(|_| homes.clone())
    }
}
