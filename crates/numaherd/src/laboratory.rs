//! The laboratory's commands (`numaherd lab …`, `numaherd simulate …`). Another program carries them out,
//! `numaherd-lab`, found beside this one or in `PATH`, as git and cargo find theirs.
//!
//! [`definition`] lists them with this program's own commands, so that help and "did you mean" cover both.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{EXIT_CODES, Exit, ended};

/// The laboratory's program.
pub const PROGRAM: &str = "numaherd-lab";

/// Its commands, each with what it does.
pub const COMMANDS: [(&str, &str); 5] = [
    (
        "lab",
        "Run programs in the lab: a real multi-node kernel with modelled hardware",
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

/// A further command of the laboratory, which writes the manual pages and completions of both programs. Only packages
/// use it, so no help lists it.
const MANUAL: &str = "manual";

/// What a command of the laboratory does; nothing for any other.
pub fn about(command: &str) -> &'static str {
    let mut commands = COMMANDS.into_iter();
    commands
        .find(|(name, _)| *name == command)
        .map_or("", |(_, about)| about)
}

/// The command line of both programs: without the laboratory its commands are known but not listed,
/// and the help says how to install it.
pub fn definition() -> clap::Command {
    let is_installed = find().is_some();
    let command = Cli::command().subcommands(COMMANDS.map(|(name, about)| {
        clap::Command::new(name)
            .about(about)
            .hide(!is_installed)
            .disable_help_flag(true)
    }));
    if is_installed {
        return command;
    }
    let names = COMMANDS.map(|(name, _)| name).join(", ");
    command.after_help(format!(
        "{EXIT_CODES}\n\nThe laboratory ({names}) is not installed; {HOW_TO_INSTALL}."
    ))
}

const HOW_TO_INSTALL: &str =
    "install the package numaherd-lab, or build it with `cargo build --release -p numaherd-lab`";

/// The arguments for the laboratory, if these are one of its commands (`lab run`) or ask for the help of
/// one (`help lab`).
pub fn arguments(mut all: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let arguments: Vec<OsString> = all.by_ref().skip(1).collect();
    let asks_for_help = arguments.first().is_some_and(|first| first == "help");
    let command = arguments.get(usize::from(asks_for_help))?;
    is_command(command).then_some(arguments)
}

fn is_command(word: &OsStr) -> bool {
    word == MANUAL || COMMANDS.iter().any(|(name, _)| word == *name)
}

/// Where the laboratory's program is, if it is installed.
fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(named).find(|file| file.is_file())
}

/// Becomes the laboratory's program, called as this one was.
///
/// # Errors
/// The laboratory is not installed or cannot be started.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let Some(program) = find() else {
        let command = arguments.iter().find(|word| is_command(word));
        let command = command.map_or_else(String::new, |word| word.display().to_string());
        let message = format!(
            "`numaherd {command}` belongs to the laboratory, whose program {PROGRAM} is neither beside \
             numaherd nor in PATH: {HOW_TO_INSTALL}"
        );
        return Err(ended(Exit::NotSetUp, message));
    };
    let called = std::env::args_os()
        .next()
        .unwrap_or_else(|| "numaherd".into());
    let error = Command::new(&program).arg0(called).args(arguments).exec();
    let message = format!("cannot start {}: {error}", program.display());
    Err(ended(Exit::Failure, message))
}
