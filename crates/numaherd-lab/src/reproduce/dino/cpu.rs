//! DINO Fig 6, 11 and the left half of Table 1: a workload of CPU2006 programs, started together, each
//! restarted until all have completed three times; the second completion counts.
//!
//! The paper does not print the composition of its workloads. This one consists of the thirteen programs that
//! the paper names anywhere (Table 1 and §2.1), once each, on its sixteen cores.

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::Ran;
use numaherd_experiment::claims::{Measured, changes, list};
use numaherd_experiment::statistics::{Sample, largest, mean, smallest};
use numaherd_model::{Completion, Job, Program, Until};

use super::runs::{Compared, Runs, pace};
use crate::reproduce::page::table_in_note;
use crate::reproduce::testbed::{Effort, KERNEL, Testbed, Workload, row_of_runs};

/// The programs that the paper names, the five of Table 1 first.
const NAMED: [&str; 13] = [
    "soplex", "milc", "lbm", "gamess", "namd", "mcf", "omnetpp", "gcc", "bwaves", "bzip2",
    "povray", "calculix", "h264ref",
];
/// How many of them are in Table 1.
const IN_TABLE: usize = 5;
/// A change of a time by less than this does not count as one, in percent.
const NONE: f64 = 1.0;

/// Standard deviations of counts, as shares of them, for what votes are worth as a function of them. The paper's figures
/// are compared at 0.
const COUNTER_NOISE: [f64; 4] = [0.0, 0.05, 0.1, 0.2];

/// Part of an hour for which the workload is observed with each.
const NOISY_PART: f64 = 0.25;

/// Instructions of one run, from the log that accompanies the authors' own scheduler and was taken on the same
/// machine (FACTS 1.3): their inputs were not the library's. The length of a run matters, since DI deals anew
/// whenever a program restarts.
const AS_LOGGED: [(&str, f64); 3] = [
    ("gamess", 1078.1e9),
    ("namd", 2374.9e9),
    ("soplex", 376.7e9),
];

/// Jobs of these programs, with first-touch memory and left to the kernel.
pub(super) fn jobs(testbed: &Testbed, programs: &[&str]) -> Result<Vec<Job>> {
    let job = |name: &&str| {
        let mut program = Program::clone(testbed.program(name)?);
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
    let second = |one: &&Completion| one.job == job && one.run == 1;
    Some(ran.completions.iter().find(second)?.seconds())
}

/// The workload for an hour.
pub(super) fn for_an_hour(testbed: &Testbed, effort: &Effort) -> Result<Workload> {
    Ok(Workload::new(
        jobs(testbed, &NAMED)?,
        effort.part_of_hour(1.0),
    ))
}

pub(super) fn measure(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let workload = Workload::new(jobs(testbed, &NAMED)?, Until::Completions(3));
    let all = Compared::of(testbed, &workload, &second, effort)?;
    let kernel = &all.kernel;
    let [plain, migrate, dino] = all.policies().map(|(_, runs)| runs.improvements(kernel));
    let mut measured = Measured::new();

    let hurt = plain.iter().filter(|&&gain| gain < -NONE).count();
    measured.figure("fig11-di-plain-hurts-many", hurt as f64);
    let worst_known = -smallest(&plain[..IN_TABLE]);
    measured.figure("fig6-di-plain-worst", worst_known);
    measured.figure("fig11-di-migrate-improves", mean(&migrate));
    measured.figure("fig11-dino-improves", mean(&dino));
    measured.figure("fig11-dino-best", largest(&dino));
    let each = [
        ("di-plain", &plain),
        ("di-migrate", &migrate),
        ("dino", &dino),
    ];
    for (name, gains) in each {
        let gains = NAMED.iter().zip(gains.iter());
        measured.detail(format!("{name}-cpu"), changes(gains, 0));
    }

    let ahead: Vec<f64> = dino
        .iter()
        .zip(&migrate)
        .map(|(one, other)| one - other)
        .collect();
    let faster = ahead.iter().filter(|&&gain| gain > 0.0).count() as f64;
    measured.figure("fig11-dino-over-di-migrate", mean(&ahead));
    measured.order(
        "fig11-dino-better-for-most",
        [faster, NAMED.len() as f64 - faster],
    );
    measured.detail("faster-under-dino", faster);

    let worst = |runs: &Runs| mean(runs.worst_improvements(kernel));
    measured.figure("fig11-worst-dino", worst(&all.dino));
    measured.figure("fig11-worst-di-migrate", worst(&all.migrate));
    measured.order("fig11-worst-di-plain", [worst(&all.plain), mean(&plain)]);

    deviations(&all, &mut measured);
    migrations(&all, &mut measured);
    Ok(measured)
}

/// Deviations of completion times over the runs.
fn deviations(all: &Compared, measured: &mut Measured) {
    let mut means = Vec::new();
    for (name, runs) in [("default", &all.kernel)].into_iter().chain(all.policies()) {
        let deviations = runs.deviations();
        let average = mean(&deviations);
        measured.detail(format!("deviation-{name}"), format!("{average:.1}"));
        let most = largest(deviations);
        measured.detail(format!("largest-deviation-{name}"), format!("{most:.1}"));
        means.push((name, average));
    }
    let (kernel, policies) = (means[0].1, &means[1..]);
    for &(name, average) in policies {
        measured.order(format!("fig11-deviation-{name}"), [kernel, average]);
    }
    measured.figure("dev-under-6", largest(policies.iter().map(|one| one.1)));
}

/// Table 1, left half.
fn migrations(all: &Compared, measured: &mut Measured) {
    for (name, runs) in [("di-migrate", &all.migrate), ("dino", &all.dino)] {
        let moves = moves_in_table(runs);
        measured.figure(format!("table1-cpu-{name}"), largest(&moves));
        let each = list(NAMED.iter().zip(moves), 0);
        measured.detail(format!("{name}-cpu-moves"), each);
    }
    let [migrate, dino] = [&all.migrate, &all.dino].map(moves_in_table);
    let fewer = migrate.iter().zip(dino).map(|(many, few)| many - few);
    measured.figure("table1-cpu-fewer", smallest(fewer));
}

/// Moves per hour of the five programs of Table 1, mean over the runs.
fn moves_in_table(runs: &Runs) -> Vec<f64> {
    let moves = runs.moves[..IN_TABLE].iter();
    moves.map(Sample::mean).collect()
}

/// What the votes on a thread's class are worth (§3.3.3: they are there for sudden spikes): gains and moves under DINO, under
/// DINO that takes each interval's class, and under DI-Migrate, by how much counts differ from what a program does.
pub(super) fn by_noise(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let unvoted = testbed.with(|settings| {
        (settings.classes.votes, settings.classes.of_last) = (Some(1), Some(1));
    });
    let policies = [
        (testbed, "dino"),
        (&unvoted, "dino"),
        (testbed, "di-migrate"),
    ];
    let workload = Workload::new(jobs(testbed, &NAMED)?, effort.part_of_hour(NOISY_PART));
    let kernel = Runs::of(testbed, KERNEL, &workload, &pace, effort)?;
    let row = |noise: f64| -> Result<Vec<String>> {
        let mut workload = workload.clone();
        workload.options.counter_noise = noise;
        let under = |(testbed, policy)| Runs::of(testbed, policy, &workload, &pace, effort);
        let all: Vec<Runs> = policies.into_iter().map(under).collect::<Result<_>>()?;
        let figures = |runs: &[usize]| {
            let kernel = kernel.of_runs(runs);
            let figures = |one: &Runs| {
                let one = one.of_runs(runs);
                [
                    mean(one.improvements(&kernel)),
                    largest(moves_in_table(&one)),
                ]
            };
            all.iter().flat_map(figures).collect()
        };
        Ok(row_of_runs(format!("{} %", noise * 100.0), effort, figures))
    };
    let rows = COUNTER_NOISE
        .into_iter()
        .map(row)
        .collect::<Result<Vec<_>>>()?;
    let headings = [
        "counts differ by",
        "DINO, %",
        "moves per hour",
        "without votes, %",
        "moves per hour",
        "DI-Migrate, %",
        "moves per hour",
    ];
    let mut measured = Measured::new();
    measured.detail("cpu-by-noise", table_in_note(&headings, rows));
    Ok(measured)
}
