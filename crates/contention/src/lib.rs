//! The equations of contention: how fast each thread runs while all of them go on as they are.
//!
//! They have two users. The contention model knows its programs and advances them by the answers; a policy estimates
//! the same figures from counters and predicts the effect of a plan. Neither has equations of its own.
//!
//! | question | where |
//! |---|---|
//! | how fast does each thread go on | [`solve()`]: the fixed point |
//! | who holds how much of a shared cache | [`shares`]: footprint theory |
//! | how long does a line wait at a controller or on a link | [`loaded`]: the loaded-latency curve |
//! | how many lines does a program read with so much cache | [`Curve`] |
//!
//! Units: times in ns, sizes in bytes, lines of 64 bytes ([`LINE_BYTES`]) per 1000 instructions, capacities
//! in lines per ns (64 GB/s are 1), shares from 0 to 1. Sources stand beside each equation. The only error is an
//! impossible curve ([`CurveError`]); places beyond those of the [`Figures`] panic.
//!
//! # The fixed point
//!
//! Time for 1000 instructions of a thread, in ns:
//!
//! ```text
//! t = 1000 cpi k  +  lines(c) sum_n m_n (L_n + w_n - L_llc) / F  +  sum_o x_o (T_o + w_o + q - L_llc) / F
//! ```
//!
//! with `cpi` cycles of the reference core at `k` ns each; `lines(c)` cache lines read from memory
//! with `c` bytes of cache; `m_n` the share of them that comes from node `n`, at an idle latency
//! `L_n` and a wait `w_n` in the queues of the controller and the links on the way; `L_llc` the
//! latency of a hit, which the base cycles hold already; and `F` lines in flight on average while
//! the thread waits (Little's law): the program's own, or what the core can hold if that is less.
//! Lines that it writes back load controllers and links, but no thread waits for them. `x_o` lines that another
//! thread of the process wrote last come from that thread's cache, at an idle latency `T_o`, and cross links, not
//! controllers; `q` is the wait for threads that want the same line.
//!
//! The two counts of the uncore penalty (BRM §3.1) come from the same terms, so they always agree with the time.
//! *Requests* are those that a thread's own caches do not answer and no prefetcher made: `demand(o)`, with `o` the
//! bytes of the core's own caches, and `x_o`. *Busy* is the time with any of them outstanding: all that is waited
//! for, hits of the last-level cache included, over `F` (`F` in flight on average while any is, by Little's law):
//!
//! ```text
//! busy = (lines(c) sum_n m_n (L_n + w_n) + (demand(o) - demand(c)) L_llc + sum_o x_o (T_o + w_o + q)) / F
//! ```
//!
//! Lines that a prefetcher fetched are no requests, but if they come late, a demand access waits for them: they
//! count in the time as above.
//!
//! Three things depend on each other: shares of the caches on the threads' speeds ([`shares`]), waits on the lines
//! requested ([`loaded`]), speeds on both. They are found together by iteration, with a step of Newton's method for
//! each wait in each round, until no speed changes by more than a millionth part. How much of a step is taken
//! follows from what the one before has left (`steps.rs`). Demand falls as waits grow, so there is one answer, and no
//! channel ever carries more than it can: where many threads want too much, waits grow until their lines in flight
//! allow no more. Only shares of a cache may allow several answers, where a thread is fast because of the lines that it
//! holds, and holds them because it is fast.
//!
//! Four more things are known, and left out unless a figure turns them on:
//!
//! * *The door of a last-level cache* ([`Figures::caches`]) is a channel like any other. Every line that the
//!   core's own caches do not hold passes it, hit or miss, and waits there: `lines(o) w / F`. Its curve is that
//!   of memory, for want of a measured one (derived).
//! * *Turnaround* ([`Figures::write_turnaround`]): a controller whose lines are writes by a share `s` carries
//!   `1 - k s` of its capacity. Measured on Skylake-SP and Cascade Lake: 6 % less at 3 reads to a write, 6 to
//!   8 % at 2, 12 to 15 % at 1 (FACTS 7.2); least squares through the origin give `k` = 0.25, within 1.5 points of
//!   each.
//! * *SMT siblings* ([`Figures::smt_throughput`], `y`) share a core's issue slots while both compute, its lines
//!   in flight while both wait, and its own caches all the time. A thread that computes takes `2 / y` times as long
//!   while its sibling computes too: `base (1 + (2 / y - 1) a b)`, with `a` the share of the time that the sibling
//!   runs and `b` the part of that in which it computes; while it waits for memory, the core is the other's. Linux
//!   counted with `y` = 1.15 up to 4.x (`smt_gain` = 1178 of 1024). The lines in flight that a core can hold are
//!   divided in proportion to what each wants. Where it is not known which threads of a domain share a core
//!   ([`Running::siblings`]), each has the mean of the others beside it, for as much of the time as it has a
//!   sibling.
//!
//! * *Own lines* ([`Figures::own_lines_wait`]): measured curves are of many cores together, and a thread's own lines
//!   load a channel as others' do. But a line never waits for itself: a thread with one line in flight, alone at
//!   a controller, waits for none. Without own lines, a line of a thread with `F` in flight sees `1 - s / F` of the
//!   wait on a channel, with `s` the share of the channel's lines that the thread reads (Schweitzer's approximation
//!   of queues with few customers).
//!
//! All of it is pure: a machine is its [`Figures`], a thread what it [demands](Running), and the answer
//! depends on nothing else. Nodes, domains and channels are known by their places.
//!
//! A factor of contention can be taken away ([`Factors`]) to see what it costs: the split of DINO
//! §2.1 without its difficulty of telling overlapping causes apart.

mod curve;
mod figures;
pub mod loaded;
mod running;
pub mod shares;
mod solution;
mod solve;
mod steps;

pub use curve::{Curve, LINE_BYTES};
pub use figures::{Channel, Factors, Figures, Lane, Seat};
pub use running::{Demands, Running, Speed, Transfers};
pub use solution::Solution;
pub use solve::{solve, speeds};

/// An impossible curve of lines against cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no curve of lines against cache: {why}")]
pub struct CurveError {
    /// What is wrong with it.
    pub why: String,
}
