//! The CPU time of any process, to the nanosecond: its CPU clock, as from `clock_getcpuclockid(3)`.
//!
//! It is the sum over all threads, including ended ones, of the first number in their schedstat files. It takes one
//! system call, and anyone may read it.
#![expect(unsafe_code, reason = "rustix knows no clocks of other processes")]

/// The scheduler's clock among those of a process (`CPUCLOCK_SCHED`, include/linux/posix-timers.h).
const SCHEDULERS: libc::clockid_t = 2;

/// CPU time in ns of the process with this number; `None` if there is none.
pub(crate) fn ran_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // The kernel's way of naming it (`MAKE_PROCESS_CPUCLOCK`); 0 would be this program's own.
    let clock = (!pid << 3) | SCHEDULERS;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let part = |part: i64| u64::try_from(part).ok();
    (answer == 0 && pid > 0).then_some(())?;
    Some(part(time.tv_sec)? * 1_000_000_000 + part(time.tv_nsec)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ones_own_time_passes_and_nobody_has_number_0() {
        let own = || super::ran_ns(std::process::id()).unwrap();
        let before = own();
        while own() == before {}
        assert!(own() > before);
        assert_eq!(super::ran_ns(0), None);
        assert_eq!(super::ran_ns(u32::MAX), None);
    }
}
