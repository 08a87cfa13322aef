// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's time: real while the gate is closed, the model's while it is open.
//!
//! Joins three things: the schedule of the vCPUs' times, the hook through which QEMU asks for the
//! time, and QEMU's timers, which must run when they are due. The guest's time never runs
//! backwards, and does not jump when the gate moves.

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

/// How far a vCPU's time may be ahead of the slowest one's. Less is more accurate, but costs more switches of threads.
const SKEW_NS: i64 = 200_000;

/// Value of `offset_ns` while the guest's time is the model's.
const MODELLED: i64 = i64::MIN;

/// Host time after which a vCPU that is ahead continues although the others have not caught up.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Used in its place if the plugin cannot see that QEMU wants the vCPU for exclusive work.
const BLIND_SLEEP: Duration = Duration::from_millis(6);

/// Host time after which the idle thread checks again without news.
const IDLE_LOOK: Duration = Duration::from_millis(10);

/// How late the kernel may wake QEMU's main loop while time is modelled, in ns. The loop sleeps until the next of the
/// guest's timers as if guest time were host time, finds that the timer is not due yet, and sleeps again, dozens of
/// times per timer. The plugin notifies it when a timer is due, so these wake-ups are not needed.
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
    /// Set if the plugin can see that QEMU wants a vCPU to leave its code.
    exits: Option<ExitRequests>,
    schedule: Schedule,
    /// Number of times that vCPUs have woken.
    wakes: AtomicU64,
    /// The guest's time less the host's, or `MODELLED`.
    offset_ns: AtomicI64,
    /// Latest time returned.
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
            // 0 restores the thread's default.
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

    /// Checks that QEMU takes its time from here.
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

    /// Makes time the model's. Returns the time at which all vCPUs begin, in ns.
    pub fn begin(&self) -> i64 {
        // Other threads may ask for the time meanwhile, so the model begins at the latest time returned.
        self.offset_ns.store(MODELLED, SeqCst);
        let now = self.now_ns();
        self.schedule.begin(now);
        now
    }

    /// Makes time real again.
    pub fn end(&self) {
        if self.is_modelled() {
            self.offset_ns
                .store(self.now_ns() - self.timers.real_ns(), SeqCst);
            self.schedule.end();
            self.timers.notify_main_loop();
        }
    }

    /// Notes that a vCPU has come to this time, and sleeps if it is too far ahead.
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

    /// Notes that a vCPU is idle, from its own `time_ns` on if that is known.
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

    /// Notes that a vCPU has woken. Returns the time at which it continues, if time is modelled.
    pub fn wakes(&self, vcpu: usize) -> Option<i64> {
        let time_ns = self.schedule.wakes(vcpu);
        self.wakes.fetch_add(1, SeqCst);
        if !self.is_modelled() {
            return None;
        }
        self.tell_idle_thread();
        Some(time_ns)
    }

    /// Adds the figures on time to the report.
    pub fn report(&self, report: &mut Map<String, Value>) {
        let mut add = |name: &str, value: u64| report.insert(name.to_owned(), value.into());
        add("time_ns", self.now_ns().unsigned_abs());
        add("timer_calls", self.timer_calls.load(Relaxed));
        add("idle_jumps", self.jumps.load(Relaxed));
        add("sleeps", self.schedule.sleeps.load(Relaxed));
        add("overslept", self.schedule.overslept.load(Relaxed));
    }

    /// Makes QEMU run the timers that are due.
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

    /// Waits at most this long for news of idle vCPUs.
    fn await_news(&self, most: Duration) {
        let waited = self.idle_news.wait_timeout(lock(&self.someone_idles), most);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs the idle thread: while all vCPUs are idle, time jumps to the next timer when
    /// [`IdleRule`] allows it.
    fn jump_when_idle(&self) {
        block_signals();
        let mut period = IdlePeriod::begin(0);
        loop {
            // The next check makes up for news that come between a check and the wait.
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
/// The time of a guest that only sleeps may jump at once. But a guest that waits for a device
/// served by a host thread looks just the same, and a jump of seconds would charge it for time
/// outside the model. So time first stands still for the `grace`, in which a woken thread starts to
/// run, or most of a device's work is done. Then time keeps pace with the host, timer by timer. It
/// jumps freely only when nothing has woken for the `patience`.
struct IdleRule {
    /// Host time for which guest time stands still.
    grace: Duration,
    /// Host time after which guest time jumps freely.
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

/// A period in which all vCPUs are idle.
struct IdlePeriod {
    /// Number of wake-ups before it.
    wakes: u64,
    began: Instant,
    /// Guest time jumped over in it.
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

/// Blocks all signals on this thread: QEMU handles them on its own threads.
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
