//! Lost cores, summed over the time in which they were known, by what they are estimated from.

use std::collections::BTreeMap;

use numaherd_policy::losses::{Basis, Estimate, Losses, Parts, Range, Unknown};
use serde::Serialize;

/// Lost cores, summed over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LostTime {
    /// Seconds over which it is summed.
    pub seconds: f64,
    /// CPU seconds that the judged threads wanted in them.
    pub wanted: f64,
    /// CPU seconds lost.
    pub lost: Range,
    /// CPU seconds by what they are lost to, as far as that is known.
    pub parts: Parts,
    /// CPU seconds wanted while it was known what could be had.
    pub searched: f64,
    /// CPU seconds that another placement would have given back in them.
    pub recoverable: Range,
}

/// The same by what it is estimated from.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostTimes {
    pub(crate) by_basis: BTreeMap<Basis, LostTime>,
    /// Why nothing was known, when last so.
    pub(crate) unknown: Option<Unknown>,
}

impl LostTimes {
    /// Adds what was lost in so many seconds.
    pub(crate) fn add(&mut self, losses: &Losses, seconds: f64) {
        let known = match &losses.estimate {
            Estimate::Idle => return,
            Estimate::Unknown(unknown) => {
                self.unknown = Some(*unknown);
                return;
            }
            Estimate::Known(known) => known,
        };
        let sums = self.by_basis.entry(known.from).or_default();
        sums.seconds += seconds;
        sums.wanted += losses.judged * seconds;
        sums.lost.add(&known.lost, seconds);
        sums.parts = (sums.parts).plus(known.parts.unwrap_or_default().times(seconds));
        if let Some(recoverable) = &known.recoverable {
            sums.searched += losses.judged * seconds;
            sums.recoverable.add(recoverable, seconds);
        }
    }
}

impl LostTime {
    /// The share of what was wanted that could be had, by what is likely.
    pub(crate) fn could_be_had(&self) -> Option<f64> {
        let had = self.recoverable.mean.filter(|_| self.searched > 0.0)?;
        Some(had / self.searched)
    }
}

/// What was known for most of the time.
pub(crate) fn main(lost: &BTreeMap<Basis, LostTime>) -> Option<(Basis, &LostTime)> {
    let known = lost.iter().filter(|(_, lost)| lost.wanted > 0.0);
    let (basis, lost) = known.max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds))?;
    Some((*basis, lost))
}
