//! Experiments: runs of policies on a model, on a trace or in the lab, and their results.
//!
//! A [`Scenario`] says what runs; [`Settings`] are those of the loop, the policies and the world. An experiment runs
//! each policy several times ([`Trials`]). A [`Trial`] is one of these runs: [`OnModel`] runs it on the contention
//! model, [`OnTrace`] on a trace, the lab in a guest. [`statistics`], [`table`] and [`chart`] present the results of
//! all trials.

pub mod chart;
pub mod claims;
mod error;
pub mod figures;
pub mod outcome;
mod penalties;
pub mod plan;
mod playback;
pub mod scenario;
mod settings;
pub mod statistics;
pub mod table;
mod trial;
mod trials;

pub use error::ExperimentError;
pub use playback::{ORACLE, OnTrace, Played, best_start};
pub use scenario::{Scenario, World, in_lab};
pub use settings::{Settings, as_published};
pub use trial::{OnModel, Ran, Trial};
pub use trials::{Asked, Trials, progress};
