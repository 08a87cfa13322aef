//! Nodes, cores, caches and distances of a machine.
//!
//! A [`Topology`] is a value: it can come from a live sysfs tree under any root, from an hwloc XML
//! file, from an hwloc synthetic string, or from a machine file (`data/machines/*.toml`, see
//! [`machine`]). It does not depend on its source. Nothing here has a fixed maximum.
//!
//! | from | by |
//! |---|---|
//! | a sysfs tree, live or captured | [`sysfs::read`] |
//! | hwloc XML, versions 2 and 3 | [`hwloc::read_xml`], [`hwloc::xml`] |
//! | an hwloc synthetic string | [`hwloc::synthetic`] |
//! | a machine file or preset | [`Machine::find`], then [`Machine::topology`] |
//! | whatever a person gives | [`read_any`] |
//!
//! [`draw`] shows a machine to people, [`Topology::view`] to programs.
//!
//! Terms: a *node* is a memory node, with or without memory and with or without CPUs; a *memory
//! domain* is the set of CPUs that share a last-level cache, together with the node they are local
//! to; a *core* may have several CPUs (SMT siblings).

mod any;
mod draw;
mod error;
mod figures;
pub mod hwloc;
pub mod id;
mod links;
pub mod machine;
mod parts;
mod set;
pub mod sysfs;
mod topology;
mod view;

pub use any::read_any;
pub use draw::draw;
pub use error::ReadError;
pub use id::{CoreId, CpuId, DomainId, NodeId, PackageId};
pub use links::{Link, NoWay, ways};
pub use machine::{Machine, PerNode, SharedBy, TlbLevelSpec, TlbManagement, TlbSpec};
pub use parts::{CpuPart, Parts};
pub use set::{CpuSet, Id, IdSet, ListError, NodeSet};
pub use topology::{
    Cache, CacheKind, Core, Cpu, Distances, Domain, Invalid, Node, Timing, Topology,
};
pub use view::{CoreView, NodeView, View};
