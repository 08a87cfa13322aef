//! BRM Fig 1, 8b, 8c and 9: parallel and multiprogrammed workloads of four threads, under the kernel,
//! under the best fixed binding, and under brm.
//!
//! *Parallel*: a program of the NAS Parallel Benchmarks, class C, four threads. *Multiprogrammed*:
//! four programs of CPU2006, of one thread each. The paper's ran in a machine of 12 GB whose memory
//! lies on both nodes; which page is where it does not say. Here every process has two thirds of its
//! pages on node 0 ([`super::ground::wide`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use numaherd_model::{Job, Program};
use rayon::prelude::*;

use super::ground::{BRM, Ground, KERNEL, Measured, Memory};
use super::{Claim, Effort, at_least, at_most, claim, correlation, largest, mean, points};
use crate::reproduce::Says;

/// The parallel programs in the order of Fig 1, those that depend most on their placement first, as far
/// as the text gives it: `lu` first, `ep` and `mg` last. `ua` has no profile; `is` the paper leaves out.
const PARALLEL: [&str; 7] = ["lu", "sp", "bt", "ft", "cg", "ep", "mg"];
/// The programs that the paper's multiprogrammed workloads are of.
pub(super) const SINGLE: [&str; 4] = ["mcf", "milc", "soplex", "sphinx3"];
/// Its workload of one of each.
const MIXED: &str = "mixed";
/// Below this a difference of times is none, in percent.
const NONE: f64 = 2.0;

/// A workload and what came of it.
struct Row {
    name: &'static str,
    kernel: Measured,
    best: Measured,
    /// The longest time of any binding.
    worst: f64,
    brm: Measured,
}

impl Row {
    /// By how much brm is faster than the kernel, in percent of the kernel's time.
    fn gain(&self) -> f64 {
        improvement(self.kernel.mean(), self.brm.mean())
    }

    /// By how much brm is slower than the best binding, in percent of the binding's time.
    fn behind(&self) -> f64 {
        -improvement(self.best.mean(), self.brm.mean())
    }
}

/// By how much of a time another is shorter, in percent.
fn improvement(over: f64, time: f64) -> f64 {
    (1.0 - time / over) * 100.0
}

/// A program by the paper's name for it: of the parallel ones class C.
pub(super) fn program(ground: &Ground, name: &str) -> Result<Arc<Program>> {
    let library = ground.library;
    let of_class_c = || library.get(&format!("{name}.C"));
    let found = if PARALLEL.contains(&name) {
        of_class_c()
    } else {
        library.get(name)
    };
    Ok(found?.clone())
}

/// A workload's jobs.
fn jobs(ground: &Ground, name: &str, memory: Memory) -> Result<Vec<Job>> {
    let programs = if PARALLEL.contains(&name) {
        vec![name]
    } else if name == MIXED {
        SINGLE.to_vec()
    } else {
        vec![name; SINGLE.len()]
    };
    let job = |name| Ok(ground.placed(Job::new(program(ground, name)?), memory));
    programs.into_iter().map(job).collect()
}

/// The longest and the shortest time of a workload under any binding, in s.
fn range(ground: &Ground, name: &str, memory: Memory) -> Result<(f64, f64)> {
    let jobs = jobs(ground, name, memory)?;
    let bound = ground.bindings(&jobs, &vec![1.0; jobs.len()])?;
    let times = || bound.iter().map(Measured::mean);
    Ok((largest(times()), -largest(times().map(|time| -time))))
}

/// Whether a program is faster somewhere than elsewhere: alone with three of its kind, or in four threads,
/// its memory where it is in [`Memory::Wide`].
pub(super) fn binding_matters(ground: &Ground, name: &str) -> Result<bool> {
    let (worst, best) = range(ground, name, Memory::Wide)?;
    Ok(worst / best > 1.0 + NONE / 100.0)
}

/// Runs one workload under everything.
fn row(ground: &Ground, name: &'static str, effort: &Effort) -> Result<Row> {
    let jobs = jobs(ground, name, Memory::Wide)?;
    let solo = solo(ground, &jobs, name)?;
    let under = |policy| ground.under(policy, &jobs, &solo, effort.runs);
    let bound = ground.bindings(&jobs, &solo)?;
    let worst = largest(bound.iter().map(Measured::mean));
    let best = bound
        .into_iter()
        .min_by(|a, b| a.mean().total_cmp(&b.mean()));
    Ok(Row {
        name,
        kernel: under(KERNEL)?,
        brm: under(BRM)?,
        best: best.context("there is a binding")?,
        worst,
    })
}

/// What each job's time is divided by: of the mixed workload the time of the program alone, as the paper
/// has it (§6); else 1.
fn solo(ground: &Ground, jobs: &[Job], name: &str) -> Result<Vec<f64>> {
    if name != MIXED {
        return Ok(vec![1.0; jobs.len()]);
    }
    let alone = |job: &Job| {
        Ok(ground
            .under(KERNEL, std::slice::from_ref(job), &[1.0], 1)?
            .mean())
    };
    jobs.iter().map(alone).collect()
}

/// The claims of Fig 1, 8b, 8c and 9.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let names: Vec<&'static str> = PARALLEL.into_iter().chain(SINGLE).chain([MIXED]).collect();
    let rows: Vec<Row> = names
        .into_par_iter()
        .map(|name| row(ground, name, effort))
        .collect::<Result<_>>()?;
    let (parallel, multi) = rows.split_at(PARALLEL.len());
    let mut claims = worst_cases(ground)?;
    claims.extend(parallel_claims(parallel));
    claims.extend(multi_claims(multi));
    claims.extend(deviations(&rows));
    Ok(claims)
}

/// Fig 1: all memory on node 0, the worst binding against the best.
fn worst_cases(ground: &Ground) -> Result<Vec<Claim>> {
    let mut worst = BTreeMap::new();
    for name in PARALLEL.into_iter().chain(SINGLE) {
        let (longest, least) = range(ground, name, Memory::Node0)?;
        worst.insert(name, (longest / least - 1.0) * 100.0);
    }
    let told = |names: &[&str]| -> String {
        let each = names
            .iter()
            .map(|name| format!("{name} {:.0}", worst[name]));
        each.collect::<Vec<_>>().join(", ")
    };
    let of_others = PARALLEL
        .iter()
        .filter(|&&name| name != "lu" && name != "ep" && name != "mg");
    Ok(vec![
        claim(
            "fig1-lu",
            "1, Fig 1",
            "lu.C, four threads, memory on node 0: the worst binding over the best",
            "%",
            points(106.0),
            worst["lu"],
        )
        .note(format!("all, %: {}", told(&PARALLEL))),
        claim(
            "fig1-insensitive",
            "1, Fig 1",
            "ep and mg are the least sensitive to their binding: by how much less than any other",
            "points",
            Says::Ranking,
            -largest(of_others.map(|name| -worst[name])) - worst["ep"].max(worst["mg"]),
        ),
        claim(
            "fig1-multiprogrammed",
            "1, Fig 1",
            "multiprogrammed workloads suffer as well: the least of four, over 2 %",
            "points",
            Says::Ranking,
            -largest(SINGLE.iter().map(|name| -worst[name])) - NONE,
        )
        .note(format!("all, %: {}", told(&SINGLE))),
    ])
}

fn told(rows: &[Row]) -> String {
    let each = rows.iter().map(|row| {
        format!(
            "{} {:+.1} ({:+.1} behind the best binding)",
            row.name,
            row.gain(),
            row.behind()
        )
    });
    format!(
        "brm over the kernel, %: {}",
        each.collect::<Vec<_>>().join(", ")
    )
}

/// Fig 8b.
fn parallel_claims(rows: &[Row]) -> Vec<Claim> {
    let gain = |name: &str| {
        let row = rows.iter().find(|row| row.name == name);
        row.expect("a parallel program").gain()
    };
    let printed = |id: &str, name: &str, figure: f64| {
        let what = format!("{name}: brm over the default scheduler");
        claim(id, "6.1, Fig 8b", what, "%", points(figure), gain(name))
    };
    vec![
        printed("fig8b-lu", "lu", 31.7).note(told(rows)),
        printed("fig8b-cg", "cg", 7.8),
        printed("fig8b-ep", "ep", -5.8)
            .note("what the paper loses here is its migrations' cost in Xen"),
        printed("fig8b-mg", "mg", -21.9)
            .note("what the paper loses here is its migrations' cost in Xen"),
        claim(
            "fig8b-sensitive-gain-more",
            "6.1, Fig 8b",
            "programs that depend more on their binding gain more from brm: correlation of the worst binding's \
             loss with the gain",
            "r",
            Says::Ranking,
            correlation(
                &rows
                    .iter()
                    .map(|row| row.worst / row.best.mean())
                    .collect::<Vec<_>>(),
                &rows.iter().map(Row::gain).collect::<Vec<_>>(),
            ),
        ),
        claim(
            "fig8b-behind-best",
            "6.1, Fig 8b",
            "brm behind the best fixed binding, the worst of the sensitive programs",
            "%",
            at_most(5.0),
            largest(
                rows.iter()
                    .filter(|row| row.worst / row.best.mean() > 1.0 + NONE / 100.0)
                    .map(Row::behind),
            ),
        )
        .proxy("the paper prints no figure here; 3.4 % is its micro-benchmark's, 5 % ours"),
    ]
}

/// Fig 8c.
fn multi_claims(rows: &[Row]) -> Vec<Claim> {
    let mixed = rows
        .iter()
        .find(|row| row.name == MIXED)
        .expect("it is run");
    let least = |of: &dyn Fn(&Row) -> f64| -largest(rows.iter().map(|row| -of(row)));
    vec![
        claim(
            "fig8c-over-default",
            "6.1, Fig 8c",
            "brm is faster than the default scheduler in all five workloads: the least gain",
            "%",
            Says::Ranking,
            least(&Row::gain),
        )
        .note(told(rows)),
        claim(
            "fig8c-over-best",
            "6.1, Fig 8c",
            "brm is faster than the best fixed binding in all five: the least gain",
            "%",
            Says::Ranking,
            least(&|row| -row.behind()),
        )
        .note("profiles of these programs have one phase, so that no binding is better at one time than at another"),
        claim(
            "fig8c-mixed-default",
            "6.1, Fig 8c",
            "mixed: brm over the default scheduler",
            "%",
            points(29.7),
            mixed.gain(),
        ),
        claim(
            "fig8c-mixed-best",
            "6.1, Fig 8c",
            "mixed: brm over the best fixed binding",
            "%",
            points(15.1),
            -mixed.behind(),
        ),
    ]
}

/// Fig 9.
fn deviations(rows: &[Row]) -> Vec<Claim> {
    let of = |which: fn(&Row) -> &Measured| {
        let each: Vec<f64> = rows.iter().map(|row| which(row).deviation()).collect();
        (mean(each.iter().copied()), largest(each))
    };
    let told = |which: fn(&Row) -> &Measured| {
        let each = rows
            .iter()
            .map(|row| format!("{} {:.1}", row.name, which(row).deviation()));
        format!("all, %: {}", each.collect::<Vec<_>>().join(", "))
    };
    let (kernel, kernel_most) = of(|row| &row.kernel);
    let (brm, brm_most) = of(|row| &row.brm);
    vec![
        claim(
            "fig9-brm",
            "6.2, Fig 9",
            "relative standard deviation over the runs under brm, mean of all workloads",
            "%",
            at_most(2.0),
            brm,
        )
        .note(format!("largest {brm_most:.1}; {}", told(|row| &row.brm))),
        claim(
            "fig9-default-largest",
            "6.2, Fig 9",
            "the largest under the default scheduler",
            "%",
            at_least(19.8),
            kernel_most,
        )
        .proxy("the modelled kernel starts threads on the emptiest node and leaves them there; Xen's does not"),
        claim(
            "fig9-brm-steadier",
            "6.2, Fig 9",
            "runs deviate less under brm than under the default scheduler",
            "points",
            Says::Ranking,
            kernel - brm,
        )
        .note(told(|row| &row.kernel)),
    ]
}
