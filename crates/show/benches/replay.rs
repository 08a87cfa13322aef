//! What a replay of a ledger of an hour costs: 200 threads, an interval a second (target 3.6 s, a
//! thousandth of the hour, reading included).
//!
//! Compared in the same run, on the same file: reading it and doing nothing with it, which is the least
//! that any replay can take; one policy asked of each interval as it was recorded; the same with its
//! placement carried on; and three at once. What the model adds is timed by the command itself:
//! `time numaherd replay`.

mod hour;

use std::path::Path;
use std::time::Duration;

use numaherd_herd::ledger::Reader;
use numaherd_herd::replay::{Basis, Candidate};
use numaherd_policy::registry;
use numaherd_show::replay::{Comparison, Recording, text};

use hour::{SECONDS, THREADS, least, ms, write};

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hour.ledger");
    write(&path);
    let bytes = std::fs::metadata(&path).expect("the ledger").len();
    println!(
        "ledger: {THREADS} threads, {SECONDS} s, {} MB",
        bytes / 1_000_000
    );
    let reading = least(|| Reader::open(&path).expect("a ledger").count());
    row("read alone", reading, reading);
    for (name, policies, basis) in [
        ("dino", &["dino"][..], Basis::Recorded),
        ("dino, carried on", &["dino"], Basis::Carried),
        ("n-mass", &["n-mass"], Basis::Recorded),
        ("n-mass, carried on", &["n-mass"], Basis::Carried),
        (
            "three, carried on",
            &["dino", "n-mass", "di-plain"],
            Basis::Carried,
        ),
    ] {
        row(name, least(|| replay(&path, policies, basis)), reading);
    }
}

fn row(name: &str, took: Duration, reading: Duration) {
    println!(
        "{name:<20} {:>8.0} ms  {:>7.0} times faster than real time  {:.2} of reading alone",
        ms(took),
        SECONDS as f64 / took.as_secs_f64(),
        ms(took) / ms(reading)
    );
}

fn replay(path: &Path, policies: &[&str], basis: Basis) -> String {
    let reader = Reader::open(path).expect("a ledger");
    let mut recording = Recording::of(reader, path).expect("a ledger");
    let topology = recording.topology().clone();
    let settings = recording.start().settings.clone();
    let mut candidates: Vec<Candidate> = policies
        .iter()
        .map(|name| {
            let policy = registry::build(name, &numaherd_policy::Settings::default());
            Candidate::new(policy.expect("a policy"), &settings, &topology, basis)
        })
        .collect();
    let mut comparison = Comparison::new(candidates.len(), basis);
    for interval in &mut recording {
        let decided: Vec<_> = candidates
            .iter_mut()
            .map(|candidate| candidate.decide(&interval))
            .collect();
        comparison.interval(&topology, &interval, &decided);
    }
    text(&comparison.finish(&recording, &candidates))
}
