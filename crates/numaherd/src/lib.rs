//! numaherd: decides which core every thread runs on and which memory node every page lives on.
//!
//! This crate is the command line: it turns arguments into values, calls the crates that do the
//! work, and prints their results. Exit codes are in `exit.rs`. The laboratory (`numaherd-lab`)
//! uses what is public here.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod advise;
mod agent;
pub mod cli;
pub mod config;
mod ctl;
mod doctor;
pub mod exit;
mod explain;
mod http;
pub mod laboratory;
pub mod ledger;
mod numad;
mod policies;
pub mod print;
mod priority;
mod privileges;
mod record;
mod release;
mod replay;
mod report;
mod run;
#[doc(hidden)]
pub mod serve;
mod top;
mod topology;
mod trial;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::FromArgMatches;

use crate::cli::{Cli, Command};
pub use crate::run::stop;

/// Runs the program with its own arguments.
pub fn main() -> ExitCode {
    let done = if numad::is_called(std::env::args_os()) {
        numad::answer(std::env::args_os())
    } else if let Some(arguments) = laboratory::arguments(std::env::args_os()) {
        laboratory::run(&arguments)
    } else {
        let mut matches = laboratory::definition().get_matches();
        let cli = Cli::from_arg_matches_mut(&mut matches);
        dispatch(cli.unwrap_or_else(|error| error.exit()))
    };
    exit::end(done)
}

/// Locks a mutex, even after a panic of its holder, which leaves no value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Run(options) => run::run(&options),
        Command::Top(options) => top::top(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Ctl(options) => ctl::ctl(&options).map(done),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Topology(options) => topology::topology(&options).map(done),
        Command::Policies(options) => policies::policies(&options).map(done),
        Command::Config(command) => config::command::config(&command).map(done),
        Command::Explain(options) => explain::explain(&options).map(done),
        Command::Record(options) => record::record(&options),
        Command::Replay(options) => replay::replay(&options).map(done),
        Command::Trial(options) => trial::trial(&options).map(done),
        Command::Report(options) => report::report(&options).map(done),
        Command::Release(options) => release::release(&options).map(done),
        Command::Agent(options) => agent::agent(&options).map(done),
        Command::Advise(options) => advise::advise(&options).map(done),
    }
}
