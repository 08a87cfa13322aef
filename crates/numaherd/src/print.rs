//! Printing: text for people or JSON for programs, and quiet when the reader has gone.
//!
//! Everything that the programs print goes through here: `println!` and `eprintln!` panic where the
//! output cannot be written, and lints forbid them.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
pub use numaherd_show::paragraph;
use serde::Serialize;

use crate::laboratory::PROGRAM;

/// Text for people.
pub type Shown = String;

/// A table without lines, with this head.
pub fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head);
    table
}

/// Prints a value as JSON, or as the text that `text` makes of it.
///
/// # Errors
/// Standard output cannot be written.
pub fn shown(json: bool, value: &impl Serialize, text: impl FnOnce() -> Shown) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(value)? + "\n"
    } else {
        text()
    };
    out(&text)
}

/// Prints text. It is not an error if the reader has gone (`| head`).
///
/// # Errors
/// Standard output cannot be written.
pub fn out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Writes text to a file, or prints it where the file is `-`.
///
/// # Errors
/// The file or standard output cannot be written.
pub fn file(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return out(text);
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints a message of this program on standard error.
pub fn say(message: impl fmt::Display) {
    aside(&format!("numaherd: {message}\n"));
}

/// Prints text on standard error. A terminal that has gone or a disk that is full is not an error.
pub fn aside(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The name by which `numaherd` was called, so that a command in a message can be typed as it stands. A laboratory
/// that was called by itself gives the `numaherd` of its own folder.
pub fn called() -> String {
    let name = std::env::args_os()
        .next()
        .unwrap_or_else(|| "numaherd".into());
    let mut path = PathBuf::from(name);
    if path.ends_with(PROGRAM) {
        path.set_file_name("numaherd");
    }
    quoted(&path)
}

/// A path, quoted for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_a_shell_takes_them() {
        assert_eq!(quoted(Path::new("out/herd.jsonl")), "out/herd.jsonl");
        assert_eq!(quoted(Path::new("my run's")), "'my run'\\''s'");
    }
}
