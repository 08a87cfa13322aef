//! Priorities of this program's threads.
//!
//! Problem: where all CPUs are busy, a thread waits for one as long as it runs, and a decision is worth less the later
//! it comes. Rule: the loop, and what it starts, has three times the weight of another program; it uses a small share of
//! one CPU. With more, the kernel would take its CPU for an overloaded one, and move other threads away from their
//! memory. What serves and records for others stands back. Where the kernel does not permit it, a thread goes on as it is.

/// Nice value of the loop (chosen here). With -20, a kernel whose threads meet at barriers took 11 % longer in the lab, and
/// so with real-time priority.
const LOOP: i32 = -5;
/// Nice value of threads that are not the loop (chosen here).
const OTHERS: i32 = 10;

/// Gives this thread, and those that it starts from now on, more weight than other programs have. That takes `CAP_SYS_NICE`.
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
