//! Replay: a [`Candidate`] is a policy that is shown a recorded run, interval by interval and without a
//! machine, and is asked what it would have decided.

mod candidate;
mod carried;
mod interval;

pub use candidate::{Basis, Candidate, Decided, Wants};
pub use interval::Interval;
