// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's time: real while the gate is closed, the model's while it is open.
//!
//! Joins three things: the schedule of the vCPUs' times, the hook through which QEMU asks, and
//! QEMU's timers, which must be run when their time has come. It never runs backwards, and goes on
//! from one kind of time to the other without a jump.

#![allow(unsafe_code, reason = "hooks QEMU's clock, blocks signals")]

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::clock::{Hook, HookError, Now, Set};
use crate::qemu::{ExitRequests, Timers};
use crate::schedule::Schedule;
use crate::sync::lock;

/// How far a vCPU's time may be ahead of the last one's. Less is truer, but has host threads take turns more often.
const SKEW_NS: i64 = 200_000;

/// Value of `offset_ns` while the guest's time is the model's.
const MODELLED: i64 = i64::MIN;

/// Host time after which a vCPU that is ahead goes on although the others have not caught up.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The same where it cannot be seen that QEMU wants the vCPU for exclusive work.
const BLIND_SLEEP: Duration = Duration::from_millis(6);

/// Host time after which the idle thread looks again although nobody has told it anything.
const IDLE_LOOK: Duration = Duration::from_millis(10);

/// By how much the kernel may wake QEMU's main loop late while time is modelled, in ns. The loop sleeps until the next of
/// the guest's timers as if guest time were host time, finds that it is not due yet, and sleeps for the rest, dozens of
/// times a timer. But it is told when one is due, so that none of these looks is needed.
const MAIN_LOOP_SLACK_NS: u64 = 10_000_000;

thread_local! {
    /// On the thread of QEMU's main loop, whether that slack is set.
    static MAIN_LOOP_IS_SLACK: Cell<Option<bool>> = const { Cell::new(None) };
}

/// QEMU does not ask the plugin for the time after all.
#[derive(Debug, thiserror::Error)]
#[error(
    "QEMU's clock does not follow the plugin's (it says {qemu} ns, between {before} and {after} is right), so time cannot be modelled"
)]
pub struct Disobeyed {
    qemu: i64,
    before: i64,
    after: i64,
}

/// The guest's time.
pub struct GuestTime {
    timers: Timers,
    hook: Hook,
    /// Set when it can be seen that a vCPU is wanted elsewhere.
    exits: Option<ExitRequests>,
    schedule: Schedule,
    /// Times that a vCPU has woken.
    wakes: AtomicU64,
    /// The guest's time less the host's, or `MODELLED`.
    offset_ns: AtomicI64,
    /// Latest time told.
    told_ns: AtomicI64,
    someone_idles: Mutex<()>,
    idle_news: Condvar,
    timer_calls: AtomicU64,
    jumps: AtomicU64,
}

impl GuestTime {
    /// For this many vCPUs. Finds what modelled time needs of QEMU.
    pub fn new(vcpus: usize) -> Result<Self, HookError> {
        let exits = ExitRequests::find();
        let longest_sleep = if exits.is_some() {
            LONGEST_SLEEP
        } else {
            BLIND_SLEEP
        };
        Ok(Self {
            timers: Timers::find()?,
            hook: Hook::find()?,
            exits,
            schedule: Schedule::new(vcpus, SKEW_NS, longest_sleep),
            wakes: AtomicU64::new(0),
            offset_ns: AtomicI64::new(0),
            told_ns: AtomicI64::new(0),
            someone_idles: Mutex::default(),
            idle_news: Condvar::default(),
            timer_calls: AtomicU64::new(0),
            jumps: AtomicU64::new(0),
        })
    }

    /// Makes QEMU ask these functions for the time.
    ///
    /// # Safety
    /// Once, before the guest starts, on the thread that will run QEMU's main loop; the functions must end in this
    /// `GuestTime`.
    pub unsafe fn take_over_clock(&'static self, now: Now, set: Set) -> std::io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.hook.install(now, set) };
        MAIN_LOOP_IS_SLACK.set(Some(false));
        let thread = std::thread::Builder::new().name("lab idle".to_owned());
        thread.spawn(|| self.jump_when_idle()).map(drop)
    }

    /// The guest's time, in ns, for QEMU.
    pub fn asked(&self) -> i64 {
        if let Some(is_slack) = MAIN_LOOP_IS_SLACK.get()
            && is_slack != self.is_modelled()
        {
            MAIN_LOOP_IS_SLACK.set(Some(!is_slack));
            // 0 stands for what the thread began with.
            let slack_ns = if is_slack { 0 } else { MAIN_LOOP_SLACK_NS };
            // SAFETY: concerns this thread's sleeps alone.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
        }
        self.now_ns()
    }

    /// The guest's time, in ns.
    pub fn now_ns(&self) -> i64 {
        let now = match self.offset_ns.load(SeqCst) {
            MODELLED => self.schedule.now_ns(),
            offset => self.timers.real_ns() + offset,
        };
        self.told_ns.fetch_max(now, SeqCst).max(now)
    }

    /// Whether time is the model's at present.
    pub fn is_modelled(&self) -> bool {
        self.offset_ns.load(SeqCst) == MODELLED
    }

    /// Checks that QEMU does ask here.
    pub fn check(&self) -> Result<(), Disobeyed> {
        let before = self.now_ns();
        let qemu = self.timers.virtual_ns();
        let after = self.now_ns();
        if (before..=after).contains(&qemu) {
            Ok(())
        } else {
            Err(Disobeyed {
                qemu,
                before,
                after,
            })
        }
    }

    /// Time is the model's from here on. Returns the time at which all vCPUs begin.
    pub fn begin(&self) -> i64 {
        // Others may ask for the time meanwhile, so the model begins at what was told last.
        self.offset_ns.store(MODELLED, SeqCst);
        let now = self.now_ns();
        self.schedule.begin(now);
        now
    }

    /// Time is real from here on.
    pub fn end(&self) {
        if self.is_modelled() {
            self.offset_ns
                .store(self.now_ns() - self.timers.real_ns(), SeqCst);
            self.schedule.end();
            self.timers.notify_main_loop();
        }
    }

    /// A vCPU has come to this time: tells it, and sleeps if the vCPU is too far ahead.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn reached(&self, vcpu: usize, time_ns: i64) {
        if !self.is_modelled() {
            return;
        }
        if self.schedule.reached(vcpu, time_ns) {
            self.call_timers();
        }
        let wanted = || {
            // SAFETY: the caller's promise.
            let exit = |exits: &ExitRequests| unsafe { exits.pending(vcpu) };
            !self.is_modelled() || self.exits.as_ref().is_some_and(exit)
        };
        self.schedule.sleep_if_ahead(vcpu, wanted);
    }

    /// A vCPU has nothing to do, from its own `time_ns` on if that is known.
    pub fn idles(&self, vcpu: usize, time_ns: Option<i64>) {
        let modelled = self.is_modelled();
        let mut moved = false;
        if let (true, Some(time_ns)) = (modelled, time_ns) {
            moved = self.schedule.reached(vcpu, time_ns);
        }
        moved |= self.schedule.idles(vcpu);
        if modelled {
            if moved {
                self.call_timers();
            }
            if self.schedule.all_idle() {
                self.tell_idle_thread();
            }
        }
    }

    /// A vCPU has something to do again. Returns the time it takes up while time is modelled.
    pub fn wakes(&self, vcpu: usize) -> Option<i64> {
        let time_ns = self.schedule.wakes(vcpu);
        self.wakes.fetch_add(1, SeqCst);
        if !self.is_modelled() {
            return None;
        }
        self.tell_idle_thread();
        Some(time_ns)
    }

    /// Adds what the report says of time.
    pub fn report(&self, report: &mut Map<String, Value>) {
        let mut add = |name: &str, value: u64| report.insert(name.to_owned(), value.into());
        add("time_ns", self.now_ns().unsigned_abs());
        add("timer_calls", self.timer_calls.load(Relaxed));
        add("idle_jumps", self.jumps.load(Relaxed));
        add("sleeps", self.schedule.sleeps.load(Relaxed));
        add("overslept", self.schedule.overslept.load(Relaxed));
    }

    /// Has QEMU run timers that are due.
    fn call_timers(&self) {
        if self.timers.until_next_timer_ns() == Some(0) {
            self.timer_calls.fetch_add(1, Relaxed);
            self.timers.notify_main_loop();
        }
    }

    fn tell_idle_thread(&self) {
        drop(lock(&self.someone_idles));
        self.idle_news.notify_one();
    }

    /// Waits for news of idle vCPUs, at most this long.
    fn await_news(&self, most: Duration) {
        let waited = self.idle_news.wait_timeout(lock(&self.someone_idles), most);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The idle thread: while all vCPUs are idle, lets time jump to the next timer when
    /// [`IdleRule`] allows it.
    fn jump_when_idle(&self) {
        block_signals();
        let mut period = IdlePeriod::begin(0);
        loop {
            // News that come between a look and the wait are made up for by the next look.
            let idle = self.is_modelled() && self.schedule.all_idle();
            let Some(next) = self.timers.until_next_timer_ns().filter(|_| idle) else {
                self.await_news(IDLE_LOOK);
                continue;
            };
            let wakes = self.wakes.load(SeqCst);
            if wakes != period.wakes {
                period = IdlePeriod::begin(wakes);
            }
            let next = Duration::from_nanos(next.unsigned_abs());
            let wait = IDLE_RULE.wait(period.began.elapsed(), period.jumped, next);
            if !wait.is_zero() {
                self.await_news(wait);
            } else if self.timers.when_all_idle(|ns| self.schedule.jump(ns)) {
                self.jumps.fetch_add(1, Relaxed);
                period.jumped += next;
            } else {
                self.await_news(IDLE_RULE.grace);
            }
        }
    }
}

/// When time may jump while all vCPUs are idle.
///
/// A guest that only sleeps may jump at once. But one that waits for a device that a host thread
/// serves looks just the same, and to jump seconds ahead then would charge it for time that the
/// model knows nothing of. So time first stands still for a `grace`, in which a thread that was
/// woken by another comes to run, or most of a device's work is done; then it keeps pace with the
/// host, timer by timer; and only when nothing has woken for the `patience` it jumps freely.
struct IdleRule {
    /// Host time for which time stands still.
    grace: Duration,
    /// Host time after which time jumps freely.
    patience: Duration,
}

const IDLE_RULE: IdleRule = IdleRule {
    grace: Duration::from_micros(300),
    patience: Duration::from_millis(50),
};

impl IdleRule {
    /// Host time to wait before jumping over `next`, when all vCPUs have been idle for `idle` and
    /// time has jumped over `jumped` since.
    fn wait(&self, idle: Duration, jumped: Duration, next: Duration) -> Duration {
        let pace = self.grace.saturating_add(jumped).saturating_add(next);
        pace.min(self.patience).saturating_sub(idle)
    }
}

/// A while in which all vCPUs were idle.
struct IdlePeriod {
    /// Wakings before it.
    wakes: u64,
    began: Instant,
    /// Guest time jumped over since.
    jumped: Duration,
}

impl IdlePeriod {
    fn begin(wakes: u64) -> Self {
        Self {
            wakes,
            began: Instant::now(),
            jumped: Duration::ZERO,
        }
    }
}

/// QEMU takes its signals on threads of its own.
fn block_signals() {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_stands_still_then_keeps_pace_then_jumps() {
        let us = Duration::from_micros;
        let wait = |idle, jumped, next| IDLE_RULE.wait(us(idle), us(jumped), us(next));
        assert_eq!(
            wait(0, 0, 0),
            us(300),
            "grace, even for a timer that is due"
        );
        assert_eq!(wait(0, 0, 1000), us(1300), "as long as the host takes");
        assert_eq!(wait(1300, 1000, 1000), us(1000), "and on at its pace");
        assert_eq!(
            wait(1000, 0, 1_000_000),
            us(49_000),
            "a far one waits for the patience"
        );
        assert_eq!(wait(50_000, 0, 1_000_000), us(0));
        assert_eq!(
            wait(60_000, 5_000_000, 1_000_000),
            us(0),
            "from then on freely"
        );
    }
}
