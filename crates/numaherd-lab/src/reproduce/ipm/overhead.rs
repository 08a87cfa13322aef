//! IPM §6.3, Fig 11 and 12: what the unit costs.
//!
//! The cost of the hardware is that of its additional memory accesses. The trace world counts them but does not
//! play them through the caches, so that their time is not modelled: their number is compared with the paper's,
//! their time is not.

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_experiment::statistics::{largest, mean};

use super::setup::{Platform, Played, Setup};
use crate::reproduce::traces::few;

/// TLB misses per access, in percent.
fn miss_rate(played: &Played) -> f64 {
    played.tlb_misses * 100.0
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let kernels = few();
    let simics = setup.run_each(Platform::Simics, &kernels, "ipm")?;
    let itanium = setup.run_each(Platform::Itanium, &kernels, "ipm")?;
    let of_unit = |at: usize| mean(simics.iter().map(|played| played.unit[at] * 100.0));
    let rates = || {
        kernels
            .iter()
            .zip(&simics)
            .map(|(kernel, played)| (kernel.name, miss_rate(played)))
    };
    let is = rates()
        .find(|one| one.0 == "is")
        .map_or(f64::NAN, |one| one.1);
    let others = largest(rates().filter(|one| one.0 != "is").map(|one| one.1));
    let mut measured = Measured::new();
    measured.figure("overhead-accesses", of_unit(2));
    measured.figure("overhead-handled", of_unit(1));
    measured.figure("fig12-simics", mean(rates().map(|one| one.1)));
    measured.figure(
        "fig12-itanium",
        mean(itanium.iter().map(|played| miss_rate(played))),
    );
    measured.order("fig12-is", [is, others]);
    measured.figure("fig12-is-rate", is);
    Ok(measured)
}
