//! BRM (Rao, Wang, Zhou, Xu: Optimizing Virtual Machine Scheduling in NUMA Multicore Systems, HPCA 2013).
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`factors`] | §2.2.1, Fig 4: locality, cache and sharing, each alone |
//! | [`micro`] | §2.2.2, §2.3, §3.2, §6.1, Fig 5 to 7, 8a: all of them at once |
//! | [`workloads`] | §1, §6.1, §6.2, Fig 1, 8b, 8c, 9: parallel and multiprogrammed workloads |
//! | [`readings`] | §6.1, §6.2, Fig 8a, 8c, 9: the algorithm as printed beside ours |
//! | [`overhead`] | §6.3, Fig 10: what the bookkeeping costs |
//! | [`decisions`] | §4.2, §4.4, Fig 8a: what its decisions rest on: `numaherd reproduce brm --decisions` |
//! | [`inference`] | §8: candidates that brm infers |
//! | [`lab`] | Fig 5, 7, 8a, 9 in the lab: `numaherd lab brm` |
//!
//! Threads stand for the paper's vCPUs, since a vCPU is a thread to the host. The model runs them as Xen's credit
//! scheduler does, as far as that chooses CPUs: in every figure that is compared, 4 vCPUs of 16 (§6), or of 8 (§2.3),
//! run on 16 CPUs of 8 cores, so that weights and time slices never decide.

pub mod decisions;
mod factors;
mod inference;
pub mod lab;
mod micro;
mod overhead;
mod readings;
mod setup;
mod workloads;

use anyhow::Result;
use numaherd_experiment::claims::Measured;

pub(super) use setup::MACHINE;

use super::inputs::Inputs;
use super::testbed::{Effort, Suite};

/// Runs all experiments but those in the lab.
///
/// # Errors
/// A machine or program is unknown, or a run fails.
pub fn measure(effort: &Effort, inputs: &Inputs) -> Result<Measured> {
    let setup = setup::Setup::new(inputs)?;
    let mut measured = factors::measure(&setup)?;
    measured.append(micro::bound(&setup)?);
    measured.append(workloads::bound(&setup)?);
    let mut measured = measured.exact();
    if effort.runs == 0 {
        return Ok(measured);
    }
    measured.append(effort.with_intervals(|effort| micro::measure(&setup, effort))?);
    measured.append(effort.with_intervals(|effort| workloads::measure(&setup, effort))?);
    measured.append(workloads::by_waking(&setup, effort)?);
    measured.append(readings::measure(&setup, effort)?);
    measured.append(overhead::measure(&setup)?);
    measured.append(inference::measure(&setup, effort)?);
    Ok(measured)
}

/// The parallel and the multiprogrammed workloads, for `adaptive`.
///
/// # Errors
/// As [`measure`].
pub fn suites(effort: &Effort) -> Result<Vec<Suite>> {
    let testbed = setup::Setup::new(&Inputs::default())?.testbed;
    Ok(vec![Suite {
        name: "brm",
        workloads: workloads::all(&testbed, effort)?,
        testbed,
    }])
}
