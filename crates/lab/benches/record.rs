//! Recording: accesses per second of host time and bytes per access, against the same program in the
//! same kind of guest without the plugin, and with the accesses modelled.
//!
//! The program is `tests/programs/known.c`, whose accesses are all its work: two threads that take
//! turns at walking an array. `cargo bench -p numaherd-lab-launcher --bench record [-- COMMAND…]` measures
//! another command.

use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use numaherd_lab_launcher::{Command, RecordOptions, RunOptions, Time, record};
use numaherd_topology::Machine;
use numaherd_trace::Trace;

fn main() {
    let given: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words = if given.is_empty() { known() } else { given };
    let command = Command::inherited(&words).expect("here");
    let machine = Machine::preset("lab-2x4").expect("a preset");
    let options = |time| {
        let mut run = RunOptions::new(machine.clone(), command.clone());
        run.memory_mib = Some(1024);
        run.time = time;
        run
    };

    let plain = measure(&options(Time::Real));
    println!("without the plugin   {:8.2} s", plain.as_secs_f64());
    let modelled = measure(&options(Time::Modelled));
    println!(
        "modelled             {:8.2} s  {:6.1} x",
        modelled.as_secs_f64(),
        ratio(modelled, plain)
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.trace");
    let recording = RecordOptions {
        run: options(Time::Modelled),
        file: file.clone(),
        limit: None,
    };
    let recorded = record(
        &recording,
        || false,
        &mut std::io::sink(),
        &mut std::io::stderr(),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    println!(
        "recorded             {:8.2} s  {:6.1} x",
        recorded.took.as_secs_f64(),
        ratio(recorded.took, plain)
    );
    let trace = Trace::open(&file).unwrap_or_else(|error| panic!("{error}"));
    let events = trace.events();
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    println!(
        "{events} events, {:.1} M/s, {bytes} bytes, {:.3} per event",
        events as f64 / recorded.took.as_secs_f64() / 1e6,
        bytes as f64 / events as f64
    );
    std::fs::remove_file(file).expect("it is ours");
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Host time of a run in a guest of its own, booting not included.
fn measure(options: &RunOptions) -> Duration {
    let guest = options.boot().unwrap_or_else(|error| panic!("{error}"));
    if options.time == Time::Modelled {
        guest
            .start_model()
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let begin = Instant::now();
    guest
        .stream(&options.command, None, |_, _| ())
        .unwrap_or_else(|error| panic!("{error}"));
    begin.elapsed()
}

fn known() -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/known.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known-bench");
    let status = process::Command::new("gcc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc is installed; run `make setup`");
    assert!(status.success());
    [
        program.display().to_string(),
        "100".to_owned(),
        "1000000".to_owned(),
    ]
    .to_vec()
}
