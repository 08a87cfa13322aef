//! What SMT siblings, the threads of one core, take from each other.
//!
//! The rule is that of the contention model (crate `numaherd-contention`), with `y` the throughput of
//! two siblings in what one does alone:
//!
//! * *Issue slots*: base cycles take `1 + (2 / y - 1) c` times as long, where `c` is the share of its
//!   time that the sibling computes, summed over siblings. A sibling that waits for memory or has
//!   nothing to do takes none.
//! * *Requests in flight*: of the core's `F`, each of `n` threads may have `F / n`, and all that the
//!   others leave.
//! * *Private caches* are one for all siblings (`core`).
//!
//! Siblings may be at different points of modelled time, so neither knows what the other does now.
//! Each tells what it did in its last finished window of time, and the others go by that: what holds
//! for longer than a window is exact, and a change is felt a window late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Least length of a window, in picoseconds: 10 us. Chosen here: far less than a time slice, far more than
/// a miss.
pub(crate) const WINDOW_PS: u64 = 10_000_000;

/// What a thread tells its siblings: the share of its time that it computed, and the mean number of
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
    /// By how much of itself a base cycle grows while one sibling computes: `2 / y - 1`.
    stretch: f64,
    own: Arc<Doing>,
    others: Vec<Arc<Doing>>,
    /// Instructions executed.
    executed: u64,
    /// Time owed to the siblings that is not yet a picosecond.
    owed_ps: f64,
    /// The window that is not finished: its begin, time computed and time of flights in it.
    began_ps: u64,
    computed_ps: u64,
    flown_ps: u64,
}

impl Siblings {
    /// A thread that computes with `others`; each tells what it does in its own [`Doing`].
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

    /// Executes up to this many instructions. Returns the time that siblings take of it, in
    /// picoseconds.
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

    /// Takes note of a request that is in flight for so long.
    pub(crate) fn fly(&mut self, ps: u64) {
        self.flown_ps += ps;
    }

    /// Has come to this time: finishes the window if it is long enough.
    pub(crate) fn reaches(&mut self, now_ps: u64) {
        let length = now_ps.saturating_sub(self.began_ps);
        if length >= WINDOW_PS {
            let part = |ps: u64| ps as f64 / length as f64;
            self.own.tell(part(self.computed_ps), part(self.flown_ps));
            self.open(now_ps);
        }
    }

    /// Has nothing to do.
    pub(crate) fn rests(&mut self) {
        self.own.tell(0.0, 0.0);
    }

    /// Has done nothing until now, and begins.
    pub(crate) fn begins(&mut self, now_ps: u64) {
        self.rests();
        self.open(now_ps);
    }

    fn open(&mut self, now_ps: u64) {
        self.began_ps = now_ps;
        (self.computed_ps, self.flown_ps) = (0, 0);
    }

    /// Of this many requests in flight, those that siblings leave.
    pub(crate) fn leave(&self, in_flight: usize) -> usize {
        let all = in_flight as f64;
        let theirs: f64 = self.others.iter().map(|other| other.in_flight()).sum();
        let even = all / (self.others.len() + 1) as f64;
        ((all - theirs).max(even).round() as usize).max(1)
    }
}
