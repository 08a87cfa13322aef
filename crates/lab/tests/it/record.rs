//! Recording a program whose accesses are known, in a real guest: what is in the trace, exactly.
//!
//! These need `make setup` and the plugin (`cargo build --profile lab -p numaherd-lab-plugin`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use numaherd_lab_launcher::error::Cause;
use numaherd_lab_launcher::{Command, Ending, Error, RecordOptions, Recorded, RunOptions, record};
use numaherd_topology::Machine;
use numaherd_trace::{Event, Kind, Trace};

use crate::programs::{build, temporary};

/// Bytes of a cache line, as the program walks.
const LINE: u64 = 64;

/// What a command wrote, and whether it wrote anything yet.
struct Said<'a>(Vec<u8>, &'a Cell<bool>);

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.set(true);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What records a command into a file of this name.
fn options(name: &str, words: &[&str]) -> RecordOptions {
    let machine = Machine::preset("lab-2x4").expect("a preset");
    let mut run = RunOptions::new(machine, Command::inherited(words).expect("here"));
    run.memory_mib = Some(512);
    RecordOptions {
        run,
        file: temporary(name),
        limit: Some(Duration::from_secs(100)),
    }
}

/// Records a command, and stops it once it has written something if that is asked for. Returns what
/// it wrote as well.
fn record_words(name: &str, words: &[&str], stop: bool) -> (Recorded, Trace, String) {
    let options = options(name, words);
    let spoke = Cell::new(false);
    let mut stdout = Said(Vec::new(), &spoke);
    let stop = || stop && spoke.get();
    let recorded = record(&options, stop, &mut stdout, &mut io::sink())
        .unwrap_or_else(|error| panic!("{error}"));
    let trace = Trace::open(&options.file).unwrap_or_else(|error| panic!("{error}"));
    assert!(trace.damage().is_none(), "{:?}", trace.damage());
    (recorded, trace, String::from_utf8(stdout.0).expect("text"))
}

/// All events of a thread.
fn events(trace: &Trace, thread: u32) -> Vec<Event> {
    let mut events = trace.all_threads().remove(thread as usize);
    let (mut all, mut frame) = (Vec::new(), Vec::new());
    while events.next_frame(&mut frame).expect("no damage").is_some() {
        all.append(&mut frame);
    }
    all
}

#[test]
fn a_known_loop_is_recorded_access_by_access() {
    let (rounds, lines) = (20, 50_000);
    let program = build("known", "known");
    let words = [
        &program.display().to_string(),
        &rounds.to_string(),
        &lines.to_string(),
    ];
    let (recorded, trace, said) = record_words("known.trace", &words.map(String::as_str), false);
    assert_eq!(recorded.finished.ending, Ending::Exited(0));
    assert!(!recorded.cut_short);
    let array: u64 = said.trim().parse().expect("an address");
    let within = |event: &Event| (array..array + lines * LINE).contains(&event.address);

    let names: Vec<&str> = trace
        .threads()
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(names, ["known", "reader", "writer"]);
    let process = trace.threads()[0].process;
    assert!(
        trace
            .threads()
            .iter()
            .all(|thread| thread.process == process)
    );

    let numbers = 0..3;
    let all: Vec<Vec<Event>> = numbers.map(|thread| events(&trace, thread)).collect();
    for (thread, kind, bytes) in [(1, Kind::Load, 4), (2, Kind::Store, 8)] {
        let own: Vec<&Event> = all[thread]
            .iter()
            .filter(|event| event.is_access() && within(event))
            .collect();
        assert_eq!(own.len() as u64, rounds * lines);
        for (at, event) in own.iter().enumerate() {
            let line = at as u64 % lines;
            assert_eq!(event.address, array + line * LINE, "access {at}");
            assert_eq!((event.kind, event.bytes), (kind, bytes));
            if line > 0 {
                assert_eq!(event.gap, 4, "access {at}: four instructions a line");
            }
        }
        assert!(
            !all[3 - thread]
                .iter()
                .any(|event| event.kind == kind && event.is_access() && within(event))
        );
    }
    check_turns(&all, rounds);
}

#[test]
fn descendants_are_recorded_and_a_failing_command_leaves_a_whole_trace() {
    let script = "(exec sleep 0.01) & (exec true); wait; exit 3";
    let (recorded, trace, _) = record_words("descendants.trace", &["sh", "-c", script], false);
    assert_eq!(recorded.finished.ending, Ending::Exited(3));
    let mut names: Vec<&str> = trace
        .threads()
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(names[0], "sh");
    names.sort_unstable();
    assert_eq!(names, ["sh", "sleep", "true"]);
    // Each is a process of its own, and each has loaded its program's libraries.
    let processes: BTreeSet<u32> = trace
        .threads()
        .iter()
        .map(|thread| thread.process)
        .collect();
    assert_eq!(processes.len(), 3);
    for thread in 0..3 {
        let accesses = events(&trace, thread)
            .iter()
            .filter(|event| event.is_access())
            .count();
        assert!(accesses > 10_000, "{accesses} of thread {thread}");
    }
}

#[test]
fn a_recording_that_is_stopped_leaves_a_whole_trace() {
    let script = "echo here; exec sleep 1000";
    let (recorded, trace, _) = record_words("stopped.trace", &["sh", "-c", script], true);
    assert_eq!(recorded.finished.ending, Ending::Killed(15));
    assert!(recorded.cut_short);
    assert_eq!(trace.threads().len(), 1);
    let accesses = events(&trace, 0)
        .iter()
        .filter(|event| event.is_access())
        .count();
    assert!(accesses > 10_000, "{accesses}");
}

#[test]
fn a_command_that_does_not_exist_leaves_an_empty_trace() {
    let (recorded, trace, _) = record_words("nothing.trace", &["/no/such/program"], false);
    assert_eq!(recorded.finished.ending, Ending::Exited(127));
    assert!(trace.threads().is_empty() && trace.frames().is_empty());
    assert_eq!(trace.about()["command"][0], "/no/such/program");
}

#[test]
fn a_guest_that_dies_leaves_a_trace_that_can_be_read_up_to_there() {
    let script = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo c > /proc/sysrq-trigger";
    let options = options("died.trace", &["sh", "-c", script]);
    let died = record(&options, || false, &mut io::sink(), &mut io::sink());
    match died {
        Err(Error::Died { cause, .. }) => {
            assert!(matches!(cause, Cause::Panic(_)), "{cause}");
        }
        Err(other) => panic!("{other}"),
        Ok(ended) => panic!("{:?}", ended.finished.ending),
    }
    let trace = Trace::open(&options.file).unwrap_or_else(|error| panic!("{error}"));
    assert!(trace.damage().is_some(), "its index is missing");
    let accesses = events(&trace, 0)
        .iter()
        .filter(|event| event.is_access())
        .count();
    assert!(accesses > 1_000_000, "{accesses}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let mut options = options("unused", &["true"]);
    options.file = "/dev/full".into();
    let error = record(&options, || false, &mut io::sink(), &mut io::sink()).expect_err("full");
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

/// Each sleep has its wake; and the two that take turns wake each other every round, but where one
/// found its turn had come before it slept.
fn check_turns(all: &[Vec<Event>], rounds: u64) {
    let wakes = |by: usize, thread: usize| {
        let woken = all[by].iter().filter(|event| event.kind == Kind::Wake);
        woken.filter(|event| event.address == thread as u64).count() as u64
    };
    for thread in 0..all.len() {
        let sleeps = all[thread]
            .iter()
            .filter(|event| event.kind == Kind::Sleep)
            .count() as u64;
        let woken: u64 = (0..all.len()).map(|by| wakes(by, thread)).sum();
        assert!(
            sleeps <= woken && woken <= sleeps + 1,
            "thread {thread}: {sleeps} sleeps, {woken} wakes"
        );
    }
    // The first thread makes the others, which counts as a wake.
    assert_eq!([wakes(0, 1), wakes(0, 2)], [1, 1]);
    for (by, thread) in [(1, 2), (2, 1)] {
        let wakes = wakes(by, thread);
        assert!(
            (1..=rounds).contains(&wakes),
            "{by} wakes {thread} {wakes} times"
        );
    }
    assert_eq!(
        all[1][0].kind,
        Kind::Sleep,
        "a thread begins when it has been made"
    );
}
