//! The messages of NRI, with the numbers of its version 0.8, and of their fields those that are read or sent here; all others are
//! skipped. Answers to requests about containers are empty: nothing is adjusted.
//!
//! A field of a message that may be left out is an `Option`; an `Option` of a number is a message with that as its field 1, as NRI wraps
//! values that may be left out (`OptionalInt64` and its like).

use std::collections::BTreeMap;

/// What happens to pods and containers, as far as a plugin asks to hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Event {
    /// None that is known here.
    Unknown = 0,
    /// A pod is started.
    RunPodSandbox = 1,
    /// A pod is stopped.
    StopPodSandbox = 2,
    /// A pod is removed.
    RemovePodSandbox = 3,
    /// A container is about to be created.
    CreateContainer = 4,
    /// A container's resources are about to be changed.
    UpdateContainer = 8,
    /// A container has stopped.
    StopContainer = 10,
    /// A container is removed.
    RemoveContainer = 11,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Registers a plugin with the runtime.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterPluginRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    /// Its place among the plugins: two digits.
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

/// Configures a plugin.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigureRequest {
    /// `containerd`, `cri-o`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// The runtime's version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// What the plugin wants to hear of.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ConfigureResponse {
    /// A bit for each [`Event`], the first one's the lowest; 0 for all.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// All pods and containers that there are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SynchronizeRequest {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodSandbox>,
    /// Their containers.
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// Whether more follow, in another request.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// The plugin has taken in the list.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SynchronizeResponse {
    /// Whether the plugin expects more.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A container is about to be created, or has stopped.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerRequest {
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// A container's resources are about to be changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainerRequest {
    /// The container as it is.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
    /// What it is to have.
    #[prost(message, optional, tag = "3")]
    pub linux_resources: Option<LinuxResources>,
}

/// Something has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateChangeEvent {
    /// What.
    #[prost(enumeration = "Event", tag = "1")]
    pub event: i32,
    /// To this pod, or to a container of it.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
    /// To this container; left out for a pod.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    /// The runtime's name of it.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name within its namespace.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// What it has of Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandbox>,
}

/// What a pod has of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandbox {
    /// The control group of the pod: a path, or the name of a slice of systemd.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
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
    /// What it has of Linux.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
}

/// What a container has of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainer {
    /// What it takes.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
    /// Its control group: a path, or slice, prefix and name of systemd's scope, joined by colons.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
}

/// What a container takes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxResources {
    /// Of CPUs.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<LinuxCpu>,
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
    /// Its CPUs, as a list of the kernel; empty for all.
    #[prost(string, tag = "6")]
    pub cpus: String,
}
