//! A program that is started bound to CPUs and memory, and held back until it is told to start.
//!
//! `numactl` binds it: affinity and memory policy are inherited over exec, so they hold for whatever
//! it starts.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_topology::CpuSet;
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::ProfileRun;
use numaherd::exit::{Exit, ended};

/// How long a program may take to set up.
const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// How long a program may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The program that is measured; ended with the run.
pub struct Program {
    name: String,
    process: Child,
    ready: PathBuf,
    go: PathBuf,
}

/// What holds a program back that does not know of a start: says that it is there, waits for the
/// FIFO's end, becomes the program.
const HOLD: &str = r#"ready=$1 go=$2; shift 2; : >"$ready"; read -r _ <"$go"; exec "$@""#;

impl Program {
    /// Starts it, bound and held back; `scratch` holds the FIFO `go`.
    ///
    /// # Errors
    /// numactl cannot be run.
    pub fn start(options: &ProfileRun, cpus: &CpuSet, scratch: &Path) -> Result<Self> {
        let (ready, go) = (scratch.join("ready"), scratch.join("go"));
        let mut command = Command::new("numactl");
        command
            // The program may have CPUs that this one, kept away from them, may not.
            .args(["--all", &format!("--physcpubind={cpus}")])
            .args([&format!("--membind={}", options.memory_node), "--"]);
        if options.waits {
            command.args(&options.program);
            command.arg("--ready-file").arg(&ready);
            command.arg("--go-file").arg(&go);
        } else {
            command.args(["sh", "-c", HOLD, "sh"]).arg(&ready).arg(&go);
            command.args(&options.program);
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| ended(Exit::NotSetUp, numactl_missing(&error)))?;
        Ok(Self {
            name: options.program[0].display().to_string(),
            process,
            ready,
            go,
        })
    }

    /// Waits until it has set up.
    ///
    /// # Errors
    /// It has ended instead, or takes longer than [`SETUP_LIMIT`].
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.ready.exists() {
            let name = &self.name;
            if let Some(status) = self.process.try_wait()? {
                let told = format!("{name} ended before it was ready to be measured ({status})");
                return Err(ended(Exit::Failure, told));
            }
            if begun.elapsed() > SETUP_LIMIT {
                let limit = SETUP_LIMIT.as_secs();
                let told = format!("{name} was not ready to be measured after {limit} s");
                return Err(ended(Exit::Failure, told));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Lets it start.
    ///
    /// # Errors
    /// It is not there to be told.
    pub fn release(&self) -> Result<()> {
        // Whoever waits reads the FIFO's end, which is there once it is closed.
        let opened = fs::OpenOptions::new().write(true).open(&self.go);
        opened
            .and_then(|mut go| go.write_all(b"\n"))
            .with_context(|| format!("cannot release {} by {}", self.name, self.go.display()))
    }

    /// Its process number, which stays the same over exec.
    pub fn pid(&self) -> u32 {
        self.process.id()
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
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // Ended in between: nothing to end.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// What is said when numactl cannot be run.
pub fn numactl_missing(error: &std::io::Error) -> String {
    format!(
        "cannot run numactl, which binds a program to CPUs and memory: {error}; `make setup` \
         installs it, and so does the package numactl"
    )
}

/// A command line as it is shown: the program's file name, quotes where a shell needs them.
pub fn shown(command: &[OsString]) -> String {
    let words = command.iter().enumerate().map(|(at, word)| {
        let word = match at {
            0 => Path::new(word)
                .file_name()
                .unwrap_or(word)
                .to_string_lossy(),
            _ => word.to_string_lossy(),
        };
        let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%{}".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!(
                "'{}'",
                word.replace(char::is_control, " ").replace('\'', r"'\''")
            )
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let shown = |words: &[&str]| shown(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            shown(&["/a/b/menagerie", "chase", "--rounds", "3"]),
            "menagerie chase --rounds 3"
        );
        assert_eq!(shown(&["sh", "-c", "it's\na"]), r"sh -c 'it'\''s a'");
    }
}
