//! Experiments: policies run on a model, on a trace or in the lab, and what comes of them.
//!
//! A [`Scenario`] says what runs; [`Settings`] are those of the loop, the policies and the world. An
//! experiment runs each policy several times ([`run_all`]): [`trial`] is one run on the model, [`playback`] one
//! on a trace; the lab's guest runs its own. [`statistics`], [`table`] and [`chart`] show what all of them gave.

pub mod chart;
pub mod claims;
mod error;
pub mod figures;
mod grid;
pub mod outcome;
mod penalties;
pub mod plan;
pub mod playback;
pub mod scenario;
mod settings;
pub mod statistics;
pub mod table;
pub mod trial;

pub use error::ExperimentError;
pub use grid::{policies, progress, run_all};
pub use scenario::{Scenario, World};
pub use settings::Settings;
