//! Bytes, times, counts and shares: how people write them on a command line or in a file, and how
//! every command shows them.
//!
//! Pure functions over numbers and text. Where a figure is shown, the doc comment of its function
//! has an example of each form.

pub mod any_time;
mod bytes;
mod count;
pub mod statistics;
mod time;

pub use bytes::{NotASize, bytes, parse_bytes, short_bytes, unit_bytes};
pub use count::{
    Count, count, counted, listed, noun, percent, round_up, short, short_count, whole_percent,
};
pub use time::{NotATime, ago, date, moment, nanoseconds, parse_time, time};
