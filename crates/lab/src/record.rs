//! Records one command in a guest of its own: every load and store of it and its descendants goes
//! into a trace file. What `numaherd trace record -- CMD` does.
//!
//! The plugin records in place of modelling accesses. Time passes with instructions alone, at the
//! machine's own speed, so its CPUs run at the same pace whatever load the host has. The file is
//! finished when the command has ended, when the recording is stopped, or when its time is up. Only
//! if QEMU itself dies, the file lacks its index; it can then be read up to that point.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::command::Command;
use crate::command_line::Recording;
use crate::error::{Context, Error, Result};
use crate::guest::{Ending, Guest};
use crate::machine;
use crate::run::{Finished, RunOptions, Sinks};

/// How often a recording checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How long a command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the plugin's message about a trace that could not be written begins.
const FAILED: &str = "numaherd-lab-plugin: trace ";

/// A shell script that requests recording from its own next exec on, and then execs the command.
const RECORDED: &str = "echo $$ > /sys/module/lab_pmu/parameters/record && exec \"$@\"";

/// A command to record, its guest and its trace file.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The command and its guest. Its time must be modelled.
    pub run: RunOptions,
    /// The trace file; an existing one is replaced.
    pub file: PathBuf,
    /// How long the command may run; then it is ended and the trace finished.
    pub limit: Option<Duration>,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// How the command ended.
    pub finished: Finished,
    /// Whether the command was ended early, on request or by the limit.
    pub cut_short: bool,
    /// Host time for which it ran, without the boot.
    pub took: Duration,
}

/// Records a command and passes its output on as it comes. Calls `stop` ten times a second; true
/// ends the recording.
///
/// # Errors
/// As [`RunOptions::boot`] and [`Guest::spawn`]; [`Error::Trace`] when the file cannot be written,
/// [`Error::Io`] when the command's output cannot be passed on.
pub fn record(
    options: &RecordOptions,
    stop: impl Fn() -> bool,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Recorded> {
    let run = &options.run;
    let file = std::path::absolute(&options.file)
        .context(|| format!("finding the directory of {}", options.file.display()))?;
    // Fails early if the file cannot be written; QEMU would report that only among its own messages.
    drop(std::fs::File::create(&file).context(|| format!("creating {}", file.display()))?);
    let guest = run.boot_and_record(Some(Recording {
        file: file.clone(),
        about: about(run)?,
    }))?;
    guest.start_model()?;
    let began = Instant::now();
    let until = options.limit.map(|limit| began + limit);
    let stop = || stop() || until.is_some_and(|until| Instant::now() >= until);
    let mut sinks = Sinks::new(stdout, stderr);
    let (ending, cut_short) = attend(&guest, &recorded(&run.command), stop, &mut sinks)?;
    let took = began.elapsed();
    // Closing the gate finishes the file.
    guest.stop_model()?;
    let stopped = guest.stop()?;
    if let Some(reason) = failure(&stopped.messages) {
        return Err(Error::Trace { file, reason });
    }
    sinks.finish()?;
    Ok(Recorded {
        finished: Finished::new(ending, stopped),
        cut_short,
        took,
    })
}

/// Runs a command to its end, or ends it when `stop` returns true.
fn attend(
    guest: &Guest,
    command: &Command,
    stop: impl Fn() -> bool,
    sinks: &mut Sinks<'_>,
) -> Result<(Ending, bool)> {
    let mut running = guest.spawn(command)?;
    let mut asked: Option<Instant> = None;
    loop {
        let event = running.next(Some(Instant::now() + LOOK))?;
        if let Some(ending) = sinks.attend(event) {
            return Ok((ending, asked.is_some()));
        }
        match asked {
            None if stop() => {
                running.signal(Signal::TERM.as_raw())?;
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => running.signal(Signal::KILL.as_raw())?,
            _ => {}
        }
    }
}

/// The command, wrapped so that it is recorded.
fn recorded(command: &Command) -> Command {
    let shell = ["/bin/sh", "-c", RECORDED, "sh"].map(Into::into);
    Command {
        arguments: shell
            .into_iter()
            .chain(command.arguments.iter().cloned())
            .collect(),
        ..command.clone()
    }
}

/// The description of a recording, a JSON object.
fn about(run: &RunOptions) -> Result<String> {
    let words = run.command.arguments.iter();
    Ok(json!({
        "command": words.map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
        "recorder": concat!("numaherd ", env!("CARGO_PKG_VERSION")),
        "machine": run.machine.name,
        "nodes": run.machine.shape.nodes,
        "cpus": machine::shape(&run.machine, run.memory_mib)?.cpus(),
        "ns_per_instruction": run.machine.core.ns_per_instruction,
    })
    .to_string())
}

/// Why the plugin could not write the trace, if it said so.
fn failure(messages: &str) -> Option<String> {
    let said = messages
        .lines()
        .find_map(|line| line.strip_prefix(FAILED))?;
    Some(said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_could_not_be_written_is_read_off_the_plugins_messages() {
        let messages =
            "qemu: something\nnumaherd-lab-plugin: trace /t: cannot write: No space left\n";
        assert_eq!(
            failure(messages).as_deref(),
            Some("/t: cannot write: No space left")
        );
        assert_eq!(failure("numaherd-lab-plugin: report\n"), None);
    }

    #[test]
    fn a_command_becomes_one_that_is_recorded_word_by_word() {
        let command = Command {
            arguments: ["a b", "$c"].map(Into::into).to_vec(),
            environment: Vec::new(),
            directory: "/".into(),
        };
        let words = recorded(&command).arguments;
        assert_eq!(words[..2], ["/bin/sh", "-c"]);
        assert_eq!(words[3..], ["sh", "a b", "$c"]);
    }
}
