//! Scenario files: which programs run on which machine, and which of them are measured.
//!
//! ```toml
//! name = "example"
//! about = "One line on what it shows"
//! machine = "lab-4x2"           # a preset or a machine file
//!
//! [[program]]
//! name = "devil"
//! copies = 4
//! measured = true               # completion time counts; the others run until these have ended
//! command = ["menagerie", "chase", "--home", "0", "--rounds", "10"]
//! profile = "chase"             # optional: what the contention model runs in its place …
//! work = 0.2                    # … and how much of that profile's work this is; 1 if left out
//! memory = 0                    # optional: the node of its pages at the start
//! pinned = "0,2,4,6"            # optional: CPUs, dealt to the copies one after the other
//! ```
//!
//! `memory` and `pinned` give a placement that the lab and the model share; here they become
//! `--home` and `--cpus`.
//!
//! A program must be one that waits for the start: it is given `--ready-file PATH`, which it
//! creates when it is set up, `--go-file PATH`, a FIFO whose closing starts the measured part, and
//! `--json`, on which it prints one object with its result at the end, as the menagerie does.

use std::io::Read;
use std::path::Path;

use anyhow::{Result, bail};
use numaherd_topology::CpuSet;
use serde::{Deserialize, Serialize};

use numaherd::exit::{Exit, ended};

/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name.
    pub name: String,
    /// One line on what it shows.
    pub about: String,
    /// Preset or machine file that the guest is made after.
    pub machine: String,
    /// What the measured programs are called in tables, for instance "devils".
    pub measured_are: String,
    /// Settings of `numaherd run` for this scenario, as in its configuration file.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub settings: toml::Table,
    /// The programs, in the order they are started in.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
}

/// One program of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What it is called in results.
    pub name: String,
    /// How many processes of it.
    pub copies: u32,
    /// Whether its completion time counts.
    pub measured: bool,
    /// Program and arguments; `{copy}` stands for the number of the copy, from 0.
    pub command: Vec<String>,
    /// Name of the profile that the contention model runs in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How much of the profile's work it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<f64>,
    /// The node that its pages are on at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
    /// CPUs that the copies are pinned to, one each, dealt one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<CpuSet>,
}

impl Program {
    /// The arguments of a copy.
    pub fn arguments(&self, copy: u32) -> Vec<String> {
        let number = copy.to_string();
        let given = self.command[1..].iter();
        let mut arguments: Vec<String> = given.map(|t| t.replace("{copy}", &number)).collect();
        if let Some(node) = self.memory {
            arguments.extend(["--home".to_owned(), node.to_string()]);
        }
        if let Some(cpus) = &self.pinned
            && let Some(cpu) = cpus.iter().nth(copy as usize % cpus.len())
        {
            arguments.extend(["--cpus".to_owned(), cpu.to_string()]);
        }
        arguments
    }
}

/// The scenarios that come with the program.
pub const BUILT_IN: &[(&str, &str)] = &[
    (
        "devils-on-one-node",
        include_str!("../../../../scenarios/devils-on-one-node.toml"),
    ),
    (
        "changing-phases",
        include_str!("../../../../scenarios/changing-phases.toml"),
    ),
];

impl Scenario {
    /// The scenario of that name, or in that file.
    ///
    /// # Errors
    /// No such scenario or file, or one that is wrong: the message names the file and the key.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        if !name.ends_with(".toml") && !path.exists() {
            let known: Vec<&str> = BUILT_IN.iter().map(|&(name, _)| name).collect();
            let known = known.join(", ");
            let told =
                format!("no scenario is called {name:?}: give one of {known}, or a .toml file");
            return Err(ended(Exit::Usage, told));
        }
        match read(path) {
            Ok(text) => Self::parse(&text, name),
            Err(error) => Err(ended(
                Exit::Usage,
                format!("cannot read scenario {name}: {error}"),
            )),
        }
    }

    fn parse(text: &str, from: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| ended(Exit::Usage, format!("scenario {from} is wrong: {error}")))?;
        scenario
            .check()
            .map_err(|error| ended(Exit::Usage, format!("scenario {from} is wrong: {error}")))?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        for program in &self.programs {
            if program.command.is_empty() {
                bail!("program {:?} has an empty command", program.name);
            }
            if program.copies == 0 {
                bail!(
                    "program {:?} has 0 copies: leave it out instead",
                    program.name
                );
            }
            if program
                .work
                .is_some_and(|work| !(work > 0.0 && work.is_finite()))
            {
                bail!("program {:?}: work must be above 0", program.name);
            }
            if program.pinned.as_ref().is_some_and(CpuSet::is_empty) {
                bail!("program {:?} is pinned to no CPU", program.name);
            }
        }
        if !self.programs.iter().any(|program| program.measured) {
            bail!("no program is measured: set measured = true on at least one");
        }
        Ok(())
    }
}

/// The text of a scenario file; no more of it than any scenario has.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        let told = format!("it is larger than {LARGEST_FILE} bytes, which no scenario is");
        return Err(std::io::Error::other(told));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_that_come_with_the_program_are_right() {
        for (name, text) in BUILT_IN {
            let scenario = Scenario::parse(text, name).unwrap();
            assert_eq!(scenario.name, *name);
        }
    }

    #[test]
    fn a_wrong_scenario_is_refused_with_what_is_wrong() {
        let told = |text: &str| Scenario::parse(text, "x.toml").unwrap_err().to_string();
        let head = "name='x'\nabout=''\nmachine='lab-4x2'\nmeasured_are='x'\n";
        let program = |line: &str| format!("{head}[[program]]\nname='p'\n{line}\n");
        assert!(told("name=").starts_with("scenario x.toml is wrong: TOML parse error at line 1"));
        assert!(told(&program("copies=0\nmeasured=true\ncommand=['a']")).contains("0 copies"));
        assert!(told(&program("copies=1\nmeasured=true\ncommand=[]")).contains("empty command"));
        assert!(
            told(&program("copies=1\nmeasured=false\ncommand=['a']"))
                .contains("no program is measured")
        );
        assert!(
            told(&program("copies=1\nmeasured=false\ncommand=['a']\nx=1"))
                .contains("unknown field")
        );
    }

    #[test]
    fn copies_are_dealt_their_cpus_and_told_their_numbers() {
        let text = "name='x'\nabout=''\nmachine='lab-4x2'\nmeasured_are='x'\n[[program]]\n\
            name='p'\ncopies=3\nmeasured=true\ncommand=['a','--seed','{copy}']\nmemory=1\n\
            pinned='2,5'\n";
        let scenario = Scenario::parse(text, "x.toml").unwrap();
        let arguments = |copy| scenario.programs[0].arguments(copy).join(" ");
        assert_eq!(arguments(0), "--seed 0 --home 1 --cpus 2");
        assert_eq!(arguments(1), "--seed 1 --home 1 --cpus 5");
        assert_eq!(arguments(2), "--seed 2 --home 1 --cpus 2");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let told = Scenario::find("/dev/zero").unwrap_err().to_string();
        assert!(told.contains("larger than 1048576 bytes"), "{told}");
    }

    #[test]
    fn an_unknown_scenario_is_refused_with_the_known_ones() {
        let told = Scenario::find("devils").unwrap_err().to_string();
        assert!(
            told.contains("devils-on-one-node, changing-phases"),
            "{told}"
        );
    }
}
