//! One trial in a guest, seen from outside: `numaherd lab trial` there, its result, and its ledger.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use numaherd_experiment::Trial;
use numaherd_lab_launcher::{self as launcher, Command, Ending, Guest, Stream};

use super::launch::STEP;
use super::outcome::{Failure, Outcome};
use crate::lab::{self, outlet};

/// A scenario as it is to be tried in a guest.
pub struct Tried<'a> {
    /// Its name, or its file as the guest sees it.
    pub scenario: &'a Path,
    /// The menagerie's program.
    pub menagerie: &'a Path,
    /// The weight of each node under weighted interleaving.
    pub weights: &'a [u32],
    /// How long one trial may take.
    pub limit: Duration,
}

/// Where the guest keeps the ledger of a trial.
const IN_GUEST: &str = "/run/numaherd-trial.ledger";

impl Tried<'_> {
    /// One trial in a running guest; copies its ledger out of the guest if one is wanted.
    ///
    /// # Errors
    /// The trial fails, the guest dies, or the ledger cannot be written.
    pub fn once(&self, guest: &Guest, trial: &Trial) -> Result<Outcome> {
        let mut arguments: Vec<OsString> = vec![std::env::current_exe()?.into()];
        arguments.extend(["lab", "trial"].map(Into::into));
        arguments.push(self.scenario.into());
        arguments.extend(["--policy", &trial.policy].map(Into::into));
        arguments.extend(["--repeat", &trial.repeat.to_string()].map(Into::into));
        arguments.extend(["--menagerie".into(), self.menagerie.into()]);
        for weight in self.weights {
            arguments.extend(["--weight", &weight.to_string()].map(Into::into));
        }
        if trial.ledger.is_some() {
            arguments.extend(["--ledger", IN_GUEST].map(Into::into));
        }
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        let command = Command::inherited(arguments)?;
        let ending = guest.stream(&command, Some(self.limit), |stream, bytes| match stream {
            Stream::Stdout => printed.extend_from_slice(bytes),
            Stream::Stderr => said.extend_from_slice(bytes),
        });
        let said = String::from_utf8_lossy(&said);
        let (steps, said): (Vec<&str>, Vec<&str>) =
            said.lines().partition(|line| line.starts_with(STEP));
        let said = said.join("\n");
        let ending = ending.map_err(|error| match error {
            launcher::Error::CommandTimeLimit { limit } => {
                let step = steps.last().and_then(|step| step.strip_prefix(STEP));
                let step = step.map_or_else(String::new, |step| format!(": {step}"));
                anyhow!(
                    "the trial was ended after {} s (`--limit`){step}",
                    limit.as_secs()
                )
            }
            other => lab::error(other),
        })?;
        if ending != Ending::Exited(0) {
            bail!("the trial ended with {ending:?}: {said}");
        }
        let outcome: Result<Outcome, Failure> = serde_json::from_slice(&printed)
            .with_context(|| format!("the trial gave no result; it said {said:?}"))?;
        let mut outcome = outcome?;
        outcome.policy.clone_from(&trial.policy);
        if let Some(path) = &trial.ledger {
            fs::File::create(path)
                .map_err(Into::into)
                .and_then(|mut file| {
                    outlet::copy(guest, Path::new(IN_GUEST), &mut file, self.limit)
                })
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(outcome)
    }
}
