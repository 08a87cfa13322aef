//! Lost cores in words: how many, how many of them another placement would give back, and what the estimate is based
//! on.

mod sums;

use std::collections::BTreeMap;

use itertools::Itertools as _;
use numaherd_herd::{LostSums, Totals};
use numaherd_policy::losses::{Basis, Estimate, Losses, Range, Unknown, Withheld};

use crate::words::{counted, listed, nanoseconds_of, short, time};
pub use sums::LostTime;
pub(crate) use sums::{LostTimes, main};

/// What the machine loses, in a sentence or two.
pub fn sentence(losses: &Losses) -> String {
    let known = match &losses.estimate {
        Estimate::Idle => {
            return "No thread is busy: nothing is lost to caches and memory.".to_owned();
        }
        Estimate::Unknown(unknown) => {
            return format!("Lost cores are not known: {}.", why(*unknown));
        }
        Estimate::Known(known) => known,
    };
    let (cores, judged) = (counted(losses.cpus, "core"), short(losses.judged));
    let judged = format!("of threads that want {judged} CPUs");
    let Some(lost) = likely(&known.lost) else {
        let unknown = match known.from {
            Basis::Residency => {
                "what caches and controllers cost, and how much is recoverable, are not known without counters"
            }
            _ => "how much is recoverable is not known without the uncore penalty",
        };
        let (lost, what, by) = (between(&known.lost), what(known.from), by(known.from));
        return format!(
            "{lost} of {cores} are lost to {what}. Estimated {by}, {judged}; {unknown}."
        );
    };
    let had = match known.recoverable.as_ref().and_then(likely) {
        Some(had) => format!("another placement would recover {had} of them"),
        None => "how many of them another placement would recover is not known yet".to_owned(),
    };
    let mut said = format!(
        "{lost} of {cores} are lost to caches and memory; {had}. Estimated {}, {judged}.",
        by(known.from)
    );
    if let Some(why) = losses.withheld {
        said += &format!(" What keeps the policy from acting: {}.", obstacle(why));
    }
    said
}

/// What cores are lost to, as far as the basis shows.
fn what(basis: Basis) -> &'static str {
    match basis {
        Basis::Uncore | Basis::Counters => "caches and memory",
        Basis::Residency => "remote memory",
    }
}

/// The same in a few words; `None` where there is no figure.
pub(crate) fn brief(losses: &Losses) -> Option<String> {
    let Estimate::Known(known) = &losses.estimate else {
        return None;
    };
    let cpus = losses.cpus;
    let Some(lost) = known.lost.mean.map(short) else {
        let most = short(known.lost.most);
        return Some(format!("{most} of {cpus} cores lost at most"));
    };
    let recoverable = known.recoverable.as_ref().and_then(|range| range.mean);
    Some(match recoverable.map(short) {
        Some(had) => format!("{lost} of {cpus} cores lost, {had} recoverable"),
        None => format!("{lost} of {cpus} cores lost"),
    })
}

/// What was lost in a run on average, one sentence for each basis of the estimate, and what kept the policy from acting.
pub(crate) fn on_average(totals: &Totals) -> Vec<String> {
    let sentence = |(&basis, sums): (&Basis, &LostSums)| {
        let length = time(nanoseconds_of(sums.seconds));
        let estimated = format!("Estimated {}, over {length}.", by(basis));
        let mean = mean_of(&sums.lost, sums.seconds);
        match likely(&mean) {
            None => {
                let (lost, what) = (between(&mean), what(basis));
                format!("{lost} cores were lost to {what} on average. {estimated}")
            }
            Some(lost) => {
                let had = likely(&mean_of(&sums.recoverable, sums.searched_seconds));
                let mut said = format!("{lost} cores were lost to caches and memory on average");
                if let Some(had) = had.filter(|_| sums.searched_seconds > 0.0) {
                    said += &format!("; another placement would have recovered {had} of them");
                }
                format!("{said}. {estimated}")
            }
        }
    };
    let kept = totals.withheld.iter();
    let kept = kept.sorted_by(|one, other| other.1.total_cmp(one.1));
    let kept = Vec::from_iter(kept.map(|(&why, &seconds)| {
        let length = time(nanoseconds_of(seconds));
        format!("{} ({length})", obstacle(why))
    }));
    let kept =
        (!kept.is_empty()).then(|| format!("What kept the policy from acting: {}.", listed(&kept)));
    totals.lost.iter().map(sentence).chain(kept).collect()
}

/// What kept a policy from acting.
fn obstacle(why: Withheld) -> &'static str {
    match why {
        Withheld::New => "threads too new to judge",
        Withheld::Judging => "an action whose outcome is not known yet",
        Withheld::Resting => "a pause after an action that gained nothing",
        Withheld::Credit => "too little credit for the cost",
        Withheld::Little => "too small a gain",
        Withheld::Unsure => "a loss by some of the estimates",
        Withheld::Fleeting => "too small a gain over the last looks together",
        Withheld::ForGood => "too small a gain for moves that cannot be undone",
        Withheld::Kernel => "a thread that the kernel is about to move itself",
        Withheld::Young => "threads too young for the gain to pay for the moves",
    }
}

/// Cores lost on average, over the time in which a mean was known.
pub(crate) fn mean(lost: &BTreeMap<Basis, LostSums>) -> Option<f64> {
    let sums = lost
        .values()
        .filter_map(|sums| Some((sums.lost.mean?, sums.seconds)));
    let (lost, seconds) = sums.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
    (seconds > 0.0).then(|| lost / seconds)
}

/// The basis of the estimate, as a word for programs.
pub(crate) fn word(estimate: &Estimate) -> &'static str {
    match estimate {
        Estimate::Idle => "idle",
        Estimate::Unknown(_) => "unknown",
        Estimate::Known(known) => basis_word(known.from),
    }
}

/// The same for a basis.
pub(crate) fn basis_word(basis: Basis) -> &'static str {
    match basis {
        Basis::Uncore => "uncore",
        Basis::Counters => "counters",
        Basis::Residency => "residency",
    }
}

/// The sums per second.
fn mean_of(sum: &Range, seconds: f64) -> Range {
    let mut mean = Range::default();
    mean.add(sum, 1.0 / seconds.max(f64::MIN_POSITIVE));
    mean
}

/// `3.1 (2.2 to 4)`; `None` if there is no mean.
pub(crate) fn likely(range: &Range) -> Option<String> {
    let mean = short(range.mean?);
    let (least, most) = (short(range.least), short(range.most));
    Some(match least == most {
        true => mean,
        false => format!("{mean} ({least} to {most})"),
    })
}

/// `Between 0 and 2.1`.
fn between(range: &Range) -> String {
    format!("Between {} and {}", short(range.least), short(range.most))
}

pub(crate) fn by(basis: Basis) -> &'static str {
    match basis {
        Basis::Uncore => "from counters with uncore events",
        Basis::Counters => "from counters without uncore events",
        Basis::Residency => "from residency and CPU use alone",
    }
}

pub(crate) fn why(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::NotCounted => "nothing was counted, and with one memory node no memory is remote",
        Unknown::NotSeen => {
            "nothing was counted, and the memory of most threads could not be located"
        }
        Unknown::FewJudged => {
            "most CPU time is used by threads that each use little of a CPU, and those are not judged"
        }
    }
}
