//! When the policy looks again: soon after many threads became busy, then less and less often.
//!
//! Hardly anything has been counted of threads that are busy for the first time, unless that look was late, and nothing at
//! all of threads that a running process has just made. So nothing shows what they lose. Both are *new*. While half of the
//! busy threads are new, nothing is decided, and the next look comes soon.

use std::collections::BTreeSet;
use std::time::Duration;

use numaherd_world::ProcessId;

use crate::estimate::{Basis, Load, Picture};
use crate::memory::PerThread;
use crate::stage::Stage;

/// The very first look: nothing is counted of a thread before it has been seen once.
const TO_ATTACH: Duration = Duration::from_millis(1);
/// The next look, and one after many threads became busy.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// A thread is not new if so much of its CPU time was counted when it is first seen busy (chosen here: half more than what
/// [`FIRST_LOOK`] gives; giving counters to many threads delays a look by as much again).
const WELL_COUNTED: Duration = Duration::from_millis(75);
/// How often the time between looks doubles; the loop's own cadence ends it long before.
const MOST_DOUBLED: u32 = 16;

/// How well a thread is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Acquaintance {
    /// It was not in an earlier snapshot.
    #[default]
    New,
    Seen,
    /// It has been busy.
    Busy,
}

/// The looks since many threads became busy.
pub(super) struct Looks {
    /// How many there were, including those that were skipped.
    since: u32,
    threads: PerThread<Acquaintance>,
    /// After how long the next one comes.
    pub(super) next: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            since: 0,
            threads: PerThread::default(),
            next: TO_ATTACH,
        }
    }
}

impl Looks {
    /// Takes in a look.
    pub(super) fn take(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let threads = self.threads.line_up(&stage.snapshot.threads);
        let mut new = 0;
        for load in &picture.threads {
            let before = std::mem::replace(&mut threads[load.at], Acquaintance::Busy);
            let is_known = match before {
                Acquaintance::New => false,
                Acquaintance::Seen => counted(stage, load) >= WELL_COUNTED,
                Acquaintance::Busy => true,
            };
            new += usize::from(!is_known);
        }
        let run: BTreeSet<ProcessId> = picture.processes.iter().map(|owner| owner.id).collect();
        let mut all = picture.threads.len();
        for (known, thread) in threads.iter_mut().zip(&stage.snapshot.threads) {
            if *known == Acquaintance::New {
                *known = Acquaintance::Seen;
                let is_made = usize::from(run.contains(&thread.process));
                (new, all) = (new + is_made, all + is_made);
            }
        }
        let since = match new > 0 && new * 2 >= all {
            true => 0,
            false => self.since.saturating_add(1),
        };
        self.come_after(since);
    }

    /// Whether half of the busy threads are new.
    pub(super) fn are_new(&self) -> bool {
        self.since == 0
    }

    /// Skips the next look where counts show that nothing is to be gained: a look takes CPU time that threads may want.
    pub(super) fn spare(&mut self, picture: &Picture) {
        if picture.from != Basis::Residency && !self.are_new() {
            self.come_after(self.since.saturating_add(1));
        }
    }

    fn come_after(&mut self, looks: u32) {
        self.since = looks;
        self.next = FIRST_LOOK * 2u32.pow(looks.min(MOST_DOUBLED));
    }
}

/// The CPU time of a thread while its counters ran.
fn counted(stage: &Stage<'_>, load: &Load) -> Duration {
    let thread = stage.thread(load.at);
    let share = (thread.counts.as_ref()).map_or(0.0, |counts| counts.counted_share);
    Duration::from_nanos(stage.snapshot.interval_ns).mul_f64(thread.cpu_share * share)
}
