//! Files that people write: machines, programs, events, scenarios, claims, configuration.
//!
//! All of them are read the same way. [`read`] takes a file up to a limit and says clearly what it
//! is if it cannot be read. [`Document`] parses TOML and refuses what is wrong with the file, the
//! line and the key: `my.toml:7: shape.noddes: unknown key; did you mean `nodes`?`. [`nearest`]
//! finds what somebody meant who misspelled a name. [`setting`] defines settings once, beside what
//! uses them.
//!
//! [`merge`] puts tables on top of each other, and [`key_value`] reads those of a command line.
//!
//! [`read`] alone touches the file system; everything else is a function of a text.

#[cfg(test)]
extern crate self as numaherd_files;

mod document;
mod error;
mod near;
pub mod read;
pub mod setting;
mod tables;

pub use document::Document;
pub use error::{FileError, Finding, shortened};
pub use near::{did_you_mean, nearest, or};
pub use tables::{key_value, merge};
