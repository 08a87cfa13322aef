//! `numaherd replay`: what other policies would have decided on what a machine really did.
//!
//! Joins three crates that do not know each other: `herd` asks the policies, `show` compares their answers,
//! the model predicts their effect ([`predict`]).

mod job;
mod machine;
mod predict;
mod settings;

use std::path::{Path, PathBuf};

use anyhow::Result;
use numaherd_herd::ledger::Reader;
use numaherd_herd::replay::{Basis, Candidate};
use numaherd_model::Library;
use numaherd_policy::registry;
use numaherd_show::replay::{Comparison, Prediction, Recording, Replayed, text};

use crate::cli::Replay;
use crate::exit::{Exit, OrExit, coded, ended};
use crate::print;
use machine::Figures;
use predict::Predictor;
use settings::Settings;

/// Prints how the policies' decisions compare with the recorded ones. Of a damaged ledger, it reads the intact part.
///
/// # Errors
/// The file is damaged, is not a ledger or comes from a later program; a policy, a setting or the machine is unknown;
/// the ledger lacks what each of the policies needs.
pub fn replay(options: &Replay) -> Result<()> {
    let replayed = replayed(open(&options.ledger)?, options)?;
    if replayed
        .policies
        .iter()
        .all(|policy| policy.missing.is_some())
    {
        let text = text(&replayed);
        return Err(ended!(
            SignalMissing,
            "nothing could be replayed\n{}",
            text.trim_end()
        ));
    }
    print::shown(options.json, &replayed, || text(&replayed))?;
    match &replayed.damage {
        Some(damage) => Err(ended(Exit::Damaged, damage)),
        None => Ok(()),
    }
}

fn open(path: &Path) -> Result<Recording> {
    let reader = Reader::open(path).map_err(coded)?;
    Recording::of(reader, path).map_err(coded)
}

/// Replays a whole recording under all of the policies, in one pass.
fn replayed(mut recording: Recording, options: &Replay) -> Result<Replayed> {
    let basis = if options.carry_on {
        Basis::Carried
    } else {
        Basis::Recorded
    };
    let topology = recording.topology().clone();
    let mut candidates = Vec::new();
    for name in &options.policy {
        let settings = Settings::of(recording.start(), name.trim(), options)?;
        let policy = registry::build(name.trim(), &settings.policies).or_exit(Exit::Usage)?;
        candidates.push(Candidate::new(policy, &settings.herd, &topology, basis));
    }
    let programs = programs(&options.programs)?;
    let figures = machine::of(options.machine.as_deref(), &topology)?;
    let mut predictor = match figures {
        Figures::Known(hardware) => Ok(Predictor::new(*hardware, programs, candidates.len())),
        Figures::Unknown(why) => Err(why),
    };
    let mut comparison = Comparison::new(candidates.len(), basis);
    if options.decisions {
        comparison = comparison.with_decisions();
    }
    for interval in &mut recording {
        let decided: Vec<_> = candidates
            .iter_mut()
            .map(|candidate| candidate.decide(&interval))
            .collect();
        comparison.interval(&topology, &interval, &decided);
        if let Ok(predictor) = &mut predictor {
            predictor.interval(&interval, &decided);
        }
    }
    let mut replayed = comparison.finish(&recording, &candidates);
    replayed.prediction = Some(match predictor {
        Ok(predictor) => predictor.finish(&replayed),
        Err(why) => Prediction::None(why),
    });
    Ok(replayed)
}

/// The profiles of these files.
fn programs(files: &[PathBuf]) -> Result<Library> {
    files.iter().try_fold(Library::default(), |all, file| {
        let more = Library::read(file).or_exit(Exit::Usage)?;
        Ok(all.merged(more))
    })
}

#[cfg(test)]
mod tests;
