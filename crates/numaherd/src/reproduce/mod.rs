//! `numaherd reproduce`: the papers' experiments on the contention model, claim by claim.

pub mod claim;
pub mod dino;
pub mod nmass;

pub use claim::{Claim, Kind, Says};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Runs of each experiment with chance in it, each from its own seed; the papers' 10.
    pub runs: u32,
    /// Modelled seconds of experiments of a fixed time; the papers' 3600.
    pub hour_s: f64,
}

impl Effort {
    /// As the papers ran them.
    pub const FULL: Self = Self {
        runs: 10,
        hour_s: 3600.0,
    };
}
