//! The claims of IPM (Cruz, Diener, Pilla, Navaux: Hardware-Assisted Thread and Data Mapping in
//! Hierarchical Multi-Core Architectures, ACM TACO 2016), one for each statement that can be checked.
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`accuracy`] | §3.3, §6.3, Fig 1: pages on the right node, by what the mapping goes by |
//! | [`patterns`] | §6.1, Fig 6: which threads share |
//! | [`platforms`] | §6.1, §6.2, Fig 7 to 10: time, traffic and energy against other mappings |
//! | [`overhead`] | §6.3, Fig 11, 12: what the unit costs |
//! | [`design`] | §6.4, Fig 13 to 15: ageing, threshold, TLB entries, page size |
//! | [`storage`] | §4.5.1, Table I, Eq. 10 to 13 |
//!
//! The programs are the menagerie's own kernels after the NAS definitions, recorded in the lab and
//! played on the trace world (see `docs/trace.md`); what stands for PARSEC's and for Ondes3D is named
//! in the notes. Inputs are of class W (of ep, ua and the grid S), near the paper's in its simulator, and for the
//! same reason: so that a run fits into seconds. As the paper did there, caches and TLBs are made smaller with
//! them ([`ground::SCALE`]), except on its simulated machine, whose are small already.
//!
//! When a line holds is as for the other papers (`claim`).

mod accuracy;
mod design;
mod ground;
mod overhead;
mod patterns;
mod platforms;
mod storage;

use anyhow::Result;

use super::traces::Traces;
use super::{Claim, Effort};
pub use patterns::draw;

/// All claims of IPM, in the paper's order.
///
/// # Errors
/// A trace cannot be had, or a run fails.
pub fn claims(effort: &Effort, traces: &Traces) -> Result<Vec<Claim>> {
    let ground = ground::Ground::new(traces, effort);
    let mut claims = accuracy::claims(&ground)?;
    claims.extend(storage::claims()?);
    claims.extend(patterns::claims(&ground)?);
    claims.extend(platforms::claims(&ground)?);
    claims.extend(overhead::claims(&ground)?);
    claims.extend(design::claims(&ground)?);
    Ok(claims)
}
