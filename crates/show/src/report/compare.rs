//! Several runs side by side: the measures that compare them, in groups of one policy on one machine.

use std::collections::BTreeMap;

use super::Run;
use super::history::whole_imbalance;
use crate::losses;
use crate::run::Work;

/// Runs of one policy on one machine.
#[derive(Clone, Debug)]
pub(super) struct Group<'r> {
    pub(super) policy: &'r str,
    pub(super) machine: &'r str,
    pub(super) dry_run: bool,
    pub(super) runs: Vec<&'r Run>,
}

/// The groups, in the order in which their first run was given. Runs whose ledger does not hold their start are in no
/// group.
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

/// The measures that compare runs, in the order shown. Shares are in percent.
pub(super) const MEASURES: [Measure; 9] = [
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
        of: |run| run.charts.seen.as_ref()?.all.counted.uncore_penalty(),
    },
    Measure {
        name: "lost cores",
        about: "cores lost to caches and memory, on average",
        unit: Unit::Plain,
        of: |run| losses::mean(&run.model.totals.lost),
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

/// By program name: the speed of the program's processes in each run of a group in instructions per second, and how
/// long it was there in s.
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
