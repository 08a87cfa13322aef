// SPDX-License-Identifier: GPL-2.0-or-later
//! Functions of QEMU that are not of its plugin interface, found by name in the running program.
//!
//! Debian's binary exports all its symbols. They are looked up at start, not linked, so that a
//! QEMU without one of them is told so plainly.

#![allow(unsafe_code, reason = "calls into QEMU")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

/// QEMU_CLOCK_VIRTUAL.
const VIRTUAL: c_int = 1;
/// All timers, whatever their attributes.
const ALL_TIMERS: c_int = -1;

/// A symbol that this QEMU does not export.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this QEMU does not export `{0}`")]
pub struct Absent(pub &'static str);

/// Address of an exported symbol.
pub fn symbol(name: &'static CStr) -> Result<*mut c_void, Absent> {
    // SAFETY: a null-terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return Err(Absent(name.to_str().unwrap_or("a symbol")));
    }
    Ok(found)
}

/// QEMU's clocks and timers, as modelled time needs them. Signatures as in QEMU 10.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    cpu_get_clock: unsafe extern "C" fn() -> i64,
    cpus_get_virtual_clock: unsafe extern "C" fn() -> i64,
    qemu_clock_deadline_ns_all: unsafe extern "C" fn(c_int, c_int) -> i64,
    qemu_clock_run_all_timers: unsafe extern "C" fn() -> bool,
    qemu_notify_event: unsafe extern "C" fn(),
    all_cpu_threads_idle: unsafe extern "C" fn() -> bool,
    runstate_is_running: unsafe extern "C" fn() -> bool,
    bql_lock_impl: unsafe extern "C" fn(*const c_char, c_int),
    bql_unlock: unsafe extern "C" fn(),
}

impl Timers {
    /// Finds them all.
    pub fn find() -> Result<Self, Absent> {
        // SAFETY: each symbol has the signature that its field gives, in QEMU 10.
        unsafe {
            Ok(Self {
                cpu_get_clock: transmute::<*mut c_void, unsafe extern "C" fn() -> i64>(symbol(
                    c"cpu_get_clock",
                )?),
                cpus_get_virtual_clock: transmute::<*mut c_void, unsafe extern "C" fn() -> i64>(
                    symbol(c"cpus_get_virtual_clock")?,
                ),
                qemu_clock_deadline_ns_all: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, c_int) -> i64,
                >(symbol(
                    c"qemu_clock_deadline_ns_all",
                )?),
                qemu_clock_run_all_timers: transmute::<*mut c_void, unsafe extern "C" fn() -> bool>(
                    symbol(c"qemu_clock_run_all_timers")?,
                ),
                qemu_notify_event: transmute::<*mut c_void, unsafe extern "C" fn()>(symbol(
                    c"qemu_notify_event",
                )?),
                all_cpu_threads_idle: transmute::<*mut c_void, unsafe extern "C" fn() -> bool>(
                    symbol(c"all_cpu_threads_idle")?,
                ),
                runstate_is_running: transmute::<*mut c_void, unsafe extern "C" fn() -> bool>(
                    symbol(c"runstate_is_running")?,
                ),
                bql_lock_impl: transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, c_int)>(
                    symbol(c"bql_lock_impl")?,
                ),
                bql_unlock: transmute::<*mut c_void, unsafe extern "C" fn()>(symbol(
                    c"bql_unlock",
                )?),
            })
        }
    }

    /// Host time since the guest was started, while it runs.
    pub fn real_ns(&self) -> i64 {
        // SAFETY: may be called from any thread.
        unsafe { (self.cpu_get_clock)() }
    }

    /// What QEMU itself takes the guest's time to be.
    pub fn virtual_ns(&self) -> i64 {
        // SAFETY: may be called from any thread.
        unsafe { (self.cpus_get_virtual_clock)() }
    }

    /// Guest time until the next timer; None when there is none.
    pub fn until_next_timer_ns(&self) -> Option<i64> {
        // SAFETY: may be called from any thread; it takes the timer lists' own locks.
        let ns = unsafe { (self.qemu_clock_deadline_ns_all)(VIRTUAL, ALL_TIMERS) };
        (ns >= 0).then_some(ns)
    }

    /// Has the main loop look at its timers.
    pub fn notify_main_loop(&self) {
        // SAFETY: may be called from any thread.
        unsafe { (self.qemu_notify_event)() }
    }

    /// With QEMU's big lock held, and only if the guest runs and all vCPUs are really idle, calls
    /// `jump` with the time until the next timer and runs the timers. Says whether it did.
    pub fn when_all_idle(&self, jump: impl FnOnce(i64)) -> bool {
        // SAFETY: called from the plugin's own thread, which does not hold the lock yet and gives
        // it back; the functions in between want it held.
        unsafe {
            (self.bql_lock_impl)(c"numaherd-lab-plugin".as_ptr(), 0);
            let idle = (self.runstate_is_running)() && (self.all_cpu_threads_idle)();
            let next = self.until_next_timer_ns().filter(|_| idle);
            if let Some(ns) = next {
                jump(ns);
                (self.qemu_clock_run_all_timers)();
            }
            (self.bql_unlock)();
            next.is_some()
        }
    }
}
