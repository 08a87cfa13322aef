//! Per-access simulator of a NUMA machine: TLBs, caches, memory controllers, links, the IPM unit,
//! and the rule of modelled time.
//!
//! It knows nothing of Linux: it takes one data access after another, by core and address, and says
//! where each was satisfied and what it cost. The lab's plugin feeds it with the accesses of a
//! running guest, the trace world with recorded ones. Only the IPM unit knows threads, by the
//! numbers that it gives them.
//!
//! * [`Config`] describes a machine: any number of cores, domains and nodes, any latency matrix,
//!   any bandwidths.
//! * [`Memory`] says which node a physical address belongs to.
//! * [`Machine`] is what the cores share. Any number of host threads may use it at once.
//! * [`Core`] is one core, with its TLBs, its private caches and its own time. It belongs to one
//!   host thread. With TLBs, the caller first translates an access ([`Core::translate`]), then
//!   makes it ([`Core::access`]).
//! * [`Ipm`], which is optional, watches the TLBs of all cores: the caller reports each fill, and
//!   the unit says which pages to move where and which threads share pages.
//!
//! Used from one host thread, the model is deterministic. Used from several, cores may be at
//! different points of modelled time; controllers and links allow for that (see `bandwidth`).
//!
//! The modules: TLBs in `tlb` and `mmu`, the IPM unit in `ipm`, private caches in `cache`, the shared cache in `llc`,
//! coherence in `directory` and `machine`, controllers and links in `bandwidth` and `network`, the stream prefetcher in
//! `prefetch`, overlap of misses in `time`, contention between SMT siblings in `smt`.
//!
//! Not modelled: instruction fetches and their TLBs, the memory accesses of page walks (a walk has a fixed cost) and of
//! the IPM unit (they are counted), row buffers and refresh of the memory chips, requests without data on links,
//! write-combining. Below saturation, latency rises by queueing alone. On measured machines it rises more (bank
//! conflicts, turnarounds between reads and writes): by some 0.4 of the unloaded latency towards full load.

mod bandwidth;
mod cache;
mod config;
mod core;
mod directory;
mod error;
mod front;
mod host;
mod ipm;
mod llc;
mod machine;
mod memory;
mod mmu;
mod network;
mod page;
mod prefetch;
mod smt;
mod time;
mod tlb;

#[cfg(test)]
mod known_sequences;

pub use config::{Cache, Config, Prefetch, Smt, Tlb, TlbLevel};
pub use core::{Access, Core, Counts, Detail, Fetch, Miss, Translation};
pub use error::HardwareError;
pub use ipm::{
    Application, Credited, Eviction, Histories, Ipm, IpmConfig, IpmCounts, Notification,
    PeriodicPass, SharingMatrix, StartedThread, Storage, Structure, Thread,
};
pub use machine::Machine;
pub use memory::{Memory, Span};
pub use mmu::{Fill, Lookup, Mmu, TlbCounts};
pub use numaherd_topology::{Link, TlbManagement};
pub use page::Page;
