//! A machine as an analytic model of contention: caches, controllers, links, cores.

mod error;
pub mod program;

pub use error::ModelError;
