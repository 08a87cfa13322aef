//! DINO Fig 7, 12 and the right half of Table 1: MPI jobs of 16 processes, one job at a time.
//!
//! No figures of the paper's eleven jobs are public; the library's are proxies, whose miss rates
//! change as often as Table 1 has their processes moved. Ranks begin at different phases, and their
//! lines differ by up to [`UNEVEN`] from the mean, as decompositions of a domain are uneven: without
//! that, ranks are equal and DI turns them round every second. Ranks wait for each other (a gang).
//! What is compared is the time for the same work, over four minutes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use numaherd_model::program::{Curve, Program};
use numaherd_model::{Job, Until};

use super::runs::{DEFAULT, POLICIES, Runs, Workload, pace, runs};
use super::{Claim, Effort, Ground, at_least, at_most, claim, largest};
use crate::reproduce::Says;

/// The eleven jobs.
const JOBS: [&str; 11] = [
    "104.milc",
    "107.leslie3d",
    "113.GemsFDTD",
    "121.pop2",
    "122.tachyon",
    "126.lammps",
    "127.wrf2",
    "128.GAPgeofem",
    "130.socorro",
    "132.zeusmp2",
    "137.lu",
];
/// Those of Table 1.
const IN_TABLE: [&str; 5] = [
    "107.leslie3d",
    "126.lammps",
    "128.GAPgeofem",
    "130.socorro",
    "137.lu",
];
/// Processes of a job (§3.2).
const RANKS: usize = 16;
/// How far the lines of the first and the last rank are from the mean, as a share: chosen.
const UNEVEN: f64 = 0.15;
/// Why DI-Migrate costs what it does.
const COPIES: &str = "\"as much as\": a bound. Each move copies a rank's 1 GB, half a second in which all ranks \
                      wait for it; with as many moves as ours that is the cost";
/// Part of an hour that a job is looked at.
const OF_AN_HOUR: f64 = 1.0 / 15.0;

/// One job under every policy.
struct Ran4 {
    job: &'static str,
    kernel: Runs,
    /// In the order of [`POLICIES`].
    under: [Runs; 3],
}

impl Ran4 {
    /// Of the job's first rank, which goes as all of them do.
    fn improvement(&self, policy: usize) -> f64 {
        self.under[policy].improvement(&self.kernel, 0)
    }

    fn worst_improvement(&self, policy: usize) -> f64 {
        self.under[policy].worst_improvement(&self.kernel, 0)
    }

    /// Moves of one process per hour, mean of the ranks.
    fn moves(&self, policy: usize) -> f64 {
        let runs = &self.under[policy];
        super::mean(runs.jobs().map(|rank| runs.moves(rank)))
    }
}

/// The ranks of a job.
fn ranks(ground: &Ground, name: &str) -> Result<Vec<Job>> {
    let program = ground.library.get(name)?;
    let rank = |number: usize| -> Result<Job> {
        let middle = (RANKS - 1) as f64 / 2.0;
        let share = 1.0 + UNEVEN * (number as f64 - middle) / middle;
        let mut job = Job::new(Arc::new(with_lines(&program.begun_at(number), share)?));
        job.gang = Some(0);
        Ok(job)
    };
    (0..RANKS).map(rank).collect()
}

/// The same program with this share of its lines.
fn with_lines(program: &Program, share: f64) -> Result<Program> {
    let footprint = program.footprint_bytes as f64;
    let scaled = |curve: &Curve| {
        let points: Vec<(f64, f64)> = curve
            .points()
            .map(|(bytes, lines)| (bytes, lines * share))
            .collect();
        Curve::new(curve.cache_accesses() * share, &points, footprint)
    };
    let mut program = program.clone();
    for phase in &mut program.phases {
        phase.lines = scaled(&phase.lines)?;
        phase.demand = phase.demand.as_ref().map(scaled).transpose()?;
    }
    Ok(program)
}

/// The claims of Fig 7, 12 and Table 1 on MPI2007.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let settings = numaherd_policy::Settings::default();
    let mut all = Vec::new();
    for job in JOBS {
        let workload = Workload {
            jobs: ranks(ground, job)?,
            until: Until::Time(Duration::from_secs_f64(effort.hour_s * OF_AN_HOUR)),
            time: &pace,
        };
        let under = |policy| runs(ground, &workload, policy, &settings, effort.runs);
        all.push(Ran4 {
            job,
            kernel: under(DEFAULT)?,
            under: [
                under(POLICIES[0])?,
                under(POLICIES[1])?,
                under(POLICIES[2])?,
            ],
        });
    }
    let [plain, migrate, dino] = [0, 1, 2];
    let lowest = |policy: usize| -largest(all.iter().map(|ran| -ran.improvement(policy)));
    let mut claims = vec![
        claim(
            "fig12-dino-improves-all",
            "5.3, Fig 12",
            "DINO improves every MPI job over Default: the least improvement",
            "%",
            Says::Ranking,
            lowest(dino),
        )
        .proxy(told(&all, dino)),
        claim(
            "fig12-dino-best",
            "3.3.4, 5.3, Fig 12",
            "the most that DINO improves an MPI job",
            "%",
            at_most(30.0),
            largest(all.iter().map(|ran| ran.improvement(dino))),
        )
        .proxy("\"as much as 30 %\": a bound"),
    ];
    for (policy, name, most) in [(plain, "DI-Plain", 20.0), (migrate, "DI-Migrate", 25.0)] {
        let id = POLICIES[policy];
        claims.push(
            claim(
                format!("fig12-{id}-hurts"),
                "3.2, 5.3, Fig 7, 12",
                format!("{name} makes MPI jobs slower than Default: the most"),
                "%",
                Says::Ranking,
                -lowest(policy),
            )
            .proxy(told(&all, policy)),
        );
        claims.push(
            claim(
                format!("fig12-{id}-worst"),
                "3.2, 5.3, Fig 7, 12",
                format!("the most that {name} makes an MPI job slower"),
                "%",
                at_most(most),
                -lowest(policy),
            )
            .proxy(if policy == migrate {
                COPIES
            } else {
                "\"as much as\": a bound"
            }),
        );
    }
    claims.extend(orders(&all));
    claims.extend(table(&all));
    Ok(claims)
}

/// Improvements of all jobs, in words.
fn told(all: &[Ran4], policy: usize) -> String {
    let each: Vec<String> = all
        .iter()
        .map(|ran| format!("{} {:+.1}", ran.job, ran.improvement(policy)))
        .collect();
    format!("improvement, %: {}", each.join(", "))
}

/// What is said of orders between jobs and policies, and of the longest times.
fn orders(all: &[Ran4]) -> Vec<Claim> {
    let [plain, migrate, dino] = [0, 1, 2];
    let of = |name: &str| {
        all.iter()
            .find(|ran| ran.job == name)
            .map_or(f64::NAN, |ran| ran.improvement(migrate))
    };
    let others = all.iter().filter(|ran| ran.job != "128.GAPgeofem");
    let worst = |policy: usize| -largest(all.iter().map(|ran| -ran.worst_improvement(policy)));
    let unprinted = "what the jobs ask of a machine is not printed";
    vec![
        claim(
            "fig7-gapgeofem-suffers-most",
            "3.2, Fig 7",
            "of the MPI jobs, GAPgeofem suffers most under DI-Migrate",
            "points",
            Says::Ranking,
            -largest(others.map(|ran| -ran.improvement(migrate))) - of("128.GAPgeofem"),
        )
        .proxy("all ranks are taken to have 1 GB, so that copies cost the jobs most that gain least by them"),
        claim(
            "fig12-dino-over-others",
            "5.3, Fig 12",
            "DINO is better than DI-Plain and DI-Migrate for every MPI job: the least difference",
            "points",
            Says::Ranking,
            -largest(all.iter().map(|ran| {
                ran.improvement(plain).max(ran.improvement(migrate)) - ran.improvement(dino)
            })),
        )
        .proxy(unprinted),
        claim(
            "fig12-worst-dino",
            "5.3, Fig 12",
            "DINO improves the longest time of every MPI job: the least improvement",
            "%",
            Says::Ranking,
            worst(dino),
        )
        .proxy(unprinted),
        claim(
            "fig12-worst-others",
            "5.3, Fig 12",
            "the longest times of some MPI jobs are worse under DI-Plain and DI-Migrate: the lesser of the \
             two worst losses",
            "%",
            Says::Ranking,
            (-worst(plain)).min(-worst(migrate)),
        )
        .proxy(unprinted),
    ]
}

/// Table 1, right half.
fn table(all: &[Ran4]) -> Vec<Claim> {
    let in_table = || all.iter().filter(|ran| IN_TABLE.contains(&ran.job));
    let told = |policy: usize| -> String {
        let each: Vec<String> = in_table()
            .map(|ran| format!("{} {:.0}", ran.job, ran.moves(policy)))
            .collect();
        each.join(", ")
    };
    let [migrate, dino] = [1, 2];
    vec![
        claim(
            "table1-mpi-di-migrate-least",
            "3.2, Table 1",
            "migrations of an MPI process per hour under DI-Migrate: the least of five jobs, within a factor \
             of two",
            "per hour",
            at_least(135.0 / 2.0),
            -largest(in_table().map(|ran| -ran.moves(migrate))),
        )
        .proxy(format!("the paper has 381, 135, 237, 340, 256; ours: {}", told(migrate))),
        claim(
            "table1-mpi-di-migrate-most",
            "3.2, Table 1",
            "the most of them, within a factor of two",
            "per hour",
            at_most(381.0 * 2.0),
            largest(in_table().map(|ran| ran.moves(migrate))),
        )
        .proxy(
            "the profiles' phases are as long as these counts ask for; more come of DI's own moves, which \
             change miss rates and so the order that the next deal goes by",
        ),
        claim(
            "table1-mpi-dino",
            "3.3.4, Table 1",
            "the most of the five under DINO",
            "per hour",
            at_most(3.0),
            largest(in_table().map(|ran| ran.moves(dino))),
        )
        .proxy(format!("the paper has 2, 1, 3, 2, 1; ours: {}", told(dino))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_differ_and_make_up_the_job() {
        let ground = Ground::new().unwrap();
        let ranks = ranks(&ground, "128.GAPgeofem").unwrap();
        assert_eq!(ranks.len(), RANKS);
        assert!(ranks.iter().all(|rank| rank.gang == Some(0)));
        let at = |rank: &Job| rank.program.phases[0].lines.at(1e6);
        let kin = ground.library.get("128.GAPgeofem").unwrap();
        let own = |number: usize| kin.begun_at(number).phases[0].lines.at(1e6);
        assert!((at(&ranks[0]) / own(0) - (1.0 - UNEVEN)).abs() < 1e-9);
        assert!((at(&ranks[15]) / own(15) - (1.0 + UNEVEN)).abs() < 1e-9);
        let mean = super::super::mean((0..RANKS).map(|number| at(&ranks[number]) / own(number)));
        assert!((mean - 1.0).abs() < 1e-9);
    }
}
