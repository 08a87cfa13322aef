//! Which thread goes on which CPU, by which threads communicate: IPM's thread mapping and relatives.
//!
//! [`Communication`] is what was observed, [`Tree`] the machine, a mapping one CPU for each thread,
//! [`quality()`] what it costs: communication times distance. The caller (in IPM every 200 ms, §4.4.4) lets
//! what it knows age, and maps if the pattern has changed ([`Pattern`]):
//!
//! | mapper | quality | time |
//! |---|---|---|
//! | [`eager_map`] | as published | n^2 |
//! | [`refined_map`] | never worse than that | a constant multiple of that: see below |
//! | [`exact_map`] | the best there is | exponential: to judge the others by |
//! | [`best()`] | of threads and pages, by the whole program | once, beforehand |
//!
//! All are pure functions without a fixed maximum.
//!
//! The refined mapper's multiple (`benches/mapping.rs`): below 2 where all threads communicate with each
//! other, and about 2 for thousands of threads of which few pairs communicate, since its time then depends on
//! those alone. With fewer threads in such a pattern, repairs take longer than EagerMap itself: up to 4 times
//! for 256, and up to 5 for 64, which is then some 25 µs of the 200 ms between two calls.

mod best;
mod communication;
mod eager;
mod edge;
mod exact;
mod grouping;
mod moves;
mod pattern;
mod quality;
mod refine;
mod tree;

pub use best::{Best, best, best_cpus, best_node};
pub use communication::Communication;
pub use eager::eager_map;
pub use exact::exact_map;
pub use moves::with_few_moves;
pub use pattern::{CHANGED_BY, Pattern, difference};
pub use quality::quality;
pub use refine::refined_map;
pub use tree::Tree;

#[cfg(test)]
mod patterns;
#[cfg(test)]
mod properties;
