//! A memory controller or one direction of a link: a channel with a limited number of lines a second.
//!
//! Cores reach the same point of modelled time at different moments, up to the skew that the caller
//! allows. A single "busy until" would make a core that lags wait for one that is ahead. Instead,
//! time is divided into windows, each with room for a fixed number of lines. A request takes a
//! place in its own window, or in the first later one with room, and starts after the places taken
//! before it. For requests in order of time, this is exactly a first-come first-served queue that
//! serves one line at a time; out of order, it errs by at most a window. A window never carries
//! more lines than it has room for. Windows of a few lines keep the error below the wait for one
//! line.
//!
//! The "history list" contention model of the Sniper simulator (Carlson, Heirman, Eeckhout, SC
//! 2011) has the same idea, with a list of free intervals in place of windows of fixed length.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::Apart;

/// Modelled time over which windows are kept, in picoseconds: far more than the skew between cores.
const KEPT_PS: u64 = 500_000_000;
/// Fewest and most windows kept.
const FEWEST: u64 = 1 << 10;
const MOST: u64 = 1 << 16;
/// A word holds a window's number above these bits and its taken places below.
const TAKEN_BITS: u32 = 16;
const MOST_PLACES: u64 = (1 << TAKEN_BITS) - 1;
/// The note of full windows holds the number of the first above these bits and their count below.
const COUNT_BITS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Channel {
    line_ps: u64,
    places: u64,
    window_ps: u64,
    windows: Box<[AtomicU64]>,
    /// A run of windows known to be full, which a request can skip. Windows never become less full,
    /// so the note stays true.
    full: Apart<AtomicU64>,
}

impl Channel {
    /// A channel that carries a line in `line_ps`, with windows of about `window_ps`.
    pub(crate) fn new(line_ps: u64, window_ps: u64) -> Self {
        let places = (window_ps / line_ps).clamp(1, MOST_PLACES);
        let window_ps = places * line_ps;
        let windows = (KEPT_PS / window_ps)
            .next_power_of_two()
            .clamp(FEWEST, MOST);
        Self {
            line_ps,
            places,
            window_ps,
            windows: (0..windows).map(|_| AtomicU64::new(0)).collect(),
            full: Apart(AtomicU64::new(0)),
        }
    }

    /// Takes a place for one line at `time_ps`; returns the wait in picoseconds.
    #[inline]
    pub(crate) fn wait(&self, time_ps: u64) -> u64 {
        let own = time_ps / self.window_ps;
        let note = self.full.0.load(Relaxed);
        let (noted, count) = (note >> COUNT_BITS, note & ((1 << COUNT_BITS) - 1));
        let mut window = own;
        let mut run_start = own;
        if noted <= own && own < noted + count {
            window = noted + count;
            run_start = noted;
        }
        let first_tried = window;
        loop {
            let Some(taken) = self.take(window) else {
                // The window is so far back that it was given up: no request can wait there.
                return 0;
            };
            if taken < self.places {
                if window > first_tried {
                    self.note_full(run_start, own, window);
                }
                let start = window * self.window_ps + taken * self.line_ps;
                return start.saturating_sub(time_ps);
            }
            window += 1;
            if window - own >= self.windows.len() as u64 / 2 {
                // More waits than the windows hold; let it pass rather than lose the count.
                return window * self.window_ps - time_ps;
            }
        }
    }

    /// Takes a place in a window, unless it is full. Returns the number of places taken before, or
    /// None if the window has been given up for a later one.
    fn take(&self, window: u64) -> Option<u64> {
        let word = &self.windows[window as usize & (self.windows.len() - 1)];
        let mut seen = word.load(Relaxed);
        loop {
            let (number, taken) = (seen >> TAKEN_BITS, seen & MOST_PLACES);
            let next = match number.cmp(&window) {
                std::cmp::Ordering::Less => (window << TAKEN_BITS) + 1,
                std::cmp::Ordering::Equal if taken < self.places => seen + 1,
                std::cmp::Ordering::Equal => return Some(taken),
                std::cmp::Ordering::Greater => return None,
            };
            match word.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return Some(if number == window { taken } else { 0 }),
                Err(now) => seen = now,
            }
        }
    }

    /// Notes a run of full windows, from `run_start` if that is not too far back, else from `own`.
    fn note_full(&self, run_start: u64, own: u64, until: u64) {
        let from = if until - run_start < 1 << COUNT_BITS {
            run_start
        } else {
            own
        };
        self.full
            .0
            .store(from << COUNT_BITS | (until - from), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_at_one_time_wait_their_turn() {
        let channel = Channel::new(20_000, 40_000);
        let waits: Vec<u64> = (0..100).map(|_| channel.wait(0)).collect();
        assert_eq!(waits, (0..100).map(|i| i * 20_000).collect::<Vec<_>>());
    }

    #[test]
    fn spaced_requests_do_not_wait() {
        let channel = Channel::new(20_000, 40_000);
        for i in 0..10_000 {
            assert_eq!(channel.wait(i * 20_000), 0);
        }
    }

    #[test]
    fn one_that_lags_does_not_wait_for_one_ahead() {
        let channel = Channel::new(20_000, 40_000);
        for i in 0..50 {
            channel.wait(30_000_000 + i * 20_000);
        }
        assert_eq!(channel.wait(1_000_000), 0);
    }

    #[test]
    fn a_saturated_channel_carries_what_it_can_and_no_more() {
        // Eight cores, one request each at a time, 90 ns away, 20 ns a line: 8 x 20 = 160 ns each.
        let channel = Channel::new(20_000, 40_000);
        let mut cores = [0u64; 8];
        let rounds = 8_000;
        for _ in 0..rounds {
            let core = cores.iter_mut().min().unwrap();
            *core += 90_000 + channel.wait(*core);
        }
        let end = *cores.iter().max().unwrap();
        assert!((end - rounds * 20_000) < 200_000, "{end}");
    }

    proptest! {
        /// In any order, no window starts more lines than it has room for, and no line starts
        /// before its request.
        #[test]
        fn capacity_is_never_exceeded(times in prop::collection::vec(0u64..20_000_000, 1..2000)) {
            let channel = Channel::new(20_000, 100_000);
            let mut starts: Vec<u64> = times.iter().map(|&t| t + channel.wait(t)).collect();
            starts.sort_unstable();
            let mut carried = std::collections::HashMap::<u64, u64>::new();
            for start in starts {
                *carried.entry(start / 100_000).or_default() += 1;
            }
            prop_assert!(carried.values().all(|&lines| lines <= 5));
        }
    }
}
