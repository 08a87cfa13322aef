//! What a plugin may change.

use std::collections::BTreeMap;

use super::container::{Hooks, LinuxDevice, Mount, PosixRlimit};
use super::resources::LinuxResources;

/// Changes to a container that is about to be created.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAdjustment {
    /// Annotations to set; a key that begins with `-` takes one away.
    #[prost(btree_map = "string, string", tag = "2")]
    pub annotations: BTreeMap<String, String>,
    /// Mounts to add.
    #[prost(message, repeated, tag = "3")]
    pub mounts: Vec<Mount>,
    /// The environment's variables to set.
    #[prost(message, repeated, tag = "4")]
    pub env: Vec<KeyValue>,
    /// Hooks to add.
    #[prost(message, optional, tag = "5")]
    pub hooks: Option<Hooks>,
    /// What it has of Linux.
    #[prost(message, optional, tag = "6")]
    pub linux: Option<LinuxContainerAdjustment>,
    /// Limits per process to set.
    #[prost(message, repeated, tag = "7")]
    pub rlimits: Vec<PosixRlimit>,
    /// Devices to add, by their names.
    #[prost(message, repeated, tag = "8")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// Changes to what a container has of Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainerAdjustment {
    /// Devices to add.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<LinuxDevice>,
    /// What it is to take.
    #[prost(message, optional, tag = "2")]
    pub resources: Option<LinuxResources>,
    /// Its control group.
    #[prost(string, tag = "3")]
    pub cgroups_path: String,
    /// How soon it is killed where memory runs out.
    #[prost(message, optional, tag = "4")]
    pub oom_score_adj: Option<i64>,
}

/// Changes to a container that is there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerUpdate {
    /// Its [`Container::id`](super::Container::id).
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// What it is to have of Linux.
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxContainerUpdate>,
    /// Whether all else goes on where this fails.
    #[prost(bool, tag = "3")]
    pub ignore_failure: bool,
}

/// Changes to what a container takes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainerUpdate {
    /// What it is to take.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxResources>,
}

/// Asks to stop a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerEviction {
    /// Its [`Container::id`](super::Container::id).
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A device of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    /// Its name: `vendor.com/class=name`.
    #[prost(string, tag = "1")]
    pub name: String,
}
