//! The messages of NRI 0.8, with its field numbers. Only the fields that this crate reads or sends are declared;
//! decoding skips all others. Answers to requests about containers are empty: nothing is adjusted.
//!
//! An optional field is an `Option`. NRI wraps an optional number in a message whose field 1 is the number
//! (`OptionalInt64` and similar); an `Option` of a number is such a message.

use std::collections::BTreeMap;

/// An event of a pod or a container that a plugin can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Event {
    /// An event that this crate does not know.
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

/// A message without fields.
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

/// The events that the plugin subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ConfigureResponse {
    /// One bit for each [`Event`], with event 1 in the lowest bit; 0 subscribes to all events.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// Lists all pods and containers.
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

/// Acknowledges a list of pods and containers.
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
    /// The container before the change.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
    /// The new resources.
    #[prost(message, optional, tag = "3")]
    pub linux_resources: Option<LinuxResources>,
}

/// Something has happened to a pod or a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateChangeEvent {
    /// The [`Event`].
    #[prost(enumeration = "Event", tag = "1")]
    pub event: i32,
    /// The pod, or the pod of the container.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
    /// The container; left out for an event of a pod.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    /// The runtime's identifier.
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
    /// Its Linux-specific part.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandbox>,
}

/// The Linux-specific part of a pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandbox {
    /// The control group of the pod: a path, or the name of a systemd slice.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
}

/// A container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    /// The runtime's identifier.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod's [`PodSandbox::id`].
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name within its pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its Linux-specific part.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
}

/// The Linux-specific part of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainer {
    /// Its resources.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
    /// Its control group: a path, or `slice:prefix:name` for a systemd scope.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
}

/// The resources of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxResources {
    /// CPU time and CPUs.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<LinuxCpu>,
}

/// The CPU resources of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxCpu {
    /// Its weight relative to other containers (CPU shares). Kubernetes counts a CPU as 1024 shares.
    #[prost(message, optional, tag = "1")]
    pub shares: Option<u64>,
    /// How long it may run in each period, in µs.
    #[prost(message, optional, tag = "2")]
    pub quota: Option<i64>,
    /// Its CPUs, in the kernel's list format; empty for all.
    #[prost(string, tag = "6")]
    pub cpus: String,
}
