//! A virtual machine: a process whose threads are another system's CPUs.
//!
//! To a policy, as to the kernel, a virtual machine is a process and a vCPU is a thread. This module says which
//! is which, so that people are shown machines and limits can be set for each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::snapshot::ThreadId;

/// Who says that a thread is, or is not, sensitive to the node it runs on (BRM §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tag {
    /// Its own CPU mask is smaller than the machine: its user cares where it runs.
    Mask,
    /// The agent in its virtual machine: the vCPU runs a thread whose mask is smaller than the
    /// guest's machine (the paper's hypercall `tag`).
    Agent,
    /// The agent in its virtual machine: the vCPU runs no such thread (`clear`).
    Clear,
}

impl Tag {
    /// Whether the thread is to be a candidate.
    pub fn is_candidate(self) -> bool {
        matches!(self, Self::Mask | Self::Agent)
    }
}

/// A CPU of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCpu {
    /// Its number in the machine.
    pub index: u32,
    /// The thread that runs it.
    pub thread: ThreadId,
}

/// What is known of the agent in a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// None has been heard.
    #[default]
    Silent,
    /// It says which vCPUs run threads that care where they run.
    Telling,
    /// It was cut off: what it said was impossible, or not in time. What it said is forgotten.
    Distrusted,
}

/// Why the memory of a machine stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixedMemory {
    /// It is of huge pages that were set aside on each node: its owner has counted them out, and those of other
    /// nodes are for other machines.
    HugePages,
    /// A device of the host that was passed through reads and writes it by its physical address (VFIO).
    Device,
}

impl fmt::Display for FixedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HugePages => "it is of huge pages that were set aside (hugetlb)",
            Self::Device => "it is pinned for a device that was passed through (VFIO)",
        })
    }
}

/// A virtual machine that a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualMachine {
    /// The name that its owner gave it.
    pub name: String,
    /// Its CPUs, ascending by index.
    pub vcpus: Vec<VirtualCpu>,
    /// Memory that its system sees, in bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How its CPUs were found: by its monitor, or by the names of its threads.
    pub source: String,
    /// What is known of its agent.
    #[serde(default)]
    pub agent: Agent,
    /// Why its memory is not moved; `None` where it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_memory: Option<FixedMemory>,
}

impl VirtualMachine {
    /// The number of the vCPU that a thread runs, if it runs one.
    pub fn vcpu_of(&self, thread: ThreadId) -> Option<u32> {
        let vcpu = self.vcpus.iter().find(|vcpu| vcpu.thread == thread)?;
        Some(vcpu.index)
    }
}
