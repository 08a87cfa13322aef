//! How well a machine can be herded, as one named level with the reasons that keep it from the next.
//!
//! Problem: a page of findings does not answer the question that whoever installs the program has. Rule,
//! the first that holds:
//!
//! | level | when |
//! |---|---|
//! | nothing | the kernel does not let threads be placed |
//! | observe only | one memory domain and one node, so nobody has anywhere better to be; or nothing tells who should be where |
//! | placement only | threads have somewhere to go, pages do not: one memory node, or the kernel moves none |
//! | coarse | no counters: threads go by CPU use to where their pages are |
//! | good | by what threads cost each other, with less than all evidence, rights or peace |
//! | full | miss rates, local and remote accesses and memory samples without caveats, rights over all users' threads, nobody who undoes it |

use std::fmt;

use numaherd_host::{Doctor as Machine, Finding, MOVING, PLACING, Verdict};
use numaherd_world::{Signal, SignalState};
use serde::Serialize;

/// How well a machine can be herded, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// By all evidence, for all threads and pages.
    Full,
    /// By what threads cost each other, but with less evidence, or less freely.
    Good,
    /// By where pages are and who uses CPUs, without counters.
    Coarse,
    /// Threads, but no pages.
    PlacementOnly,
    /// What happens can be recorded; there is nothing to decide, or nothing to decide by.
    ObserveOnly,
    /// No thread may be placed.
    Nothing,
}

impl Level {
    /// What it means for a herd, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Full => "threads and pages are herded by all the evidence that there is",
            Self::Good => "threads are herded by what they cost each other, and their pages follow",
            Self::Coarse => "threads are brought to their pages by CPU use, without counters",
            Self::PlacementOnly => "threads are placed, pages stay where they are",
            Self::ObserveOnly => {
                "what happens can be watched and recorded, nothing can be improved"
            }
            Self::Nothing => "the kernel lets no thread be placed",
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
    let uncounted = "no counters: nothing tells which threads cost each other time";
    if machine.nodes < 2 {
        let mut why = vec!["one memory node: no page has anywhere better to be".to_owned()];
        if machine.domains < 2 {
            why.push("one memory domain: no thread has, either".to_owned());
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
            why.push("nothing tells where pages are".to_owned());
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
        (
            Signal::MissRate,
            "threads are not told apart by what they fetch",
        ),
        (
            Signal::LocalRemote,
            "what a placement gains is not measured, only reckoned",
        ),
        (
            Signal::MemorySamples,
            "pages follow by where they are, not by who uses them",
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
