//! Affinity masks of any size: `sched_setaffinity(2)` and `sched_getaffinity(2)` over plain words.
//!
//! rustix and libc offer `cpu_set_t`, which ends at 1024 CPUs; the system calls themselves take any
//! length.
#![expect(
    unsafe_code,
    reason = "the system calls take pointers to masks of any length"
)]

use rustix::io::Errno;

use super::last_errno;

// The kernel's masks are arrays of `unsigned long`; `u64` words are the same bytes only there.
const _: () = assert!(size_of::<libc::c_ulong>() == size_of::<u64>());

/// The most words in a mask that are asked for (a million CPUs).
const MOST_WORDS: usize = 1 << 14;

/// Reads the mask of a thread into `words`, which is resized to fit.
pub(crate) fn get(tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| Errno::SRCH)?;
    let mut length = words.len().max(16);
    loop {
        words.clear();
        words.resize(length, 0);
        // SAFETY: `words` is valid for writes of the length given, and the kernel writes no more.
        let written = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid,
                size_of_val(words.as_slice()),
                words.as_mut_ptr(),
            )
        };
        if written >= 0 {
            return Ok(());
        }
        match last_errno() {
            // The kernel has more CPUs than the mask has room for.
            Errno::INVAL if length < MOST_WORDS => length *= 2,
            errno => return Err(errno),
        }
    }
}

/// Sets the mask of a thread.
pub(crate) fn set(tid: u32, words: &[u64]) -> Result<(), Errno> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| Errno::SRCH)?;
    // SAFETY: `words` is valid for reads of the length given, and the kernel reads no more.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid,
            size_of_val(words),
            words.as_ptr(),
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}
