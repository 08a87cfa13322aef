//! BRM as printed beside brm: what the choices of ours change (§6.1, §6.2, Fig 8a, 8c, 9).
//!
//! The paper prints that any difference of penalties counts, and leaves open what an average describes after a move,
//! when candidates begin and when they forget. brm's choices suit a machine that runs for days: candidates begin within
//! seconds and forget every 10 to 30 s. The paper's runs, and the micro-benchmark here, last some ten seconds
//! ([`super::setup`]), so both times are also measured at a tenth, scaled to the run.
//!
//! What to expect: a candidate that has forgotten is away for the dozen ticks of 10 ms until a probability that grows by
//! 1 % a tick strikes, and as long until it is back. Of four candidates that forget every 2 s, one is away for a
//! quarter of the time, and all four pay for it. So shorter times make runs alike, not faster.

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_experiment::statistics::{Sample, largest};
use numaherd_model::Job;
use numaherd_policy::settings::{AverageOver, BrmSettings, Steps};
use rayon::prelude::*;

use super::micro::{COMBINED_MIB, MIB, SHARED};
use super::setup::{BRM, Setup, Sizes};
use super::workloads;
use crate::reproduce::testbed::{Effort, increase};

/// The divisor that scales times to a run.
const SCALE: u64 = 10;

/// A reading: its name, and what it changes.
pub(super) type Reading = (&'static str, fn(&mut BrmSettings));

pub(super) const READINGS: [Reading; 4] = [
    ("brm", |_| {}),
    ("brm scaled to the run", scaled),
    ("as printed", printed),
    ("as printed, scaled to the run", |brm| {
        printed(brm);
        scaled(brm);
    }),
];

/// Algorithm 1 as it is printed, and averages that go on.
fn printed(brm: &mut BrmSettings) {
    brm.least_gain = 0.0;
    brm.average = AverageOver::Through;
    brm.steps = Steps::Printed;
}

/// The delay at the start is no longer than the shortest time after which a candidate forgets.
fn scaled(brm: &mut BrmSettings) {
    brm.forget_after_least_ms /= SCALE;
    brm.forget_after_most_ms /= SCALE;
}

/// How far a reading is behind the best binding in each case, and its deviations, in percent.
struct Row {
    behind: Vec<f64>,
    deviations: Vec<f64>,
}

/// Jobs, what their times are divided by, and the time of their best binding.
struct Case {
    jobs: Vec<Job>,
    per: Vec<f64>,
    best: f64,
}

pub(super) fn measure(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let micro = |set: u64| {
        let sizes = Sizes {
            lists: set * MIB,
            shared: SHARED,
        };
        case(setup, vec![setup.long_micro(sizes)?], vec![1.0])
    };
    let micro: Vec<Case> = COMBINED_MIB
        .into_par_iter()
        .map(micro)
        .collect::<Result<_>>()?;
    let (jobs, per) = workloads::mixed(setup)?;
    let mixed = [case(setup, jobs, per)?];
    let mut measured = Measured::new();
    let (mut behind, mut deviations, mut in_the_mix) = (Vec::new(), Vec::new(), Vec::new());
    for (name, change) in READINGS {
        let setup = setup.with(change);
        let row = row(&setup, &micro, effort)?;
        behind.push(format!("{name} {:+.1}", largest(&row.behind)));
        deviations.push(format!("{name} {:.1}", largest(&row.deviations)));
        let row = self::row(&setup, &mixed, effort)?;
        in_the_mix.push(format!("{name} {:+.1}", row.behind[0]));
    }
    measured.detail("behind-by-reading", behind.join(", "));
    measured.detail("deviations-by-reading", deviations.join(", "));
    measured.detail("mixed-by-reading", in_the_mix.join(", "));
    Ok(measured)
}

fn case(setup: &Setup, jobs: Vec<Job>, per: Vec<f64>) -> Result<Case> {
    let best = setup.bindings(&jobs, &per)?[0];
    Ok(Case { jobs, per, best })
}

fn row(setup: &Setup, cases: &[Case], effort: &Effort) -> Result<Row> {
    let times = cases.par_iter().map(|case| {
        let times = setup.under(BRM, &case.jobs, &case.per, &effort.seeds())?;
        Ok((case.best, times))
    });
    let times: Vec<(f64, Sample)> = times.collect::<Result<_>>()?;
    Ok(Row {
        behind: (times
            .iter()
            .map(|(best, times)| increase(times.mean(), *best)))
        .collect(),
        deviations: (times.iter().map(|(_, times)| times.deviation_percent())).collect(),
    })
}
