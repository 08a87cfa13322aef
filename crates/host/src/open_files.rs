//! How many files this program may open: each counted thread needs some.

use std::fs::File;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Room for the files of some 1,600 threads, in 128 KiB (chosen here).
const FILES: u64 = 16384;

/// Raises the limit of open files, and has the kernel make the table for [`FILES`] of them now. Each time the table of
/// a program with several threads grows, the opening thread waits for all CPUs (`synchronize_rcu`; in the lab, 20 ms).
pub(crate) fn make_room() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // Otherwise threads beyond the limit have no counters, as their snapshot says.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    // The table has room up to the highest number ever in use.
    let room = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if let Ok(file) = File::open("/dev/null") {
        let _ = fcntl_dupfd_cloexec(&file, room.saturating_sub(1) as i32);
    }
}
