//! What counters show of how many of a process's lines are local.

use std::collections::HashMap;

use numaherd_world::{ProcessId, Snapshot};

/// Sampling does not rest where a smaller share of a process's counted lines is local (chosen here).
const NEAR: f64 = 0.75;
/// After so many ns, half of the lines that were counted still count (chosen here).
const COUNTED_HALVES_NS: f64 = 5e9;

/// Lines from memory that were recently counted for a process, and how many of them were local.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    local: f64,
    all: f64,
}

impl Counted {
    /// Takes in an interval of all processes. Returns those with less than three quarters of their lines in it
    /// local.
    pub(super) fn take(
        counted: &mut HashMap<ProcessId, Self>,
        snapshot: &Snapshot,
    ) -> Vec<ProcessId> {
        let mut now: HashMap<ProcessId, Self> = HashMap::new();
        let kept = 0.5f64.powf(snapshot.interval_ns as f64 / COUNTED_HALVES_NS);
        counted.retain(|_, counted| {
            *counted = Self {
                local: counted.local * kept,
                all: counted.all * kept,
            };
            counted.all >= 1.0
        });
        for thread in &snapshot.threads {
            let lines = (thread.counts).and_then(|counts| Some((counts.local?, counts.remote?)));
            if let Some((local, remote)) = lines.filter(|&(local, remote)| local > 0 || remote > 0)
            {
                for counted in [
                    counted.entry(thread.process).or_default(),
                    now.entry(thread.process).or_default(),
                ] {
                    counted.local += local as f64;
                    counted.all += local as f64 + remote as f64;
                }
            }
        }
        let far = now.iter().filter(|(_, counted)| counted.share() < NEAR);
        far.map(|(&process, _)| process).collect()
    }

    /// The share that was local.
    pub(super) fn share(self) -> f64 {
        self.local / self.all
    }
}
