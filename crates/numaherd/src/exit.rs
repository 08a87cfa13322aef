//! Exit codes, and the errors that carry one. `numaherd --help` lists them.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use numaherd_herd::HerdError;
use numaherd_host::HostError;

use crate::print;

/// Why the program ends, as its exit code. `run -- CMD` and `lab run` pass on the exit code of the
/// command instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed.
    Failure = 1,
    /// A mistake on the command line, in the configuration or in an input file.
    Usage = 2,
    /// The machine lacks a signal that the policy needs.
    SignalMissing = 3,
    /// The kernel denied permission.
    Permission = 4,
    /// Something is not installed (the lab: `make setup`).
    NotSetUp = 5,
    /// Another numaherd is running.
    Busy = 6,
    /// A claim of a paper that held before no longer holds.
    ClaimFell = 7,
    /// A ledger is damaged. What comes before the damage was shown, as far as there is any.
    Damaged = 8,
}

/// Shown at the end of `numaherd --help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure
  2  a mistake on the command line, in the configuration or in an input file
  3  the machine lacks a signal that the policy needs (see `numaherd doctor`)
  4  the kernel denied permission (see `numaherd doctor`)
  5  something is not installed (the lab: `make setup`)
  6  another numaherd is running
  7  a claim of a paper that held before no longer holds (`reproduce`)
  8  a ledger is damaged; what comes before the damage was shown
`run -- CMD` and `lab run -- CMD` exit with CMD's own exit code (128 + N if signal N killed it).";

/// An error that ends the program with a code of its own.
#[derive(Debug)]
pub struct Ended {
    /// The code.
    pub exit: Exit,
    /// One message: what was tried, on what, why it failed, what to do.
    pub message: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Ended {}

/// An error with this exit code.
pub fn ended(exit: Exit, message: impl fmt::Display) -> anyhow::Error {
    Ended {
        exit,
        message: message.to_string(),
    }
    .into()
}

/// An error with this exit code and message, as `anyhow!` makes one without a code:
/// `ended!(Usage, "there is no column {column:?}")`.
#[macro_export]
macro_rules! ended {
    ($exit:ident, $($message:tt)+) => {
        $crate::exit::ended($crate::exit::Exit::$exit, ::std::format!($($message)+))
    };
}
pub use crate::ended;

/// An error whose kind determines the exit code.
pub trait Coded: fmt::Display {
    /// The code.
    fn exit(&self) -> Exit;
}

impl Coded for HerdError {
    fn exit(&self) -> Exit {
        match self {
            Self::JournalHeld { .. } => Exit::Busy,
            Self::MissingSignals(_) => Exit::SignalMissing,
            Self::NewPages { .. } | Self::NotOurs { .. } | Self::Newer { .. } => Exit::Usage,
            Self::Damaged { .. } => Exit::Damaged,
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::NotFound | ErrorKind::IsADirectory => Exit::Usage,
                ErrorKind::PermissionDenied => Exit::Permission,
                _ => Exit::Failure,
            },
            _ => Exit::Failure,
        }
    }
}

impl Coded for HostError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoSuchProcess { .. } | Self::NoSuchUser { .. } => Exit::Usage,
            Self::AgentPort { .. } | Self::Scx { .. } => Exit::NotSetUp,
            _ => Exit::Failure,
        }
    }
}

/// The error with the exit code of its kind.
pub fn coded(error: impl Coded) -> anyhow::Error {
    ended(error.exit(), error)
}

/// Gives an error an exit code.
pub trait OrExit<T> {
    /// The value, or the error with this exit code.
    ///
    /// # Errors
    /// Those of the result.
    fn or_exit(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: fmt::Display> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| ended(exit, error))
    }
}

/// The exit that an error carries, if it carries one.
pub fn of(error: &anyhow::Error) -> Option<Exit> {
    error.downcast_ref::<Ended>().map(|ended| ended.exit)
}

/// A program's exit code; prints the error, if there is one.
pub fn end(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        print::say(format!("{error:#}"));
        code(&error)
    })
}

/// The exit code of an error: its own, or [`Exit::Failure`].
pub fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(of(error).unwrap_or(Exit::Failure) as u8)
}
