//! For how much of the machine's load a picture has figures.

use super::Picture;
use super::demands::LEAST_BASE;

/// What a line from memory takes at most, in ns, under load (chosen here; idle, FACTS 7.1 has 50 to 160).
const LONGEST_NS: f64 = 200.0;

/// CPUs that threads of which something is known want together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Covered {
    /// Counted.
    pub counted: f64,
    /// Counted, with their waits for the uncore.
    pub with_uncore: f64,
    /// Of processes of which it is known where their pages are.
    pub resident: f64,
}

impl Picture {
    /// How much CPU is wanted by threads of which something is known.
    pub fn covered(&self) -> Covered {
        let mut covered = Covered::default();
        for load in &self.threads {
            let of = |is_known: bool| if is_known { load.wanted } else { 0.0 };
            covered.counted += of(load.is_counted());
            covered.with_uncore += of(load.is_counted() && load.busy_ns.is_some());
            covered.resident += of(self.processes[load.process]
                .pages
                .iter()
                .any(|&pages| pages > 0));
        }
        covered
    }

    /// The most cores that threads with only their lines counted can lose: what they would lose if they waited for
    /// each line in turn.
    pub fn in_turn_at_most(&self) -> f64 {
        let counted = self.threads.iter().filter(|load| load.is_counted());
        let lost = counted
            .filter(|load| load.busy_ns.is_none())
            .map(|load| load.wanted * (load.lines * LONGEST_NS / load.ns()).min(1.0 - LEAST_BASE));
        lost.sum()
    }

    /// The most cores that threads that were not counted can lose to remote memory: what they would lose if they
    /// did nothing but wait for memory, and used all pages of their process alike.
    pub fn remote_at_most(&self) -> f64 {
        let threads = self.threads.iter().filter(|load| !load.is_counted());
        let lost = threads.map(|load| {
            let Some(seat) = self.seat(load.cpu) else {
                return 0.0;
            };
            // How much farther all of its memory is than memory here, at most of all draws.
            let farther = self.figures.iter().map(|figures| {
                let local = figures.latency_ns(seat.node, seat.node);
                let parts = load.memory.iter();
                let mean: f64 = parts
                    .map(|&(node, share)| share * figures.latency_ns(seat.node, node))
                    .sum();
                mean / local
            });
            load.wanted * (1.0 - 1.0 / farther.fold(1.0, f64::max))
        });
        lost.sum()
    }
}
