//! Replay: a [`Candidate`] is a policy that sees a recorded run interval by interval, without a
//! machine, and is asked what it would have decided.

mod candidate;
mod carried;
mod interval;

pub use candidate::{Basis, Candidate, Decided, Wants};
pub use interval::Interval;
