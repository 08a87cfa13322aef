//! Machines, threads, snapshots and worlds made up for tests and benchmarks.
//!
//! One of each: [`Shape`] makes a machine, [`seen`] makes what a world observes, [`orders`] what a plan
//! asks for and what came of it, [`Scene`] is a machine with one snapshot of it, [`FakeWorld`] is a
//! scripted [`World`](numaherd_world::World), and [`Played`] shows given snapshots.
//! With the feature `ledger`, a `MadeLedger` is made up record by record; with the feature `trace`, `traces` makes traces.
//! A test says only what matters to it and takes the rest as it is: threads are busy and may run anywhere, half of each node's
//! memory is free, page moves succeed. [`sysfs::write`] writes a machine as a tree that the readers of sysfs understand.
//!
//! Everything here panics on what a test cannot mean, for instance a list of CPUs that is none.

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
