//! The commands of the laboratory (`numaherd lab …`, `numaherd simulate …`), which are another program's:
//! `numaherd-lab`, found beside this one or in `PATH`, as git and cargo find theirs.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::exit::{Exit, ended};

/// The laboratory's program.
pub const PROGRAM: &str = "numaherd-lab";

/// Its commands, each with what it does.
pub const COMMANDS: [(&str, &str); 5] = [
    (
        "lab",
        "Run programs in a real multi-node kernel with modelled hardware",
    ),
    (
        "simulate",
        "Run a scenario on a model of a machine, under one policy or several",
    ),
    (
        "reproduce",
        "Run the papers' experiments and check their claims",
    ),
    (
        "profile",
        "Run a program alone, with local and with remote memory, and write its profile",
    ),
    ("trace", "Record, inspect and replay memory accesses"),
];

/// Where the laboratory's program is, if it is installed.
pub fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(named).find(|file| file.is_file())
}

/// Becomes the laboratory's program with these arguments, the first of which is its command.
///
/// # Errors
/// There is no such command; the laboratory is not installed or cannot be started.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let asked = arguments.first().map_or(OsStr::new(""), |first| first);
    if !COMMANDS.iter().any(|(name, _)| asked == *name) {
        let told = format!(
            "there is no command {:?}; `numaherd --help` lists them",
            asked.to_string_lossy()
        );
        return Err(ended(Exit::Usage, told));
    }
    let Some(program) = find() else {
        let told = format!(
            "`numaherd {}` belongs to the laboratory, and its program {PROGRAM} is neither beside this \
             one nor in PATH: install the package numaherd-lab, or build it with \
             `cargo build --release -p numaherd-lab`",
            asked.to_string_lossy()
        );
        return Err(ended(Exit::NotSetUp, told));
    };
    let error = Command::new(&program).args(arguments).exec();
    Err(ended(
        Exit::Failure,
        format!("cannot start {}: {error}", program.display()),
    ))
}
