//! Paging in the loop, at its own cadence, where the pager is in step with the world's time.
//!
//! A modelled world computes instead of waiting: a separate thread would see it at times that no seed
//! decides. So the placement's interval is cut into steps. While the policy listens or orders wait for
//! bandwidth, a step is one paging cadence, the last one cut so that the interval is exact; while
//! looking is useless, one step is the whole rest. Samples and notices cover only the time in which
//! the policy listens.

use std::time::Duration;

use numaherd_world::{Pager, Progress, World, WorldError};

use super::{News, Observed, PagingChange, PagingHalf, Placed};

/// The paging half and a pager in step.
pub(crate) struct PagingInStep {
    half: PagingHalf,
    pager: Box<dyn Pager>,
    cadence: Duration,
}

/// Samples are no longer available.
pub(crate) struct Failed {
    pub(crate) error: WorldError,
    /// What is left of the interval.
    pub(crate) left: Duration,
}

impl PagingInStep {
    pub(crate) fn new(half: PagingHalf, pager: Box<dyn Pager>, cadence: Duration) -> Self {
        Self {
            half,
            pager,
            cadence,
        }
    }

    /// Lets the world run for an interval, and looks after pages meanwhile; `say` gets each round
    /// worth recording, as it happens.
    pub(crate) fn run_for(
        &mut self,
        world: &mut dyn World,
        interval: Duration,
        mut say: impl FnMut(News),
    ) -> Result<Progress, Failed> {
        let mut left = interval;
        while !left.is_zero() {
            let listens = self.half.listens();
            let step = if listens || self.half.has_waiting() {
                left.min(self.cadence)
            } else {
                left
            };
            let progress = if listens {
                self.pager.run_for(step)
            } else {
                world.run_for(step)
            };
            match progress {
                Progress::Ran => left -= step,
                Progress::Ended => return Ok(Progress::Ended),
                Progress::Woken { left: rest } => {
                    let left = left - step.saturating_sub(rest);
                    return Ok(Progress::Woken { left });
                }
            }
            let seen = if listens {
                let samples = self.pager.samples();
                Observed {
                    samples: samples.map_err(|error| Failed { error, left })?,
                    notices: self.pager.notices(),
                }
            } else {
                Observed::default()
            };
            let pager = &mut self.pager;
            let round = self
                .half
                .round(step, [], &seen, |orders| pager.apply(orders));
            round.into_iter().for_each(&mut say);
        }
        self.half.shared().into_iter().for_each(say);
        Ok(Progress::Ran)
    }

    /// Makes a change.
    pub(crate) fn change(&mut self, change: PagingChange) -> Option<News> {
        self.cadence = change.settings.paging_interval();
        self.half.change(change)
    }

    /// Tells the paging what is placed, and has what it then wants carried out.
    pub(crate) fn tell(&mut self, told: Placed) -> Option<News> {
        let pager = &mut self.pager;
        let nothing = Observed::default();
        self.half.round(Duration::ZERO, [told], &nothing, |orders| {
            pager.apply(orders)
        })
    }
}
