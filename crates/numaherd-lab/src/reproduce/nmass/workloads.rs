//! N-MASS: the eleven multiprogrammed workloads under the default scheduler, maximum-local and N-MASS (§4,
//! Fig 9 to 12).
//!
//! As in the paper, each workload runs for an hour, programs restart when they end, and slowdowns are those of
//! each program against itself alone. *Default* is the mean over every schedule that balances the load (§4.3),
//! each kept throughout. An allocation map says where memory is: digit `i` is the processor that has all memory
//! of program `i`. Of maps that mirror each other only one is run.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{largest, mean, smallest};
use numaherd_model::{Factors, Job, Placed, alone, steady};
use numaherd_policy::settings::MostMoved;
use numaherd_topology::{CpuId, NodeId};
use rayon::prelude::*;

use super::{FAR, NEAR};
use crate::reproduce::testbed::{Effort, Testbed, Workload, improvement};

/// Table 2, by the programs' own names.
const WORKLOADS: [&str; 11] = [
    "soplex sphinx3 gamess namd",
    "soplex mcf gamess gobmk",
    "mcf libquantum povray gamess",
    "mcf omnetpp h264ref namd",
    "milc libquantum povray perlbench",
    "sphinx3 gcc namd gamess",
    "lbm milc sphinx3 gobmk",
    "lbm milc mcf namd",
    "mcf milc soplex lbm",
    "lbm milc mcf namd gobmk perlbench h264ref povray",
    "mcf milc soplex lbm gobmk perlbench namd povray",
];

/// The policy.
const N_MASS: &str = "n-mass";

/// The readings of what may leave a home, by their words.
const READINGS: [(&str, MostMoved); 3] = [
    ("half", MostMoved::Half),
    ("difference", MostMoved::Difference),
    ("one", MostMoved::One),
];

/// The programs of a workload, which has its number from the paper.
fn programs(workload: usize) -> impl Iterator<Item = &'static str> {
    WORKLOADS[workload - 1].split(' ')
}

/// Workloads in which N-MASS spares programs what maximum-local costs them (§4.4).
const SPARED: [usize; 5] = [1, 7, 8, 9, 11];

/// Workloads and maps for which §4.3 says that maximum-local is worse than default.
const UNBALANCED: [(usize, &str); 5] = [
    (1, "0000"),
    (1, "0001"),
    (1, "0010"),
    (1, "1100"),
    (9, "0000"),
];

/// Slowdowns of a workload's programs in percent, in their order.
type Slowdowns = Vec<f64>;

/// One workload with one allocation map, under each scheduler.
struct Outcome {
    /// From 1, as in the paper.
    workload: usize,
    map: String,
    default: Slowdowns,
    maximum_local: Slowdowns,
    n_mass: Slowdowns,
    regression: Slowdowns,
}

impl Outcome {
    fn of(testbed: &Testbed, (workload, map): Case, effort: &Effort) -> Result<Self> {
        let run = with_map(testbed, workload, &map, effort)?;
        let under = |policy| under(testbed, policy, &run, effort);
        Ok(Self {
            workload,
            default: default(testbed, workload, &map)?,
            maximum_local: under("maximum-local")?,
            n_mass: under(N_MASS)?,
            regression: under("n-mass-regression")?,
            map,
        })
    }

    fn improvements(&self, under: &Slowdowns) -> Vec<f64> {
        improvements(&self.default, under)
    }

    fn average_improvement(&self, under: &Slowdowns) -> f64 {
        mean(self.improvements(under))
    }
}

/// A workload, by its number, and an allocation map.
type Case = (usize, String);

/// Every workload with every map.
fn cases() -> Vec<Case> {
    let of = |workload| {
        let maps = maps(programs(workload).count()).into_iter();
        maps.map(move |map| (workload, map))
    };
    (1..=WORKLOADS.len()).flat_map(of).collect()
}

/// Slowdowns under a policy, means over the seeds.
fn under(testbed: &Testbed, policy: &str, run: &Workload, effort: &Effort) -> Result<Slowdowns> {
    let slowdowns = testbed.slowdowns(policy, run, &effort.seeds())?.into_iter();
    Ok(slowdowns.map(|slowdown| 100.0 * (slowdown - 1.0)).collect())
}

/// By how much each program is faster than under default, in percent of default's time.
fn improvements(default: &Slowdowns, under: &Slowdowns) -> Vec<f64> {
    let pairs = default.iter().zip(under);
    pairs
        .map(|(default, under)| improvement(100.0 + default, 100.0 + under))
        .collect()
}

/// Slowdowns under default: the mean over all schedules with half of the programs on each processor.
fn default(testbed: &Testbed, workload: usize, map: &str) -> Result<Slowdowns> {
    let phases = programs(workload).map(|name| testbed.phase(name));
    let phases = phases.collect::<Result<Vec<_>>>()?;
    let solo = phases
        .iter()
        .map(|phase| alone(&testbed.hardware, phase, CpuId(NEAR)).ns);
    let solo: Vec<f64> = solo.collect();
    let balanced =
        (0..1_u32 << phases.len()).filter(|bits| 2 * bits.count_ones() as usize == phases.len());
    let mut sums = vec![0.0; phases.len()];
    let mut schedules = 0.0;
    for bits in balanced {
        let mut next = [NEAR, FAR];
        let placed = phases.iter().enumerate().map(|(at, &phase)| {
            let next = &mut next[(bits >> at & 1) as usize];
            let cpu = CpuId(*next);
            *next += 1;
            Placed {
                phase,
                cpu,
                home: home(map, at),
            }
        });
        let speeds = steady(&testbed.hardware, &placed.collect::<Vec<_>>(), Factors::ALL);
        for ((sum, speed), solo) in sums.iter_mut().zip(speeds).zip(&solo) {
            *sum += 100.0 * (speed.ns / solo - 1.0);
        }
        schedules += 1.0;
    }
    Ok(sums.into_iter().map(|sum| sum / schedules).collect())
}

/// Allocation maps for so many programs without mirror images: those with at least half of the programs on
/// processor 0, and of those with exactly half the ones with the first program on processor 1.
fn maps(programs: usize) -> Vec<String> {
    (0..1_u32 << programs)
        .map(|bits| -> String {
            let digit = |at: usize| if bits >> at & 1 == 1 { '1' } else { '0' };
            (0..programs).map(digit).collect()
        })
        .filter(|map| {
            let ones = map.matches('1').count();
            2 * ones < programs || 2 * ones == programs && map.starts_with('1')
        })
        .collect()
}

fn home(map: &str, at: usize) -> NodeId {
    NodeId(u32::from(map.as_bytes()[at] - b'0'))
}

/// A workload with its memory as a map says.
fn with_map(testbed: &Testbed, workload: usize, map: &str, effort: &Effort) -> Result<Workload> {
    let job = |(at, name)| Ok(Job::new(testbed.program(name)?.clone()).homed(home(map, at)));
    let jobs = programs(workload).enumerate().map(job);
    let jobs = jobs.collect::<Result<_>>()?;
    Ok(Workload::new(jobs, effort.part_of_hour(1.0)))
}

/// By number and map: all maps of WL1 (Fig 10), and the others with all memory on processor 0 (Fig 11).
pub(super) fn of_figures(testbed: &Testbed, effort: &Effort) -> Result<Vec<(String, Workload)>> {
    let cases = (1..=WORKLOADS.len()).flat_map(|number| {
        let count = programs(number).count();
        let maps = match number {
            1 => maps(count),
            _ => vec!["0".repeat(count)],
        };
        maps.into_iter().map(move |map| (number, map))
    });
    let case = |(number, map): (usize, String)| {
        let workload = with_map(testbed, number, &map, effort)?;
        Ok((format!("WL{number}-{map}"), workload))
    };
    cases.map(case).collect()
}

/// The machine with what the paper's prototype knows from profiling runs: penalties and miss rates (§3.4).
pub(super) fn profiled(testbed: &Testbed, profiles: &[super::Profiled]) -> Testbed {
    testbed.with(|settings| {
        let named = |figure: fn(&super::Profiled) -> f64| {
            let named = profiles
                .iter()
                .map(|one| (one.name.to_owned(), figure(one)));
            named.collect()
        };
        settings.penalty.programs = named(|one| one.penalty);
        settings.penalty.miss_rates = named(|one| one.miss_rate);
    })
}

/// What the schedulers show on the machine that knows the programs.
pub(super) fn measure(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let outcomes = cases()
        .into_par_iter()
        .map(|case| Outcome::of(testbed, case, effort))
        .collect::<Result<Vec<_>>>()?;
    let mut measured = influence_of_locality(&outcomes);
    measured.append(on_one_processor(&outcomes));
    Ok(measured)
}

/// Every workload with every map by each reading of what may leave a home ([`MostMoved`]): the average improvement
/// over default, and the largest loss of a program whose workload has all memory on one processor.
pub(super) fn readings(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let (mut averages, mut losses) = (Vec::new(), Vec::new());
    for (name, most_moved) in READINGS {
        let testbed = testbed.with(|settings| settings.n_mass.most_moved = most_moved);
        let of = |(workload, map): Case| -> Result<(bool, Vec<f64>)> {
            let run = with_map(&testbed, workload, &map, effort)?;
            let under = under(&testbed, N_MASS, &run, effort)?;
            let better = improvements(&default(&testbed, workload, &map)?, &under);
            Ok((!map.contains('1'), better))
        };
        let improved: Vec<_> = cases().into_par_iter().map(of).collect::<Result<_>>()?;
        averages.push((name, mean(improved.iter().map(|one| mean(&one.1)))));
        let on_one_processor = improved.iter().filter(|one| one.0);
        let losses_there = on_one_processor.flat_map(|one| one.1.iter().map(|better| -better));
        losses.push((name, largest(losses_there)));
    }
    let mut measured = Measured::new();
    measured.detail("averages-by-reading", list(averages, 2));
    measured.detail("losses-by-reading", list(losses, 1));
    Ok(measured)
}

/// Fig 9: the sum of the programs' miss rates alone.
pub(super) fn pressures(profiles: &[super::Profiled]) -> Measured {
    let totals = WORKLOADS.map(|names| {
        let profile = |name| profiles.iter().find(|one| one.name == name);
        let own = names.split(' ').filter_map(profile);
        own.map(|one| one.miss_rate).sum::<f64>()
    });
    let others = totals.iter().enumerate().filter(|&(at, _)| at != 5);
    let mut measured = Measured::new();
    measured.order(
        "fig9-least",
        [smallest(others.map(|one| *one.1)), totals[5]],
    );
    measured
}

/// §4.3: WL1 and WL9 with every allocation map, and what N-MASS gains on average (abstract).
fn influence_of_locality(outcomes: &[Outcome]) -> Measured {
    let of = |workload: usize| outcomes.iter().filter(move |one| one.workload == workload);
    let both = || of(1).chain(of(9));
    let default_most = |workload| largest(of(workload).flat_map(|one| one.default.clone()));
    let mut measured = Measured::new();
    for (workload, map) in UNBALANCED {
        let outcome = of(workload)
            .find(|one| one.map == map)
            .expect("every map is run");
        let local = mean(&outcome.maximum_local);
        let case = format!("wl{workload}-{map}");
        measured.order(
            format!("fig10-refined-{case}"),
            [local, mean(&outcome.n_mass)],
        );
        measured.order(
            format!("fig10-local-loses-{case}"),
            [local, mean(&outcome.default)],
        );
    }
    measured.figure("fig10-default-wl9", default_most(9));
    measured.figure("fig10-default-wl1", default_most(1));
    measured.figure(
        "fig10-best",
        largest(both().flat_map(|one| one.improvements(&one.n_mass))),
    );
    let average = |one: &Outcome| one.average_improvement(&one.n_mass);
    measured.figure("fig10-never-worse", smallest(both().map(average)));
    let over_all = mean(outcomes.iter().map(average));
    measured.figure("abstract-average", over_all);
    measured.figure("abstract-wins", over_all);
    measured
}

/// §4.4 and §4.5: all memory on processor 0.
fn on_one_processor(outcomes: &[Outcome]) -> Measured {
    let all: Vec<&Outcome> = outcomes
        .iter()
        .filter(|one| !one.map.contains('1'))
        .collect();
    let spared = |workload: usize| {
        let one = all
            .iter()
            .find(|one| one.workload == workload)
            .expect("every workload is run");
        let pairs = one.maximum_local.iter().zip(&one.n_mass);
        largest(pairs.map(|(local, n_mass)| local - n_mass))
    };
    let mut measured = Measured::new();
    measured.figure("fig11-spared", largest(SPARED.map(spared)));
    measured.figure("fig11-spared-each", smallest(SPARED.map(spared)));

    let mut losses_under = |name: &str, under: fn(&Outcome) -> &Slowdowns| {
        let of = |one: &&Outcome| {
            let workload = one.workload;
            let named = programs(workload).map(move |name| format!("{name} in WL{workload}"));
            let losses = one
                .improvements(under(one))
                .into_iter()
                .map(|better| -better);
            named.zip(losses)
        };
        let mut losses: Vec<(String, f64)> = all.iter().flat_map(of).collect();
        losses.sort_by(|a, b| b.1.total_cmp(&a.1));
        measured.figure(format!("fig11-worst-{name}"), losses[0].1);
        losses.truncate(4);
        measured.detail(format!("{name}-losses"), list(losses, 1));
    };
    losses_under("local", |one| &one.maximum_local);
    losses_under("n-mass", |one| &one.n_mass);

    let behind = |under: fn(&Outcome) -> &Slowdowns, other: fn(&Outcome) -> &Slowdowns| {
        all.iter()
            .map(move |one| mean(under(one)) - mean(other(one)))
    };
    measured.figure(
        "fig11-average",
        mean(behind(|one| &one.maximum_local, |one| &one.n_mass)),
    );
    let by_regression = behind(|one| &one.maximum_local, |one| &one.regression);
    measured.figure("regression-average", mean(by_regression));
    let loses = |one: &&&Outcome| {
        one.improvements(&one.regression)
            .iter()
            .any(|&better| better < -5.0)
    };
    measured.figure("regression-losing", all.iter().filter(loses).count() as f64);
    let by_regression = behind(|one| &one.regression, |one| &one.maximum_local);
    measured.figure("regression-not-worse", largest(by_regression));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_of_four_programs_are_those_of_table_3() {
        let mut maps = maps(4);
        maps.sort_unstable();
        let mut table = [
            "1100", "1010", "1001", "1000", "0100", "0010", "0001", "0000",
        ];
        table.sort_unstable();
        assert_eq!(maps, table);
        assert_eq!(super::maps(8).len(), 128);
    }
}
