//! A virtual machine as one row: its name, where its CPUs and memory are, its agent, its candidates.

use itertools::Itertools as _;
use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Agent, Process, Snapshot};
use serde::Serialize;

use crate::run::sum;
use crate::words::{listed, percent};

/// From this many vCPUs on, neighbours on the same node are shown together.
const MANY: usize = 9;

/// A virtual machine as it was at the end of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guest {
    /// The name that its owner gave it.
    pub name: String,
    /// Its CPUs, ascending by number.
    pub vcpus: Vec<Vcpu>,
    /// Memory that its system sees, in bytes, where that is known.
    pub memory_bytes: Option<u64>,
    /// Base pages of its process by node, where that could be read.
    pub pages: Option<Vec<(NodeId, u64)>>,
    /// How its CPUs were found.
    pub source: String,
    /// What is known of its agent.
    pub agent: Agent,
}

/// A CPU of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Vcpu {
    /// Its number in the machine.
    pub index: u32,
    /// The node that its thread is on; `None` when that was not seen.
    pub node: Option<NodeId>,
    /// Whether it was declared a candidate or not; `None` if nobody has declared it.
    pub candidate: Option<bool>,
}

impl Guest {
    /// The virtual machine that a process runs, if it runs one.
    pub(crate) fn of(
        process: &Process,
        snapshot: &Snapshot,
        topology: Option<&Topology>,
    ) -> Option<Self> {
        let machine = process.machine.as_ref()?;
        let vcpu = |vcpu: &numaherd_world::VirtualCpu| {
            let thread = snapshot.thread(vcpu.thread);
            Vcpu {
                index: vcpu.index,
                node: thread.and_then(|thread| topology?.node_of(thread.place())),
                candidate: thread.and_then(|thread| Some(thread.tag?.is_candidate())),
            }
        };
        Some(Self {
            name: machine.name.clone(),
            vcpus: machine.vcpus.iter().map(vcpu).collect(),
            memory_bytes: machine.memory_bytes,
            pages: process.residency.as_ref().map(|r| r.pages.clone()),
            source: machine.source.clone(),
            agent: machine.agent,
        })
    }

    /// Whether a person sees the same. Memory is ignored, because it moves all the time.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        (&self.name, &self.vcpus, self.agent) == (&other.name, &other.vcpus, other.agent)
    }

    /// The row, after the name.
    pub(crate) fn row(&self) -> String {
        let mut parts = vec![self.places()];
        parts.extend(self.memory());
        let agent = match self.agent {
            Agent::Silent => "no agent",
            Agent::Telling => "agent tells",
            Agent::Distrusted => "agent cut off",
        };
        parts.push(agent.to_owned());
        if self.vcpus.iter().any(|vcpu| vcpu.candidate.is_some()) {
            let is_candidate = |vcpu: &&Vcpu| vcpu.candidate == Some(true);
            let candidates = self.vcpus.iter().filter(is_candidate);
            parts.push(match numbers(candidates.map(|vcpu| vcpu.index)) {
                none if none.is_empty() => "no candidates".to_owned(),
                some => format!("candidates {some}"),
            });
        }
        parts.join("; ")
    }

    /// `vCPUs 0-3: nodes 0 0 1 1`; for many vCPUs `nodes 16x0 16x1`.
    fn places(&self) -> String {
        let shown = |node: Option<NodeId>| node.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let runs = self.vcpus.chunk_by(|a, b| a.node == b.node);
        let nodes = match self.vcpus.len() {
            0 => return "no vCPUs seen".to_owned(),
            1..MANY => self.vcpus.iter().map(|vcpu| shown(vcpu.node)).join(" "),
            _ => runs
                .map(|run| format!("{}x{}", run.len(), shown(run[0].node)))
                .join(" "),
        };
        let s = if self.vcpus.len() == 1 { "" } else { "s" };
        let numbers = numbers(self.vcpus.iter().map(|vcpu| vcpu.index));
        format!("vCPU{s} {numbers}: node{s} {nodes}")
    }

    fn memory(&self) -> Option<String> {
        let size = self
            .memory_bytes
            .map(|bytes| format!("{} MiB ", bytes >> 20));
        let size = size.unwrap_or_default();
        let pages = self.pages.as_ref()?;
        let all = sum(pages.iter().map(|&(_, n)| n));
        let there = pages.iter().filter(|&&(_, n)| n > 0);
        let each =
            there.map(|&(node, n)| format!("{} on node {node}", percent(n as f64 / all as f64)));
        (all > 0).then(|| format!("memory {size}{}", listed(each)))
    }
}

/// Ascending numbers as a list with ranges: `0-3,8`.
fn numbers(numbers: impl Iterator<Item = u32>) -> String {
    let one = |number| (number, number);
    let ranges = numbers
        .map(one)
        .coalesce(|range, next| match range.1.checked_add(1) {
            Some(follows) if follows == next.0 => Ok((range.0, next.1)),
            _ => Err((range, next)),
        });
    let range = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.map(range).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(nodes: &[Option<u32>]) -> Guest {
        let vcpus = (0..).zip(nodes).map(|(index, &node)| Vcpu {
            index,
            node: node.map(NodeId),
            candidate: None,
        });
        Guest {
            name: "guest-a".to_owned(),
            vcpus: vcpus.collect(),
            memory_bytes: Some(4 << 30),
            pages: Some(vec![(NodeId(0), 600), (NodeId(1), 400)]),
            source: "monitor".to_owned(),
            agent: Agent::Silent,
        }
    }

    #[test]
    fn a_machine_is_one_row() {
        let mut seen = guest(&[Some(0), Some(0), Some(1), None]);
        assert_eq!(
            seen.row(),
            "vCPUs 0-3: nodes 0 0 1 ?; memory 4096 MiB 60 % on node 0 and 40 % on node 1; no agent"
        );
        seen.agent = Agent::Telling;
        seen.vcpus[0].candidate = Some(true);
        seen.vcpus[1].candidate = Some(false);
        seen.vcpus[3].candidate = Some(true);
        seen.pages = None;
        assert_eq!(
            seen.row(),
            "vCPUs 0-3: nodes 0 0 1 ?; agent tells; candidates 0,3"
        );
        seen.vcpus
            .iter_mut()
            .for_each(|vcpu| vcpu.candidate = Some(false));
        seen.agent = Agent::Distrusted;
        assert_eq!(
            seen.row(),
            "vCPUs 0-3: nodes 0 0 1 ?; agent cut off; no candidates"
        );
    }

    #[test]
    fn many_vcpus_are_told_together() {
        let nodes: Vec<Option<u32>> = (0..32).map(|n| Some(n / 16)).collect();
        assert!(
            guest(&nodes)
                .row()
                .starts_with("vCPUs 0-31: nodes 16x0 16x1;")
        );
        assert!(guest(&nodes[..1]).row().starts_with("vCPU 0: node 0;"));
        assert!(guest(&[]).row().starts_with("no vCPUs seen;"));
    }
}
