//! A child process that does not outlive the thread that starts it: `PR_SET_PDEATHSIG`, set between fork and exec.
#![expect(unsafe_code, reason = "the call runs between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel kill the command's process when the thread that starts it ends, for whatever reason.
pub(crate) fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let set = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before.
        match getppid().filter(|now| *now == parent) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls: it takes no lock and allocates nothing.
    unsafe { command.pre_exec(set) };
}
