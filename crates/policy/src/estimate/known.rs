//! What is known of a thread over time: what it wanted, and how many lines it read with how much cache.

use numaherd_topology::CpuId;

/// After so many ns half of what a thread wanted at its busiest counts (chosen here).
const PEAK_HALVES_NS: f64 = 5e9;
/// Shares of a cache that are fewer doublings apart are one (chosen here).
const NEARLY: f64 = 0.25;

/// What is known of a thread over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// When it was first seen, in ns.
    pub(super) since_ns: Option<u64>,
    /// Bytes of cache that it had, ascending, and the lines per 1000 instructions with so much.
    pub(super) lines: Vec<(f64, f64)>,
    /// The CPU that it was on.
    pub(super) cpu: Option<CpuId>,
    /// The share of a CPU that it wanted at its busiest of late.
    pub(super) peak: f64,
    /// Where its lines came from when it last stayed on a node: nodes (places) and shares.
    pub(super) memory: Vec<(usize, f64)>,
}

impl Known {
    /// Takes in where the lines of a thread came from, or gives what was known if it is on another node than it was, as
    /// `stayed` says: which of its lines were local when is not known then.
    pub(super) fn reads(&mut self, memory: &mut Vec<(usize, f64)>, stayed: bool) {
        match stayed || self.memory.is_empty() {
            true => self.memory.clone_from(memory),
            false => memory.clone_from(&self.memory),
        }
    }

    /// Takes in what a thread wants in an interval. Threads that wait for each other want little now and all in a
    /// moment: what one wanted is forgotten by and by.
    pub(super) fn wants(&mut self, wanted: f64, interval_ns: u64) {
        let kept = 0.5f64.powf(interval_ns as f64 / PEAK_HALVES_NS);
        self.peak = (self.peak * kept).max(wanted);
    }
}

/// Takes in the lines with so many bytes of cache, in place of those that were seen with nearly as many.
pub(super) fn sees(seen: &mut Vec<(f64, f64)>, held: f64, lines: f64) {
    let held = held.max(1.0);
    seen.retain(|&(bytes, _)| (bytes / held).log2().abs() > NEARLY);
    seen.push((held, lines));
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
}
