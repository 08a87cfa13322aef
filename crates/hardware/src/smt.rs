//! Contention between SMT siblings, the threads of one physical core.
//!
//! The rule is that of the contention model (crate `numaherd-contention`). `y` is the throughput of
//! two siblings relative to one alone:
//!
//! * *Issue slots*: base cycles take `1 + (2 / y - 1) c` times as long, where `c` is the share of
//!   time that a sibling computes, summed over siblings. A sibling that waits for memory or is idle
//!   takes none.
//! * *Requests in flight*: of the core's `F`, each of `n` threads may have `F / n`, and any that
//!   the others do not use.
//! * *Private caches* are shared by all siblings (`core`).
//!
//! Siblings may be at different points of modelled time, so none knows what another does now. Each
//! reports what it did in its last finished window of time, and the others use that: behaviour that
//! lasts longer than a window is modelled exactly, and a change takes effect a window late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Least length of a window, in picoseconds: 10 us. Chosen here: far less than a time slice, far more than
/// a miss.
pub(crate) const WINDOW_PS: u64 = 10_000_000;

/// A thread's report to its siblings: the share of time that it computed, and the mean number of
/// its requests in flight, as two `f32` in one word.
#[derive(Debug, Default)]
pub(crate) struct Doing(AtomicU64);

impl Doing {
    fn tell(&self, computes: f64, in_flight: f64) {
        let word = |value: f64| u64::from((value as f32).to_bits());
        self.0
            .store(word(computes) << 32 | word(in_flight), Relaxed);
    }

    fn computes(&self) -> f64 {
        f32::from_bits((self.0.load(Relaxed) >> 32) as u32).into()
    }

    fn in_flight(&self) -> f64 {
        f32::from_bits(self.0.load(Relaxed) as u32).into()
    }
}

/// A thread among its siblings.
#[derive(Debug)]
pub(crate) struct Siblings {
    /// Relative growth of a base cycle while one sibling computes: `2 / y - 1`.
    stretch: f64,
    own: Arc<Doing>,
    others: Vec<Arc<Doing>>,
    /// Instructions executed.
    executed: u64,
    /// Fraction of a picosecond still owed to the siblings.
    owed_ps: f64,
    /// The current window: its begin, its time computed, and the sum of its requests' times in flight.
    began_ps: u64,
    computed_ps: u64,
    flown_ps: u64,
}

impl Siblings {
    /// A thread with siblings; it reports in `own` and reads `others`.
    pub(crate) fn new(throughput: f64, own: Arc<Doing>, others: Vec<Arc<Doing>>) -> Self {
        Self {
            stretch: 2.0 / throughput - 1.0,
            own,
            others,
            executed: 0,
            owed_ps: 0.0,
            began_ps: 0,
            computed_ps: 0,
            flown_ps: 0,
        }
    }

    /// Executes up to this many instructions. Returns the time lost to siblings, in picoseconds.
    pub(crate) fn compute(&mut self, instructions: u64, ps_per_instruction: u64) -> u64 {
        let new = instructions.saturating_sub(self.executed);
        if new == 0 {
            return 0;
        }
        self.executed = instructions;
        let base = new * ps_per_instruction;
        let computes: f64 = self.others.iter().map(|other| other.computes()).sum();
        self.owed_ps += base as f64 * self.stretch * computes;
        let yielded = self.owed_ps as u64;
        self.owed_ps -= yielded as f64;
        self.computed_ps += base + yielded;
        yielded
    }

    /// Notes a request that is in flight for `ps` picoseconds.
    pub(crate) fn fly(&mut self, ps: u64) {
        self.flown_ps += ps;
    }

    /// Notes that the thread has come to this time; finishes the window if it is long enough.
    pub(crate) fn reaches(&mut self, now_ps: u64) {
        let length = now_ps.saturating_sub(self.began_ps);
        if length >= WINDOW_PS {
            let part = |ps: u64| ps as f64 / length as f64;
            self.own.tell(part(self.computed_ps), part(self.flown_ps));
            self.open(now_ps);
        }
    }

    /// Reports that the thread is idle.
    pub(crate) fn rests(&mut self) {
        self.own.tell(0.0, 0.0);
    }

    /// Notes that the thread was idle until now, and begins a window.
    pub(crate) fn begins(&mut self, now_ps: u64) {
        self.rests();
        self.open(now_ps);
    }

    fn open(&mut self, now_ps: u64) {
        self.began_ps = now_ps;
        (self.computed_ps, self.flown_ps) = (0, 0);
    }

    /// How many of the core's `in_flight` requests siblings leave to this thread.
    pub(crate) fn leave(&self, in_flight: usize) -> usize {
        let all = in_flight as f64;
        let theirs: f64 = self.others.iter().map(|other| other.in_flight()).sum();
        let even = all / (self.others.len() + 1) as f64;
        ((all - theirs).max(even).round() as usize).max(1)
    }
}
