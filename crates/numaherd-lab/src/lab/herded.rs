//! `numaherd lab run --policy`: `numaherd run -- CMD` in the guest, checked before the boot.
//!
//! Only CMD prints to standard output; what `numaherd run` itself prints goes to standard error, so the two never
//! mix. The ledger is written in the guest's memory and leaves it as it grows ([`outlet`]): the run does not wait for
//! the host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use numaherd_lab_launcher::{Guest, Time};
use numaherd_policy::registry;
use numaherd_world::Signal;

use super::outlet::{self, HostLedger};
use numaherd::cli::{Cli, Command};

use crate::cli::Herding;
use numaherd::config::Effective;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print::{called, quoted};

/// Where the guest keeps the ledger.
const IN_GUEST: &str = "/run/numaherd.ledger";

/// Keeps standard output as 3 for the program; everything else goes to standard error.
const KEEP_STDOUT: &str = "exec 3>&1; exec \"$@\" >&2";

/// The program, with the standard output that was kept.
const WITH_STDOUT: &str = "exec \"$@\" >&3 3>&-";

/// The signals about threads and pages in a guest without modelled hardware.
const IN_REAL_TIME: [Signal; 2] = [Signal::CpuUse, Signal::Residency];

/// How a program is herded in a guest.
#[derive(Debug)]
pub struct Herded {
    arguments: Vec<OsString>,
    /// Whether the policy needs the IPM unit at the TLBs.
    pub needs_ipm: bool,
    /// Where the ledger goes, if anywhere.
    pub ledger: Option<HostLedger>,
}

impl Herded {
    /// Checks all options and creates the ledger's file; `None` if the program is not to be herded.
    ///
    /// # Errors
    /// The policy or a setting is unknown, the configuration cannot be read, the policy needs a signal that real time
    /// lacks, or the ledger cannot be created.
    pub fn of(herding: &Herding, time: Time) -> Result<Option<Self>> {
        let Some(arguments) = herding.arguments() else {
            return Ok(None);
        };
        // As the guest will read them.
        let read = ["numaherd", "run"].map(OsString::from).into_iter();
        let read = Cli::try_parse_from(read.chain(arguments.iter().cloned()));
        let Command::Run(run) = read.or_exit(Exit::Usage)?.command else {
            unreachable!("`run` is that command");
        };
        let config = Effective::of(&run)?.config;
        let usage = |error| ended(Exit::Usage, error);
        registry::build(config.policy(), &config.policies).map_err(usage)?;
        let needs = registry::needs(config.policy()).map_err(usage)?;
        let missing = needs.iter().find(|need| !IN_REAL_TIME.contains(need));
        if let Some(missing) = missing.filter(|_| time == Time::Real) {
            let policy = config.policy();
            return Err(ended!(
                SignalMissing,
                "the policy {policy} needs the {missing}, which the lab models and cannot have in \
                     real time: leave --real-time out"
            ));
        }
        let ledger = herding.ledger.as_deref().map(HostLedger::create);
        Ok(Some(Self {
            arguments,
            needs_ipm: needs.contains(&Signal::TlbResidency),
            ledger: ledger.transpose()?,
        }))
    }

    /// The command for the guest in which the program `numaherd` herds `program`.
    pub fn command(&self, numaherd: &Path, program: &[OsString]) -> Vec<OsString> {
        let shell = |script: &str| ["/bin/sh", "-c", script, "sh"].map(OsString::from);
        let mut command = shell(KEEP_STDOUT).to_vec();
        command.push(numaherd.into());
        command.push("run".into());
        command.extend(self.arguments.iter().cloned());
        if self.ledger.is_some() {
            command.extend(["--ledger", IN_GUEST].map(Into::into));
        }
        command.push("--".into());
        command.extend(shell(WITH_STDOUT));
        command.extend(program.iter().cloned());
        command
    }

    /// Copies the ledger out of the guest while the process `writer` writes it.
    ///
    /// # Errors
    /// As [`outlet::follow`].
    pub fn attend(&mut self, guest: &Guest, writer: u32) -> Result<()> {
        match &mut self.ledger {
            Some(ledger) => outlet::follow(guest, Path::new(IN_GUEST), writer, ledger),
            None => Ok(()),
        }
    }

    /// What to do next, as the last message to the user.
    pub fn next_steps(&self) -> String {
        let numaherd = called();
        match &self.ledger {
            Some(ledger) if ledger.is_empty() => String::new(),
            Some(ledger) => {
                let file = quoted(ledger.path());
                format!(
                    "\nWhat was done, and why:         {numaherd} explain {file}\n\
                     Step through it here:           {numaherd} top {file}\n\
                     As a page of charts:            {numaherd} report {file} -o {file}.html\n"
                )
            }
            None => {
                "\nWith --ledger FILE it is recorded, for `explain FILE` to tell why.\n".to_owned()
            }
        }
    }
}

/// The program `numaherd`, which is beside this one.
///
/// # Errors
/// It is not there.
pub fn herding_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("numaherd");
    if program.is_file() {
        return Ok(program);
    }
    let message = format!(
        "cannot herd in the guest: {} is missing; install numaherd beside numaherd-lab",
        program.display()
    );
    Err(ended(Exit::NotSetUp, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn herding(words: &[&str]) -> Herding {
        let lab_run = ["numaherd", "lab", "run"].iter().chain(words);
        let cli = crate::cli::Cli::try_parse_from(lab_run.chain(&["--", "true"]))
            .expect("it is well said");
        let crate::cli::Command::Lab(crate::cli::Lab::Run(run)) = cli.command else {
            panic!("it is lab run");
        };
        run.herding
    }

    #[test]
    fn nobody_herds_unless_a_policy_is_named() {
        assert!(Herded::of(&herding(&[]), Time::Modelled).unwrap().is_none());
        for without in ["--dry-run", "--ledger=x", "--seed=1"] {
            let words = ["numaherd", "lab", "run", without, "--", "true"];
            let refused = crate::cli::Cli::try_parse_from(words)
                .unwrap_err()
                .to_string();
            assert!(refused.contains("--policy"), "{refused}");
        }
    }

    #[test]
    fn every_option_is_passed_on_as_the_guest_reads_it() {
        let words = "--policy dino --interval 500ms --paging-interval 20ms --cpus 0-3 --nodes 0,1 \
                     --scope node --seed 7 --dry-run --take-over";
        let words: Vec<&str> = words.split_whitespace().collect();
        let herded = Herded::of(&herding(&words), Time::Modelled)
            .unwrap()
            .expect("it is herded");
        let command = herded.command(Path::new("numaherd"), &["my program".into()]);
        let command: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
        let run = command.iter().position(|&word| word == "run").unwrap();
        let end = command.iter().position(|&word| word == "--").unwrap();
        assert_eq!(
            command[run + 1..end].join(" "),
            "--policy dino --config none --interval 500ms --paging-interval 20ms --cpus 0-3 --nodes 0-1 \
             --scope node --seed 7 --dry-run --take-over"
        );
        assert_eq!(command.last(), Some(&"my program"));
    }

    #[test]
    fn what_is_wrong_is_refused_before_any_guest_and_leaves_no_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        let words = ["--policy", "dinno", "--ledger", ledger.to_str().unwrap()];
        let refused = Herded::of(&herding(&words), Time::Modelled).unwrap_err();
        assert_eq!(numaherd::exit::of(&refused), Some(Exit::Usage));
        assert!(refused.to_string().contains("dino"), "{refused}");
        assert!(!ledger.exists());
    }

    #[test]
    fn what_real_time_cannot_tell_is_refused_before_any_guest() {
        let refused = Herded::of(&herding(&["--policy", "dino"]), Time::Real).unwrap_err();
        assert_eq!(numaherd::exit::of(&refused), Some(Exit::SignalMissing));
        assert!(refused.to_string().contains("--real-time"), "{refused}");
        assert!(Herded::of(&herding(&["--policy", "random"]), Time::Real).is_ok());
    }

    #[test]
    fn ipm_brings_its_unit() {
        let needs = |policy| {
            let herded = Herded::of(&herding(&["--policy", policy]), Time::Modelled).unwrap();
            herded.expect("it is herded").needs_ipm
        };
        assert!(needs("ipm"));
        assert!(!needs("dino"));
    }
}
