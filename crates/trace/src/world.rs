//! World: the recorded threads of a trace on the cores of any machine.
//!
//! Each thread's accesses, in its own order, go through the TLBs and caches of the core that it runs on
//! ([`numaherd_hardware`]); a page table says where its pages are; a small kernel places threads and new pages. It is
//! observed and takes orders like a live machine, so that every policy runs on it unchanged.
//!
//! | question | where |
//! |---|---|
//! | what does each thread do next | `threads` |
//! | which core runs next | `engine` |
//! | what does an access do | `accesses` |
//! | which thread runs where, who waits for whom | `schedule` |
//! | where is a page | `pages` |
//! | what does moving a page or a thread cost | `orders` |
//! | who faults on marked pages | `scan` |
//! | what does the IPM unit report | `unit` |
//! | what does a policy see of it | `seen` |
//! | what are the results | [`Figures`], [`Energy`] |
//! | what would have been best | [`Analysis`], [`Start`] |
//!
//! # Two times
//!
//! A trace is short: tens of milliseconds, where the programs of the papers ran for minutes and policies decide every
//! second. So one modelled millisecond stands for [`Options::dilation`] milliseconds of *the loop's time*. The loop's
//! time applies to everything that the loop and the kernel's balancing of NUMA and of load do: cadences, ticks, scan
//! periods, the cost of a page move, a thread move or a hint fault, the counts of an interval, and the residency that
//! the IPM unit counts. Modelled time applies to everything that the program and the hardware do: accesses, page walks,
//! waits, sleeps, switches between threads. With a dilation of 1 the two are the same. So a decision costs the run the
//! same share of time as it would have cost the long run, and caches that cool after it cost more.
//!
//! # What is not modelled
//!
//! Instructions themselves (each takes the same time), values (the model does not know which loaded values are
//! addresses, so chains of pointers overlap as arrays do), the kernel's own accesses, the page fault of a first touch,
//! the copying of a moved page through caches (the cost of a move includes its time). Threads spin as often as they did
//! when recorded. A trace does not record changes of the memory map: a page that was unmapped and mapped again stays
//! where it was.

mod accesses;
mod analysis;
mod cores;
mod energy;
mod engine;
mod figures;
mod machine;
mod options;
mod orders;
mod pages;
mod scan;
mod schedule;
mod seen;
mod threads;
mod unit;

#[cfg(test)]
mod tests;

pub use analysis::{Analysis, Judgement, PageUse, SetUp};
pub use energy::Energy;
pub use figures::{
    CacheFigures, Figures, LineFigures, LinkTraffic, PageFigures, TlbFigures, UnitFigures,
};
pub use machine::Hardware;
pub use options::{Options, SampleEvery, Start, unit};
pub use seen::TraceWorld;
