//! numaherd-lab: policies compared in a real guest kernel, on a model of a machine and on recorded traces.
//!
//! `numaherd lab …`, `numaherd simulate …` and the like start this program.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cli;
mod compare;
mod guest;
mod held;
mod lab;
mod manual;
mod profile;
mod reproduce;
mod simulate;
#[cfg(test)]
mod tests;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use numaherd::{exit, print};

use crate::cli::{Cli, Command, Lab};

fn main() -> ExitCode {
    exit::end(dispatch(Cli::parse()))
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Profile(options) => profile::profile(&options).map(done),
        Command::ProfileRun(options) => profile::run_once(&options).map(done),
        Command::Simulate(options) => simulate::simulate(&options).map(done),
        Command::Reproduce(options) => reproduce::reproduce(&options),
        Command::Trace(command) => trace::trace(&command),
        Command::Manual(options) => manual::write(&options).map(done),
        Command::Lab(Lab::Run(options)) => lab::run(&options),
        Command::Lab(Lab::Compare(options)) => compare::compare(&options).map(done),
        Command::Lab(Lab::Brm(options)) => reproduce::brm::lab::run(&options).map(done),
        Command::Lab(Lab::Trial(options)) => compare::trial(&options).map(done),
    }
}
