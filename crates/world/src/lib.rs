//! What passes between a machine and the code that decides about it.
//!
//! A [`World`] is a machine: live Linux, a model, a trace, a recording. It observes ([`Snapshot`],
//! [`Sample`], [`Notice`]), carries out ([`Orders`]), and reports the outcome ([`Outcome`]); it never
//! decides. A policy turns a snapshot into a [`Plan`]; the governor turns a plan into orders. All of these
//! are values: they can be written to a ledger, read back, compared and made up in tests.

mod affinities;
mod bounds;
pub mod in_step;
mod kinship;
mod machine;
mod notice;
mod orders;
mod plan;
mod sample;
mod signal;
mod snapshot;
mod together;
mod unmanaged;
mod world;

pub use affinities::Affinities;
pub use bounds::{Bounds, is_mask, is_whole};
pub use kinship::{Bound, Effort, Kinship, Search};
pub use machine::{Agent, FixedMemory, Tag, VirtualCpu, VirtualMachine};
pub use notice::{Notice, Sharing};
pub use orders::{
    AffinityOrder, AffinityOutcome, AffinityResult, Orders, Outcome, PageFailure, PageOutcome,
};
pub use plan::{
    AffinityScope, BLOCK_PAGES, Enforcement, MemoryPart, PageOrder, Pages, Part, Placement, Plan,
    Release,
};
pub use sample::{MemorySource, Sample};
pub use signal::{Signal, SignalReport, SignalState};
pub use snapshot::{
    Counts, Extent, Mapped, MemoryKind, MemoryKinds, NodeState, Process, ProcessId, Residency,
    Snapshot, Thread, ThreadId,
};
pub use unmanaged::Unmanaged;
pub use world::{NewPages, Pager, Progress, Waker, World, WorldError};

/// Bytes of a base page. Page numbers and page counts in this crate are in base pages of the
/// machine, which [`Snapshot::page_bytes`] gives.
pub const USUAL_PAGE_BYTES: u64 = 4096;
