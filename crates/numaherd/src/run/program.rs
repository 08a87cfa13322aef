//! The program that `numaherd run -- CMD` starts: its new pages go by the policy's rule from its first
//! one on, and it ends with the run.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};

use anyhow::{Context, Result};
use numaherd_host::start_with_new_pages;
use numaherd_topology::Topology;
use numaherd_world::NewPages;
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::ended;

/// The program that was started for this run; ended with it when the run cannot begin.
pub struct Program(Child);

impl Program {
    /// Starts it; nothing where no program is named.
    ///
    /// # Errors
    /// It cannot be started: there is no such program, or it is not one.
    pub fn start(
        program: &[OsString],
        new_pages: NewPages,
        topology: &Topology,
    ) -> Result<Option<Self>> {
        let Some((name, arguments)) = program.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(name);
        start_with_new_pages(command.args(arguments), new_pages, topology)
            .map_err(|error| ended!(Usage, "cannot start {}: {}", name.display(), error.reason))?;
        let child = command
            .spawn()
            .map_err(|error| ended!(Usage, "cannot start {}: {error}", name.display()))?;
        Ok(Some(Self(child)))
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end, having asked for it when the run was stopped; its exit code.
    ///
    /// # Errors
    /// The kernel does not say how it ended.
    pub fn finish(mut self, stopped: bool) -> Result<ExitCode> {
        if stopped {
            // It may have ended already; then there is nobody to ask.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let status = self.0.wait().context("cannot wait for the program")?;
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        Ok(ExitCode::from(
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        ))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Ended in between: nothing to end.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
