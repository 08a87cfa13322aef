//! BRM §8: candidates that brm infers from what they demand of the uncore, against explicit tags.
//!
//! The paper leaves open how accurate inference would be. Here an agent tags the threads of programs that gain or
//! lose by where they run, and clears the others; the model determines these programs by their worst binding (Fig 1).
//! Then brm runs without tags, and every 10 ms its judgement of each thread is compared with the tag.

use std::time::Duration;

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_herd::ledger::Record;
use numaherd_model::{Job, Until};
use numaherd_policy::Settings;
use numaherd_policy::candidates::{Accuracy, Candidates};
use numaherd_world::Tag;

use super::setup::{BRM, Memory, Setup, on_xen};
use super::workloads::{SINGLE, binding_matters, program};
use crate::reproduce::testbed::Effort;

/// Programs that run together: one parallel program and four programs of one thread, so that eight threads
/// fill the machine.
const MIXES: [(&str, [&str; 4]); 4] = [
    ("lu", ["namd", "povray", "gamess", "hmmer"]),
    ("cg", ["namd", "calculix", "h264ref", "sjeng"]),
    ("ep", SINGLE),
    ("ep", ["mcf", "povray", "milc", "gamess"]),
];
/// Modelled seconds of a run.
const SECONDS: u64 = 60;

pub(super) fn measure(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let mut accuracy = Accuracy::default();
    for mix in &MIXES {
        let jobs = jobs(setup, mix)?;
        for seed in 0..u64::from(effort.runs.min(3)) {
            watch(setup, &jobs, seed, &mut accuracy)?;
        }
    }
    let Accuracy {
        both,
        missed,
        wrong,
        neither,
    } = accuracy;
    let percent = |count, all| 100.0 * count as f64 / all as f64;
    let all = both + missed + wrong + neither;
    let right = percent(both + neither, all);
    let guessed = percent((both + missed).max(wrong + neither), all);
    let mut measured = Measured::new();
    measured.order("s8-inferred", [right, guessed]);
    let share = |share: Option<f64>| share.map_or(f64::NAN, |share| share * 100.0);
    let details = [
        ("right", right),
        ("guessed", guessed),
        ("precision", share(accuracy.precision())),
        ("recall", share(accuracy.recall())),
    ];
    for (name, figure) in details {
        measured.detail(name, format!("{figure:.1}"));
    }
    Ok(measured)
}

/// The jobs of a mix, tagged by whether their binding matters.
fn jobs(setup: &Setup, (parallel, single): &(&'static str, [&'static str; 4])) -> Result<Vec<Job>> {
    let names = std::iter::once(parallel).chain(single);
    names
        .map(|name| {
            let job = Memory::Wide.of(Job::new(program(&setup.testbed, name)?));
            let matters = binding_matters(setup, name)?;
            Ok(job.tagged(if matters { Tag::Agent } else { Tag::Clear }))
        })
        .collect()
}

/// Runs jobs under brm without tags, and counts how often it is right.
fn watch(setup: &Setup, jobs: &[Job], seed: u64, accuracy: &mut Accuracy) -> Result<()> {
    let settings = Settings::parse("[brm]\ncandidates = \"inferred\"")?;
    let until = Until::Time(Duration::from_secs(SECONDS));
    let workload = on_xen(jobs.to_vec(), until);
    let testbed = setup.testbed.with(|policies| *policies = settings.clone());
    let mut judge = Candidates::new(&settings);
    testbed.watch(BRM, &workload, seed, |record| {
        if let Record::Snapshot(snapshot) = record {
            accuracy.count(snapshot, judge.judge(snapshot, testbed.hardware.topology()));
        }
    })?;
    Ok(())
}
