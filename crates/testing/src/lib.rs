//! Machines, threads, snapshots and worlds for tests and benchmarks.
//!
//! [`Shape`] makes a machine, [`seen`] makes observations of a world, [`orders`] makes orders and their outcomes,
//! [`Scene`] is a machine with one snapshot of it, [`FakeWorld`] is a scripted [`World`](numaherd_world::World), and
//! [`Played`] replays given snapshots. With the feature `ledger`, a `MadeLedger` is built record by record; with the
//! feature `trace`, `traces` makes traces. A test sets only what matters to it and uses defaults for the rest: threads
//! are busy and may run anywhere, half of each node's memory is free, page moves succeed. [`sysfs::write`] writes a
//! machine as a tree that the readers of sysfs understand.
//!
//! Everything here panics on input that a test cannot intend, for instance a malformed list of CPUs.

#[cfg(feature = "ledger")]
pub mod ledger;
pub mod orders;
pub mod played;
pub mod scene;
pub mod seen;
pub mod shape;
pub mod sysfs;
#[cfg(feature = "trace")]
pub mod traces;
pub mod world;

#[cfg(feature = "ledger")]
pub use ledger::MadeLedger;
pub use orders::{all_pages, moved, notice, place, plan_of, release, sample, window};
pub use played::Played;
pub use scene::Scene;
pub use seen::{
    PAGE_BYTES, SECOND_NS, counts, cpus, nodes, pid, process, snapshot, thread, tid,
    virtual_machine,
};
pub use shape::{MIB, Shape, machine};
pub use world::{Asked, FakePager, FakeWorld, Round, measured};
