//! World: a NUMA machine as an analytic model of contention for caches, controllers and links.
//!
//! A [`Model`] is a machine ([`Hardware`], from a machine file) that runs [`Job`]s, each after a
//! [`program::Program`] profile. It observes and applies as a live machine does, in modelled time,
//! and the same seed gives the same run. One hour of eight programs takes some tens of milliseconds.
//!
//! | question | where |
//! |---|---|
//! | how fast does each thread run as things are | [`numaherd_contention`]: the fixed point of an epoch |
//! | who holds how much of a shared cache | [`numaherd_contention::shares`]: footprint theory |
//! | how long does a line wait at a controller or link | [`numaherd_contention::loaded`]: the loaded-latency curve |
//! | where would Linux or Xen put it | `kernel` |
//! | where are the pages | `memory` |
//! | what happens when | `engine`: from event to event |
//! | what does a policy see of it | `world` |
//! | what does BRM's micro-benchmark do | [`Micro`] |
//! | what does a given placement cost, and why | [`steady()`], [`Factors`] |
//!
//! What the model leaves out: all caches except the last level are part of the base cycles; a thread that shares its
//! CPU loses time, but none of its cache. What it leaves out unless [`Options`] turn it on: what SMT siblings share,
//! the bandwidth of a shared cache, the turnaround of controllers, the traffic of page moves.

mod cost_model;
mod engine;
mod error;
mod hardware;
mod job;
mod kernel;
mod memory;
mod micro;
pub mod program;
mod steady;
mod world;

pub use cost_model::CostModel;
pub use error::ModelError;
pub use hardware::Hardware;
pub use job::{Binding, Completion, Job, Placement, Until, Work};
pub use kernel::Scheduler;
pub use micro::{Micro, Outcome};
pub use numaherd_contention::{Factors, Speed};
pub use program::{Library, Program};
pub use steady::{Placed, Spread, alone, numa_penalty, steady, steady_spread};
pub use world::{Model, Options};
