//! The decisions: which core every thread runs on and which node every page lives on.
//!
//! A policy is a placement joined with a paging (see [`policy`]); both are pure functions of what
//! was observed and of their own state. No I/O, no clock, no threads; random numbers come from
//! the seeded generator handed in.
//!
//! To add a policy: write its file in `added/` ([`added`] finds it), or under `placement/` or
//! `paging/` with a line in the tables of [`registry`].

pub mod added;
pub mod advise;
pub mod busy;
pub mod candidates;
pub mod changes;
pub mod classes;
pub mod cost_model;
mod error;
pub mod estimate;
pub mod groups;
pub mod losses;
pub mod mapping;
mod memory;
pub mod paging;
pub mod penalty;
pub mod placement;
pub mod policy;
pub mod pools;
pub mod reason;
pub mod registry;
mod relabel;
pub mod rules;
pub mod settings;
pub mod stage;
pub mod uncore;

pub use cost_model::{CostModel, Home, Means, NoCosts};
pub use error::PolicyError;
pub use policy::{Needs, Optional, Own, Paging, PagingNeeds, Place, PlacedThread, Policy, Random};
pub use settings::Settings;
pub use stage::{PlacementRule, Seat, Stage, Staged};
