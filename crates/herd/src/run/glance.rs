//! Between two intervals: what placed threads have started since gets its own affinity back.
//!
//! Problem: a thread inherits the affinity of the thread that starts it, and a policy decides on it only in the next
//! interval. Until then, all that a program starts once its first thread is placed would run where that one may: eight
//! workers on the two CPUs of a node. Rule: while threads have masks of ours, the world is asked every [`EACH`] which
//! threads were started with such a mask. Heirs among them ([`crate::heirs`]) are given back at once, so that the kernel
//! places them until a policy does. A glance that takes long is followed by a longer wait, in which it takes no more than
//! one part in [`PARTS`] of the time.
//!
//! What a glance misses is found after the interval.

use std::time::Duration;

use super::Running;
use crate::heirs;

/// Time between two glances (chosen here: a program that has just started a thread has hardly begun).
pub(super) const EACH: Duration = Duration::from_millis(20);
/// The share of the time that they may take (chosen here).
const PARTS: u32 = 50;

impl Running<'_> {
    /// After how long the next one comes; `None` while nobody can inherit anything.
    pub(super) fn until_glance(&self) -> Option<Duration> {
        let holdings = self.governor.holdings();
        let decides = self.paused.is_none() && !self.settings.dry_run;
        let may_have_heirs = holdings.are_masks() && holdings.iter().next().is_some();
        (decides && may_have_heirs && self.world.sees_starts()).then_some(self.next_glance)
    }

    /// Gives heirs back; returns how long that took.
    pub(super) fn glance(&mut self) -> Duration {
        let begun = self.world.now();
        self.free_heirs();
        let took = self.world.now().saturating_sub(begun);
        self.next_glance = EACH.max(took * PARTS);
        took
    }

    fn free_heirs(&mut self) {
        let Some(snapshot) = self.last.clone() else {
            return;
        };
        let donors = self.governor.holdings().donors();
        let (masks, since) = (heirs::masks(&donors), heirs::since(&donors));
        let bound = self.world.started_with(&masks, since);
        let found = self.heirs(&donors, bound);
        if found.is_empty() {
            return;
        }
        let governed = self.governor.free(found);
        self.give_back(&snapshot, governed);
        self.record.flush();
    }
}
