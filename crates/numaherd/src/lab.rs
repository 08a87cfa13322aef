//! `numaherd lab run`: a program of this machine's own file system, in the guest.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use numaherd_hardware::IpmConfig;
use numaherd_lab::{Command, Error, Guest, RunOptions};
use numaherd_topology::Machine;

use crate::cli::LabRun;
use crate::exit::{Exit, ended};

/// A preset or a machine file.
///
/// # Errors
/// There is none of that name, or the file is wrong.
pub fn machine(name: &str) -> Result<Machine> {
    Machine::find(name).map_err(|error| ended(Exit::Usage, error))
}

/// Boots a guest after a machine, with its hardware modelled, for any number of commands; with `ipm`,
/// its TLBs and an IPM unit beside them as well.
///
/// # Errors
/// The lab is not set up, the machine cannot be built, or the guest does not boot.
pub fn boot(machine: &Machine, ipm: Option<IpmConfig>) -> Result<Guest> {
    let none = Command::inherited::<&str>([]).map_err(error)?;
    let mut options = RunOptions::new(machine.clone(), none);
    options.ipm = ipm;
    options.boot().map_err(error)
}

/// Whether an error means that the guest itself has gone, whatever ran in it.
pub fn is_dead(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::Died { .. } | Error::NoBoot { .. })
    )
}

/// An error of the lab, with its exit code.
pub fn error(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::NotSetUp { .. } | Error::NoQemu | Error::OldQemu { .. } => Exit::NotSetUp,
        Error::Shape { .. } | Error::Nul { .. } | Error::NotStarted(_) => Exit::Usage,
        // A plain failure; what died can still be told from it.
        _ => return error.into(),
    };
    ended(exit, error)
}

/// Runs a program in the guest; output and exit code come back.
///
/// # Errors
/// As [`boot`]; the program cannot be started, or the guest dies or takes too long.
pub fn run(options: &LabRun) -> Result<ExitCode> {
    let command = Command::inherited(options.program.iter().cloned()).map_err(error)?;
    let mut run = RunOptions::new(machine(&options.machine)?, command);
    run.time_limit = Some(options.limit);
    run.ipm = options.ipm.then(IpmConfig::of_paper);
    if options.real_time {
        run.model = None;
    }
    let finished = numaherd_lab::run(&run, &mut io::stdout(), &mut io::stderr()).map_err(error)?;
    if let Some(told) = &finished.out_of_memory {
        eprintln!("numaherd: the guest ran out of memory: {told}");
    }
    Ok(ExitCode::from(finished.exit_code()))
}
