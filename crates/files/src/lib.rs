//! Files that people write: machines, programs, events, scenarios, claims, configuration.
//!
//! All of them are read the same way. [`read`] reads a file up to a limit, or says clearly why it
//! cannot. [`Document`] parses TOML and names the file, the line and the key of a mistake:
//! `my.toml:7: shape.noddes: unknown key; did you mean `nodes`?`. [`nearest`] finds the known names
//! closest to a misspelled one. [`setting`] defines settings once, beside what uses them.
//!
//! [`merge`] puts one table on top of another, and [`key_value`] reads a setting of a command line.
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
