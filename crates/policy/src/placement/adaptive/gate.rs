//! Whether a search is worth its time, and whether what it finds gains enough.

use numaherd_world::ProcessId;

use super::credit::Credit;
use crate::estimate::Lost;
use crate::losses::Withheld;

/// After so many ns, the search is repeated even if as much is lost as when nothing was found.
const SEARCHED_AGAIN: u64 = 10_000_000_000;

/// A search that found nothing to gain.
pub(super) struct Fruitless {
    /// What was lost then, in cores.
    pub(super) lost: f64,
    /// When it was, in ns.
    pub(super) since_ns: u64,
    /// The processes that lacked credit for the best layout, each with its cost in ns.
    pub(super) awaits: Vec<(ProcessId, f64)>,
    /// What kept the policy from acting.
    pub(super) why: Withheld,
}

impl Fruitless {
    /// Whether another search would find as little: this one was not long ago, the loss has since changed by less than
    /// must be gained, and the credit that was lacking still is.
    pub(super) fn is_as_before(&self, lost: f64, least: f64, now_ns: u64, credit: &Credit) -> bool {
        let is_recent = now_ns.saturating_sub(self.since_ns) < SEARCHED_AGAIN;
        let is_paid = !self.awaits.is_empty() && credit.pays(&self.awaits);
        (self.lost - lost).abs() < least && is_recent && !is_paid
    }
}

/// What is lost now by each draw, and what must be gained, in cores.
pub(super) struct Gate {
    pub(super) lost: Lost,
    pub(super) least: f64,
}

impl Gate {
    /// Cores that are gained if `then` are lost afterwards: the mean over all draws.
    pub(super) fn gain(&self, then: &Lost) -> f64 {
        mean(&self.lost) - mean(then)
    }

    /// Why it is shut: too little is gained, or a draw loses more than a quarter of what must be gained. `None` if it is
    /// open.
    pub(super) fn shut(&self, then: &Lost) -> Option<Withheld> {
        if self.gain(then) < self.least {
            return Some(Withheld::Little);
        }
        let mut draws = self.lost.iter().zip(then);
        let loses = draws.any(|(lost, then)| then - lost > self.least / 4.0);
        loses.then_some(Withheld::Unsure)
    }
}

/// Lost cores on average over all draws.
pub(super) fn mean(lost: &Lost) -> f64 {
    lost.iter().sum::<f64>() / lost.len() as f64
}
