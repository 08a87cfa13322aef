//! menagerie: workloads with known memory behaviour, from turtles to super-devils, for tests of
//! schedulers and simulators. It depends on neither.

mod access;
mod channel;
mod compute;
mod error;
mod histogram;
mod kernels;
mod machine;
mod memory;
mod micro;
mod migrations;
mod options;
mod pair;
mod phases;
mod random;
mod report;
mod run;
mod share;
mod shuffle;
mod start_signal;
mod steady;
mod stop;
mod stream;
mod sync;
mod sys;
mod threads;
mod workload;

use clap::Parser;
use error::Error;
use machine::Machine;
use options::Options;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use stop::Stop;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("menagerie: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Error> {
    let machine = Machine::at(Path::new("/"));
    let stop = Stop::on_signals()?;
    let Some(report) = run::run(&options.command, &machine, &stop)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let text = if options
        .command
        .conduct()
        .is_some_and(|conduct| conduct.json)
    {
        // Numbers, strings and string keys, which JSON can always express.
        format!("{}\n", serde_json::to_string(&report).unwrap_or_default())
    } else {
        report.table()
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::system("write the result"))?;
    Ok(match stop.signal() {
        Some(signal) if !report.complete => ExitCode::from(128 + signal),
        _ if report.has_failed() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
