//! Trials that are kept in a directory (`--keep`), one file each, so that comparisons of many trials can be made in
//! stages: a trial that is kept is not repeated, whether it gave figures or failed.
//!
//! A file does not identify the programs that made it: after changing them, use another directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use numaherd::print;
use numaherd_experiment::Trial;

use super::outcome::{Failure, Outcome, Step};

/// The directory, and what the trials' names of one scenario on one kernel begin with.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    of: String,
}

impl Kept {
    /// The kept trials of a scenario on a kernel; creates the directory if it is missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(folder: &Path, scenario: &str, kernel: &str) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            of: format!("{}.{kernel}", scenario.replace('/', "-")),
        })
    }

    fn file(&self, trial: &Trial) -> PathBuf {
        let Trial { policy, repeat, .. } = trial;
        self.folder
            .join(format!("{}.{policy}.{repeat}.json", self.of))
    }

    /// The result of a trial, if it was made before.
    ///
    /// # Errors
    /// Its file cannot be read; the message says to remove it.
    pub fn load(&self, trial: &Trial) -> Result<Option<Result<Outcome, Failure>>> {
        let file = self.file(trial);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).map_err(anyhow::Error::from);
        let made = text.and_then(|text| Ok(serde_json::from_str(&text)?));
        let made: Result<Outcome, Failure> = made.with_context(|| {
            let file = file.display();
            format!("cannot read the trial in {file}: remove it, and it is made again")
        })?;
        Ok(Some(made.map(|mut outcome| {
            outcome.policy.clone_from(&trial.policy);
            outcome
        })))
    }

    /// Keeps the result of a trial, unless it had no guest or its peer could not run: that may change.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub fn save(&self, trial: &Trial, made: &Result<Outcome, Failure>) -> Result<()> {
        let is_none = |failure: &Failure| matches!(failure.at, Step::Boot | Step::Peer);
        if made.as_ref().is_err_and(is_none) {
            return Ok(());
        }
        let file = self.file(trial);
        let whole = file.with_extension("new");
        print::file(&whole, &(serde_json::to_string(made)? + "\n"))?;
        // Never half a file, whenever this program is ended.
        fs::rename(&whole, &file).with_context(|| format!("cannot write {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_kept_under_its_scenario_kernel_policy_and_repeat() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("made");
        let kept = Kept::new(&folder, "x", "6.12").unwrap();
        let trial = Trial::of("dino");
        assert!(kept.load(&trial).unwrap().is_none());
        let outcome = Outcome {
            policy: "dino".to_owned(),
            settings: Some("numaherd 0.1.0".to_owned()),
            repeat: 0,
            programs: Vec::new(),
            misses_per_1000_instructions: Some(0.1),
            local_access_ratio: None,
            uncore_penalty: None,
            thread_moves_ordered: 1,
            pages_moved_ordered: 2,
            pages_moved: 3,
        };
        kept.save(&trial, &Ok(outcome.clone())).unwrap();
        assert_eq!(kept.load(&trial).unwrap(), Some(Ok(outcome)));
        let again = Trial {
            repeat: 1,
            ..trial.clone()
        };
        let failure = Failure {
            at: Step::SetUp,
            error: "no".to_owned(),
        };
        kept.save(&again, &Err(failure.clone())).unwrap();
        assert_eq!(kept.load(&again).unwrap(), Some(Err(failure)));
        let third = Trial {
            repeat: 2,
            ..trial.clone()
        };
        for at in [Step::Boot, Step::Peer] {
            let error = "no".to_owned();
            kept.save(&third, &Err(Failure { at, error })).unwrap();
            assert!(kept.load(&third).unwrap().is_none());
        }
        for other in [("y", "6.12"), ("x", "7.3")] {
            let other = Kept::new(&folder, other.0, other.1).unwrap();
            assert!(other.load(&trial).unwrap().is_none());
        }
        fs::write(kept.file(&trial), "{").unwrap();
        let told = kept.load(&trial).unwrap_err().to_string();
        assert!(
            told.ends_with("x.6.12.dino.0.json: remove it, and it is made again"),
            "{told}"
        );
    }
}
