//! The program that `numaherd run -- CMD` starts: the policy's rule places its new pages from the first one on, and
//! it ends with the run. If it has a process group of its own, the whole group ends; a terminal's Ctrl-C does not
//! reach it, and it does not read from the terminal.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use numaherd_host::start_with_new_pages;
use numaherd_topology::Topology;
use numaherd_world::NewPages;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::exit::ended;

/// The process group of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// That of `numaherd`.
    Callers,
    /// One of its own, which is ended whole.
    Own,
}

/// The program that was started for this run; it is ended if the run cannot begin.
pub struct Program {
    child: Child,
    group: Group,
}

impl Program {
    /// Starts a program; `None` if none is named.
    ///
    /// # Errors
    /// It cannot be started: there is no such program, or it is not one.
    pub fn start(
        program: &[OsString],
        new_pages: NewPages,
        topology: &Topology,
        group: Group,
    ) -> Result<Option<Self>> {
        let Some((name, arguments)) = program.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(name);
        start_with_new_pages(command.args(arguments), new_pages, topology)
            .map_err(|error| ended!(Usage, "cannot start {}: {}", name.display(), error.reason))?;
        if group == Group::Own {
            command.process_group(0);
            if std::io::stdin().is_terminal() {
                command.stdin(Stdio::null());
            }
        }
        let child = command
            .spawn()
            .map_err(|error| ended!(Usage, "cannot start {}: {error}", name.display()))?;
        Ok(Some(Self { child, group }))
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end.
    pub fn stop(&self) {
        self.send(Signal::TERM);
    }

    /// Waits for its end; its exit code.
    ///
    /// # Errors
    /// The kernel does not say how it ended.
    pub fn finish(mut self) -> Result<ExitCode> {
        let status = self.child.wait().context("cannot wait for the program")?;
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        Ok(ExitCode::from(
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        ))
    }

    /// Sends a signal to it, or to its group. It may have ended already; the signal is then lost.
    fn send(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        let _ = match self.group {
            Group::Own => kill_process_group(pid, signal),
            Group::Callers => kill_process(pid, signal),
        };
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.send(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
