//! Lost cores, summed over the time in which they were known, by the basis of the estimate.

use std::collections::BTreeMap;

use numaherd_policy::losses::{Basis, Estimate, Losses, Parts, Range, Unknown};
use serde::Serialize;

/// Lost cores, summed over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LostTime {
    /// Seconds over which the sums run.
    pub seconds: f64,
    /// CPU seconds that the judged threads wanted in that time.
    pub wanted: f64,
    /// CPU seconds lost.
    pub lost: Range,
    /// CPU seconds lost, by cause, as far as that is known.
    pub parts: Parts,
    /// CPU seconds wanted in the time for which a search had a result.
    pub searched: f64,
    /// CPU seconds that another placement would have given back in that time.
    pub recoverable: Range,
}

/// The same by the basis of the estimate.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostTimes {
    pub(crate) by_basis: BTreeMap<Basis, LostTime>,
    /// Why nothing was known, the last time that this was so.
    pub(crate) unknown: Option<Unknown>,
}

impl LostTimes {
    /// Adds what was lost in `seconds`.
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
    /// The share of the wanted CPU time that another placement would have given back, by the mean.
    pub(crate) fn recoverable_share(&self) -> Option<f64> {
        let had = self.recoverable.mean.filter(|_| self.searched > 0.0)?;
        Some(had / self.searched)
    }
}

/// The basis that was known for most of the time, with its sums.
pub(crate) fn main(lost: &BTreeMap<Basis, LostTime>) -> Option<(Basis, &LostTime)> {
    let known = lost.iter().filter(|(_, lost)| lost.wanted > 0.0);
    let (basis, lost) = known.max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds))?;
    Some((*basis, lost))
}
