//! Pods and containers, as a runtime describes them.

use std::collections::BTreeMap;

use super::resources::LinuxResources;

/// A pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    /// The runtime's name of it.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name within its namespace.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Kubernetes' name of it.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// The runtime's handler, such as a sandbox.
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
    /// What it has of Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandbox>,
    /// The process that holds its namespaces.
    #[prost(uint32, tag = "9")]
    pub pid: u32,
    /// Its addresses.
    #[prost(string, repeated, tag = "10")]
    pub ips: Vec<String>,
}

/// What a pod has of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandbox {
    /// What the pod itself takes.
    #[prost(message, optional, tag = "1")]
    pub pod_overhead: Option<LinuxResources>,
    /// What its containers take together.
    #[prost(message, optional, tag = "2")]
    pub pod_resources: Option<LinuxResources>,
    /// The control group of the pod: a path, or the name of a slice of systemd.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
    /// The control group of the pod's own process.
    #[prost(string, tag = "4")]
    pub cgroups_path: String,
    /// Its namespaces.
    #[prost(message, repeated, tag = "5")]
    pub namespaces: Vec<LinuxNamespace>,
    /// What the pod's own process takes.
    #[prost(message, optional, tag = "6")]
    pub resources: Option<LinuxResources>,
}

/// A container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    /// The runtime's name of it.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod's [`PodSandbox::id`].
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name within its pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Whether it runs.
    #[prost(enumeration = "ContainerState", tag = "4")]
    pub state: i32,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Its command line.
    #[prost(string, repeated, tag = "7")]
    pub args: Vec<String>,
    /// Its environment.
    #[prost(string, repeated, tag = "8")]
    pub env: Vec<String>,
    /// Its mounts.
    #[prost(message, repeated, tag = "9")]
    pub mounts: Vec<Mount>,
    /// Its hooks.
    #[prost(message, optional, tag = "10")]
    pub hooks: Option<Hooks>,
    /// What it has of Linux.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
    /// Its first process.
    #[prost(uint32, tag = "12")]
    pub pid: u32,
    /// Its limits per process.
    #[prost(message, repeated, tag = "13")]
    pub rlimits: Vec<PosixRlimit>,
}

/// Whether a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// The runtime does not say.
    Unknown = 0,
    /// It was created.
    Created = 1,
    /// It is paused.
    Paused = 2,
    /// It runs.
    Running = 3,
    /// It has stopped.
    Stopped = 4,
}

/// A mount.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// Where it is seen.
    #[prost(string, tag = "1")]
    pub destination: String,
    /// The kind of file system.
    #[prost(string, tag = "2")]
    pub r#type: String,
    /// What is mounted.
    #[prost(string, tag = "3")]
    pub source: String,
    /// How.
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// Programs that the runtime starts as a container comes and goes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hooks {
    /// Before it starts (replaced by the next two).
    #[prost(message, repeated, tag = "1")]
    pub prestart: Vec<Hook>,
    /// Once its namespaces are there.
    #[prost(message, repeated, tag = "2")]
    pub create_runtime: Vec<Hook>,
    /// The same, within them.
    #[prost(message, repeated, tag = "3")]
    pub create_container: Vec<Hook>,
    /// Before its program starts.
    #[prost(message, repeated, tag = "4")]
    pub start_container: Vec<Hook>,
    /// After it has started.
    #[prost(message, repeated, tag = "5")]
    pub poststart: Vec<Hook>,
    /// After it has ended.
    #[prost(message, repeated, tag = "6")]
    pub poststop: Vec<Hook>,
}

/// A program that the runtime starts.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hook {
    /// The program's file.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its command line.
    #[prost(string, repeated, tag = "2")]
    pub args: Vec<String>,
    /// Its environment.
    #[prost(string, repeated, tag = "3")]
    pub env: Vec<String>,
    /// How long it may take, in s.
    #[prost(message, optional, tag = "4")]
    pub timeout: Option<i64>,
}

/// What a container has of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainer {
    /// Its namespaces.
    #[prost(message, repeated, tag = "1")]
    pub namespaces: Vec<LinuxNamespace>,
    /// Its devices.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<LinuxDevice>,
    /// What it takes.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
    /// How soon it is killed where memory runs out.
    #[prost(message, optional, tag = "4")]
    pub oom_score_adj: Option<i64>,
    /// Its control group: a path, or slice, prefix and name of systemd's scope, joined by colons.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
}

/// A namespace of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxNamespace {
    /// Its kind: `network`, `pid`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The file of one that is there already.
    #[prost(string, tag = "2")]
    pub path: String,
}

/// A device of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxDevice {
    /// Its file.
    #[prost(string, tag = "1")]
    pub path: String,
    /// `c` or `b`.
    #[prost(string, tag = "2")]
    pub r#type: String,
    /// Its major number.
    #[prost(int64, tag = "3")]
    pub major: i64,
    /// Its minor number.
    #[prost(int64, tag = "4")]
    pub minor: i64,
    /// The file's mode.
    #[prost(message, optional, tag = "5")]
    pub file_mode: Option<u32>,
    /// The file's owner.
    #[prost(message, optional, tag = "6")]
    pub uid: Option<u32>,
    /// The file's group.
    #[prost(message, optional, tag = "7")]
    pub gid: Option<u32>,
}

/// A limit per process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PosixRlimit {
    /// Which: `RLIMIT_NOFILE`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// What root alone can raise.
    #[prost(uint64, tag = "2")]
    pub hard: u64,
    /// What holds.
    #[prost(uint64, tag = "3")]
    pub soft: u64,
}
