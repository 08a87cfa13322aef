//! IPM §3.3, Fig 1 and §6.3: how many pages are on the right node, by what the mapping is based on.
//!
//! A page's right node is the one whose threads make most of all accesses to it, with threads where they are at the
//! end of the run; the share is of all pages. Fig 1 compares the nodes that are *selected* (§3.3): a page of which a
//! metric shows nothing has none, though first touch may have put it right. In §6.3, pages count as they lie at the
//! end. The paper samples 1 in 10^7 to 10^4 of all accesses. Ours are more frequent by the dilation, because our runs
//! make fewer accesses by as much.

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{largest, mean};
use numaherd_trace::world::SampleEvery;

use super::setup::{Platform, Played, Run, Setup};
use crate::reproduce::testbed::improvement;
use crate::reproduce::traces::{named, nas_and_parsec};

/// Accesses between two samples (§3.3).
const RATES: [u64; 4] = [10_000_000, 1_000_000, 100_000, 10_000];

/// Fig 1's programs; facesim has no stand-in.
const PROGRAMS: [&str; 3] = ["bt", "ft", "sp"];

/// One program's runs by each metric.
struct Metrics {
    residency: Arc<Played>,
    misses: Arc<Played>,
    /// By [`RATES`].
    sampled: Vec<Arc<Played>>,
}

impl Metrics {
    fn of(setup: &Setup<'_>, program: &str) -> Result<Self> {
        let run = |policy| Run::new(Platform::Itanium, named(program), policy);
        let mut runs = vec![run("ipm")?, run("tlb-miss-history")?];
        for every in RATES {
            let sampled = run("sampled")?;
            runs.push(sampled.with(|options| {
                options.sample_every = SampleEvery::Accesses(every / options.dilation);
            }));
        }
        let mut runs = setup.run(runs)?;
        let sampled = runs.split_off(2);
        let misses = runs.remove(1);
        Ok(Self {
            residency: runs.remove(0),
            misses,
            sampled,
        })
    }
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let metrics = PROGRAMS.iter().map(|program| Metrics::of(setup, program));
    let metrics: Vec<Metrics> = metrics.collect::<Result<_>>()?;
    let mut measured = Measured::new();
    // The paper prints no figures of sp.
    for (program, metric) in PROGRAMS.iter().zip(&metrics).take(2) {
        measured.figure(
            format!("fig1-{program}-residency"),
            metric.residency.chosen_right,
        );
        let others = metric.sampled.iter().chain([&metric.misses]);
        let best = largest(others.map(|played| played.chosen_right));
        measured.figure(format!("fig1-{program}-others"), best);
    }
    orders(&metrics, &mut measured);
    measured.append(races(setup)?);
    Ok(measured)
}

fn orders(metrics: &[Metrics], measured: &mut Measured) {
    let all = |figure: &dyn Fn(&Metrics) -> f64| mean(metrics.iter().map(figure));
    let residency = all(&|m| m.residency.chosen_right);
    let misses = all(&|m| m.misses.chosen_right);
    let by_rate = [0, 1, 2, 3].map(|rate| all(&|m| m.sampled[rate].chosen_right));
    measured.order("fig1-residency-misses", [residency, misses]);
    measured.order("fig1-misses-sampled", [misses, by_rate[2]]);
    measured.order("fig1-residency-sampled", [residency, by_rate[2]]);
    measured.order("fig1-rates", by_rate.into_iter().rev());
    measured.detail("residency", format!("{residency:.1}"));
    measured.detail("misses", format!("{misses:.1}"));
    let by_rate = by_rate.map(|share| format!("{share:.1}"));
    measured.detail("by-rate", by_rate.join(", "));

    let saved =
        |figure: &dyn Fn(&Metrics) -> f64| all(&|m| improvement(m.sampled[0].time, figure(m)));
    let residency = saved(&|m| m.residency.time);
    measured.order(
        "fig1-time-residency",
        [residency, saved(&|m| m.misses.time)],
    );
    measured.order(
        "fig1-time-sampled",
        [residency, saved(&|m| m.sampled[2].time)],
    );
}

/// Accuracy over all programs, and how much of it races cost (§6.3, Simics).
fn races(setup: &Setup<'_>) -> Result<Measured> {
    let kernels = nas_and_parsec();
    let with = setup.run_each(Platform::Simics, &kernels, "ipm")?;
    let lost = PROGRAMS.iter().map(|program| {
        let run = Run::new(Platform::Simics, named(program), "ipm")?;
        let race_free = run.clone().with(|options| options.races = false);
        let played = setup.run(vec![race_free, run])?;
        Ok(played[0].right - played[1].right)
    });
    let lost = lost.collect::<Result<Vec<f64>>>()?;
    let races = with.iter().map(|played| played.unit[0] * 100.0);
    let mut measured = Measured::new();
    measured.figure("accuracy", mean(with.iter().map(|played| played.right)));
    measured.figure("accuracy-race-free", mean(lost));
    measured.figure("races", mean(races));
    let by_program = kernels.iter().zip(&with);
    let by_program = by_program.map(|(kernel, played)| (kernel.name, played.right));
    measured.detail("right-by-program", list(by_program, 1));
    Ok(measured)
}
