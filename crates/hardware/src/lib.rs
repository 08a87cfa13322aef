//! Per-access simulator of a NUMA machine: caches, memory controllers, links, and the rule of
//! modelled time.
//!
//! It knows nothing of Linux, threads or pages: it is told of one data access after another, by
//! core and physical address, and says where each was satisfied and what it cost. The lab's plugin
//! feeds it with the accesses of a running guest, the trace world with recorded ones.
//!
//! * [`Config`] is a machine as a user writes it down: any number of cores, domains and nodes, any
//!   latency matrix, any bandwidths.
//! * [`Memory`] says which node a physical address belongs to.
//! * [`Machine`] is what the cores share. Any number of host threads may use it at once.
//! * [`Core`] is one core, with its private caches and its own time. It belongs to one thread.
//!
//! Used from one thread, the outcome is the same every time. Used from several, cores may be at
//! different points of modelled time; controllers and links are built for that (see `bandwidth`).
//!
//! What is modelled how: private caches in `cache`, the shared cache in `llc`, coherence in
//! `directory` and `machine`, controllers and links in `bandwidth` and `network`, the stream
//! prefetcher in `prefetch`, overlap of misses in `time`.
//!
//! Not modelled: instruction fetches, page walks, TLBs, row buffers and refresh of the memory
//! chips, requests without data on links, write-combining. Below saturation latency rises by
//! queueing alone, which is less than measured machines show (conflicts between banks, turns between
//! reads and writes): they add some 0.4 of the unloaded latency towards full load.

mod bandwidth;
mod cache;
mod config;
mod core;
mod directory;
mod llc;
mod machine;
mod memory;
mod network;
mod prefetch;
mod time;

#[cfg(test)]
mod known_sequences;

pub use config::{Cache, Config, ConfigError, Prefetch};
pub use core::{Access, Core, Counts, Detail, Fetch, Miss};
pub use machine::{Machine, MachineError};
pub use memory::{Memory, MemoryError, Span};
pub use numaherd_topology::Link;
