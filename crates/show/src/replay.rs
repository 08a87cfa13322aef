//! A recording replayed: how other policies' decisions compare with the recorded ones.
//!
//! A [`Comparison`] takes in a [`Recording`] interval by interval, with what each replayed policy decided
//! on it, and ends as a [`Replayed`]: values that serialize, and that [`text`] writes for people.
//!
//! Terms. A *thread-interval* is one thread in one interval; threads that must be left alone do not count. For each
//! thread-interval, two policies have the thread on the same core, on another core of the same memory domain, in
//! another domain of the same node, or on different nodes. Agreement by chance alone is high where most threads are on
//! one node anyway, so the nodes are also compared by Cohen's kappa (Cohen, A coefficient of agreement for nominal
//! scales, 1960), with `o` the share of thread-intervals that both have on one node, `a_n` and `b_n` the shares that
//! each has on node `n`:
//!
//! ```text
//! kappa = (o - e) / (1 - e)        e = sum_n a_n b_n
//! ```
//!
//! 1 is complete agreement, and 0 the agreement of two independent policies. Kappa is not defined where both have
//! everything on one node.

mod agreement;
mod comparison;
mod decisions;
mod effect;
mod recorded;
mod recording;
mod text;

pub use agreement::{Agreement, Shares};
pub use comparison::{Comparison, Missing, Moment, Pair, Policy, Replayed, Unpaged};
pub use decisions::{Choice, Side};
pub use effect::{Effect, Errors, Predicted, Prediction, ProcessEffect, ThreadEffect};
pub use recorded::{Lacking, Recorded, Replayable, recorded};
pub use recording::Recording;
pub use text::text;
