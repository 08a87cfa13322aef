//! Kills between two system calls: a program is traced, and where any of its threads enters the call of a given
//! number it is killed in place of it.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::herd::memory_kib;
use crate::sys::{Ask, trace};

/// What the kernel calls a stop at a system call, and at a program's start.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// How a traced program ended.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// By itself or not.
    pub status: ExitStatus,
    /// How many calls it made.
    pub calls: u64,
    /// The most memory that it had when it was killed, in KiB; 0 if it was not.
    pub memory_kib: u64,
}

impl Traced {
    /// Whether it was killed.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::KILL.as_raw())
    }
}

/// Starts a program that waits until it is traced. Nothing of it has run.
pub fn start(program: &Command) -> Child {
    let mut waiting = Command::new("sh");
    waiting
        .args(["-c", "read -r _; exec \"$0\" \"$@\" </dev/null >/dev/null"])
        .arg(program.get_program())
        .args(program.get_args())
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh is there")
}

/// Lets a program that waits run until it enters its call of number `last`, from 1, and kills it there; or to its
/// end.
pub fn run(mut child: Child, last: Option<u64>) -> Traced {
    let pid = Pid::from_child(&child);
    trace(pid, Ask::Seize).expect("a child can be traced");
    trace(pid, Ask::Interrupt).expect("a tracee can be stopped");
    let mut input = child.stdin.take();
    let mut in_call = HashSet::new();
    let (mut calls, mut has_begun, mut most_kib) = (0, false, 0);
    loop {
        // Threads too.
        let all = WaitOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        let Some((who, status)) = wait(all).expect("there is a child") else {
            continue;
        };
        let raw = status.as_raw();
        if !status.stopped() {
            if who == pid {
                let status = ExitStatus::from_raw(raw);
                return Traced {
                    status,
                    calls,
                    memory_kib: most_kib,
                };
            }
            continue;
        }
        // The first stop may be at the shell's own start, which takes the place of the one that was asked for.
        if let Some(mut input) = input.take() {
            let _ = trace(who, Ask::UntilCall(0));
            input.write_all(b"\n").expect("the shell waits");
            continue;
        }
        let (signal, event) = ((raw >> 8) & 0xff, raw >> 16);
        let mut passed_on = 0;
        if signal == AT_CALL {
            if has_begun && in_call.insert(who) {
                calls += 1;
                if last == Some(calls) {
                    most_kib = memory_kib(child.id());
                    // It may be killed by somebody else at any time.
                    let _ = kill_process(pid, Signal::KILL);
                }
            } else {
                in_call.remove(&who);
            }
        } else if event == libc::PTRACE_EVENT_EXEC {
            has_begun = true;
            in_call = HashSet::from([who]);
        } else if event == 0 {
            passed_on = signal;
        }
        // Whoever has been killed cannot be asked any more.
        let _ = trace(who, Ask::UntilCall(passed_on));
    }
}
