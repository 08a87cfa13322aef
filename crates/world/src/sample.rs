//! A memory sample: one access of one thread, as the hardware reported it.

use numaherd_topology::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

use crate::snapshot::{ProcessId, ThreadId};

/// What answered an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemorySource {
    /// A cache of the core's own domain.
    Cache,
    /// Memory of the core's own node.
    LocalMemory,
    /// Memory of another node.
    RemoteMemory,
    /// A cache of another domain.
    RemoteCache,
    /// The hardware did not say.
    Unknown,
}

impl MemorySource {
    /// Whether the access left the core's node.
    pub fn is_remote(self) -> bool {
        matches!(self, Self::RemoteMemory | Self::RemoteCache)
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in ns since the world began.
    pub time_ns: u64,
    /// By which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// Virtual address in bytes.
    pub address: u64,
    /// On which CPU.
    pub cpu: CpuId,
    /// Latency as the hardware weighs it (core cycles on real machines), where it does.
    pub latency: Option<u64>,
    /// What answered it.
    pub source: MemorySource,
    /// The node that the page is on, where that is known.
    pub node: Option<NodeId>,
    /// Whether it was a store.
    pub store: bool,
}
