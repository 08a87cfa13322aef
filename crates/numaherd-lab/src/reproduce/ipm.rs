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

use super::traces::Traces;
pub use patterns::draw;

/// Runs all experiments.
///
/// # Errors
/// A trace cannot be recorded or read, or a run fails.
pub fn measure(traces: &Traces) -> Result<Measured> {
    let setup = setup::Setup::new(traces);
    let mut measured = accuracy::measure(&setup)?;
    measured.append(storage::measure()?);
    measured.append(patterns::measure(&setup)?);
    measured.append(platforms::measure(&setup)?);
    measured.append(overhead::measure(&setup)?);
    measured.append(design::measure(&setup)?);
    Ok(measured)
}
