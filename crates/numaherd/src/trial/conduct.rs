//! How a trial runs: which side when, what counts, and the result. Pure: the machine, its clock included, is a parameter.
//!
//! Two blocks, one for each side, are a pair; which comes first is drawn for each pair. The beginning of every block
//! does not count, whether or not the side has changed, because what the former side left behind (cold caches, pages
//! on their way, a policy that has yet to decide) belongs to neither. The figure of a pair is the logarithm of the
//! ratio of the two rates of progress.
//!
//! What this removes: a change over time, slow or in phases, is as often for a side as against it, because a coin
//! decides which of two neighbouring blocks a side gets. The switch itself undoes the former side's placement of
//! threads. What it cannot remove: effects that outlast the dropped part of a block, such as pages that stay where a
//! policy moved them. They make the sides more alike.

use std::time::Duration;

use numaherd_herd::ledger::{Design, Pair, Side, TrialEnd};
use numaherd_policy::Random;
use numaherd_show::trial::Verdict;
use rand::{Rng, SeedableRng};

/// The counter of progress as it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// When it was read.
    pub at: Duration,
    /// Its value.
    pub value: f64,
}

/// Why a trial ends before its last pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Someone ended it, or what is measured has ended.
    Stopped,
    /// It cannot go on: a sentence with the reason.
    Failed(String),
}

/// The machine on which a trial runs.
pub trait Machine {
    /// The time.
    fn now(&self) -> Duration;
    /// Waits until then.
    ///
    /// # Errors
    /// It was stopped meanwhile.
    fn wait_until(&mut self, at: Duration) -> Result<(), Halt>;
    /// Lets this side place threads from now on.
    ///
    /// # Errors
    /// The switch was refused, or the run has ended.
    fn switch(&mut self, to: Side) -> Result<(), Halt>;
    /// Reads the counter of progress.
    ///
    /// # Errors
    /// It cannot be read.
    fn progress(&mut self) -> Result<Reading, Halt>;
}

/// An event of a trial, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A block has begun, but does not count yet.
    Dropping(Side),
    /// From now on it counts.
    Measuring(Side),
    /// A pair is complete; all pairs so far.
    Pair(&'a [Pair]),
}

impl Halt {
    /// How a trial ends that is halted in this way.
    pub fn into_end(self) -> Option<TrialEnd> {
        match self {
            Self::Stopped => None,
            Self::Failed(why) => Some(TrialEnd::Failed(why)),
        }
    }
}

/// Conducts a trial. Returns the complete pairs, and why it ended by itself before the last pair, where it did.
pub fn conduct(
    design: &Design,
    machine: &mut impl Machine,
    mut happens: impl FnMut(Event<'_>),
) -> (Vec<Pair>, Option<TrialEnd>) {
    let mut random = Random::seed_from_u64(design.seed);
    let mut pairs = Vec::with_capacity(design.pairs_planned);
    let mut last = None;
    while pairs.len() < design.pairs_planned {
        let sides = match random.random() {
            true => [Side::Policy, Side::Against],
            false => [Side::Against, Side::Policy],
        };
        match pair(design, sides, machine, &mut last, &mut happens) {
            Ok(pair) => pairs.push(pair),
            Err(halt) => return (pairs, halt.into_end()),
        }
        happens(Event::Pair(&pairs));
        let is_shown = || Verdict::of(&pairs, design).is_some_and(|verdict| verdict.is_shown());
        if design.stop_early && pairs.len() < design.pairs_planned && is_shown() {
            return (pairs, Some(TrialEnd::Early));
        }
    }
    (pairs, None)
}

fn pair(
    design: &Design,
    sides: [Side; 2],
    machine: &mut impl Machine,
    last: &mut Option<Reading>,
    happens: &mut impl FnMut(Event<'_>),
) -> Result<Pair, Halt> {
    let mut rates = [0.0; 2];
    for (side, rate) in sides.into_iter().zip(&mut rates) {
        let begun = machine.now();
        machine.switch(side)?;
        happens(Event::Dropping(side));
        machine.wait_until(begun + design.washout())?;
        let from = read(machine, last)?;
        happens(Event::Measuring(side));
        machine.wait_until(begun + design.block())?;
        let to = read(machine, last)?;
        *rate = (to.value - from.value) / to.at.saturating_sub(from.at).as_secs_f64();
        if to.at <= from.at || *rate <= 0.0 {
            return Err(Halt::Failed(format!(
                "there was no progress in {:.1} s, the counter stayed at {}; a trial needs a counter that rises in \
                 every block: take longer blocks (--block), or another counter",
                design.measured().as_secs_f64(),
                to.value
            )));
        }
    }
    let [policy, against] = match sides[0] {
        Side::Policy => rates,
        Side::Against => [rates[1], rates[0]],
    };
    let first = sides[0];
    Ok(Pair {
        first,
        policy,
        against,
    })
}

/// Reads the counter, which only rises.
fn read(machine: &mut impl Machine, last: &mut Option<Reading>) -> Result<Reading, Halt> {
    let reading = machine.progress()?;
    if let Some(before) = last.replace(reading)
        && reading.value < before.value
    {
        return Err(Halt::Failed(format!(
            "the counter of progress fell from {} to {}: a trial needs one that only rises (was the program started \
             again?)",
            before.value, reading.value
        )));
    }
    Ok(reading)
}

#[cfg(test)]
mod tests;
