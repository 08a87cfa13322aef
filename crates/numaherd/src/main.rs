//! numaherd: decides which core every thread runs on and which memory node every page lives on.
//!
//! This crate is the command line: it turns arguments into values, calls the crates that do the
//! work, and prints what they give. Exit codes are in `exit.rs`.

mod advise;
mod agent;
mod chart_style;
mod cli;
mod compare;
mod config;
mod ctl;
mod doctor;
#[cfg(test)]
mod documents;
mod exit;
mod explain;
mod gate;
mod lab;
mod manual;
mod policies;
mod print;
mod profile;
mod record;
mod release;
mod replay;
mod report;
mod reproduce;
mod run;
mod serve;
mod simulate;
mod top;
mod topology;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{AsNumad, Cli, Command, Lab};

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let done = if advise::called_as_numad(std::env::args_os()) {
        advise::advise(&AsNumad::parse().advise).map(|()| ExitCode::SUCCESS)
    } else {
        dispatch(Cli::parse())
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("numaherd: {error:#}");
            exit::code(&error)
        }
    }
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
        Command::Report(options) => report::report(&options).map(done),
        Command::Profile(options) => profile::profile(&options).map(done),
        Command::ProfileRun(options) => profile::run_once(&options).map(done),
        Command::Simulate(options) => simulate::simulate(&options).map(done),
        Command::Reproduce(options) => reproduce::reproduce(&options),
        Command::Release(options) => release::release(&options).map(done),
        Command::Agent(options) => agent::agent(&options).map(done),
        Command::Advise(options) => advise::advise(&options).map(done),
        Command::Trace(command) => trace::trace(&command),
        Command::Lab(Lab::Run(options)) => lab::run(&options),
        Command::Lab(Lab::Compare(options)) => compare::compare(&options).map(done),
        Command::Lab(Lab::Brm(options)) => reproduce::brm::lab::run(&options).map(done),
        Command::Lab(Lab::Trial(options)) => compare::trial(&options).map(done),
        Command::Manual(options) => manual::manual(&options).map(done),
    }
}
