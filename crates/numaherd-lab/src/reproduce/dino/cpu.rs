//! DINO Fig 6, 11 and the left half of Table 1: a workload of CPU2006 programs, started together, each
//! started again until all have completed three times; the second completion counts.
//!
//! The paper does not print what its workloads are made of. This one is the thirteen programs that
//! it names anywhere, once each (Table 1 and §2.1), on its sixteen cores.

use std::sync::Arc;

use anyhow::Result;
use numaherd_model::{Job, Program, Until};

use super::runs::{DEFAULT, POLICIES, Runs, Workload, runs};
use super::{Claim, Effort, Ground, at_least, at_most, claim, largest, mean};
use crate::reproduce::Says;
use numaherd_experiment::trial::Ran;

/// The programs that the paper names: first the five of Table 1.
const NAMED: [&str; 13] = [
    "soplex", "milc", "lbm", "gamess", "namd", "mcf", "omnetpp", "gcc", "bwaves", "bzip2",
    "povray", "calculix", "h264ref",
];
/// How many of them are in Table 1.
const IN_TABLE: usize = 5;
/// A change of a time by less than this is none, in percent.
const NONE: f64 = 1.0;

/// Instructions of one run as in the log that the authors' own scheduler comes with, on this very
/// machine (FACTS 1.3): their inputs were not the library's. How often a program is started again
/// decides how often DI deals anew.
const AS_LOGGED: [(&str, f64); 3] = [
    ("gamess", 1078.1e9),
    ("namd", 2374.9e9),
    ("soplex", 376.7e9),
];

/// Jobs of these programs, first touch, left to the kernel.
pub(super) fn jobs(ground: &Ground, programs: &[&str]) -> Result<Vec<Job>> {
    let job = |name: &&str| {
        let mut program = Program::clone(ground.library.get(name)?);
        if let Some((_, logged)) = AS_LOGGED.iter().find(|one| one.0 == *name) {
            let times = logged / program.instructions();
            for phase in &mut program.phases {
                phase.instructions *= times;
            }
        }
        Ok(Job::new(Arc::new(program)))
    };
    programs.iter().map(job).collect()
}

/// The time of a job's second completion (§3.2).
fn second(ran: &Ran, job: usize) -> Option<f64> {
    let second = |one: &&numaherd_model::Completion| one.job == job && one.run == 1;
    Some(ran.completions.iter().find(second)?.seconds())
}

/// The claims of Fig 6, 11 and Table 1 on CPU2006.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let workload = Workload {
        jobs: jobs(ground, &NAMED)?,
        until: Until::Completions(3),
        time: &second,
    };
    let settings = numaherd_policy::Settings::default();
    let all = |policy| runs(ground, &workload, policy, &settings, effort.runs);
    let kernel = all(DEFAULT)?;
    let [plain, migrate, dino] = [all(POLICIES[0])?, all(POLICIES[1])?, all(POLICIES[2])?];
    let hurt = plain
        .jobs()
        .filter(|&job| plain.improvement(&kernel, job) < -NONE);
    let mut claims = vec![
        claim(
            "fig11-di-plain-hurts-many",
            "5.3, Fig 11",
            "programs of CPU2006 that DI-Plain makes slower than Default: a third of them",
            "programs",
            at_least((NAMED.len() / 3) as f64),
            hurt.count() as f64,
        )
        .proxy(told(&plain, &kernel)),
        claim(
            "fig6-di-plain-worst",
            "3.2, Fig 6",
            "the most that DI-Plain makes a program of the workload of §3.2 slower, of the five known",
            "%",
            at_most(36.0),
            largest((0..IN_TABLE).map(|job| -plain.improvement(&kernel, job))),
        )
        .proxy("\"as much as 36 %\": a bound; that workload is known by the five programs of Table 1"),
        mean_improves("fig11-di-migrate-improves", "DI-Migrate", &migrate, &kernel),
        mean_improves("fig11-dino-improves", "DINO", &dino, &kernel),
        claim(
            "fig11-dino-best",
            "1, Fig 11",
            "the most that DINO makes a program of CPU2006 faster than Default",
            "%",
            at_most(20.0),
            largest(dino.jobs().map(|job| dino.improvement(&kernel, job))),
        )
        .proxy("\"up to 20 %\": a bound"),
    ];
    claims.extend(against_migrate(&dino, &migrate, &kernel));
    claims.extend(worst_cases([&plain, &migrate, &dino], &kernel));
    claims.extend(deviations([&plain, &migrate, &dino], &kernel));
    claims.extend(table(&migrate, &dino));
    Ok(claims)
}

/// Improvements of all programs, in words.
fn told(runs: &Runs, kernel: &Runs) -> String {
    let each = NAMED.iter().zip(runs.jobs());
    let each: Vec<String> = each
        .map(|(name, job)| format!("{name} {:+.0}", runs.improvement(kernel, job)))
        .collect();
    format!("improvement, %: {}", each.join(", "))
}

fn mean_improves(id: &str, policy: &str, runs: &Runs, kernel: &Runs) -> Claim {
    claim(
        id,
        "5.3, Fig 11",
        format!("{policy} improves completion times of CPU2006 over Default, on average"),
        "points",
        Says::Ranking,
        runs.mean_improvement(kernel),
    )
    .proxy(told(runs, kernel))
}

/// DINO beside DI-Migrate.
fn against_migrate(dino: &Runs, migrate: &Runs, kernel: &Runs) -> Vec<Claim> {
    let gains = || {
        dino.jobs()
            .map(|job| dino.improvement(kernel, job) - migrate.improvement(kernel, job))
    };
    let better = gains().filter(|&gain| gain > 0.0).count() as f64;
    vec![
        claim(
            "fig11-dino-over-di-migrate",
            "5.3, Fig 11",
            "DINO improves more than DI-Migrate, on average",
            "points",
            Says::Ranking,
            mean(gains()),
        )
        .proxy(format!(
            "{better} of {} programs are faster under DINO",
            NAMED.len()
        )),
        claim(
            "fig11-dino-better-for-most",
            "5.3, Fig 11",
            "programs for which DINO is better than DI-Migrate, less the others: most",
            "programs",
            Says::Ranking,
            better - (NAMED.len() as f64 - better),
        )
        .proxy("the composition of the workload is not printed"),
    ]
}

/// Longest times of the runs.
fn worst_cases([plain, migrate, dino]: [&Runs; 3], kernel: &Runs) -> Vec<Claim> {
    let worst = |runs: &Runs| mean(runs.jobs().map(|job| runs.worst_improvement(kernel, job)));
    vec![
        claim(
            "fig11-worst-dino",
            "5.3, Fig 11",
            "DINO improves the longest completion times of CPU2006, on average",
            "points",
            Says::Ranking,
            worst(dino),
        )
        .proxy("the composition of the workload is not printed"),
        claim(
            "fig11-worst-di-migrate",
            "5.3, Fig 11",
            "DI-Migrate improves the longest completion times of CPU2006, on average",
            "points",
            Says::Ranking,
            worst(migrate),
        )
        .proxy("the composition of the workload is not printed"),
        claim(
            "fig11-worst-di-plain",
            "5.3, Fig 11",
            "DI-Plain does less badly on the longest times than on the mean ones",
            "points",
            Says::Ranking,
            worst(plain) - plain.mean_improvement(kernel),
        )
        .proxy("the composition of the workload is not printed"),
    ]
}

/// Deviations over the runs.
fn deviations(policies: [&Runs; 3], kernel: &Runs) -> Vec<Claim> {
    let mut claims = Vec::new();
    let largest_of = |runs: &Runs| largest(runs.jobs().map(|job| runs.deviation(job)));
    for (name, runs) in POLICIES.iter().zip(policies) {
        claims.push(
            claim(
                format!("fig11-deviation-{name}"),
                "5.3, Fig 11",
                format!("completion times of CPU2006 deviate less under {name} than under Default"),
                "points",
                Says::Ranking,
                kernel.mean_deviation() - runs.mean_deviation(),
            )
            .proxy(format!(
                "means over the programs: {:.1} % under Default, {:.1} % under {name}; largest {:.1} and \
                 {:.1} %",
                kernel.mean_deviation(),
                runs.mean_deviation(),
                largest_of(kernel),
                largest_of(runs),
            )),
        );
    }
    let of_all = largest(policies.map(Runs::mean_deviation));
    claims.push(
        claim(
            "dev-under-6",
            "3.2",
            "standard deviation over the runs under the DI algorithms: the largest of their means over the \
             programs",
            "%",
            at_most(6.0),
            of_all,
        )
        .proxy("the paper does not say of which time; the composition of the workload is not printed"),
    );
    claims
}

/// Table 1, left half.
fn table(migrate: &Runs, dino: &Runs) -> Vec<Claim> {
    let most = |runs: &Runs| largest((0..IN_TABLE).map(|job| runs.moves(job)));
    let told = |runs: &Runs| -> String {
        let each = NAMED[..IN_TABLE].iter().zip(0..);
        let each: Vec<String> = each
            .map(|(name, job)| format!("{name} {:.0}", runs.moves(job)))
            .collect();
        each.join(", ")
    };
    let fewer = (0..IN_TABLE).map(|job| dino.moves(job) - migrate.moves(job));
    vec![
        claim(
            "table1-cpu-di-migrate",
            "3.2, Table 1",
            "migrations of a process of CPU2006 per hour under DI-Migrate: the most of five programs (fewer \
             than 50, within a factor of two)",
            "per hour",
            at_most(2.0 * 50.0),
            most(migrate),
        )
        .proxy(format!("the paper has 36, 22, 11, 47, 41; ours: {}", told(migrate))),
        claim(
            "table1-cpu-dino",
            "3.3.4, Table 1",
            "the same under DINO (8, within a factor of two)",
            "per hour",
            at_most(2.0 * 8.0),
            most(dino),
        )
        .proxy(format!("the paper has 8, 6, 5, 7, 6; ours: {}", told(dino))),
        claim(
            "table1-cpu-fewer",
            "3.3.4, Table 1",
            "each of the five migrates less often under DINO than under DI-Migrate: the least difference",
            "per hour",
            Says::Ranking,
            -largest(fewer),
        )
        .proxy("the composition of the workload is not printed"),
    ]
}
