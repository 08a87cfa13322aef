// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the vCPUs' times together and determines the guest's time.
//!
//! Each running vCPU has its own time. The guest's time is the least of them, so no timer runs before every vCPU has
//! come to its time. A vCPU that is ahead by more than the skew sleeps until the others have caught up to within a
//! quarter of it. So it has much to do when it wakes: a loop that only computes covers a short distance in less host
//! time than a sleep takes. An idle vCPU has no time; it continues at the guest's when it wakes. While all are idle,
//! time stands still until [`Schedule::jump`].
//!
//! A vCPU must not sleep here for ever: QEMU's exclusive work (flushing translations, some atomic
//! instructions) waits until every vCPU leaves its translated code, and the vCPU that asked for it
//! may be the slowest one. So a sleeper regularly checks whether QEMU wants it, and continues after
//! some time in any case.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Host time after which a sleeper first checks whether QEMU wants it. Each further interval is twice the one before,
/// up to `MOST_LOOK`: on a busy host, sleeps are long, and checks cost more than they help.
const LOOK: Duration = Duration::from_millis(1);
/// The longest interval between checks.
const MOST_LOOK: Duration = Duration::from_millis(8);

/// Value of `awaits_ns` of a vCPU that does not sleep.
const NOTHING: i64 = i64::MAX;

#[repr(align(128))]
struct Local {
    time_ns: AtomicI64,
    runs: AtomicBool,
    /// Guest time until which it sleeps.
    awaits_ns: AtomicI64,
    asleep: Mutex<()>,
    wake: Condvar,
}

/// The vCPUs' times and the guest's.
pub struct Schedule {
    global_ns: AtomicI64,
    skew_ns: i64,
    longest_sleep: Duration,
    vcpus: Box<[Local]>,
    /// Number of sleeps.
    pub sleeps: AtomicU64,
    /// Number of sleeps that ended because they became too long.
    pub overslept: AtomicU64,
}

impl Schedule {
    /// For this many vCPUs, all of them running, at time 0. A vCPU that is ahead sleeps at most
    /// `longest_sleep` of host time.
    pub fn new(vcpus: usize, skew_ns: i64, longest_sleep: Duration) -> Self {
        let local = || Local {
            time_ns: AtomicI64::new(0),
            runs: AtomicBool::new(true),
            awaits_ns: AtomicI64::new(NOTHING),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        };
        Self {
            global_ns: AtomicI64::new(0),
            skew_ns,
            longest_sleep,
            vcpus: (0..vcpus).map(|_| local()).collect(),
            sleeps: AtomicU64::new(0),
            overslept: AtomicU64::new(0),
        }
    }

    /// The guest's time.
    pub fn now_ns(&self) -> i64 {
        self.global_ns.load(SeqCst)
    }

    /// Advances the guest's time and every vCPU's to this time, unless they are later.
    pub fn begin(&self, time_ns: i64) {
        self.global_ns.fetch_max(time_ns, SeqCst);
        for vcpu in &self.vcpus {
            vcpu.time_ns.fetch_max(time_ns, SeqCst);
        }
    }

    /// Wakes all sleepers, because time is not modelled any more.
    pub fn end(&self) {
        for vcpu in &self.vcpus {
            wake(vcpu);
        }
    }

    /// Whether every vCPU is idle.
    pub fn all_idle(&self) -> bool {
        self.vcpus.iter().all(|vcpu| !vcpu.runs.load(SeqCst))
    }

    /// Notes that a vCPU has come to this time. Returns whether the guest's time has moved.
    pub fn reached(&self, vcpu: usize, time_ns: i64) -> bool {
        let local = &self.vcpus[vcpu];
        local.time_ns.fetch_max(time_ns, SeqCst);
        // Its wake-up may have been missed while QEMU changed callbacks.
        if !local.runs.load(Relaxed) {
            local.runs.store(true, SeqCst);
        }
        self.advance()
    }

    /// Notes that a vCPU has become idle. Returns whether the guest's time has moved.
    pub fn idles(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].runs.store(false, SeqCst);
        self.advance()
    }

    /// Notes that a vCPU has woken. Returns the time at which it continues.
    pub fn wakes(&self, vcpu: usize) -> i64 {
        let local = &self.vcpus[vcpu];
        let now = self.now_ns();
        let time = local.time_ns.fetch_max(now, SeqCst).max(now);
        local.runs.store(true, SeqCst);
        time
    }

    /// Advances time by `ns` while every vCPU is idle.
    pub fn jump(&self, ns: i64) {
        self.global_ns.fetch_add(ns, SeqCst);
    }

    /// Sleeps while the vCPU is too far ahead. `go_on` ends the sleep early.
    pub fn sleep_if_ahead(&self, vcpu: usize, go_on: impl Fn() -> bool) {
        let local = &self.vcpus[vcpu];
        let time = local.time_ns.load(Relaxed);
        if time - self.now_ns() <= self.skew_ns {
            return;
        }
        self.sleeps.fetch_add(1, Relaxed);
        let awaited = time - self.skew_ns / 4;
        let began = Instant::now();
        let mut look = LOOK;
        let mut asleep = lock(&local.asleep);
        local.awaits_ns.store(awaited, SeqCst);
        while self.now_ns() < awaited && !go_on() {
            let Some(rest) = self.longest_sleep.checked_sub(began.elapsed()) else {
                self.overslept.fetch_add(1, Relaxed);
                break;
            };
            let woken = local.wake.wait_timeout(asleep, rest.min(look));
            look = (2 * look).min(MOST_LOOK);
            asleep = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        local.awaits_ns.store(NOTHING, SeqCst);
    }

    /// Moves the guest's time to the least time of the running vCPUs.
    fn advance(&self) -> bool {
        let running = self.vcpus.iter().filter(|vcpu| vcpu.runs.load(SeqCst));
        let Some(least) = running.map(|vcpu| vcpu.time_ns.load(SeqCst)).min() else {
            return false;
        };
        let before = self.global_ns.fetch_max(least, SeqCst);
        if least <= before {
            return false;
        }
        for vcpu in &self.vcpus {
            if vcpu.awaits_ns.load(SeqCst) <= least {
                wake(vcpu);
            }
        }
        true
    }
}

fn wake(vcpu: &Local) {
    // A vCPU that is about to sleep holds the lock until it sleeps, so it cannot miss this.
    drop(lock(&vcpu.asleep));
    vcpu.wake.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(vcpus: usize) -> Schedule {
        Schedule::new(vcpus, 1000, Duration::from_secs(3600))
    }

    #[test]
    fn the_guests_time_is_that_of_the_last_vcpu_that_runs() {
        let schedule = schedule(3);
        assert!(!schedule.reached(0, 500));
        assert!(!schedule.reached(1, 300));
        assert!(schedule.reached(2, 400));
        assert_eq!(schedule.now_ns(), 300);
        assert!(schedule.idles(1));
        assert_eq!(schedule.now_ns(), 400);
        assert!(!schedule.all_idle());
    }

    #[test]
    fn a_vcpu_that_wakes_takes_up_the_guests_time() {
        let schedule = schedule(2);
        schedule.idles(1);
        schedule.reached(0, 700);
        assert_eq!(schedule.wakes(1), 700);
        schedule.idles(0);
        schedule.idles(1);
        assert!(schedule.all_idle());
        schedule.jump(50);
        assert_eq!(schedule.wakes(0), 750);
        assert_eq!(schedule.now_ns(), 750);
    }

    #[test]
    fn time_never_goes_back() {
        let schedule = schedule(2);
        schedule.begin(100);
        schedule.reached(0, 50);
        schedule.reached(1, 60);
        assert_eq!(schedule.now_ns(), 100);
        schedule.begin(80);
        assert_eq!(schedule.now_ns(), 100);
    }

    #[test]
    fn one_that_is_wanted_does_not_sleep_on() {
        let schedule = schedule(2);
        schedule.reached(0, 5000);
        schedule.sleep_if_ahead(0, || true);
        assert_eq!(schedule.now_ns(), 0);
    }

    #[test]
    fn a_sleep_ends_in_any_case() {
        let schedule = Schedule::new(2, 1000, Duration::ZERO);
        schedule.reached(0, 5000);
        schedule.sleep_if_ahead(0, || false);
        assert_eq!(schedule.overslept.load(Relaxed), 1);
    }

    #[test]
    fn one_that_is_ahead_sleeps_until_the_others_come() {
        let schedule = schedule(2);
        schedule.reached(0, 5000);
        std::thread::scope(|scope| {
            let ahead = scope.spawn(|| schedule.sleep_if_ahead(0, || false));
            for time in (0..=4800).step_by(100) {
                schedule.reached(1, time);
            }
            ahead.join().unwrap();
        });
        assert_eq!(schedule.now_ns(), 4800);
        schedule.sleep_if_ahead(0, || false);
        assert!(
            schedule.sleeps.load(Relaxed) <= 1,
            "within the skew there is no sleep"
        );
    }
}
