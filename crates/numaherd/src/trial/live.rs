//! What a trial shows while it runs: a line per pair and, on a terminal, the current step below it.

use std::time::Duration;

use numaherd_herd::ledger::{Design, Pair, Side, TrialPlan};
use numaherd_quantity::{nanoseconds, time};
use numaherd_show::trial::{Verdict, about};

use super::conduct::Event;

/// Begins the line anew.
const ANEW: &str = "\r\x1b[2K";

/// What is shown.
pub struct Live<'t> {
    plan: &'t TrialPlan,
    on_terminal: bool,
    pairs: usize,
}

impl<'t> Live<'t> {
    /// The display of a trial that begins.
    pub fn new(plan: &'t TrialPlan, on_terminal: bool) -> Self {
        Self {
            plan,
            on_terminal,
            pairs: 0,
        }
    }

    /// What to write.
    pub fn event(&mut self, event: Event<'_>) -> String {
        let design = &self.plan.design;
        let anew = if self.on_terminal { ANEW } else { "" };
        let (side, what, length) = match event {
            Event::Pair(pairs) => {
                self.pairs = pairs.len();
                return format!("{anew}{}\n", pair_line(pairs, design));
            }
            _ if !self.on_terminal => return String::new(),
            Event::Dropping(side) => (side, "settles", design.washout()),
            Event::Measuring(side) => (side, "is measured", design.measured()),
        };
        let name = match side {
            Side::Policy => &self.plan.policy,
            Side::Against => &self.plan.against,
        };
        let shown = |length: Duration| time(nanoseconds(length));
        let left = design.block().as_secs_f64() * 2.0 * (design.pairs_planned - self.pairs) as f64;
        format!(
            "{anew}pair {} of {}: {name} {what} for {}; at most {} left, Ctrl-C ends it",
            self.pairs + 1,
            design.pairs_planned,
            shown(length),
            about(left)
        )
    }

    /// What to write when it is over.
    pub fn over(&self) -> &'static str {
        if self.on_terminal { ANEW } else { "" }
    }
}

/// The latest pair, and the result so far: `pair 7 of 30: +3.1 %; so far +2.4 % +- 3.0`.
fn pair_line(pairs: &[Pair], design: &Design) -> String {
    let latest = pairs.last().map_or(0.0, |pair| pair.gain() * 100.0);
    let so_far = Verdict::of(pairs, design);
    let so_far = so_far.map_or_else(String::new, |so_far| format!("; so far {}", so_far.words()));
    format!(
        "pair {} of {}: {latest:+.1} %{so_far}",
        pairs.len(),
        design.pairs_planned
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_there_is_a_line_per_pair_and_nothing_else() {
        let plan = TrialPlan {
            policy: "dino".to_owned(),
            against: "linux".to_owned(),
            counter: "requests".to_owned(),
            is_named: true,
            design: Design {
                block_ns: 10_000_000_000,
                washout_ns: 3_000_000_000,
                pairs_planned: 30,
                seed: 1,
                stop_early: false,
            },
        };
        let pair = Pair {
            first: Side::Policy,
            policy: 110.0,
            against: 100.0,
        };
        let mut quiet = Live::new(&plan, false);
        assert_eq!(quiet.event(Event::Dropping(Side::Policy)), "");
        assert_eq!(quiet.event(Event::Pair(&[pair])), "pair 1 of 30: +10.0 %\n");
        let mut live = Live::new(&plan, true);
        let settles = live.event(Event::Dropping(Side::Against));
        assert!(settles.ends_with(
            "pair 1 of 30: linux settles for 3 s; at most 10 minutes left, Ctrl-C ends it"
        ));
    }
}
