//! Where a program's new pages go, set before it begins: `set_mempolicy(2)` between fork and exec.
//!
//! A memory policy is a thread's own: nobody else can set it later. What a program starts inherits it.
#![expect(
    unsafe_code,
    reason = "the system call takes a pointer to a mask, and runs between fork and exec"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How new pages are dealt to nodes; the figures are those of include/uapi/linux/mempolicy.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interleaving {
    /// `MPOL_INTERLEAVE`: one to each node in turn.
    Even = 3,
    /// `MPOL_WEIGHTED_INTERLEAVE`: to each in turn as many as its weight in sysfs.
    Weighted = 6,
}

/// Has a command's new pages go to these nodes (a mask, node 0 lowest) in turn. If the kernel refuses,
/// the command fails to start, with its error.
pub(crate) fn interleave(command: &mut Command, how: Interleaving, nodes: Vec<u64>) {
    // The kernel reads one bit less than the number it is given.
    let bits = nodes.len() * 64 + 1;
    let set = move || {
        // SAFETY: `nodes` is valid for reads of `bits - 1` bits, and the kernel reads no more.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                how as libc::c_int,
                nodes.as_ptr(),
                bits,
            )
        };
        if answer == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure makes a system call and reads `errno`: it takes no
    // lock and allocates nothing; its mask was made before the fork.
    unsafe { command.pre_exec(set) };
}
