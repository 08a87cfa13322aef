// SPDX-License-Identifier: GPL-2.0-or-later
//! Functions of QEMU that are not of its plugin interface, found by name in the running program.
//!
//! Debian's binary exports all its symbols. The plugin looks them up at start, without linking, so
//! that a missing one gives a plain error.

#![allow(unsafe_code, reason = "calls into QEMU")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

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

/// An exported function.
///
/// # Safety
/// `F` must be a pointer to a function of the symbol's signature.
pub unsafe fn function<F: Copy>(name: &'static CStr) -> Result<F, Absent> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = symbol(name)?;
    // SAFETY: as large as an address, which is not null; the type is the caller's promise.
    Ok(unsafe { transmute_copy::<*mut c_void, F>(&address) })
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
    big_lock: BigLock,
}

/// QEMU's big lock, under which vCPUs fall asleep and wake.
#[derive(Clone, Copy, Debug)]
struct BigLock {
    bql_lock_impl: unsafe extern "C" fn(*const c_char, c_int),
    bql_unlock: unsafe extern "C" fn(),
}

impl BigLock {
    fn find() -> Result<Self, Absent> {
        // SAFETY: each symbol has the signature that its field gives, in QEMU 10.
        unsafe {
            Ok(Self {
                bql_lock_impl: function(c"bql_lock_impl")?,
                bql_unlock: function(c"bql_unlock")?,
            })
        }
    }

    /// Does `work` with the lock held.
    ///
    /// # Safety
    /// The thread does not hold the lock, and `work` does not panic.
    unsafe fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: the caller's promise.
        unsafe { (self.bql_lock_impl)(c"numaherd-lab-plugin".as_ptr(), 0) };
        let result = work();
        // SAFETY: locked above, on this thread.
        unsafe { (self.bql_unlock)() };
        result
    }
}

/// QEMU's states of its vCPUs.
#[derive(Clone, Copy, Debug)]
struct Cpus {
    qemu_get_cpu: unsafe extern "C" fn(c_int) -> *mut c_void,
}

impl Cpus {
    fn find() -> Result<Self, Absent> {
        // SAFETY: the symbol has the signature that its field gives, in QEMU 10.
        let qemu_get_cpu = unsafe { function(c"qemu_get_cpu")? };
        Ok(Self { qemu_get_cpu })
    }

    /// The state of a vCPU, if there is one of this number.
    ///
    /// # Safety
    /// On this vCPU's thread.
    unsafe fn state(&self, vcpu: usize) -> Option<NonNull<c_void>> {
        let number = c_int::try_from(vcpu).ok()?;
        // SAFETY: the caller's promise: the list of vCPUs does not lose this one meanwhile.
        NonNull::new(unsafe { (self.qemu_get_cpu)(number) })
    }
}

/// QEMU's translated code, which must be dropped when the instrumentation changes.
///
/// The plugin interface offers `qemu_plugin_reset`, but that also frees the plugin's callbacks. QEMU 10 stops only
/// vCPUs that run code, so one that falls asleep or wakes just then calls a freed callback and crashes QEMU.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    cpus: Cpus,
    tb_flush: unsafe extern "C" fn(*mut c_void),
    big_lock: BigLock,
}

impl Code {
    /// Finds the functions.
    pub fn find() -> Result<Self, Absent> {
        // SAFETY: each symbol has the signature that its field gives, in QEMU 10.
        unsafe {
            Ok(Self {
                cpus: Cpus::find()?,
                tb_flush: function(c"tb_flush")?,
                big_lock: BigLock::find()?,
            })
        }
    }

    /// Requests that QEMU drop all code once all vCPUs have stopped; then QEMU calls the plugin's callback for flushes.
    ///
    /// # Safety
    /// On this vCPU's thread, while it runs code.
    pub unsafe fn flush(&self, vcpu: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(cpu) = self.cpus.state(vcpu) {
                (self.tb_flush)(cpu.as_ptr());
            }
        }
    }

    /// Does `work` while no vCPU falls asleep or wakes.
    ///
    /// # Safety
    /// In a callback for flushes: no vCPU runs code, and the thread does not hold the big lock.
    pub unsafe fn while_nobody_wakes(&self, work: impl FnOnce()) {
        // SAFETY: the caller's promise; a panic of the plugin ends QEMU.
        unsafe { self.big_lock.with(work) };
    }
}

/// QEMU's cache of guest page translations (its software TLB), which grows only when flushed.
///
/// It starts with room for 256 pages, and doubles at a flush that finds it well used. A guest with
/// one process on each vCPU never flushes. A pointer chase over a few MiB then needs a page walk in
/// QEMU on nearly every access, at several times the cost of the model. So the plugin flushes each
/// vCPU's cache now and then. The guest cannot notice.
#[derive(Clone, Copy, Debug)]
pub struct Translations {
    cpus: Cpus,
    tlb_flush: unsafe extern "C" fn(*mut c_void),
}

impl Translations {
    /// Finds the functions.
    pub fn find() -> Result<Self, Absent> {
        // SAFETY: each symbol has the signature that its field gives, in QEMU 10.
        unsafe {
            Ok(Self {
                cpus: Cpus::find()?,
                tlb_flush: function(c"tlb_flush")?,
            })
        }
    }

    /// Flushes a vCPU's translations.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn flush(&self, vcpu: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(cpu) = self.cpus.state(vcpu) {
                (self.tlb_flush)(cpu.as_ptr());
            }
        }
    }
}

impl Timers {
    /// Finds them all.
    pub fn find() -> Result<Self, Absent> {
        // SAFETY: each symbol has the signature that its field gives, in QEMU 10.
        unsafe {
            Ok(Self {
                cpu_get_clock: function(c"cpu_get_clock")?,
                cpus_get_virtual_clock: function(c"cpus_get_virtual_clock")?,
                qemu_clock_deadline_ns_all: function(c"qemu_clock_deadline_ns_all")?,
                qemu_clock_run_all_timers: function(c"qemu_clock_run_all_timers")?,
                qemu_notify_event: function(c"qemu_notify_event")?,
                all_cpu_threads_idle: function(c"all_cpu_threads_idle")?,
                runstate_is_running: function(c"runstate_is_running")?,
                big_lock: BigLock::find()?,
            })
        }
    }

    /// Host time since the guest was started, while it runs.
    pub fn real_ns(&self) -> i64 {
        // SAFETY: may be called from any thread.
        unsafe { (self.cpu_get_clock)() }
    }

    /// The guest's time according to QEMU.
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

    /// Makes the main loop check its timers.
    pub fn notify_main_loop(&self) {
        // SAFETY: may be called from any thread.
        unsafe { (self.qemu_notify_event)() }
    }

    /// If the guest runs, all vCPUs are really idle and there is a timer, calls `jump` with the time until the next
    /// timer and runs the timers, with QEMU's big lock held. Returns whether it did.
    pub fn when_all_idle(&self, jump: impl FnOnce(i64)) -> bool {
        // SAFETY: called from the plugin's own thread, which does not hold the lock yet; the functions
        // want it held.
        unsafe {
            self.big_lock.with(|| {
                let idle = (self.runstate_is_running)() && (self.all_cpu_threads_idle)();
                let next = self.until_next_timer_ns().filter(|_| idle);
                if let Some(ns) = next {
                    jump(ns);
                    (self.qemu_clock_run_all_timers)();
                }
                next.is_some()
            })
        }
    }
}

/// QEMU's requests to vCPUs to leave their translated code, for exclusive work or an interrupt.
///
/// QEMU requests it by `cpu_exit`, which begins with `c6 87 disp32 01`: movb $1, disp32(%rdi). This
/// gives the offset of the request's byte in a vCPU's state.
#[derive(Clone, Copy, Debug)]
pub struct ExitRequests {
    cpus: Cpus,
    offset: usize,
}

/// Bytes of `cpu_exit` that are read.
const EXIT_CODE: usize = 7;

fn decode_exit(code: [u8; EXIT_CODE]) -> Option<usize> {
    let [0xc6, 0x87, a, b, c, d, 0x01] = code else {
        return None;
    };
    usize::try_from(i32::from_le_bytes([a, b, c, d]))
        .ok()
        .filter(|&offset| offset < 1 << 16)
}

impl ExitRequests {
    /// Finds the byte; None if this QEMU's code is not as expected.
    pub fn find() -> Option<Self> {
        let exit = symbol(c"cpu_exit").ok()?;
        // SAFETY: code of QEMU, and the function is longer than this.
        let code = unsafe { exit.cast::<[u8; EXIT_CODE]>().read() };
        Some(Self {
            cpus: Cpus::find().ok()?,
            offset: decode_exit(code)?,
        })
    }

    /// Whether QEMU requests it of this vCPU.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn pending(&self, vcpu: usize) -> bool {
        // SAFETY: the caller's promise, and QEMU itself sets the byte at this offset from any thread.
        unsafe {
            self.cpus.state(vcpu).is_some_and(|cpu| {
                AtomicU8::from_ptr(cpu.as_ptr().cast::<u8>().add(self.offset)).load(Relaxed) != 0
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_request_is_read_off_the_code() {
        assert_eq!(decode_exit([0xc6, 0x87, 0xc7, 0, 0, 0, 1]), Some(0xc7));
        assert_eq!(
            decode_exit([0xc6, 0x87, 0xc7, 0, 0, 0, 0]),
            None,
            "clears it"
        );
        assert_eq!(
            decode_exit([0xc7, 0x87, 0xc7, 0, 0, 0, 1]),
            None,
            "another instruction"
        );
        assert_eq!(
            decode_exit([0xc6, 0x87, 0xc7, 0, 0, 0xff, 1]),
            None,
            "before the state"
        );
    }
}
