//! What a trial says: a line per pair while it goes on, and what came of it.

use std::time::Duration;

use numaherd_herd::{Ending, Summary};
use numaherd_quantity::{counted, nanoseconds, time};
use serde::Serialize;

use super::conduct::{Design, End, Event, Halt, Pair, Side, Verdict, pairs_to_see};
use super::progress::Source;

/// Gains that a plan may be for, as shares: the first that is finer than what was seen.
const FINER: [f64; 5] = [0.02, 0.01, 0.005, 0.002, 0.001];

/// The two that are compared.
#[derive(Clone, Debug)]
pub struct Names {
    /// The policy.
    pub policy: String,
    /// What it is compared with.
    pub against: String,
}

impl Names {
    fn of(&self, side: Side) -> &str {
        match side {
            Side::Policy => &self.policy,
            Side::Against => &self.against,
        }
    }

    /// As a result begins: the other side is named where it is not Linux.
    fn compared(&self) -> String {
        match self.against.as_str() {
            "linux" => self.policy.clone(),
            against => format!("{} against {against}", self.policy),
        }
    }
}

/// What a rate of progress is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// The counter.
    counter: String,
    /// Whether the user named it.
    named: bool,
}

/// What is counted: what the user named, or else instructions, or CPU time.
pub fn progress(source: &Source, is_instructions: bool) -> Measured {
    let counter = match source {
        Source::World if is_instructions => "instructions of the selected threads".to_owned(),
        Source::World => "CPU time of the selected threads".to_owned(),
        named => named.to_string(),
    };
    Measured {
        counter,
        named: *source != Source::World,
    }
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Ended {
    Complete,
    Early,
    Interrupted,
    ProcessesEnded,
    Failed,
}

/// What came of a trial; what `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    policy: String,
    against: String,
    progress: Measured,
    block_s: f64,
    washout_s: f64,
    seed: u64,
    pairs_planned: usize,
    pairs: Vec<PairShown>,
    ended: Ended,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Whether a difference is shown; `None` where the pairs are too few.
    shown: Option<bool>,
    gain_percent: Option<f64>,
    interval_percent: Option<[f64; 2]>,
    confidence_percent: u8,
    to_see: Option<ToSee>,
    threads_moved: u64,
    pages_moved: u64,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct PairShown {
    #[serde(flatten)]
    pair: Pair,
    gain_percent: f64,
}

/// How long it would take to see a gain.
#[derive(Clone, Copy, Debug, Serialize)]
struct ToSee {
    gain_percent: f64,
    pairs: usize,
    seconds: f64,
}

impl Report {
    /// Of these pairs.
    pub fn of(
        names: &Names,
        design: &Design,
        progress: Measured,
        pairs: Vec<Pair>,
        end: &End,
        summary: &Summary,
    ) -> Self {
        let verdict = Verdict::of(&pairs, design);
        let half = verdict.map_or(f64::INFINITY, |verdict| verdict.half());
        let finer = FINER.into_iter().find(|&gain| gain < half);
        let to_see = finer.and_then(|gain| ToSee::of(gain, &pairs, design));
        let (ended, failure) = match end {
            End::Complete => (Ended::Complete, None),
            End::Early => (Ended::Early, None),
            End::Halted(Halt::Failed(why)) => (Ended::Failed, Some(why.clone())),
            End::Halted(Halt::Stopped) if summary.ending == Ending::World => {
                (Ended::ProcessesEnded, None)
            }
            End::Halted(Halt::Stopped) => (Ended::Interrupted, None),
        };
        let percent = |share: f64| share * 100.0;
        let mut report = Self {
            policy: names.policy.clone(),
            against: names.against.clone(),
            progress,
            block_s: design.block.as_secs_f64(),
            washout_s: design.washout.as_secs_f64(),
            seed: design.seed,
            pairs_planned: design.pairs,
            ended,
            failure,
            shown: verdict.map(|verdict| verdict.is_shown()),
            gain_percent: verdict.map(|verdict| percent(verdict.gain())),
            interval_percent: verdict.map(|verdict| verdict.interval().map(percent)),
            confidence_percent: 95,
            to_see,
            threads_moved: summary.totals.thread_moves,
            pages_moved: summary.totals.pages_moved,
            text: String::new(),
            pairs: Vec::new(),
        };
        report.text = report.first_line(&names.compared(), &pairs, verdict)
            + &report.details(design, pairs.len());
        let shown = |pair: Pair| PairShown {
            pair,
            gain_percent: percent(pair.log_ratio().exp_m1()),
        };
        report.pairs = pairs.into_iter().map(shown).collect();
        report
    }

    /// For people.
    pub fn text(&self) -> String {
        self.text.clone()
    }

    fn first_line(&self, compared: &str, pairs: &[Pair], verdict: Option<Verdict>) -> String {
        let to_see = self.to_see.map_or_else(String::new, |plan| {
            format!(
                "; to see {} % it would take {}",
                plan.gain_percent,
                about(plan.seconds)
            )
        });
        let number = counted(pairs.len() as u64, "pair");
        match verdict {
            Some(verdict) if verdict.is_shown() => {
                format!("{compared}: {} ({number}), 95 %\n", gain(&verdict))
            }
            Some(verdict) => {
                format!(
                    "no difference could be shown{to_see}\n{compared}: {} ({number}), 95 %\n",
                    gain(&verdict)
                )
            }
            None => format!("{number}: too few to show a difference{to_see}\n"),
        }
    }

    fn details(&self, design: &Design, pairs: usize) -> String {
        let Measured { counter, named } = &self.progress;
        let doubt = match named {
            true => "",
            false => " (the program's own measure is better: --progress, --prometheus)",
        };
        let placed = match (self.threads_moved, self.pages_moved) {
            (0, 0) => "no thread had to leave its CPU, and no page was moved".to_owned(),
            (threads, 0) => format!("threads were moved {}", times(threads)),
            (threads, pages) => format!(
                "threads were moved {}, pages {}; pages stay where they are when a block ends, which makes the sides more \
                 alike",
                times(threads),
                times(pages)
            ),
        };
        let ended = match self.ended {
            Ended::Complete => "",
            Ended::Early => "; ended early, as a difference was shown",
            Ended::Interrupted => "; interrupted",
            Ended::ProcessesEnded => "; the processes have ended",
            Ended::Failed => "; it could not go on",
        };
        let length = |length: Duration| time(nanoseconds(length));
        format!(
            "progress: {counter}{doubt}\n\
             method: {pairs} of {} pairs of blocks of {}, of which the first {} do not count, in random order (seed {}); the \
             interval holds whenever a trial is ended{ended}\n\
             placement: {placed}; every affinity is restored\n",
            design.pairs,
            length(design.block),
            length(design.washout),
            design.seed,
        )
    }
}

fn times(number: u64) -> String {
    counted(number, "time")
}

impl ToSee {
    fn of(gain: f64, pairs: &[Pair], design: &Design) -> Option<Self> {
        let pairs = pairs_to_see(gain, pairs)?;
        Some(Self {
            gain_percent: gain * 100.0,
            pairs,
            seconds: design.block.as_secs_f64() * 2.0 * pairs as f64,
        })
    }
}

/// `+12.3 % ± 2.1`.
fn gain(verdict: &Verdict) -> String {
    format!(
        "{:+.1} % ± {:.1}",
        verdict.gain() * 100.0,
        verdict.half() * 100.0
    )
}

/// A length of time as a plan needs it: `40 minutes`.
fn about(seconds: f64) -> String {
    let (number, unit) = match seconds {
        0.0..120.0 => (seconds, "second"),
        120.0..7200.0 => (seconds / 60.0, "minute"),
        7200.0..172_800.0 => (seconds / 3600.0, "hour"),
        _ => (seconds / 86_400.0, "day"),
    };
    counted(number.ceil() as u64, unit)
}

/// The latest pair, and what all so far come to: `pair 7 of 30: +3.1 %; so far +2.4 % ± 3.0`.
pub fn pair_line(pairs: &[Pair], design: &Design) -> String {
    let latest = pairs
        .last()
        .map_or(0.0, |pair| pair.log_ratio().exp_m1() * 100.0);
    let so_far = Verdict::of(pairs, design).map(|verdict| format!("; so far {}", gain(&verdict)));
    let so_far = so_far.unwrap_or_default();
    format!(
        "pair {} of {}: {latest:+.1} %{so_far}",
        pairs.len(),
        design.pairs
    )
}

/// What is shown while a trial goes on: a line per pair, and on a terminal what is going on below it.
pub struct Live {
    names: Names,
    design: Design,
    on_terminal: bool,
    pairs: usize,
}

/// Begins the line anew.
const ANEW: &str = "\r\x1b[2K";

impl Live {
    /// Of a trial that begins.
    pub fn new(names: &Names, design: &Design, on_terminal: bool) -> Self {
        Self {
            names: names.clone(),
            design: *design,
            on_terminal,
            pairs: 0,
        }
    }

    /// What to write.
    pub fn event(&mut self, event: Event<'_>) -> String {
        let anew = if self.on_terminal { ANEW } else { "" };
        let (side, what, length) = match event {
            Event::Pair(pairs) => {
                self.pairs = pairs.len();
                return format!("{anew}{}\n", pair_line(pairs, &self.design));
            }
            _ if !self.on_terminal => return String::new(),
            Event::Dropping(side) => (side, "settles", self.design.washout),
            Event::Measuring(side) => (
                side,
                "is measured",
                self.design.block.saturating_sub(self.design.washout),
            ),
        };
        let left = self.design.block.as_secs_f64() * 2.0 * (self.design.pairs - self.pairs) as f64;
        format!(
            "{anew}pair {} of {}: {} {what} for {}; at most {} left, Ctrl-C ends it",
            self.pairs + 1,
            self.design.pairs,
            self.names.of(side),
            time(nanoseconds(length)),
            about(left)
        )
    }

    /// What to write when it is over.
    pub fn over(&self) -> &'static str {
        if self.on_terminal { ANEW } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_in_whole_units() {
        let plans = [50.0, 600.0, 601.0, 9000.0, 1e6].map(about);
        assert_eq!(
            plans,
            [
                "50 seconds",
                "10 minutes",
                "11 minutes",
                "3 hours",
                "12 days"
            ]
        );
    }

    #[test]
    fn without_a_terminal_there_is_a_line_per_pair_and_nothing_else() {
        let names = Names {
            policy: "dino".to_owned(),
            against: "linux".to_owned(),
        };
        let design = Design {
            block: Duration::from_secs(10),
            washout: Duration::from_secs(3),
            pairs: 30,
            seed: 1,
            stop_early: false,
        };
        let pair = Pair {
            first: Side::Policy,
            policy: 110.0,
            against: 100.0,
        };
        let mut quiet = Live::new(&names, &design, false);
        assert_eq!(quiet.event(Event::Dropping(Side::Policy)), "");
        assert_eq!(quiet.event(Event::Pair(&[pair])), "pair 1 of 30: +10.0 %\n");
        let mut live = Live::new(&names, &design, true);
        let settles = live.event(Event::Dropping(Side::Against));
        assert!(settles.ends_with(
            "pair 1 of 30: linux settles for 3 s; at most 10 minutes left, Ctrl-C ends it"
        ));
    }
}
