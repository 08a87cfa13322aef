//! Several runs side by side: means with 95 % confidence intervals by Student's t.
//!
//! Runs of one policy on one machine are a group. Over n runs with mean m and standard deviation s
//! (of n - 1 degrees of freedom) the interval is m ± t · s / √n, t being the 0.975 quantile of
//! Student's distribution: where the mean of all runs like these lies in 95 of 100 such experiments,
//! if the figures spread about it normally. One run says nothing of how runs spread, and has none.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Run;
use super::history::whole_imbalance;
use crate::run::Work;

/// The mean of some runs, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    /// Runs in which it was measured.
    pub(super) runs: usize,
    pub(super) mean: f64,
    /// Half of the 95 % confidence interval; `None` of a single run.
    pub(super) half: Option<f64>,
}

impl Mean {
    /// Of the figures of several runs; `None` where there are none.
    pub(super) fn of(figures: &[f64]) -> Option<Self> {
        let runs = figures.len();
        let mean = figures.iter().sum::<f64>() / runs as f64;
        if runs == 0 || !mean.is_finite() {
            return None;
        }
        let squares = figures.iter().map(|figure| (figure - mean).powi(2));
        let freedom = runs as f64 - 1.0;
        let half = (runs > 1).then(|| {
            let deviation = (squares.sum::<f64>() / freedom).sqrt();
            t(freedom) * deviation / (runs as f64).sqrt()
        });
        Some(Self {
            runs,
            mean,
            half: half.filter(|half| half.is_finite()),
        })
    }
}

/// The 0.975 quantile of Student's t.
fn t(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom);
    student
        .expect("two runs or more leave a degree of freedom")
        .inverse_cdf(0.975)
}

/// Runs of one policy on one machine.
#[derive(Clone, Debug)]
pub(super) struct Group<'r> {
    pub(super) policy: &'r str,
    pub(super) machine: &'r str,
    pub(super) dry_run: bool,
    pub(super) runs: Vec<&'r Run>,
}

/// The groups, in the order in which their first run was given. Runs whose start is not in their
/// ledger are in none.
pub(super) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in runs {
        let Some(start) = run.model.start() else {
            continue;
        };
        let (policy, machine) = (start.policy.as_str(), start.topology.name());
        let dry_run = start.settings.dry_run;
        let known = groups
            .iter_mut()
            .find(|g| (g.policy, g.machine, g.dry_run) == (policy, machine, dry_run));
        match known {
            Some(group) => group.runs.push(run),
            None => groups.push(Group {
                policy,
                machine,
                dry_run,
                runs: vec![run],
            }),
        }
    }
    groups
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Percent,
    PerSecond,
    Plain,
}

/// A figure that runs are compared by.
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) unit: Unit,
    pub(super) of: fn(&Run) -> Option<f64>,
}

/// What runs are compared by, in the order shown. Shares are in percent.
pub(super) const MEASURES: [Measure; 8] = [
    Measure {
        name: "length",
        about: "from the first interval's beginning to the last one's end",
        unit: Unit::Seconds,
        of: |run| Some(run.charts.seen.as_ref()?.clock.span_ns as f64 / 1e9),
    },
    Measure {
        name: "speed",
        about: "instructions per second of CPU time, all threads",
        unit: Unit::PerSecond,
        of: |run| run.charts.seen.as_ref()?.all.speed(),
    },
    Measure {
        name: "miss rate",
        about: "cache lines from memory per 1000 instructions",
        unit: Unit::Plain,
        of: Run::miss_rate,
    },
    Measure {
        name: "local",
        about: "share of lines from the core's own node",
        unit: Unit::Percent,
        of: |run| Some(run.local_access_ratio()? * 100.0),
    },
    Measure {
        name: "imbalance",
        about: "standard deviation of lines served over all controllers, of their mean",
        unit: Unit::Percent,
        of: |run| whole_imbalance(&run.model),
    },
    Measure {
        name: "uncore penalty",
        about: "cycles with a request outstanding per request to the uncore",
        unit: Unit::Plain,
        of: |run| run.charts.seen.as_ref()?.all.uncore_penalty(),
    },
    Measure {
        name: "thread moves",
        about: "threads that had to leave their CPU by order",
        unit: Unit::Plain,
        of: |run| Some(run.model.totals.thread_moves as f64),
    },
    Measure {
        name: "pages moved",
        about: "base pages, as read back",
        unit: Unit::Plain,
        of: |run| Some(run.model.totals.pages_moved as f64),
    },
];

/// A figure of each run of a group in which it was measured.
pub(super) fn figures(group: &Group<'_>, measure: &Measure) -> Vec<f64> {
    let figures = group.runs.iter().filter_map(|run| (measure.of)(run));
    figures.filter(|figure| figure.is_finite()).collect()
}

/// By the name of a program: the speed of its processes in each run of a group, and how long it was
/// there, in s.
pub(super) fn programs<'r>(group: &Group<'r>) -> BTreeMap<&'r str, (Vec<f64>, Vec<f64>)> {
    let mut programs: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in &group.runs {
        let mut here: BTreeMap<&str, (Work, u64, u64)> = BTreeMap::new();
        for process in run.charts.processes.values() {
            let (first, last) = process.seen_ns;
            let one = here
                .entry(&process.name)
                .or_insert((Work::default(), first, last));
            one.0.add(&process.all);
            (one.1, one.2) = (one.1.min(first), one.2.max(last));
        }
        for (name, (work, first, last)) in here {
            let of_program = programs.entry(name).or_default();
            of_program.0.extend(work.speed());
            of_program.1.push(last.saturating_sub(first) as f64 / 1e9);
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let tables = [
            (1.0, 12.706),
            (2.0, 4.303),
            (4.0, 2.776),
            (9.0, 2.262),
            (30.0, 2.042),
        ];
        for (freedom, quantile) in tables {
            assert!(
                (t(freedom) - quantile).abs() < 5e-4,
                "{freedom}: {}",
                t(freedom)
            );
        }
    }

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        // Mean 5, s = √2.5, t(4) = 2.776445: half = 1.963243.
        let mean = Mean::of(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert_eq!((mean.runs, mean.mean), (5, 5.0));
        assert!((mean.half.unwrap() - 1.963_243).abs() < 1e-5, "{mean:?}");
    }

    #[test]
    fn a_single_run_has_no_interval_and_none_has_no_mean() {
        let one = Mean {
            runs: 1,
            mean: 4.0,
            half: None,
        };
        assert_eq!(Mean::of(&[4.0]), Some(one));
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[f64::MAX, f64::MAX]), None);
    }

    proptest! {
        #[test]
        fn runs_that_agree_have_no_spread_and_shifting_them_shifts_the_mean(
            figures in prop::collection::vec(-1e6..1e6f64, 2..12), by in -1e6..1e6f64,
        ) {
            let mean = Mean::of(&figures).unwrap();
            let shifted: Vec<f64> = figures.iter().map(|figure| figure + by).collect();
            let shifted = Mean::of(&shifted).unwrap();
            prop_assert!((shifted.mean - mean.mean - by).abs() < 1e-6);
            prop_assert!((shifted.half.unwrap() - mean.half.unwrap()).abs() < 1e-3);
            let same = Mean::of(&[by, by, by]).unwrap();
            prop_assert!(same.half.unwrap() < 1e-6);
        }
    }
}
