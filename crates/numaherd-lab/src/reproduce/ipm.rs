//! IPM (Cruz, Diener, Pilla, Navaux: Hardware-Assisted Thread and Data Mapping in Hierarchical Multi-Core
//! Architectures, ACM TACO 2016).
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`accuracy`] | §3.3, §6.3, Fig 1: pages on the right node, by what the mapping is based on |
//! | [`storage`] | §4.5.1, Table I, Eq. 10 to 13 |
//! | [`patterns`] | §6.1, Fig 6: which threads share |
//! | [`platforms`] | §6.1, §6.2, Fig 7 to 10: time, traffic and energy compared with other mappings |
//! | [`overhead`] | §6.3, Fig 11, 12: what the unit costs |
//! | [`design`] | §6.4, Fig 13 to 15: ageing, threshold, TLB entries, page size |
//!
//! The programs are the menagerie's own kernels after the NAS definitions, recorded in the lab and played on
//! the trace world (docs/trace.md); notes name what stands for PARSEC and for Ondes3D. Inputs are of class W (S
//! for ep, ua and the grid), close to the paper's in its simulator, and for the same reason: a run takes
//! seconds. As in the paper's simulator, caches and TLBs shrink with the inputs ([`setup::SCALE`]), except on
//! its simulated machine, whose caches are small already.

mod accuracy;
mod design;
mod overhead;
mod patterns;
mod platforms;
pub mod setup;
mod storage;

use anyhow::Result;
use numaherd_experiment::claims::Measured;

use super::testbed::Effort;
use super::traces::Traces;
pub use patterns::draw;
use setup::{Plays, Setup};

/// One run for ten of the others: a run of all takes about an hour of CPU time, two thirds of it in the policies that
/// learn, each for [`setup::INTERVALS`] intervals.
pub fn effort(of_others: &Effort) -> Effort {
    Effort::new(of_others.runs.div_ceil(10), of_others.hour_s)
}

/// Placement intervals that are played after set-up: [`setup::INTERVALS`] for a whole hour.
pub fn intervals(effort: &Effort) -> f64 {
    setup::INTERVALS as f64 * effort.hour_s / Effort::FULL.hour_s
}

/// Runs all experiments.
///
/// # Errors
/// A trace cannot be recorded or read, or a run fails.
pub fn measure(effort: &Effort, traces: &Traces) -> Result<Measured> {
    let plays = Plays::new(traces);
    let again_ms = (intervals(effort) * setup::INTERVAL_MS as f64).ceil() as u64;
    let mut measured = storage::measure()?.exact();
    measured.append(effort.with_intervals(|effort| {
        let setup = Setup::new(&plays, effort.seeds(), again_ms);
        let mut measured = accuracy::measure(&setup)?;
        measured.append(patterns::measure(&setup)?);
        measured.append(platforms::measure(&setup)?);
        measured.append(overhead::measure(&setup)?);
        measured.append(design::measure(&setup)?);
        Ok(measured)
    })?);
    Ok(measured)
}
