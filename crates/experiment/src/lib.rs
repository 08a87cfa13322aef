//! Experiments: policies run on a model, a trace or the lab, and what comes of them.

pub mod claims;
pub mod statistics;
pub mod trial;
