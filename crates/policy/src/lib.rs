//! The decisions: which core every thread runs on and which node every page lives on.
//!
//! A policy is a placement joined with a paging (see [`policy`]); both are pure functions of what
//! was observed and of their own state. No I/O, no clock, no threads; random numbers come from
//! the seeded generator handed in.

pub mod policy;

pub use policy::{Paging, Place, Policy, Random, Settled};
