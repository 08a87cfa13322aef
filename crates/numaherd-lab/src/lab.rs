//! `numaherd lab run`: a program of this machine's own file system, in the guest.

mod herded;
pub mod outlet;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use indicatif::ProgressBar;
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{Command, Error, Guest, RunOptions, Time, on_path};
use numaherd_topology::Machine;
use rustix::fs::Access;

use crate::cli::LabRun;
use herded::Herded;
pub use herded::herding_program;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;

/// A preset or a machine file.
///
/// # Errors
/// There is no machine of that name, or the file is wrong.
pub fn machine(name: &str) -> Result<Machine> {
    Machine::find(name).or_exit(Exit::Usage)
}

/// A guest after a machine, with its hardware modelled, for any number of commands.
///
/// # Errors
/// There is no working directory.
pub fn guest(machine: &Machine) -> Result<RunOptions> {
    let none = Command::inherited::<&str>([]).map_err(error)?;
    Ok(RunOptions::new(machine.clone(), none))
}

/// A guest for one run after another.
#[derive(Debug)]
pub struct Guests {
    options: RunOptions,
    running: Option<Guest>,
}

impl Guests {
    /// Guests as these options ask for. None is booted yet.
    pub fn new(options: RunOptions) -> Self {
        Self {
            options,
            running: None,
        }
    }

    /// Runs something in the guest, which it boots if need be; once more in a new guest if this one dies. After a
    /// failure, the next run has a new guest as well, because the state of this one is unknown.
    ///
    /// # Errors
    /// As [`RunOptions::boot`]; the error of the run.
    pub fn run<T>(&mut self, bar: &ProgressBar, run: impl Fn(&Guest) -> Result<T>) -> Result<T> {
        let mut attempt = || {
            let guest = match self.running.take() {
                Some(guest) => guest,
                None => self.options.boot().map_err(error)?,
            };
            let ran = run(&guest)?;
            self.running = Some(guest);
            Ok(ran)
        };
        once_more(bar, &mut attempt)
    }

    /// Stops the guest; the next run boots another.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), |guest| {
            guest.stop()?;
            Ok(())
        })
    }
}

/// Attempts something, and once more if the guest dies, with a message beside the bar.
///
/// # Errors
/// That of the attempt.
pub fn once_more<T>(bar: &ProgressBar, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(error) if is_dead(&error) => {
            // Before the bar is suspended: it is locked then.
            let doing = bar.message();
            bar.suspend(|| print::say(format!("{doing}: {error:#}; once more")));
            attempt()
        }
        other => other,
    }
}

/// Whether an error means that the guest itself has died, whatever ran in it.
fn is_dead(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::Died { .. } | Error::NoBoot { .. })
    )
}

/// An error of the lab, with its exit code.
pub fn error(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::NotSetUp { .. } | Error::NoLinux { .. } | Error::NoQemu | Error::OldQemu { .. } => {
            Exit::NotSetUp
        }
        Error::Shape { .. } | Error::Hardware(_) | Error::Nul { .. } | Error::NotStarted(_) => {
            Exit::Usage
        }
        // A plain failure, which `is_dead` can still examine.
        _ => return error.into(),
    };
    ended(exit, error)
}

/// Runs a program in the guest, herded there if that is asked for. Passes on its output and exit code, and the ledger
/// while it runs.
///
/// # Errors
/// As [`RunOptions::boot`]; there is no such program, it cannot be started, what is asked of the herd is wrong, or
/// the guest dies or takes too long.
pub fn run(options: &LabRun) -> Result<ExitCode> {
    let machine = machine(&options.machine)?;
    find(Path::new(&options.program[0]))?;
    let time = match options.real_time {
        true => Time::Real,
        false => Time::Modelled,
    };
    let mut herded = Herded::of(&options.herding, time)?;
    let program = match &herded {
        Some(herded) => herded.command(&herding_program()?, &options.program),
        None => options.program.clone(),
    };
    let mut run = RunOptions::new(machine, Command::inherited(program).map_err(error)?);
    run.linux.clone_from(&options.linux);
    run.time_limit = Some(options.limit);
    let ipm = options.ipm || herded.as_ref().is_some_and(|herded| herded.needs_ipm);
    run.ipm = ipm.then(IpmConfig::of_paper);
    run.time = time;
    let (stdout, stderr) = (&mut io::stdout(), &mut io::stderr());
    let attend = |guest: &Guest, pid| herded.as_mut().map(|herded| herded.attend(guest, pid));
    let (finished, attended) =
        numaherd_lab_launcher::run_beside(&run, stdout, stderr, attend).map_err(error)?;
    if let Some(told) = &finished.out_of_memory {
        print::say(format!("the guest ran out of memory: {told}"));
    }
    if let Some(herded) = &herded {
        print::aside(&herded.next_steps());
    }
    attended.transpose()?;
    Ok(ExitCode::from(finished.exit_code()))
}

/// Whether a program is given by its path, and not by a name that is looked for.
pub fn is_named(program: &Path) -> bool {
    program.components().count() > 1 || program.is_absolute()
}

/// Whether a shell would find this program.
pub fn is_here(program: &Path) -> bool {
    if is_named(program) {
        return program.is_file();
    }
    on_path(program).is_some()
}

/// Looks for a program as the guest will, which sees this machine's file system: if it is missing here, there is no
/// need to boot.
///
/// # Errors
/// There is none.
fn find(program: &Path) -> Result<()> {
    is_missing(program).map_or(Ok(()), |why| Err(ended(Exit::Usage, why)))
}

/// Why the guest could not run a program of this machine; `None` if it can.
pub fn is_missing(program: &Path) -> Option<String> {
    // The guest has its own of these.
    let of_guest = ["/proc", "/sys", "/dev", "/run"];
    if of_guest.iter().any(|own| program.starts_with(own)) {
        return None;
    }
    let shown = program.display();
    if is_here(program) {
        let denied = is_named(program) && rustix::fs::access(program, Access::EXEC_OK).is_err();
        return denied.then(|| {
            format!(
                "{shown} is not executable: chmod +x {shown}, or name its interpreter before it"
            )
        });
    }
    let advice = if is_named(program) {
        "check the path".to_owned()
    } else {
        format!(
            "it is in no directory of PATH; a program of this directory is ./{shown}, and what a \
             shell understands is for sh -c '...'"
        )
    };
    Some(format!(
        "cannot find the program {shown} here, and the guest sees what is here: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_died_of_is_attempted_once_more_while_a_bar_is_drawn() {
        let mut attempts = 0;
        let ran = once_more(&ProgressBar::new(1), || {
            attempts += 1;
            if attempts == 2 {
                return Ok(attempts);
            }
            Err(error(Error::Died {
                cause: numaherd_lab_launcher::error::Cause::Panic("a test".to_owned()),
                console: String::new(),
            }))
        });
        assert_eq!(ran.unwrap(), 2);
        let refused = once_more(&ProgressBar::new(1), || -> Result<()> {
            attempts += 1;
            anyhow::bail!("not the guest's fault")
        });
        assert!(refused.is_err());
        assert_eq!(attempts, 3);
    }

    #[test]
    fn a_program_is_looked_for_before_a_guest_is_booted() {
        for there in ["sh", "/bin/sh", "/proc/self/exe", "/bin/../bin/sh"] {
            assert!(find(Path::new(there)).is_ok(), "{there}");
        }
        for missing in [
            "/etc/passwd",
            "no-such-program",
            "./no-such-program",
            "sleep 10",
        ] {
            let refused = find(Path::new(missing)).unwrap_err();
            assert_eq!(numaherd::exit::of(&refused), Some(Exit::Usage));
            assert!(refused.to_string().contains(missing), "{refused}");
        }
    }
}
