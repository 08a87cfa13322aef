//! A program that is held back after its set-up, so that nothing of it is missed, until it is released.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to set up.
pub const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// How long a program may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait before looking at a process again.
const PAUSE: Duration = Duration::from_millis(5);

/// The program; killed when dropped.
pub struct Held {
    name: String,
    /// Its process.
    pub process: Child,
    ready: PathBuf,
}

impl Held {
    /// Starts a program that creates the file `ready` after its set-up. Messages call it `name`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: String, command: &mut Command, ready: PathBuf) -> std::io::Result<Self> {
        Ok(Self {
            name,
            process: command.stdin(Stdio::null()).spawn()?,
            ready,
        })
    }

    /// Waits until it has set up.
    ///
    /// # Errors
    /// It has ended instead, or takes longer than [`SETUP_LIMIT`].
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let (begun, name) = (Instant::now(), &self.name);
        while !self.ready.exists() {
            if let Some(status) = self.process.try_wait()? {
                bail!("{name} ended before it was ready ({status})");
            }
            if begun.elapsed() > SETUP_LIMIT {
                bail!("{name} was not ready after {} s", SETUP_LIMIT.as_secs());
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Asks it to end before it has done all of its work.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn end(&self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)
            .with_context(|| format!("cannot end {}", self.name))
    }

    /// Waits for its end; kills it when that takes longer than [`END_LIMIT`].
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn finish(&mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if begun.elapsed() > END_LIMIT {
                self.process.kill()?;
                return Ok(self.process.wait()?);
            }
            sleep(PAUSE);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // Ended in between: nothing to end.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Releases all programs that wait for the end of this FIFO: they read it once it is closed.
///
/// # Errors
/// It is not there.
pub fn release(go: &Path) -> Result<()> {
    let opened = fs::OpenOptions::new().write(true).open(go);
    let released = opened.map(drop);
    released.with_context(|| format!("cannot release the programs by {}", go.display()))
}
