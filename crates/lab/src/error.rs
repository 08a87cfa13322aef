//! The lab's errors, worded for users.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use numaherd_hardware::HardwareError;
use numaherd_lab_guest::protocol::ProtocolError;
use rustix::process::Signal;

/// Result with the lab's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// QEMU cannot build this machine.
    #[error("the lab cannot build the machine {machine}: {reason}")]
    Shape {
        /// The machine's name.
        machine: String,
        /// What prevents it.
        reason: String,
    },
    /// The machine's hardware, or its IPM unit, cannot be modelled.
    #[error(transparent)]
    Hardware(HardwareError),
    /// A file that `make setup` prepares is missing.
    #[error("the lab is not set up: {what} is missing at {}; run `make setup`", path.display())]
    NotSetUp {
        /// What is missing.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// No Linux of this version was set up.
    #[error(
        "Linux {version} is not set up: {} is missing; run `scripts/setup.sh linux {version}`",
        path.display()
    )]
    NoLinux {
        /// The requested version.
        version: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// There is no QEMU.
    #[error("the lab needs qemu-system-x86_64, which is not in PATH; run `make setup`")]
    NoQemu,
    /// QEMU is too old.
    #[error(
        "the lab needs QEMU {oldest} or newer, qemu-system-x86_64 says {found:?}; run `make setup`"
    )]
    OldQemu {
        /// Its version line.
        found: String,
        /// The oldest major version that works.
        oldest: u32,
    },
    /// A file operation or a system call failed on the host.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, and on what.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The guest did not come up.
    #[error("the guest did not boot: {cause}{}", after(console))]
    NoBoot {
        /// Why, as far as is known.
        cause: Cause,
        /// The kernel's last lines.
        console: String,
    },
    /// The guest went away while it was in use.
    #[error("the guest died: {cause}{}", after(console))]
    Died {
        /// Why, as far as is known.
        cause: Cause,
        /// The kernel's last lines.
        console: String,
    },
    /// A command could not be started in the guest.
    #[error("the guest could not run the command: {0}")]
    NotStarted(String),
    /// A command took too long. It has been killed; the guest lives on.
    #[error("the command was still running after {} s and was killed", limit.as_secs())]
    CommandTimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// The hardware model could not be switched.
    #[error("the hardware model could not be switched: {0}")]
    Gate(String),
    /// A trace could not be written to its end.
    #[error("the trace {} is incomplete: {reason}", file.display())]
    Trace {
        /// The file, which can be read up to the failure.
        file: PathBuf,
        /// The plugin's message.
        reason: String,
    },
    /// A part of a command contains a NUL byte.
    #[error("{what} contains a NUL byte, which cannot be passed to a program")]
    Nul {
        /// Which one.
        what: &'static str,
    },
}

/// Why a guest is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// It exceeded the time limit of the guest as a whole.
    #[error("it was not done within its time limit of {} s", .0.as_secs())]
    TimeLimit(Duration),
    /// It exceeded the time limit of the boot.
    #[error("it was not up within {} s", .0.as_secs())]
    BootLimit(Duration),
    /// The kernel panicked.
    #[error("its kernel panicked: {0}")]
    Panic(String),
    /// The kernel ran out of memory.
    #[error("it ran out of memory: {0}; give its nodes more, or the programs less")]
    OutOfMemory(String),
    /// The guest's init gave up.
    #[error("its init gave up: {0}")]
    Init(String),
    /// QEMU ended, with its last messages.
    #[error("QEMU ended ({status}): {}", if message.is_empty() { "it left no message" } else { message })]
    Qemu {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its stderr.
        message: String,
    },
    /// The guest's messages could not be decoded.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The guest speaks another version of the protocol.
    #[error("its agent uses version {found} of the protocol, this program {expected}")]
    Version {
        /// The guest's.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// It was stopped on request.
    #[error("it was stopped")]
    Stopped,
}

fn after(console: &str) -> String {
    if console.is_empty() {
        String::new()
    } else {
        format!("\nThe kernel's last lines:\n{console}")
    }
}

impl Error {
    /// Whether another boot may succeed: the kernel panicked in an oops, not for something missing or on request; or it
    /// was not up in time and had written nothing; or QEMU itself crashed.
    #[must_use]
    pub fn is_worth_another_boot(&self) -> bool {
        let Self::NoBoot { cause, console } = self else {
            return false;
        };
        match cause {
            Cause::Panic(_) => console.lines().any(begins_oops),
            Cause::BootLimit(_) => console.is_empty(),
            Cause::Qemu { status, .. } => status.signal().is_some_and(is_crash),
            _ => false,
        }
    }
}

/// Whether this signal means that a program crashed.
fn is_crash(signal: i32) -> bool {
    let crashes = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL];
    crashes.iter().any(|crash| crash.as_raw() == signal)
}

/// Attaches what was tried to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Io {
            what: what(),
            source: error.into(),
        })
    }
}

impl Cause {
    /// The cause of a guest's end from the kernel's console, if it shows one. The first sign
    /// counts: what follows a lack of memory or a failed init is its consequence.
    #[must_use]
    pub fn from_console(console: &str) -> Option<Self> {
        console.lines().find_map(Self::from_line)
    }

    /// The part of a console's text that an error shows: from a little before the line with the
    /// cause or, without such a line, the end. If a panic follows an oops, the part begins with the
    /// oops, which alone shows the place in the kernel.
    #[must_use]
    pub fn excerpt(console: &str) -> String {
        const LINES: usize = 15;
        const OOPS_LINES: usize = 60;
        let lines: Vec<&str> = console
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let told = lines
            .iter()
            .position(|line| Self::from_line(line).is_some());
        let before_it = &lines[..told.unwrap_or(0)];
        let oops = before_it.iter().position(|line| begins_oops(line));
        let (start, most) = match (oops, told) {
            (Some(oops), _) => (oops, OOPS_LINES),
            (None, Some(told)) => (told.saturating_sub(2), LINES),
            (None, None) => (lines.len().saturating_sub(LINES), LINES),
        };
        let shown: Vec<&str> = lines[start..].iter().take(most).copied().collect();
        shown.join("\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        if let Some((_, message)) = line.split_once("numaherd-guest: ") {
            Some(Self::Init(message.trim().to_owned()))
        } else if line.contains("System is deadlocked on memory")
            || line.contains("Out of memory and no killable processes")
        {
            Some(Self::OutOfMemory(without_timestamp(line)))
        } else if line.contains("Kernel panic - not syncing") {
            Some(Self::Panic(without_timestamp(line)))
        } else {
            None
        }
    }
}

/// Whether a line of the console is the first of an oops, in the words of the x86 kernel.
fn begins_oops(line: &str) -> bool {
    const BEGINNINGS: [&str; 7] = [
        "BUG: ",
        "int3: ",
        "Oops: ",
        "kernel BUG at ",
        "general protection fault",
        "invalid opcode: ",
        "traps: PANIC: double fault",
    ];
    let message = without_timestamp(line);
    BEGINNINGS.iter().any(|begin| message.starts_with(begin))
}

/// The kernel's message without the `[   12.345678] ` before it.
pub(crate) fn without_timestamp(line: &str) -> String {
    let rest = line.trim();
    match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, message)) => message.trim().to_owned(),
        None => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_tells_why_a_guest_ended() {
        let cause = |console: &str| Cause::from_console(console).map(|cause| cause.to_string());
        assert_eq!(
            cause(
                "noise\n[    2.311234] Kernel panic - not syncing: VFS: Unable to mount root fs\nmore"
            )
            .as_deref(),
            Some(
                "its kernel panicked: Kernel panic - not syncing: VFS: Unable to mount root fs"
            )
        );
        assert_eq!(
            cause("numaherd-guest: mounting the overlay: No such device\r\n").as_deref(),
            Some("its init gave up: mounting the overlay: No such device")
        );
        assert_eq!(
            cause("[ 9.1] Kernel panic - not syncing: System is deadlocked on memory").as_deref(),
            Some(
                "it ran out of memory: Kernel panic - not syncing: System is deadlocked on memory; give its nodes more, or the programs less"
            )
        );
        assert_eq!(cause("all is well"), None);
    }

    #[test]
    fn the_excerpt_begins_just_before_the_cause() {
        let console: String = (0..100)
            .map(|line| match line {
                50 => "Kernel panic - not syncing: for a test\n".to_owned(),
                line => format!("line {line}\n\n"),
            })
            .collect();
        let excerpt = Cause::excerpt(&console);
        assert!(
            excerpt.starts_with("line 48\nline 49\nKernel panic"),
            "{excerpt}"
        );
        let oops = console.replace("line 20\n", "[ 1.5] BUG: kernel NULL pointer dereference\n");
        let excerpt = Cause::excerpt(&oops);
        assert!(
            excerpt.starts_with("[ 1.5] BUG: kernel NULL pointer dereference\nline 21\n")
                && excerpt.contains("Kernel panic"),
            "{excerpt}"
        );
        let quiet = console.replace("Kernel panic", "Nothing");
        assert!(Cause::excerpt(&quiet).ends_with("line 98\nline 99"));
    }
}
