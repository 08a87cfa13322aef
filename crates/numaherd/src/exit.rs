//! Exit codes, and the errors that carry one. `numaherd --help` lists them.

use std::fmt;
use std::process::ExitCode;

/// Why the program ends, as its exit code. A command run for the user (`run -- CMD`, `lab run`)
/// passes its own exit code on instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed.
    Failure = 1,
    /// The command line, a configuration or a file given is wrong.
    Usage = 2,
    /// The machine does not offer a signal that the policy needs.
    SignalMissing = 3,
    /// The kernel does not permit it.
    Permission = 4,
    /// Something that should be installed is not (the lab: `make setup`).
    NotSetUp = 5,
    /// Another numaherd is at work.
    Busy = 6,
    /// A claim of a paper that held on the model before does not hold any more.
    ClaimFell = 7,
}

/// Shown at the end of `numaherd --help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  something failed
  2  the command line, the configuration or a file given is wrong
  3  the machine does not offer a signal that the policy needs (see `numaherd doctor`)
  4  the kernel does not permit it (see `numaherd doctor`)
  5  something is not installed (the lab: `make setup`)
  6  another numaherd is at work
  7  a claim of a paper that held on the model does not hold any more (`reproduce`)
`run -- CMD` and `lab run -- CMD` end with CMD's own exit code (128 + N when signal N killed it).";

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

/// The exit that an error carries, if it carries one.
pub fn of(error: &anyhow::Error) -> Option<Exit> {
    error.downcast_ref::<Ended>().map(|ended| ended.exit)
}

/// The exit code of an error: its own, or [`Exit::Failure`].
pub fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(of(error).unwrap_or(Exit::Failure) as u8)
}
