//! The eleven multiprogrammed workloads under the default scheduler, maximum-local and N-MASS (§4,
//! Fig 9 to 12).
//!
//! As the paper runs them: each workload for an hour, programs restarted as they end; slowdown of each
//! program against itself alone. *Default* is the mean over every schedule that balances the load
//! (§4.3), each held for ever. Memory is where the allocation map says: digit `i` is the processor
//! that has all memory of program `i`; maps that mirror each other are run once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use numaherd_model::program::Phase;
use numaherd_model::{Factors, Job, Options, Placed, Program, Until, alone, numa_penalty, steady};
use numaherd_topology::{CpuId, NodeId};
use rayon::prelude::*;

use super::{Bench, Claim, Says, largest, mean};
use crate::reproduce::claim::{POINTS, claim};
use crate::reproduce::{CPU2006, Effort};
use numaherd_experiment::trial::{Trial, as_published, run};

/// Table 2, by the programs' own names.
const WORKLOADS: [&[&str]; 11] = [
    &["soplex", "sphinx3", "gamess", "namd"],
    &["soplex", "mcf", "gamess", "gobmk"],
    &["mcf", "libquantum", "povray", "gamess"],
    &["mcf", "omnetpp", "h264ref", "namd"],
    &["milc", "libquantum", "povray", "perlbench"],
    &["sphinx3", "gcc", "namd", "gamess"],
    &["lbm", "milc", "sphinx3", "gobmk"],
    &["lbm", "milc", "mcf", "namd"],
    &["mcf", "milc", "soplex", "lbm"],
    &[
        "lbm",
        "milc",
        "mcf",
        "namd",
        "gobmk",
        "perlbench",
        "h264ref",
        "povray",
    ],
    &[
        "mcf",
        "milc",
        "soplex",
        "lbm",
        "gobmk",
        "perlbench",
        "namd",
        "povray",
    ],
];

/// Workloads in which N-MASS spares programs what maximum-local costs them (§4.4).
const SPARED: [usize; 5] = [1, 7, 8, 9, 11];

/// The maps of WL1 and that of WL9 for which §4.3 says that maximum-local loses against default.
const UNBALANCED: [(usize, &str); 5] = [
    (1, "0000"),
    (1, "0001"),
    (1, "0010"),
    (1, "1100"),
    (9, "0000"),
];

/// Every program of CPU2006 that there is, by name.
pub(super) fn cpu2006(bench: &Bench) -> impl Iterator<Item = (&'static str, &'static Program)> {
    let programs = bench.programs;
    CPU2006
        .into_iter()
        .filter_map(move |name| Some((name, &**programs.get(name).ok()?)))
}

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
    /// By how much each program is faster than under default, in percent of default's time.
    fn improvements(&self, under: &Slowdowns) -> Vec<f64> {
        let pairs = self.default.iter().zip(under);
        pairs
            .map(|(default, under)| 100.0 * (1.0 - (100.0 + under) / (100.0 + default)))
            .collect()
    }
}

/// Allocation maps for so many programs, mirror images left out: those with at least half of the
/// programs on processor 0, and of those with just half the ones that put the first on 1.
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

struct Workload<'a> {
    bench: &'a Bench,
    number: usize,
    programs: Vec<&'static Arc<Program>>,
    /// ns for 1000 instructions alone.
    solo: Vec<f64>,
}

impl<'a> Workload<'a> {
    fn new(bench: &'a Bench, number: usize) -> Result<Self> {
        let names = WORKLOADS[number - 1].iter();
        let programs = names
            .map(|name| bench.program(name))
            .collect::<Result<Vec<_>>>()?;
        let solo = programs.iter();
        let solo = solo.map(|program| alone(&bench.hardware, &program.phases[0], CpuId(0)).ns);
        Ok(Self {
            bench,
            number,
            solo: solo.collect(),
            programs,
        })
    }

    /// The mean over all schedules with half of the programs on each processor.
    fn default(&self, map: &str) -> Slowdowns {
        let programs = self.programs.len();
        let balanced =
            (0..1_u32 << programs).filter(|bits| 2 * bits.count_ones() as usize == programs);
        let mut sums = vec![0.0; programs];
        let mut schedules = 0.0;
        for bits in balanced {
            let mut next = [0, 4];
            let placed: Vec<Placed<'_>> = (0..programs)
                .map(|at| {
                    let processor = (bits >> at & 1) as usize;
                    let cpu = CpuId(next[processor]);
                    next[processor] += 1;
                    Placed {
                        phase: &self.programs[at].phases[0],
                        cpu,
                        home: home(map, at),
                    }
                })
                .collect();
            let speeds = steady(&self.bench.hardware, &placed, Factors::ALL);
            for ((sum, speed), solo) in sums.iter_mut().zip(speeds).zip(&self.solo) {
                *sum += 100.0 * (speed.ns / solo - 1.0);
            }
            schedules += 1.0;
        }
        sums.into_iter().map(|sum| sum / schedules).collect()
    }

    /// An hour under a policy.
    fn under(
        &self,
        policy: &str,
        map: &str,
        effort: &Effort,
        recorded: &Recorded,
    ) -> Result<Slowdowns> {
        let mut policies = numaherd_policy::Settings::default();
        policies.penalty.programs.clone_from(&recorded.penalties);
        policies.penalty.miss_rates.clone_from(&recorded.miss_rates);
        let jobs = self.programs.iter().enumerate();
        let jobs = jobs.map(|(at, &program)| Job::new(program.clone()).homed(home(map, at)));
        let ran = run(&Trial {
            hardware: &self.bench.hardware,
            jobs: jobs.collect(),
            until: Until::Time(Duration::from_secs_f64(effort.hour_s)),
            options: Options::default(),
            policy,
            policies: &policies,
            herd: &as_published(),
        })?;
        let slowdown = |(work, solo): (&numaherd_model::Work, &f64)| {
            let ns = ran.seconds * 1e9 / work.instructions * 1000.0;
            100.0 * (ns / solo - 1.0)
        };
        Ok(ran.work.iter().zip(&self.solo).map(slowdown).collect())
    }

    fn outcome(&self, map: &str, effort: &Effort, recorded: &Recorded) -> Result<Outcome> {
        let under = |policy: &str| self.under(policy, map, effort, recorded);
        Ok(Outcome {
            workload: self.number,
            map: map.to_owned(),
            default: self.default(map),
            maximum_local: under("maximum-local")?,
            n_mass: under("n-mass")?,
            regression: under("n-mass-regression")?,
        })
    }
}

/// What profiling runs of the programs alone recorded, as the paper's prototype had it (§3.4).
struct Recorded {
    penalties: BTreeMap<String, f64>,
    miss_rates: BTreeMap<String, f64>,
}

fn recorded(bench: &Bench) -> Recorded {
    let of = |figure: &dyn Fn(&Phase) -> f64| -> BTreeMap<String, f64> {
        let programs = cpu2006(bench);
        programs
            .map(|(name, program)| (name.to_owned(), figure(&program.phases[0])))
            .collect()
    };
    let hardware = &bench.hardware;
    Recorded {
        penalties: of(&|phase| numa_penalty(hardware, phase, CpuId(4), NodeId(0))),
        miss_rates: of(&|phase| alone(hardware, phase, CpuId(0)).lines),
    }
}

pub(super) fn claims(bench: &Bench, effort: &Effort) -> Result<Vec<Claim>> {
    let recorded = recorded(bench);
    let workloads = (1..=WORKLOADS.len())
        .map(|number| Workload::new(bench, number))
        .collect::<Result<Vec<_>>>()?;
    let cases: Vec<(&Workload<'_>, String)> = workloads
        .iter()
        .flat_map(|workload| {
            maps(workload.programs.len())
                .into_iter()
                .map(move |map| (workload, map))
        })
        .collect();
    let outcomes = cases
        .par_iter()
        .map(|(workload, map)| workload.outcome(map, effort, &recorded))
        .collect::<Result<Vec<_>>>()?;
    let mut claims = pressures(bench, &workloads);
    claims.extend(influence_of_locality(&outcomes));
    claims.extend(unbalanced(&outcomes));
    Ok(claims)
}

/// Fig 9: the sum of the miss rates alone.
fn pressures(bench: &Bench, workloads: &[Workload<'_>]) -> Vec<Claim> {
    let total = |workload: &Workload<'_>| -> f64 {
        let rate =
            |program: &&Arc<Program>| alone(&bench.hardware, &program.phases[0], CpuId(0)).lines;
        workload.programs.iter().map(rate).sum()
    };
    let totals: Vec<f64> = workloads.iter().map(total).collect();
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let others: Vec<f64> = totals
        .iter()
        .enumerate()
        .filter(|&(at, _)| at != 5)
        .map(|(_, &t)| t)
        .collect();
    vec![
        claim(
            "fig9-least",
            "4.2, Fig 9",
            "sum of miss rates: WL6 least of all workloads, by",
            "per 1000",
            Says::Ranking,
            least(&others) - totals[5],
        )
        .proxy("by the miss rates of FACTS 1.7"),
    ]
}

fn least(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().fold(f64::INFINITY, f64::min)
}

fn average(slowdowns: &Slowdowns) -> f64 {
    mean(slowdowns.iter().copied())
}

/// §4.3: WL1 and WL9 with every allocation map.
fn influence_of_locality(outcomes: &[Outcome]) -> Vec<Claim> {
    let of = |workload: usize| outcomes.iter().filter(move |o| o.workload == workload);
    let both = || of(1).chain(of(9));
    let default_most = |workload| largest(of(workload).flat_map(|o| o.default.clone()));
    let point = |figure| Says::Point {
        figure,
        tolerance: POINTS,
    };
    let named = UNBALANCED
        .iter()
        .filter_map(|(workload, map)| of(*workload).find(|o| o.map == *map));
    let mut claims: Vec<Claim> = named.flat_map(one_unbalanced).collect();
    claims.extend([
        claim(
            "fig10-default-wl9",
            "4.3, Fig 10(a)",
            "default: largest slowdown of a program of WL9",
            "%",
            point(50.0),
            default_most(9),
        ).note("mcf, whose slowdowns the model has too large wherever its memory is remote or its cache shared"),
        claim(
            "fig10-default-wl1",
            "4.3, Fig 10(b)",
            "default: largest slowdown of a program of WL1",
            "%",
            point(18.0),
            default_most(1),
        ),
        claim(
            "fig10-best",
            "4.3, Fig 10(c)",
            "N-MASS: largest improvement of a program over default, WL1 and WL9",
            "%",
            point(32.0),
            largest(both().flat_map(|o| o.improvements(&o.n_mass))),
        ),
        claim(
            "fig10-never-worse",
            "4.3",
            "N-MASS: least average improvement over default, WL1 and WL9, all maps",
            "%",
            Says::AtLeast {
                figure: 0.0,
                tolerance: 0.5,
            },
            least(both().map(|o| mean(o.improvements(&o.n_mass)))),
        ),
        claim(
            "abstract-average",
            "Abstract",
            "N-MASS: average improvement over default, all workloads and maps",
            "%",
            point(7.0),
            mean(outcomes.iter().map(|o| mean(o.improvements(&o.n_mass)))),
        ),
        claim(
            "abstract-wins",
            "Abstract",
            "N-MASS better than default on average of all workloads and maps, by",
            "%",
            Says::Ranking,
            mean(outcomes.iter().map(|o| mean(o.improvements(&o.n_mass)))),
        ),
    ]);
    claims
}

/// §4.3: what refining gains where memory is unbalanced.
fn one_unbalanced(o: &Outcome) -> [Claim; 2] {
    let (workload, map) = (o.workload, &o.map);
    let claim = |id: &str, what: &str, margin: f64| {
        claim(
            format!("{id}-wl{workload}-{map}"),
            "4.3",
            format!("average slowdown of WL{workload}, map {map}: {what}, by"),
            "points",
            Says::Ranking,
            margin,
        )
    };
    let shared = "two or more programs share 8 MiB; the model has no contention for the cache's own \
                  bandwidth, nor for the queue behind it, which the paper's machine has";
    [
        claim(
            "fig10-refined",
            "N-MASS better than maximum-local",
            average(&o.maximum_local) - average(&o.n_mass),
        ),
        claim(
            "fig10-local-loses",
            "maximum-local worse than default",
            average(&o.maximum_local) - average(&o.default),
        )
        .note(shared),
    ]
}

/// §4.4 and §4.5: all memory on processor 0.
fn unbalanced(outcomes: &[Outcome]) -> Vec<Claim> {
    let all: Vec<&Outcome> = outcomes.iter().filter(|o| !o.map.contains('1')).collect();
    let of = |workload: usize| {
        all.iter()
            .find(|o| o.workload == workload)
            .expect("a workload")
    };
    let spared = |workload: usize| {
        let o = of(workload);
        largest(
            o.maximum_local
                .iter()
                .zip(&o.n_mass)
                .map(|(local, n_mass)| local - n_mass),
        )
    };
    let losses = |under: fn(&Outcome) -> &Slowdowns| -> Vec<(f64, String)> {
        let of = |o: &Outcome| -> Vec<(f64, String)> {
            let improvements = o.improvements(under(o)).into_iter();
            let names = WORKLOADS[o.workload - 1].iter();
            let named = improvements.zip(names);
            named
                .map(|(better, name)| (-better, format!("{name} in WL{}", o.workload)))
                .collect()
        };
        let mut losses: Vec<_> = all.iter().flat_map(|o| of(o)).collect();
        losses.sort_by(|a, b| b.0.total_cmp(&a.0));
        losses
    };
    let (local_losses, n_mass_losses) = (losses(|o| &o.maximum_local), losses(|o| &o.n_mass));
    let told = |losses: &[(f64, String)]| {
        let largest = losses.iter().take(4);
        let told: Vec<String> = largest
            .map(|(loss, who)| format!("{who} {loss:.1}"))
            .collect();
        format!("largest, %: {}", told.join(", "))
    };
    let losing = all.iter().filter(|o| {
        let improvements = o.improvements(&o.regression);
        improvements.into_iter().any(|better| better < -5.0)
    });
    let better_on_average = |a: fn(&Outcome) -> &Slowdowns, b: fn(&Outcome) -> &Slowdowns| {
        mean(all.iter().map(|o| average(b(o)) - average(a(o))))
    };
    vec![
        claim(
            "fig11-spared",
            "4.4, Fig 11, 12",
            "slowdown of a program: N-MASS less than maximum-local, the most in WL1, 7, 8, 9, 11",
            "points",
            Says::Point {
                figure: 10.0,
                tolerance: POINTS,
            },
            largest(SPARED.into_iter().map(spared)),
        ),
        claim(
            "fig11-spared-each",
            "4.4, Fig 11, 12",
            "the same, in the one of these workloads where it is least",
            "points",
            Says::Ranking,
            least(SPARED.into_iter().map(spared)),
        ),
        claim(
                "fig11-worst-local",
                "4.4",
                "maximum-local: largest loss of a program against default",
                "%",
                Says::Point {
                    figure: 12.0,
                    tolerance: POINTS,
                },
                local_losses[0].0,
            ).note(told(&local_losses)),
        claim(
                "fig11-worst-n-mass",
                "4.4",
                "N-MASS: largest loss of a program against default",
                "%",
                Says::AtMost {
                    figure: 3.0,
                    tolerance: 0.0,
                },
                n_mass_losses[0].0,
            ).note(told(&n_mass_losses)),
        claim(
            "fig11-average",
            "4.4",
            "average slowdown: N-MASS better than maximum-local, all memory on one processor, by",
            "points",
            Says::Ranking,
            better_on_average(|o| &o.n_mass, |o| &o.maximum_local),
        ),
        claim(
            "regression-average",
            "4.5",
            "average slowdown: N-MASS by regression better than maximum-local, by",
            "points",
            Says::Ranking,
            better_on_average(|o| &o.regression, |o| &o.maximum_local),
        ),
        claim(
            "regression-losing",
            "4.5",
            "N-MASS by regression: workloads with a program that loses more than 5 % against default",
            "workloads",
            Says::Point {
                figure: 4.0,
                tolerance: 2.0,
            },
            losing.count() as f64,
        ),
        claim(
                "regression-not-worse",
                "4.5",
                "average slowdown: N-MASS by regression over maximum-local, the most in one workload",
                "points",
                Says::AtMost {
                    figure: 0.0,
                    tolerance: 0.5,
                },
                largest(
                    all.iter()
                        .map(|o| average(&o.regression) - average(&o.maximum_local)),
                ),
            ).note("by the regression mcf has the highest penalty and stays at home, so that lbm, milc and soplex leave, which the model's link and latency cost more than the cache they gain"),
    ]
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
