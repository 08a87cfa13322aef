//! Priorities of this program's threads.
//!
//! Problem: where all CPUs are busy, a thread waits for one as long as it runs, and a decision is worth less the later
//! it comes. Rule: the loop, and what it starts, goes before all other programs; it uses a small share of one CPU. What
//! serves and records for others stands back. Where the kernel does not permit it, a thread goes on as it is.

/// Nice value of the loop: the lowest there is.
const LOOP: i32 = -20;
/// Nice value of threads that are not the loop (chosen here).
const OTHERS: i32 = 10;

/// Lets this thread, and those that it starts from now on, go before other programs. That takes `CAP_SYS_NICE`.
pub fn raise() {
    set(LOOP);
}

/// Lets this thread stand back.
pub fn lower() {
    set(OTHERS);
}

fn set(nice: i32) {
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), nice);
}
