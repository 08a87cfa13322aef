//! What cores are lost to: one cause after the other is taken away, and the equations say each time by how much less
//! is lost. If two causes need each other, the order decides for which of them a core counts.

use numaherd_contention::Factors;
use serde::{Deserialize, Serialize};

use super::{Memory, Picture, SEARCHED};

/// What is taken away to see what it costs: each with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Without {
    Nothing,
    /// Lines do not wait at controllers.
    Waits,
    /// All memory is local, and no line comes out of another domain's cache.
    Remote,
    /// Each thread has the last-level cache to itself.
    Sharing,
}

impl Without {
    pub(super) fn factors(self) -> Factors {
        Factors {
            cache: self < Self::Sharing,
            controllers: self < Self::Waits,
            links: self < Self::Waits,
        }
    }
}

/// Lost cores by what they are lost to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// To waits at memory controllers.
    pub controllers: f64,
    /// To the distance of remote memory, and of caches in other domains that threads of the same process write to.
    pub remote: f64,
    /// To neighbours in last-level caches.
    pub caches: f64,
    /// To waits for CPUs, and to siblings on one core.
    pub cpus: f64,
}

impl Parts {
    /// Each of them so many times.
    pub fn times(self, times: f64) -> Self {
        Self {
            controllers: self.controllers * times,
            remote: self.remote * times,
            caches: self.caches * times,
            cpus: self.cpus * times,
        }
    }

    /// The sum of each.
    pub fn plus(self, other: Self) -> Self {
        Self {
            controllers: self.controllers + other.controllers,
            remote: self.remote + other.remote,
            caches: self.caches + other.caches,
            cpus: self.cpus + other.cpus,
        }
    }

    /// All together.
    pub fn sum(self) -> f64 {
        self.controllers + self.remote + self.caches + self.cpus
    }
}

impl Picture {
    /// What cores are lost to where the threads are: how much the loss falls when waits at controllers are taken
    /// away, then distances too, then neighbours in caches too; the mean over the draws that a search uses.
    pub fn parts_now(&self) -> Parts {
        let (cpus, stays) = (self.now(), vec![Memory::default(); self.processes.len()]);
        let parts = (0..SEARCHED).map(|draw| {
            let without = [Without::Waits, Without::Remote, Without::Sharing];
            let left = without.map(|without| self.solve_without(draw, &cpus, &stays, without).lost);
            Parts {
                controllers: (self.lost_now[draw] - left[0]).max(0.0),
                remote: (left[0] - left[1]).max(0.0),
                caches: (left[1] - left[2]).max(0.0),
                cpus: left[2].max(0.0),
            }
        });
        let sum = parts.fold(Parts::default(), Parts::plus);
        sum.times(1.0 / SEARCHED as f64)
    }
}
