//! Every unsafe line of the host: the system calls that rustix does not offer safely.
//!
//! Each file wraps one subject in safe functions that take slices and return [`Errno`]s. What
//! results mean is decided elsewhere.

pub(crate) mod affinity;
pub(crate) mod child;
pub(crate) mod hint_map;
pub(crate) mod new_pages;
pub(crate) mod page_moves;
pub(crate) mod perf;
pub(crate) mod process_clock;
pub(crate) mod ring;

use rustix::io::Errno;

/// The error that the last failed system call left.
fn last_errno() -> Errno {
    Errno::from_raw_os_error(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}
