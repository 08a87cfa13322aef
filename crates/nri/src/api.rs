//! The messages of NRI, with the fields and numbers of its version 0.8.
//!
//! A field of a message that may be left out is an `Option`; an `Option` of a number, a text or a switch is a message
//! with that as its field 1, as NRI wraps values that may be left out (`OptionalInt64` and its like).

mod adjustment;
mod container;
mod resources;

pub use adjustment::{
    CdiDevice, ContainerAdjustment, ContainerEviction, ContainerUpdate, KeyValue,
    LinuxContainerAdjustment, LinuxContainerUpdate,
};
pub use container::{
    Container, ContainerState, Hook, Hooks, LinuxContainer, LinuxDevice, LinuxNamespace,
    LinuxPodSandbox, Mount, PodSandbox, PosixRlimit,
};
pub use resources::{
    HugepageLimit, LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxPids, LinuxResources,
};

/// What happens to pods and containers.
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
    /// A container was created.
    PostCreateContainer = 5,
    /// A container is about to be started.
    StartContainer = 6,
    /// A container was started.
    PostStartContainer = 7,
    /// A container's resources are about to be changed.
    UpdateContainer = 8,
    /// A container's resources were changed.
    PostUpdateContainer = 9,
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

/// Asks the runtime to update containers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainersRequest {
    /// The updates.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
    /// Containers to stop.
    #[prost(message, repeated, tag = "2")]
    pub evict: Vec<ContainerEviction>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainersResponse {
    /// The updates that failed.
    #[prost(message, repeated, tag = "1")]
    pub failed: Vec<ContainerUpdate>,
}

/// Configures a plugin.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigureRequest {
    /// What the runtime's configuration says for this plugin.
    #[prost(string, tag = "1")]
    pub config: String,
    /// `containerd`, `cri-o`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// The runtime's version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// How long a plugin may take to register, in ms; 0 where the runtime does not say.
    #[prost(int64, tag = "4")]
    pub registration_timeout: i64,
    /// How long a plugin may take to answer, in ms; 0 where the runtime does not say.
    #[prost(int64, tag = "5")]
    pub request_timeout: i64,
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

/// What the plugin wants changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SynchronizeResponse {
    /// The updates.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
    /// Whether the plugin expects more.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A container is about to be created.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerRequest {
    /// Its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// What the plugin wants changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerResponse {
    /// Of this container.
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<ContainerAdjustment>,
    /// Of others.
    #[prost(message, repeated, tag = "2")]
    pub update: Vec<ContainerUpdate>,
    /// Containers to stop.
    #[prost(message, repeated, tag = "3")]
    pub evict: Vec<ContainerEviction>,
}

/// A container's resources are about to be changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainerRequest {
    /// Its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container as it is.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
    /// What it is to have.
    #[prost(message, optional, tag = "3")]
    pub linux_resources: Option<LinuxResources>,
}

/// What the plugin wants changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateContainerResponse {
    /// The updates.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
    /// Containers to stop.
    #[prost(message, repeated, tag = "2")]
    pub evict: Vec<ContainerEviction>,
}

/// A container has stopped.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopContainerRequest {
    /// Its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// What the plugin wants changed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopContainerResponse {
    /// The updates.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
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
