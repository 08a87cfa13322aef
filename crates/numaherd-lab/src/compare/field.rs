//! A scenario of a comparison: what is tried on each kernel, and the scenario of a command.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::scenario::BEST_KNOWN;
use numaherd_experiment::{Scenario, World};
use toml::Table;

use super::comparison::Comparison;
use super::outcome::{Failed, Results};
use super::{check, overview, peer};
use crate::cli::LabCompare;
use crate::lab;

/// A scenario on all kernels.
pub(super) struct Field {
    pub(super) scenario: Scenario,
    /// Its file, as the guest sees it.
    pub(super) file: PathBuf,
    /// Its text, where it has no file.
    pub(super) text: Option<String>,
    /// The weight of each node under weighted interleaving.
    pub(super) weights: Vec<u32>,
    pub(super) comparisons: Vec<Comparison>,
}

impl Field {
    /// The field of the scenario of this name, or of the command.
    pub(super) fn of(options: &LabCompare, name: Option<&String>) -> Result<Self> {
        let (mut scenario, file, text) = match name {
            Some(name) => {
                let file = fs::canonicalize(name).unwrap_or(name.into());
                (named(name)?, file, None)
            }
            None => {
                let text = of_command(&options.program)?;
                let scenario =
                    Scenario::parse(&text, ON_COMMAND_LINE, World::Lab).or_exit(Exit::Usage)?;
                (scenario, OF_COMMAND.into(), Some(text))
            }
        };
        if let Some(machine) = &options.machine {
            scenario.machine.clone_from(machine);
        }
        let machine = lab::machine(&scenario.machine)?;
        let kernels: Vec<Option<&str>> = match &options.kernels[..] {
            [] => vec![None],
            named => named.iter().map(|kernel| Some(kernel.as_str())).collect(),
        };
        let comparisons = kernels.into_iter();
        let comparisons = comparisons.map(|of| Comparison::of(options, of, &scenario, &machine));
        let mut field = Self {
            comparisons: comparisons.collect::<Result<_>>()?,
            weights: peer::weights(&machine.topology().or_exit(Exit::Usage)?),
            scenario,
            file,
            text,
        };
        match check::check(&field.scenario) {
            // Of several scenarios, the others go on.
            Err(error) if options.scenarios.len() > 1 => field.give_up(|_| true, &error),
            other => other?,
        }
        if let Err(error) = field.scenario.clone().best_known() {
            field.give_up(|policy| policy == BEST_KNOWN, &error.into());
        }
        Ok(field)
    }

    /// Notes that some policies cannot run.
    fn give_up(&mut self, is_one: impl Fn(&str) -> bool, error: &anyhow::Error) {
        for Comparison {
            results, trials, ..
        } in &mut self.comparisons
        {
            let trials = trials.round(0).filter(|trial| is_one(&trial.policy));
            let failed = trials.map(|trial| Failed::of(trial, format!("{error:#}")));
            results.cannot_run.extend(failed);
        }
    }

    pub(super) fn results(&self) -> Vec<&Results> {
        self.comparisons.iter().map(|of| &of.results).collect()
    }

    /// Its lines of the overview.
    pub(super) fn lines(&self) -> Vec<overview::Line<'_>> {
        let results = self.comparisons.iter().map(|of| &of.results);
        let line = |results| overview::Line::of(&self.scenario, results);
        results.map(line).collect()
    }
}

pub(super) fn named(name: &str) -> Result<Scenario> {
    Scenario::find(name, World::Lab).or_exit(Exit::Usage)
}

/// The name of a command's scenario in messages; no user has written its lines.
pub(super) const ON_COMMAND_LINE: &str = "CMD";

/// Where the guest finds the scenario of a command.
pub(super) const OF_COMMAND: &str = "/run/numaherd-scenario.toml";

/// The text of a scenario in which a program runs alone, on the machine of `lab run` unless another is named. Few
/// policies and repeats (chosen here), because a person waits.
fn of_command(program: &[OsString]) -> Result<String> {
    let words = program.iter().map(|word| word.to_str());
    let words: Option<Vec<&str>> = words.collect();
    let words = words.ok_or_else(|| ended!(Usage, "CMD is not UTF-8: put it into a script"))?;
    let shown = words.iter().map(|word| print::quoted(Path::new(word)));
    let name = Path::new(words[0]).file_name().unwrap_or_default();
    let mut scenario = toml::toml! {
        machine = "lab-4x2"
        policies = ["linux", "linux-balancing", "adaptive"]
        repeat = 3
    };
    let name = name.to_string_lossy().into_owned();
    let entry = Table::from_iter([("command".to_owned(), toml::Value::from(words.clone()))]);
    scenario.insert(
        "about".to_owned(),
        shown.collect::<Vec<_>>().join(" ").into(),
    );
    scenario.insert("name".to_owned(), name.into());
    scenario.insert("program".to_owned(), toml::Value::Array(vec![entry.into()]));
    Ok(toml::to_string(&scenario)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_command_is_a_scenario_of_one_program() {
        let command = ["/bin/sh", "-c", "it's {copy}"].map(OsString::from);
        let text = of_command(&command).unwrap();
        let scenario = Scenario::parse(&text, ON_COMMAND_LINE, World::Lab).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.repeat), ("sh", 3));
        assert_eq!(scenario.about, r"/bin/sh -c 'it'\''s {copy}'");
        let program = &scenario.programs[0];
        assert_eq!(
            (program.name.as_str(), program.copies, program.lab.waits),
            ("sh", 1, false)
        );
        let refused = of_command(&[OsString::from_vec(vec![0xff])]).unwrap_err();
        assert_eq!(numaherd::exit::of(&refused), Some(Exit::Usage));
    }
}
