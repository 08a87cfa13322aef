//! What containers take of a machine.

use std::collections::BTreeMap;

/// What a container takes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxResources {
    /// Of memory.
    #[prost(message, optional, tag = "1")]
    pub memory: Option<LinuxMemory>,
    /// Of CPUs.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<LinuxCpu>,
    /// Of huge pages.
    #[prost(message, repeated, tag = "3")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Its class of block I/O.
    #[prost(message, optional, tag = "4")]
    pub blockio_class: Option<String>,
    /// Its class of cache and memory bandwidth.
    #[prost(message, optional, tag = "5")]
    pub rdt_class: Option<String>,
    /// Files of its control group, and what is written to them.
    #[prost(btree_map = "string, string", tag = "6")]
    pub unified: BTreeMap<String, String>,
    /// Which devices it may use.
    #[prost(message, repeated, tag = "7")]
    pub devices: Vec<LinuxDeviceCgroup>,
    /// Of processes.
    #[prost(message, optional, tag = "8")]
    pub pids: Option<LinuxPids>,
}

/// What a container takes of memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LinuxMemory {
    /// At most.
    #[prost(message, optional, tag = "1")]
    pub limit: Option<i64>,
    /// What is kept for it.
    #[prost(message, optional, tag = "2")]
    pub reservation: Option<i64>,
    /// At most, with what is swapped out.
    #[prost(message, optional, tag = "3")]
    pub swap: Option<i64>,
    /// Of the kernel's memory.
    #[prost(message, optional, tag = "4")]
    pub kernel: Option<i64>,
    /// Of the kernel's memory for TCP.
    #[prost(message, optional, tag = "5")]
    pub kernel_tcp: Option<i64>,
    /// How readily it is swapped out.
    #[prost(message, optional, tag = "6")]
    pub swappiness: Option<u64>,
    /// Whether it waits for memory rather than being killed.
    #[prost(message, optional, tag = "7")]
    pub disable_oom_killer: Option<bool>,
    /// Whether its limits hold for what is below it.
    #[prost(message, optional, tag = "8")]
    pub use_hierarchy: Option<bool>,
}

/// What a container takes of CPUs.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxCpu {
    /// Its weight against others; 1024 for a CPU of Kubernetes.
    #[prost(message, optional, tag = "1")]
    pub shares: Option<u64>,
    /// How long it may run in a period, in µs.
    #[prost(message, optional, tag = "2")]
    pub quota: Option<i64>,
    /// The period, in µs.
    #[prost(message, optional, tag = "3")]
    pub period: Option<u64>,
    /// The same for real-time threads.
    #[prost(message, optional, tag = "4")]
    pub realtime_runtime: Option<i64>,
    /// Their period, in µs.
    #[prost(message, optional, tag = "5")]
    pub realtime_period: Option<u64>,
    /// Its CPUs, as a list of the kernel; empty for all.
    #[prost(string, tag = "6")]
    pub cpus: String,
    /// Its memory nodes, as a list of the kernel; empty for all.
    #[prost(string, tag = "7")]
    pub mems: String,
}

/// What a container takes of huge pages.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HugepageLimit {
    /// Their size: `2MB`.
    #[prost(string, tag = "1")]
    pub page_size: String,
    /// At most, in bytes.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// How many processes a container may have.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LinuxPids {
    /// At most.
    #[prost(int64, tag = "1")]
    pub limit: i64,
}

/// Whether a container may use a device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxDeviceCgroup {
    /// Whether it may.
    #[prost(bool, tag = "1")]
    pub allow: bool,
    /// `c`, `b` or `a` for both.
    #[prost(string, tag = "2")]
    pub r#type: String,
    /// The major number; left out for all.
    #[prost(message, optional, tag = "3")]
    pub major: Option<i64>,
    /// The minor number; left out for all.
    #[prost(message, optional, tag = "4")]
    pub minor: Option<i64>,
    /// What it may do: letters of `rwm`.
    #[prost(string, tag = "5")]
    pub access: String,
}
