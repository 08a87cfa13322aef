//! Tracing a process: the one system call of the storm that no crate offers in safe form without changing how
//! all others are built.

#![expect(unsafe_code, reason = "ptrace has no safe form")]

use std::io::{Error, Result};

use rustix::process::Pid;

/// What is asked of a tracee. None of these writes memory of the tracer.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// To be traced from now on, with its threads to come; it is told of its calls and dies with the tracer.
    Seize,
    /// To stop.
    Interrupt,
    /// To go on until it enters or leaves a system call, with this signal or none (0).
    UntilCall(i32),
}

/// Asks a tracee.
///
/// # Errors
/// The kernel's own; `ESRCH` when it has ended.
pub fn trace(pid: Pid, ask: Ask) -> Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    let (request, data) = match ask {
        Ask::Seize => (libc::PTRACE_SEIZE, i64::from(options)),
        Ask::Interrupt => (libc::PTRACE_INTERRUPT, 0),
        Ask::UntilCall(signal) => (libc::PTRACE_SYSCALL, i64::from(signal)),
    };
    // SAFETY: these requests take numbers only; no memory of this process is read or written.
    let answer = unsafe { libc::ptrace(request, pid.as_raw_nonzero().get(), 0_i64, data) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}
