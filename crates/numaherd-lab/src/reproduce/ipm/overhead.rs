//! IPM §6.3, Fig 11 and 12: what the unit costs.
//!
//! The cost of the hardware is that of its additional memory accesses. The trace world counts them but does not
//! play them through the caches, so that their time is not modelled: their number is compared with the paper's,
//! their time is not.

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{largest, mean};

use super::setup::{Platform, Played, Setup};
use crate::reproduce::traces::nas_and_parsec;

/// TLB misses per access, in percent.
fn miss_rate(played: &Played) -> f64 {
    played.tlb_misses * 100.0
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let kernels = nas_and_parsec();
    let simics = setup.run_each(Platform::Simics, &kernels, "ipm")?;
    let itanium = setup.run_each(Platform::Itanium, &kernels, "ipm")?;
    let of_unit = |at: usize| mean(simics.iter().map(|played| played.unit[at] * 100.0));
    let rates = |of: &[Arc<Played>]| -> Vec<(&str, f64)> {
        let names = kernels.iter().map(|kernel| kernel.name);
        names
            .zip(of.iter().map(|played| miss_rate(played)))
            .collect()
    };
    let (on_simics, on_itanium) = (rates(&simics), rates(&itanium));
    let (is, others): (Vec<(&str, f64)>, Vec<_>) = on_simics.iter().partition(|one| one.0 == "is");
    let is = largest(is.iter().map(|one| one.1));
    let others = largest(others.iter().map(|one| one.1));
    let mut measured = Measured::new();
    measured.figure("overhead-accesses", of_unit(2));
    measured.figure("overhead-handled", of_unit(1));
    measured.figure("fig12-simics", mean(on_simics.iter().map(|one| one.1)));
    measured.figure("fig12-itanium", mean(on_itanium.iter().map(|one| one.1)));
    measured.detail("simics-tlb", list(on_simics, 2));
    measured.detail("itanium-tlb", list(on_itanium, 2));
    measured.order("fig12-is", [is, others]);
    measured.figure("fig12-is-rate", is);
    Ok(measured)
}
