//! `numaherd trace record`: a program's loads and stores, by running it in the lab's guest.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use numaherd::print;
use numaherd_experiment::table::Table;
use numaherd_lab_launcher::{Command, RecordOptions, Recorded, RunOptions};
use numaherd_quantity::{bytes, count};
use numaherd_trace::Trace;

use crate::cli::TraceRecord;
use crate::lab;

/// Records a program, and passes on its output and exit code. A summary goes to standard error.
///
/// # Errors
/// The lab is not set up, the machine cannot be built, the program cannot be started, or the trace
/// cannot be written.
pub fn record(options: &TraceRecord) -> Result<ExitCode> {
    let command = Command::inherited(options.program.iter().cloned()).map_err(lab::error)?;
    let mut run = RunOptions::new(lab::machine(&options.machine)?, command);
    run.memory_mib = options.memory_mib;
    let recording = RecordOptions {
        run,
        file: options.output.clone(),
        limit: options.limit,
    };
    // A second signal ends this program, and the guest with it.
    let stop = numaherd::stop()?;
    let recorded = numaherd_lab_launcher::record(
        &recording,
        || stop.load(Ordering::Relaxed),
        &mut io::stdout(),
        &mut io::stderr(),
    )
    .map_err(lab::error)?;
    if let Some(told) = &recorded.finished.out_of_memory {
        print::say(format!("the guest ran out of memory: {told}"));
    }
    let file = &options.output;
    let trace =
        Trace::open(file).with_context(|| format!("cannot read {} back", file.display()))?;
    let said = said(&recorded, &trace);
    print::aside(&format!("numaherd: {}: {said}", file.display()));
    if options.threads {
        print::aside(&format!("{}\n", threads(&trace)));
    }
    Ok(ExitCode::from(recorded.finished.exit_code()))
}

fn said(recorded: &Recorded, trace: &Trace) -> String {
    let events = trace.events();
    let size: u64 = trace.frames().iter().map(|frame| frame.bytes).sum();
    let seconds = recorded.took.as_secs_f64();
    let cut = if recorded.cut_short {
        ", cut short"
    } else {
        ""
    };
    format!(
        "{} events of {} threads in {}, {:.2} bytes an event; {seconds:.1} s, {:.1} million events a second{cut}\n",
        count(events),
        trace.threads().len(),
        bytes(size),
        size as f64 / events.max(1) as f64,
        events as f64 / seconds / 1e6,
    )
}

/// A line for each thread.
fn threads(trace: &Trace) -> String {
    let mut table = Table::new(1, "name|thread|process|tid|events|instructions".split('|'));
    let mut sums = vec![(0_u64, 0_u64); trace.threads().len()];
    for frame in trace.frames() {
        let sum = &mut sums[frame.thread as usize];
        sum.0 += u64::from(frame.events);
        sum.1 += frame.instructions;
    }
    for (number, (thread, (events, instructions))) in trace.threads().iter().zip(sums).enumerate() {
        table.row([
            thread.name.clone(),
            number.to_string(),
            thread.process.to_string(),
            thread.tid.to_string(),
            count(events),
            count(instructions),
        ]);
    }
    table.text()
}
