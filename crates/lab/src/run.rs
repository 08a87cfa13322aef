//! One command in a guest of its own: boot, run, power off. What `numaherd lab run -- CMD` does.

use std::io::Write;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use numaherd_hardware::IpmConfig;
use numaherd_topology::Machine;

use crate::command::Command;
use crate::command_line::{Model, Recording};
use crate::error::{Context, Result, without_timestamp};
use crate::files::KernelFiles;
use crate::guest::{Ending, Event, Guest, Options, Running, Stopped, Stream};
use crate::machine;

/// How a guest's time passes while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// By the hardware model: every instruction and every miss takes its modelled time.
    Modelled,
    /// As on the host, without a model and without counters.
    Real,
}

/// A command to run, and its guest.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The machine to boot.
    pub machine: Machine,
    /// The version of a newer kernel than that of `make setup`: see [`KernelFiles::find`].
    pub linux: Option<String>,
    /// Memory per node in MiB, in place of the machine's.
    pub memory_mib: Option<u64>,
    /// How guest time passes.
    pub time: Time,
    /// The IPM unit. The machine's TLBs are modelled only with it: see [`machine::model`].
    pub ipm: Option<IpmConfig>,
    /// Whether accesses of the kernel are modelled, like those of programs.
    pub kernel_accesses: bool,
    /// Whether the kernel's own NUMA balancing runs; None keeps the kernel's default, which is on.
    pub numa_balancing: Option<bool>,
    /// Limit of the whole run, boot included.
    pub time_limit: Option<Duration>,
    /// The command.
    pub command: Command,
}

impl RunOptions {
    /// A modelled run with defaults for everything else.
    #[must_use]
    pub fn new(machine: Machine, command: Command) -> Self {
        Self {
            machine,
            linux: None,
            memory_mib: None,
            time: Time::Modelled,
            ipm: None,
            kernel_accesses: false,
            numa_balancing: None,
            time_limit: None,
            command,
        }
    }

    /// Boots the guest that these options ask for.
    ///
    /// # Errors
    /// As [`Guest::start`] and [`machine::model`].
    pub fn boot(&self) -> Result<Guest> {
        self.boot_and_record(None)
    }

    /// Like [`RunOptions::boot`]. With `recording`, the plugin of a modelled guest records a trace
    /// in place of modelling accesses.
    pub(crate) fn boot_and_record(&self, recording: Option<Recording>) -> Result<Guest> {
        let shape = machine::shape(&self.machine, self.memory_mib)?;
        machine::fits(&self.machine, &shape, machine::host_mib())?;
        let mut options = Options::new(shape, KernelFiles::find(self.linux.as_deref())?);
        if self.time == Time::Modelled {
            options.model = Some(Model {
                recording,
                kernel_accesses: self.kernel_accesses,
                ..machine::model(&self.machine, self.ipm.as_ref())?
            });
        }
        options.time_limit = self.time_limit;
        let guest = Guest::start(&options)?;
        if let Some(on) = self.numa_balancing {
            guest.write_file(
                "/proc/sys/kernel/numa_balancing",
                if on { "1" } else { "0" },
            )?;
        }
        Ok(guest)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How the command ended.
    pub ending: Ending,
    /// The plugin's report, a JSON document, when there was a model.
    pub report: Option<String>,
    /// The kernel's message if it killed the command for lack of memory.
    pub out_of_memory: Option<String>,
}

impl Finished {
    pub(crate) fn new(ending: Ending, stopped: Stopped) -> Self {
        let out_of_memory = match ending {
            Ending::Killed(KILL) => out_of_memory(&stopped.console),
            _ => None,
        };
        Self {
            ending,
            report: stopped.report,
            out_of_memory,
        }
    }

    /// The exit code that a shell would show: the command's, or 128 and the number of the signal
    /// that killed it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.ending {
            Ending::Exited(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Ending::Killed(signal) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(u8::MAX),
        }
    }
}

/// Runs one command in a guest of its own and passes its output on as it comes.
///
/// # Errors
/// As [`RunOptions::boot`] and [`Guest::stream`]; [`crate::Error::Io`] when the output cannot be written.
pub fn run(
    options: &RunOptions,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Finished> {
    run_beside(options, stdout, stderr, |_, _| ()).map(|(finished, ())| finished)
}

/// Like [`run`], and once the command has started, calls `beside` in another thread with the guest and the command's
/// process id in it. Waits for `beside` after the command's end.
///
/// # Errors
/// As [`run`]. If the command cannot be started, `beside` is not called.
pub fn run_beside<T: Send>(
    options: &RunOptions,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    beside: impl FnOnce(&Guest, u32) -> T + Send,
) -> Result<(Finished, T)> {
    let guest = options.boot()?;
    for failed in guest.failed_boots() {
        writeln!(
            stderr,
            "numaherd: note: the guest is booted again: {failed}"
        )
        .context(|| "telling of a failed boot".to_owned())?;
    }
    if options.time == Time::Modelled {
        guest.start_model()?;
    }
    let mut sinks = Sinks::new(stdout, stderr);
    let (ending, said) = thread::scope(|scope| {
        let guest = &guest;
        let mut running = guest.spawn(&options.command)?;
        let pid = started(&mut running)?;
        let beside = scope.spawn(move || beside(guest, pid));
        let ending = loop {
            if let Some(ending) = sinks.attend(running.next(None)?) {
                break ending;
            }
        };
        if options.time == Time::Modelled {
            guest.stop_model()?;
        }
        let said = beside.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((ending, said))
    })?;
    sinks.finish()?;
    Ok((Finished::new(ending, guest.stop()?), said))
}

/// Waits for a command's start; returns its process id.
fn started(running: &mut Running<'_>) -> Result<u32> {
    loop {
        if let Some(Event::Started(pid)) = running.next(None)? {
            return Ok(pid);
        }
    }
}

/// Destinations of a command's output. After a failure nothing more is written, but the command
/// runs to its end.
pub(crate) struct Sinks<'s> {
    stdout: &'s mut dyn Write,
    stderr: &'s mut dyn Write,
    written: std::io::Result<()>,
}

impl<'s> Sinks<'s> {
    pub(crate) fn new(stdout: &'s mut dyn Write, stderr: &'s mut dyn Write) -> Self {
        Self {
            stdout,
            stderr,
            written: Ok(()),
        }
    }

    /// Passes on the output of an event. Returns how the command ended, once it has.
    pub(crate) fn attend(&mut self, event: Option<Event>) -> Option<Ending> {
        match event {
            Some(Event::Output(stream, bytes)) if self.written.is_ok() => {
                let to = match stream {
                    Stream::Stdout => &mut self.stdout,
                    Stream::Stderr => &mut self.stderr,
                };
                self.written = to.write_all(&bytes).and_then(|()| to.flush());
                None
            }
            Some(Event::Ended(ending)) => Some(ending),
            _ => None,
        }
    }

    /// The first error in writing, if any.
    pub(crate) fn finish(self) -> Result<()> {
        self.written
            .context(|| "passing on the command's output".to_owned())
    }
}

/// The signal with which the kernel kills a program to free memory.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// The kernel's message about the last program that it killed for lack of memory.
fn out_of_memory(console: &str) -> Option<String> {
    let line = console
        .lines()
        .rfind(|line| line.contains("Out of memory: Killed process"))?;
    Some(without_timestamp(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_read_off_the_console() {
        let console = "[   18.2] walk invoked oom-killer: gfp_mask=0x140dca\n\
            [   18.3] Out of memory: Killed process 208 (walk) total-vm:1051368kB\n";
        assert_eq!(
            out_of_memory(console).as_deref(),
            Some("Out of memory: Killed process 208 (walk) total-vm:1051368kB")
        );
        assert_eq!(out_of_memory("nothing of the kind"), None);
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let code = |ending| {
            Finished {
                ending,
                report: None,
                out_of_memory: None,
            }
            .exit_code()
        };
        assert_eq!(code(Ending::Exited(0)), 0);
        assert_eq!(code(Ending::Exited(7)), 7);
        assert_eq!(code(Ending::Killed(9)), 137);
    }
}
