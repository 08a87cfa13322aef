//! What is known of a thread over time: what it wanted, and how many lines it read with how much cache.

use numaherd_topology::CpuId;

use super::threads::{APART, Load, are_one_phase, share_of};

/// After so many ns, half of what a thread wanted at its busiest still counts (chosen here).
const PEAK_HALVES_NS: f64 = 5e9;
/// A thread that wants less of a CPU than this in an interval slept through it (chosen here).
const SLEEPS: f64 = 0.01;
/// If a thread has run for less than this in all, in ns, what it wanted no longer counts once it sleeps (chosen here).
const HABIT_NS: f64 = 1e8;
/// Shares of a cache that are at most so many doublings apart count as one (chosen here).
const NEARLY: f64 = 0.25;

/// What is known of a thread over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// When it was first seen, in ns.
    pub(super) since_ns: Option<u64>,
    /// What it read with how much cache, the least cache first.
    seen: Vec<Seen>,
    /// The CPU that it was on.
    pub(super) cpu: Option<CpuId>,
    /// The share of a CPU that it wanted at its busiest of late.
    pub(super) peak: f64,
    /// For how many ns it has wanted a CPU in all.
    wanted_ns: f64,
    /// Where its lines came from when it last stayed on a node: nodes (places) and shares.
    pub(super) memory: Vec<(usize, f64)>,
    /// That node (place).
    read_on: Option<usize>,
    /// Requests per 1000 instructions for lines of its process's other threads, when it was last seen to make them; and all
    /// requests that it made then.
    pub(super) shared: Option<(f64, f64)>,
}

/// What a thread read with a share of a cache.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Bytes of the cache.
    held: f64,
    /// Lines from memory per 1000 instructions.
    lines: f64,
    /// Requests to the cache per 1000 instructions, if they were counted.
    requests: Option<f64>,
}

/// Whether shares of a cache, in bytes, count as one.
pub(super) fn is_near(one: f64, other: f64) -> bool {
    (one / other).log2().abs() <= NEARLY
}

impl Known {
    /// Bytes of cache that a thread had, ascending, and the lines per 1000 instructions with so much, while it did what it does
    /// now. This interval is among them. It is remembered only if the thread stayed on its CPU: an interval in which it
    /// moved belongs to no one share.
    pub(super) fn sees(&mut self, load: &Load, stayed: bool) -> Vec<(f64, f64)> {
        let mut seen = self.seen.clone();
        if load.is_counted() {
            let now = Seen {
                held: load.held.max(1.0),
                lines: load.lines,
                requests: load.requests,
            };
            seen.retain(|seen| !is_near(seen.held, now.held));
            seen.push(now);
            seen.sort_by(|a, b| a.held.total_cmp(&b.held));
        }
        if stayed {
            self.seen.clone_from(&seen);
        }
        let does_so_now = |seen: &&Seen| are_one_phase(seen.requests, load.requests);
        let alike = seen.iter().filter(does_so_now);
        alike.map(|seen| (seen.held, seen.lines)).collect()
    }

    /// Takes in where the lines of a thread on `node` (place) came from, or replaces that by what was known:
    /// * if it has come from another node (not `stayed`): which of its lines were local, and when, is not known then;
    /// * while as many lines are local as what was known says. Only that is counted; from which other nodes the rest comes
    ///   was known best while the thread was there.
    pub(super) fn reads(
        &mut self,
        memory: &mut Vec<(usize, f64)>,
        node: Option<usize>,
        stayed: bool,
    ) {
        let [counted, known] = [&*memory, &self.memory].map(|memory| share_of(memory, node));
        let is_as_known = node != self.read_on && (counted - known).abs() <= APART;
        match self.memory.is_empty() || (stayed && !is_as_known) {
            true => {
                self.memory.clone_from(memory);
                self.read_on = node;
            }
            false => memory.clone_from(&self.memory),
        }
    }

    /// Takes in what a thread wants in an interval. Threads that wait for each other want little now and much a moment
    /// later, so what one wanted is forgotten gradually; but at once if it has hardly run, like a thread that only starts
    /// others.
    pub(super) fn wants(&mut self, wanted: f64, interval_ns: u64) {
        self.wanted_ns += wanted * interval_ns as f64;
        let kept = match wanted < SLEEPS && self.wanted_ns < HABIT_NS {
            true => 0.0,
            false => 0.5f64.powf(interval_ns as f64 / PEAK_HALVES_NS),
        };
        self.peak = (self.peak * kept).max(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::placement::adaptive::tests::{program, scene};
    use crate::stage::Stage;

    #[test]
    fn a_thread_that_hardly_ran_needs_no_room_once_it_sleeps() {
        let room_after = |ran_ms: u64| {
            let mut known = Known::default();
            known.wants(1.0, ran_ms * 1_000_000);
            known.wants(0.0, 100_000_000);
            known.peak
        };
        assert_eq!(room_after(99), 0.0);
        assert!(room_after(100) > 0.98);
    }

    #[test]
    fn what_a_thread_read_in_another_phase_says_nothing_of_this_one() {
        let mut scene = scene();
        program(&mut scene, 1, 0, 10.0, 0);
        let picture =
            Estimator::default().observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        let load = |held: f64, lines: f64, requests: f64| Load {
            held,
            lines,
            requests: Some(requests),
            ..picture.threads[0].clone()
        };
        let mut known = Known::default();
        assert_eq!(known.sees(&load(1e6, 8.0, 10.0), true), [(1e6, 8.0)]);
        assert_eq!(known.sees(&load(4e6, 1.0, 20.0), true), [(4e6, 1.0)]);
        // Back in the first phase, and with another share of the cache.
        let both = [(1e6, 8.0), (2e6, 5.0)];
        assert_eq!(known.sees(&load(2e6, 5.0, 10.5), true), both);
        // An interval in which it moved is not kept.
        known.sees(&load(8e6, 0.5, 10.0), false);
        assert_eq!(known.sees(&load(2e6, 5.0, 10.5), true), both);
    }
}
