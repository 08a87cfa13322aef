//! The result of a trial: the gain and its interval, in words and as JSON.
//!
//! The figure of a pair of blocks is the logarithm of the ratio of the two rates of progress. The gain is that of the
//! mean; its interval ([`AnyTime`]) holds after whichever pair somebody looks.

use numaherd_herd::ledger::{self, Design, Pair, TrialEnd, TrialPlan};
use numaherd_herd::{Ending, Summary, Totals};
use numaherd_quantity::any_time::AnyTime;
use numaherd_quantity::statistics::{Mean, deviation};
use serde::Serialize;

use crate::words::{counted, time};

/// The fewest pairs that give an interval. With fewer, all pairs agree in more than 5 of 100 trials by the random order
/// of their blocks alone, if changes over time outweigh everything else.
pub const LEAST_PAIRS: usize = 6;

/// The name of the comparison in which nobody places threads.
pub const LINUX: &str = "linux";

/// Gains that a longer trial could show, as shares; the first one that is finer than the present interval counts.
const FINER: [f64; 5] = [0.02, 0.01, 0.005, 0.002, 0.001];

/// What some pairs say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The mean of the logarithms of ratios, with half of its 95 % interval.
    log: Mean,
}

impl Verdict {
    /// The verdict of these pairs; `None` if they are too few for an interval.
    pub fn of(pairs: &[Pair], design: &Design) -> Option<Self> {
        let log = AnyTime::planned(design.pairs_planned).mean(&log_ratios(pairs))?;
        (pairs.len() >= LEAST_PAIRS && log.half.is_some()).then_some(Self { log })
    }

    /// Whether a difference is shown: the interval does not contain 0.
    pub fn is_shown(&self) -> bool {
        self.log.mean.abs() > self.half_log()
    }

    fn half_log(&self) -> f64 {
        self.log.half.unwrap_or(f64::INFINITY)
    }

    /// How much faster the policy is, as a share: 0.05 is 5 %.
    pub fn gain(&self) -> f64 {
        self.log.mean.exp_m1()
    }

    /// The interval of [`Verdict::gain`].
    pub fn interval(&self) -> [f64; 2] {
        let half = self.half_log();
        [self.log.mean - half, self.log.mean + half].map(f64::exp_m1)
    }

    /// Half of the interval's length.
    pub fn half(&self) -> f64 {
        let [low, high] = self.interval();
        (high - low) / 2.0
    }

    /// `+12.3 % +- 2.1`.
    pub fn words(&self) -> String {
        format!(
            "{:+.1} % +- {:.1}",
            self.gain() * 100.0,
            self.half() * 100.0
        )
    }
}

fn log_ratios(pairs: &[Pair]) -> Vec<f64> {
    pairs.iter().map(Pair::log_ratio).collect()
}

/// How many pairs it takes to show a gain of this share in four trials of five, by the spread of these pairs. `None` if
/// the spread is not known, or the number is too large to wait for.
pub fn pairs_to_see(gain: f64, pairs: &[Pair]) -> Option<usize> {
    let pairs = AnyTime::to_see(gain.ln_1p(), deviation(&log_ratios(pairs))?)?;
    Some(pairs.max(LEAST_PAIRS))
}

/// A length of time as a plan needs it: `40 minutes`.
pub fn about(seconds: f64) -> String {
    let (number, unit) = match seconds {
        0.0..120.0 => (seconds, "second"),
        120.0..7200.0 => (seconds / 60.0, "minute"),
        7200.0..172_800.0 => (seconds / 3600.0, "hour"),
        _ => (seconds / 86_400.0, "day"),
    };
    counted(number.ceil() as u64, unit)
}

/// A trial up to its present state.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// How it was made.
    pub plan: TrialPlan,
    /// Its complete pairs.
    pub pairs: Vec<Pair>,
    /// Why it ended by itself before the last pair, if it did.
    pub ended: Option<TrialEnd>,
}

impl Trial {
    /// Takes in a ledger's record.
    pub(crate) fn take(trial: &mut Option<Self>, record: &ledger::Trial) {
        let trial = trial.get_or_insert_with(|| Self {
            plan: record.plan.clone(),
            pairs: Vec::new(),
            ended: None,
        });
        // A file may hold any figures.
        let pair = record.pair.filter(|pair| pair.log_ratio().is_finite());
        trial.pairs.extend(pair);
        trial.ended.clone_from(&record.ended);
    }

    /// What its pairs say.
    pub fn verdict(&self) -> Option<Verdict> {
        Verdict::of(&self.pairs, &self.plan.design)
    }

    /// The result in one sentence, or in two if no difference is shown. Without full stops.
    pub fn sentences(&self) -> Vec<String> {
        let number = counted(self.pairs.len(), "pair");
        let compared = match self.plan.against.as_str() {
            LINUX => self.plan.policy.clone(),
            against => format!("{} against {against}", self.plan.policy),
        };
        let words = |verdict: Verdict| format!("{compared}: {} ({number}), 95 %", verdict.words());
        let to_see = self.to_see().map_or_else(String::new, |to_see| {
            let time = about(to_see.seconds);
            format!("; to see {} % it would take {time}", to_see.gain_percent)
        });
        match self.verdict() {
            Some(verdict) if verdict.is_shown() => vec![words(verdict)],
            Some(verdict) => vec![
                format!("no difference could be shown{to_see}"),
                words(verdict),
            ],
            None => vec![format!(
                "no difference could be shown: {number} are too few{to_see}"
            )],
        }
    }

    /// What was measured, how, and what carries over from block to block: a title and a sentence for each. `totals` and
    /// `ending` are those of the run; `ending` is `None` if it is not known.
    pub(crate) fn details(
        &self,
        totals: &Totals,
        ending: Option<&Ending>,
    ) -> [(&'static str, String); 3] {
        let TrialPlan {
            against,
            counter,
            is_named,
            design,
            ..
        } = &self.plan;
        let doubt = match is_named {
            true => "",
            false => " (the program's own measure is better: --progress, --prometheus)",
        };
        let ended = match self.ended(ending) {
            None | Some(Ended::Complete) => "",
            Some(Ended::Early) => "; ended early, as a difference was shown",
            Some(Ended::Interrupted) => "; interrupted",
            Some(Ended::Gone) => "; the processes have ended",
            Some(Ended::Failed) => "; it could not go on",
        };
        let times = |number: u64| counted(number, "time");
        let threads = match totals.thread_moves {
            0 => "no thread had to leave its CPU".to_owned(),
            moves => format!(
                "threads were moved {}, which includes taking them back to the CPUs where Linux had them when a \
                 block of a policy ends",
                times(moves)
            ),
        };
        let pages = match totals.pages_moved {
            0 => "no page was moved".to_owned(),
            moved => format!(
                "pages were moved {}, and pages stay: later blocks of {against} inherit them, so that the figure lacks \
                 most of what they gain",
                times(moved)
            ),
        };
        let method = format!(
            "{} of {} pairs of blocks of {}, of which the first {} do not count, in random order (seed {}); the \
             interval holds whenever a trial is ended{ended}",
            self.pairs.len(),
            design.pairs_planned,
            time(design.block_ns),
            time(design.washout_ns),
            design.seed,
        );
        [
            ("progress", format!("{counter}{doubt}")),
            ("method", method),
            ("carried over", format!("{threads}; {pages}")),
        ]
    }

    /// The text for people at its end.
    pub fn text(&self, summary: &Summary) -> String {
        let details = self.details(&summary.totals, Some(&summary.ending));
        let details = details.map(|(title, what)| format!("{title}: {what}\n"));
        format!("{}\n{}", self.sentences().join("\n"), details.concat())
    }

    /// The report for programs at its end.
    pub fn report(&self, summary: &Summary) -> Report<'_> {
        let verdict = self.verdict();
        let ended = self.ended(Some(&summary.ending));
        let failure = match (&self.ended, &summary.ending) {
            (Some(TrialEnd::Failed(why)), _) => Some(why.clone()),
            (None, Ending::Failed { error }) => Some(error.clone()),
            _ => None,
        };
        let pairs = self.pairs.iter().map(|&pair| PairShown {
            pair,
            gain_percent: pair.gain() * 100.0,
        });
        Report {
            policy: &self.plan.policy,
            against: &self.plan.against,
            progress: Progress {
                counter: &self.plan.counter,
                named: self.plan.is_named,
            },
            block_s: self.plan.design.block().as_secs_f64(),
            washout_s: self.plan.design.washout().as_secs_f64(),
            seed: self.plan.design.seed,
            pairs_planned: self.plan.design.pairs_planned,
            pairs: pairs.collect(),
            ended,
            failure,
            shown: verdict.map(|verdict| verdict.is_shown()),
            gain_percent: verdict.map(|verdict| verdict.gain() * 100.0),
            interval_percent: verdict.map(|verdict| verdict.interval().map(|end| end * 100.0)),
            confidence_percent: 95,
            to_see: self.to_see(),
            threads_moved: summary.totals.thread_moves,
            pages_moved: summary.totals.pages_moved,
        }
    }

    /// How it ended; `None` if the ledger does not say.
    fn ended(&self, ending: Option<&Ending>) -> Option<Ended> {
        match (&self.ended, ending) {
            (Some(TrialEnd::Early), _) => Some(Ended::Early),
            (Some(TrialEnd::Failed(_)), _) => Some(Ended::Failed),
            _ if self.pairs.len() >= self.plan.design.pairs_planned => Some(Ended::Complete),
            (None, Some(Ending::World)) => Some(Ended::Gone),
            (None, Some(Ending::Failed { .. })) => Some(Ended::Failed),
            (None, Some(_)) => Some(Ended::Interrupted),
            (None, None) => None,
        }
    }

    fn to_see(&self) -> Option<ToSee> {
        let half = self
            .verdict()
            .map_or(f64::INFINITY, |verdict| verdict.half());
        let gain = FINER.into_iter().find(|&gain| gain < half)?;
        let pairs = pairs_to_see(gain, &self.pairs)?;
        Some(ToSee {
            gain_percent: gain * 100.0,
            pairs,
            seconds: self.plan.design.block().as_secs_f64() * 2.0 * pairs as f64,
        })
    }
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Ended {
    Complete,
    Early,
    Interrupted,
    #[serde(rename = "processes-ended")]
    Gone,
    Failed,
}

/// What `--json` prints; every key is in docs/trial.md.
#[derive(Debug, Serialize)]
pub struct Report<'t> {
    policy: &'t str,
    against: &'t str,
    progress: Progress<'t>,
    block_s: f64,
    washout_s: f64,
    seed: u64,
    pairs_planned: usize,
    pairs: Vec<PairShown>,
    ended: Option<Ended>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    shown: Option<bool>,
    gain_percent: Option<f64>,
    interval_percent: Option<[f64; 2]>,
    confidence_percent: u8,
    to_see: Option<ToSee>,
    threads_moved: u64,
    pages_moved: u64,
}

#[derive(Debug, Serialize)]
struct Progress<'t> {
    counter: &'t str,
    named: bool,
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

#[cfg(test)]
mod tests {
    use numaherd_herd::ledger::Side;

    use super::*;

    /// A trial of pairs with these gains in percent, of 20 s each.
    fn trial(gains: &[f64]) -> Trial {
        let pair = |gain: &f64| Pair {
            first: Side::Policy,
            policy: 100.0 + gain,
            against: 100.0,
        };
        Trial {
            plan: TrialPlan {
                policy: "adaptive".to_owned(),
                against: LINUX.to_owned(),
                counter: "requests".to_owned(),
                is_named: true,
                design: Design {
                    block_ns: 10_000_000_000,
                    washout_ns: 3_000_000_000,
                    pairs_planned: 30,
                    seed: 1,
                    stop_early: false,
                },
            },
            pairs: gains.iter().map(pair).collect(),
            ended: None,
        }
    }

    #[test]
    fn a_result_is_a_gain_with_its_interval_or_how_long_it_would_take() {
        let shown = trial(&[10.0, 14.0, 11.0, 13.0, 12.0].repeat(4));
        assert_eq!(
            shown.sentences(),
            ["adaptive: +12.0 % +- 1.1 (20 pairs), 95 %"]
        );
        let nothing = trial(&[-4.0, 3.0, 5.0, -3.0, 1.0].repeat(4));
        assert_eq!(
            nothing.sentences(),
            [
                "no difference could be shown; to see 2 % it would take 17 minutes",
                "adaptive: +0.3 % +- 2.7 (20 pairs), 95 %"
            ]
        );
        let few = trial(&[3.0]);
        assert_eq!(
            few.sentences(),
            ["no difference could be shown: 1 pair are too few"]
        );
    }

    #[test]
    fn what_carries_over_is_said() {
        let totals = Totals {
            thread_moves: 4,
            pages_moved: 1,
            ..Totals::default()
        };
        let [_, _, (_, said)] = trial(&[1.0]).details(&totals, None);
        assert_eq!(
            said,
            "threads were moved 4 times, which includes taking them back to the CPUs where Linux had them when a \
             block of a policy ends; pages were moved 1 time, and pages stay: later blocks of linux inherit them, so that \
             the figure lacks most of what they gain"
        );
        let [_, _, (_, said)] = trial(&[1.0]).details(&Totals::default(), None);
        assert_eq!(said, "no thread had to leave its CPU; no page was moved");
    }

    #[test]
    fn how_it_ended_is_its_own_word_or_the_runs() {
        let mut trial = trial(&[1.0]);
        let ended = |trial: &Trial, ending| trial.ended(Some(&ending));
        assert_eq!(ended(&trial, Ending::World), Some(Ended::Gone));
        assert_eq!(ended(&trial, Ending::Stopped), Some(Ended::Interrupted));
        assert_eq!(trial.ended(None), None);
        trial.plan.design.pairs_planned = 1;
        assert_eq!(ended(&trial, Ending::Stopped), Some(Ended::Complete));
        trial.ended = Some(TrialEnd::Early);
        assert_eq!(ended(&trial, Ending::Stopped), Some(Ended::Early));
    }

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
}
