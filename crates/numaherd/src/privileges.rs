//! Privileges: what a long-running program gives up once it has started.
//!
//! Problem: root may start `run`, `serve` and `agent`, which then run for months and never do most of what root may.
//! Rule: each thread keeps only those of its capabilities that its work needs ([`PLACING`], [`SERVING`],
//! [`LOOKING`]), and cannot get more: nothing is inheritable or ambient, the bounding set is empty where the kernel
//! permits that (with `CAP_SETPCAP`, which the service does not have), and no program that it starts gains any
//! (`no_new_privs`).
//!
//! A thread's capabilities are inherited by the threads that it starts, so it gives up its own before it starts any.
//! The program of `run -- CMD` has been started by then, and keeps all that its user has.

use rustix::io::{self, Errno};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

use crate::print;

/// What placing threads and pages needs, for all users' processes:
///
/// | capability | for |
/// |---|---|
/// | `CAP_SYS_NICE` | affinities of other users' threads (`sched_setaffinity`), pages that several processes map, the loop's priority |
/// | `CAP_SYS_PTRACE` | other users' pages: where they are (`numa_maps`), and moving them (`move_pages`) |
/// | `CAP_PERFMON` | counting and sampling other users' threads (`perf_event_open`) |
/// | `CAP_IPC_LOCK` | rings of samples beyond `kernel.perf_event_mlock_kb` and the limit of locked memory |
/// | `CAP_DAC_OVERRIDE` | monitors of other users' virtual machines; ledgers and configurations of other users |
///
/// The service has the first three alone.
pub const PLACING: CapabilitySet = CapabilitySet::SYS_NICE
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_OVERRIDE);

/// What ending the program of `run -- CMD` also needs, in case it now runs as another user.
pub const ENDING: CapabilitySet = CapabilitySet::KILL;

/// What serving sockets needs: configurations of other users, which `ctl reload` reads, and sockets in
/// other users' folders.
pub const SERVING: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// What looking at the threads of all users needs where /proc hides them (`hidepid`).
pub const LOOKING: CapabilitySet = CapabilitySet::SYS_PTRACE;

/// Gives up all capabilities of this thread but these, for good. If the kernel or a filter of system calls refuses, a
/// message says so, and the thread keeps what it has.
pub fn keep(kept: CapabilitySet) {
    if let Err(error) = try_keep(kept) {
        print::say(format!(
            "cannot give up privileges that are not needed: {error}; allow prctl and capset in the filter of \
             system calls"
        ));
    }
}

fn try_keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let has = capabilities(None)?;
    if has.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    let left = CapabilitySets {
        effective: has.effective & kept,
        permitted: has.permitted & kept,
        // The kernel takes them from the ambient set as well.
        inheritable: CapabilitySet::empty(),
    };
    match left == has {
        true => Ok(()),
        false => set_capabilities(None, left),
    }
}

/// Takes every capability that the kernel knows from the bounding set. Their numbers have no gaps.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
