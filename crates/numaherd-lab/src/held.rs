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
pub const END_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait before looking at a process again.
const PAUSE: Duration = Duration::from_millis(5);

/// The program; killed when dropped.
#[derive(Debug)]
pub struct Held {
    name: String,
    /// Its process.
    pub process: Child,
    /// The file that it creates after its set-up.
    pub ready: PathBuf,
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
        let (name, ready) = (self.name.clone(), self.ready.clone());
        let seen = self.watch(SETUP_LIMIT, |process| {
            if ready.exists() {
                return Ok(Some(()));
            }
            if let Some(status) = process.try_wait()? {
                bail!("{name} ended before it was ready ({status})");
            }
            Ok(None)
        })?;
        seen.with_context(|| format!("{name} was not ready after {} s", SETUP_LIMIT.as_secs()))
    }

    /// Polls it with `look` for up to `limit`; `None` if `look` never found anything.
    ///
    /// # Errors
    /// That of `look`.
    pub fn watch<T>(
        &mut self,
        limit: Duration,
        mut look: impl FnMut(&mut Child) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let begun = Instant::now();
        loop {
            if let Some(seen) = look(&mut self.process)? {
                return Ok(Some(seen));
            }
            if begun.elapsed() >= limit {
                return Ok(None);
            }
            sleep(PAUSE);
        }
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
        match self.watch(END_LIMIT, |process| Ok(process.try_wait()?))? {
            Some(status) => Ok(status),
            None => {
                self.process.kill()?;
                Ok(self.process.wait()?)
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // It may have ended in between.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Releases all programs that wait for the end of this FIFO: they read it once it is closed.
///
/// # Errors
/// The FIFO does not exist.
pub fn release(go: &Path) -> Result<()> {
    let opened = fs::OpenOptions::new().write(true).open(go);
    let released = opened.map(drop);
    released.with_context(|| format!("cannot release the programs by {}", go.display()))
}
