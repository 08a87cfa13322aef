//! Priorities of this program's threads.
//!
//! Problem: where all CPUs are busy, a thread waits for a CPU as long as it runs, and a late decision is worth less.
//! Rule: the loop, and what it starts, has three times the weight of another program; it uses a small share of one
//! CPU. With much more weight, the kernel would consider its CPU overloaded, and move other threads away from it and
//! from their memory. Threads that serve and record have less weight than others. Where the kernel does not permit a
//! change, a thread keeps its weight.

/// Nice value of the loop (chosen here): its weight is 3121, that of other programs 1024, and of -20 it is 88,761
/// (`sched_prio_to_weight`, kernel/sched/core.c).
const LOOP: i32 = -5;
/// Nice value of threads that are not the loop (chosen here).
const OTHERS: i32 = 10;

/// Gives this thread, and those that it starts from now on, more weight than other programs have. That takes `CAP_SYS_NICE`.
pub fn raise() {
    set(LOOP);
}

/// Lowers this thread's weight below others'.
pub fn lower() {
    set(OTHERS);
}

fn set(nice: i32) {
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), nice);
}
