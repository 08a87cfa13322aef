//! How often the kernel moves threads of a cgroup to another CPU: a software event of perf, which also counts threads
//! that end.
//!
//! Source: include/uapi/linux/perf_event.h (`PERF_FLAG_PID_CGROUP`, `PERF_COUNT_SW_CPU_MIGRATIONS`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::sys::perf::{self, Attribute};

const SOFTWARE: u32 = 1;
const CPU_MIGRATIONS: u64 = 4;

/// A count of the moves of a cgroup's threads from one CPU to another.
#[derive(Debug)]
pub struct CgroupMoves(Vec<OwnedFd>);

impl CgroupMoves {
    /// Counts from now on, for all threads of the cgroup with this folder and below it, on these CPUs.
    ///
    /// # Errors
    /// As `perf_event_open(2)`: `EBADF` if the folder is not a cgroup's.
    pub fn count(folder: &Path, cpus: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let cgroup = File::open(folder)?;
        let moves = Attribute {
            kind: SOFTWARE,
            config: CPU_MIGRATIONS,
            ..Attribute::default()
        };
        let open = |cpu| perf::open_on_cgroup(&moves, cgroup.as_fd(), cpu);
        let counters = cpus.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self(counters))
    }

    /// The moves so far.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn so_far(&self) -> io::Result<u64> {
        let read = |counter: &OwnedFd| {
            let mut count = [0; 8];
            rustix::io::read(counter, &mut count)?;
            Ok(u64::from_ne_bytes(count))
        };
        self.0.iter().map(read).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_cgroup_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(CgroupMoves::count(folder.path(), 0..1).is_err());
        assert!(CgroupMoves::count(&folder.path().join("none"), 0..1).is_err());
    }
}
