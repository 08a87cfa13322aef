//! How well a machine can be herded, as one named level with the reasons that keep it from the next.
//!
//! Problem: a page of findings does not answer how well the program can work here. Rule, the first that
//! applies:
//!
//! | level | when |
//! |---|---|
//! | nothing | the kernel does not allow thread placement |
//! | observe only | one memory domain and one node, so no placement would be better; or no signal says which would be |
//! | placement only | threads can be placed, pages cannot: one memory node, or the kernel moves none |
//! | coarse | no counters: threads run where their pages are, by CPU use |
//! | good | threads are placed by measured contention, but some signals or privileges are missing, or something interferes |
//! | full | miss rates, local and remote accesses and memory samples without caveats, privileges for all users' threads, nothing that interferes |

use std::fmt;

use numaherd_host::{Doctor as Machine, Finding, MOVING, PLACING, Verdict};
use numaherd_world::{Signal, SignalState};
use serde::Serialize;

/// How well a machine can be herded, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// All signals, for all threads and pages.
    Full,
    /// By measured contention, but with fewer signals or privileges.
    Good,
    /// By page residency and CPU use, without counters.
    Coarse,
    /// Threads can be placed, pages cannot.
    PlacementOnly,
    /// Record only: nothing to decide, or no signal to decide from.
    ObserveOnly,
    /// No thread can be placed.
    Nothing,
}

impl Level {
    /// What it means for a herd, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Full => "threads and pages are placed with all signals available",
            Self::Good => "threads are placed by measured contention, and their pages follow",
            Self::Coarse => "threads run where their pages are, by CPU use, without counters",
            Self::PlacementOnly => "threads are placed, pages stay where they are",
            Self::ObserveOnly => "it can only watch and record",
            Self::Nothing => "the kernel does not allow thread placement",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Good => "good",
            Self::Coarse => "coarse",
            Self::PlacementOnly => "placement only",
            Self::ObserveOnly => "observe only",
            Self::Nothing => "nothing",
        })
    }
}

/// The level of a machine, and what keeps it from the next.
pub fn of(machine: &Machine) -> (Level, Vec<String>) {
    let has = |signal| is_measured(machine, signal);
    let is_bad = |subject| {
        let mut abilities = machine.abilities.iter();
        abilities.any(|one| one.subject == subject && one.verdict == Verdict::Bad)
    };
    if is_bad(PLACING) {
        return (
            Level::Nothing,
            vec!["sched_setaffinity is refused".to_owned()],
        );
    }
    let is_counted = has(Signal::MissRate) || has(Signal::UncorePenalty);
    let uncounted = "no counters: no signal says which threads slow each other down";
    if machine.nodes < 2 {
        let mut why = vec!["one memory node: no other place for pages".to_owned()];
        if machine.domains < 2 {
            why.push("one memory domain: no better place for threads either".to_owned());
            return (Level::ObserveOnly, why);
        }
        if !is_counted {
            why.push(uncounted.to_owned());
            return (Level::ObserveOnly, why);
        }
        return (Level::PlacementOnly, why);
    }
    if !is_counted {
        let mut why = vec![uncounted.to_owned()];
        if !has(Signal::Residency) {
            why.push("no signal says where pages are".to_owned());
            return (Level::ObserveOnly, why);
        }
        return (Level::Coarse, why);
    }
    if is_bad(MOVING) {
        return (
            Level::PlacementOnly,
            vec!["move_pages is refused".to_owned()],
        );
    }
    let why = short_of_full(machine);
    if why.is_empty() {
        (Level::Full, why)
    } else {
        (Level::Good, why)
    }
}

/// Whether a signal is measured here.
pub fn is_measured(machine: &Machine, signal: Signal) -> bool {
    let mut signals = machine.signals.iter();
    signals.any(|report| report.signal == signal && report.is_measured())
}

/// What a good machine lacks.
fn short_of_full(machine: &Machine) -> Vec<String> {
    let mut why = Vec::new();
    for (signal, without) in [
        (Signal::MissRate, "no signal says what each thread fetches"),
        (
            Signal::LocalRemote,
            "the gain of a placement is estimated, not measured",
        ),
        (
            Signal::MemorySamples,
            "pages are moved by where they are, not by which threads use them",
        ),
    ] {
        let state = machine.signals.iter().find(|one| one.signal == signal);
        match state.map(|report| &report.state) {
            Some(SignalState::Measured { caveat: None, .. }) => {}
            Some(SignalState::Measured {
                caveat: Some(caveat),
                ..
            }) => why.push(format!("{signal}: {caveat}")),
            _ => why.push(format!("no {signal}: {without}")),
        }
    }
    let rights = machine.abilities.iter();
    let weak = rights.filter(|one| one.subject.starts_with("CAP_") && one.verdict != Verdict::Good);
    why.extend(
        weak.map(|one| format!("no {}: other users' threads stay as they are", one.subject)),
    );
    let against = |one: &&Finding| one.verdict == Verdict::Bad;
    let others = machine.others.iter().filter(against);
    why.extend(others.map(|one| format!("{} works against it", one.subject)));
    why
}
