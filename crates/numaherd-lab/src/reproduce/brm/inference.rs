//! BRM §8: candidates found by what they ask of the uncore, held against explicit tags.
//!
//! The paper leaves open how accurate that would be. Here an agent tags the threads of programs that gain or
//! lose by where they run, and clears the others; which those are the model itself says, by the program's
//! worst binding (Fig 1). Then brm runs without being told, and every 10 ms its judgement of each thread is
//! held against the tag.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use numaherd_herd::Herd;
use numaherd_herd::ledger::{Line, Record};
use numaherd_model::{Job, Model, Options, Until};
use numaherd_policy::Settings;
use numaherd_policy::candidates::{Accuracy, Candidates};
use numaherd_world::Tag;

use super::ground::{BRM, Ground, Memory};
use super::workloads::{SINGLE, binding_matters, program};
use super::{Claim, Effort, claim};
use crate::reproduce::Says;
use numaherd_experiment::trial::as_published;

/// Programs that run together: of each pair of rows one parallel program with four programs of one
/// thread, so that eight threads fill the machine.
const MIXES: [(&str, [&str; 4]); 4] = [
    ("lu", ["namd", "povray", "gamess", "hmmer"]),
    ("cg", ["namd", "calculix", "h264ref", "sjeng"]),
    ("ep", SINGLE),
    ("ep", ["mcf", "povray", "milc", "gamess"]),
];
/// Modelled seconds of a run.
const SECONDS: u64 = 60;

/// The claims of §8: there is none in figures, so ours is better than guessing or it is nothing.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let mut accuracy = Accuracy::default();
    for mix in &MIXES {
        for seed in 0..u64::from(effort.runs.min(3)) {
            watch(ground, &jobs(ground, mix)?, seed, &mut accuracy)?;
        }
    }
    let Accuracy {
        both,
        missed,
        wrong,
        neither,
    } = accuracy;
    let all = (both + missed + wrong + neither) as f64;
    let right = (both + neither) as f64 / all * 100.0;
    let guessed = (both + missed).max(wrong + neither) as f64 / all * 100.0;
    let percent = |share: Option<f64>| share.map_or(f64::NAN, |share| share * 100.0);
    Ok(vec![
        claim(
            "s8-inferred",
            "8",
            "candidates found without being told agree with explicit tags more often than the best guess",
            "points",
            Says::Ranking,
            right - guessed,
        )
        .proxy(format!(
            "right in {right:.1} % of the judgements (the best guess for all: {guessed:.1} %); of those found \
             {:.1} % are tagged, of those tagged {:.1} % are found",
            percent(accuracy.precision()),
            percent(accuracy.recall()),
        )),
    ])
}

/// The jobs of a mix, tagged by whether their binding matters.
fn jobs(ground: &Ground, (parallel, single): &(&str, [&str; 4])) -> Result<Vec<Job>> {
    let names = std::iter::once(parallel).chain(single);
    names
        .map(|name| {
            let job = ground.placed(Job::new(program(ground, name)?), Memory::Wide);
            let matters = binding_matters(ground, name)?;
            Ok(job.tagged(if matters { Tag::Agent } else { Tag::Clear }))
        })
        .collect()
}

/// Runs jobs under brm that is not told, and counts how often it is right.
fn watch(ground: &Ground, jobs: &[Job], seed: u64, accuracy: &mut Accuracy) -> Result<()> {
    let settings = Settings::parse("[brm]\ncandidates = \"inferred\"")?;
    let until = Until::Time(std::time::Duration::from_secs(SECONDS));
    let options = Options {
        seed,
        ..Options::default()
    };
    let mut model = Model::new(ground.hardware.clone(), jobs.to_vec(), until, options)?;
    let policy = numaherd_policy::registry::build(BRM, &settings)?;
    let topology = ground.hardware.topology().clone();
    let mut judge = Candidates::new(&settings);
    let herd = numaherd_herd::Settings {
        seed,
        record_interval_ms: 0,
        ..as_published()
    };
    let never = AtomicBool::new(false);
    Herd::new(&mut model, policy, herd, None, None)
        .watched(|line: &Line| {
            if let Record::Snapshot(snapshot) = &line.record {
                accuracy.count(snapshot, judge.judge(snapshot, &topology));
            }
        })
        .run(&never)
        .context("cannot run brm on the model")?;
    Ok(())
}
