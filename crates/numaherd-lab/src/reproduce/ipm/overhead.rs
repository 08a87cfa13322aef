//! What the unit costs: §6.3, Fig 11 and 12.
//!
//! The cost of the hardware is that of its additional memory accesses. The trace world counts them
//! and does not play them through the caches, so that their time is not modelled: their number is held
//! against the paper's, their time is not.

use std::sync::Arc;

use anyhow::Result;

use super::super::claim::{Says, claim, points};
use super::super::mean;
use super::super::traces;
use super::Claim;
use super::ground::{Ground, Job, Platform, Played, mean_of};

fn miss_rate(played: &Played) -> f64 {
    played
        .figures
        .tlb
        .as_ref()
        .map_or(f64::NAN, |tlb| tlb.miss_rate * 100.0)
}

/// The lines of §6.3 on overhead.
pub(super) fn claims(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let kernels = traces::few();
    let mut jobs = Vec::new();
    for platform in [Platform::Simics, Platform::Itanium] {
        for kernel in &kernels {
            jobs.push(Job::new(platform, kernel, "ipm")?);
        }
    }
    let runs = ground.run(jobs)?;
    let (simics, itanium) = runs.split_at(kernels.len());
    let over = |runs: &[Vec<Arc<Played>>], figure: &dyn Fn(&Played) -> f64| {
        mean(runs.iter().map(|runs| mean_of(runs, figure)))
    };
    let extra = |f: &Played| {
        f.figures
            .unit
            .as_ref()
            .map_or(0.0, |unit| unit.extra_access_share * 100.0)
    };
    let handled = |f: &Played| {
        f.figures
            .unit
            .as_ref()
            .map_or(0.0, |unit| unit.handled_share * 100.0)
    };
    let is = kernels.iter().position(|kernel| kernel.name == "is");
    let rates: Vec<f64> = simics.iter().map(|runs| mean_of(runs, miss_rate)).collect();
    let is_rate = is.map_or(f64::NAN, |at| rates[at]);
    let next = kernels
        .iter()
        .zip(&rates)
        .filter(|(kernel, _)| kernel.name != "is")
        .map(|(_, &rate)| rate)
        .fold(f64::NEG_INFINITY, f64::max);
    let factor_of_two = |figure: f64| Says::Point {
        figure,
        tolerance: figure,
    };
    Ok(vec![
        claim(
            "overhead-accesses",
            "6.3, Fig 11",
            "Simics: additional memory accesses",
            "%",
            factor_of_two(1.2),
            over(simics, &extra),
        ),
        claim(
            "overhead-handled",
            "6.3",
            "Simics: TLB evictions that the unit could handle",
            "%",
            points(67.6),
            over(simics, &handled),
        ),
        claim(
            "fig12-simics",
            "6.3, Fig 12",
            "Simics: TLB misses per access",
            "%",
            factor_of_two(0.26),
            over(simics, &miss_rate),
        ),
        claim(
            "fig12-itanium",
            "6.3, Fig 12",
            "Itanium: TLB misses per access",
            "%",
            factor_of_two(0.05),
            over(itanium, &miss_rate),
        )
        .note("scaled TLB and pages"),
        claim(
            "fig12-is",
            "6.3, Fig 12",
            "Simics: is misses most in the TLB, more than the next by",
            "points",
            Says::Ranking,
            is_rate - next,
        ),
        claim(
            "fig12-is-rate",
            "6.3, Fig 12",
            "Simics: TLB misses per access of is",
            "%",
            factor_of_two(1.43),
            is_rate,
        ),
    ])
}
