//! Reading a machine file: TOML to a checked [`Machine`], with errors that name file, line and key.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Machine;
use crate::error::{ReadError, shortened};

/// Far above any honest machine file, with its matrices.
const LARGEST_FILE: u64 = 1 << 26;

impl Machine {
    /// The preset of that name, or else the machine file at that path.
    ///
    /// # Errors
    /// As [`Machine::read`]; for what is neither, [`ReadError::NoPreset`] lists the presets.
    pub fn find(name_or_path: &str) -> Result<Self, ReadError> {
        let path = Path::new(name_or_path);
        match Self::preset(name_or_path) {
            Err(ReadError::NoPreset { .. }) if path.exists() || path.extension().is_some() => {
                Self::read(path)
            }
            found => found,
        }
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// As [`Machine::parse`], and where the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text))
            .map_err(|error| ReadError::Io {
                path: path.to_owned(),
                why: error.to_string(),
                hint: "it must be a readable machine file (data/machines holds examples)",
            })?;
        if text.len() as u64 > LARGEST_FILE {
            return Err(ReadError::TooLarge {
                path: path.to_owned(),
                limit: LARGEST_FILE,
            });
        }
        Self::parse(&text, path)
    }

    /// Reads the text of a machine file; `path` is for messages alone.
    ///
    /// # Errors
    /// [`ReadError::Key`] names file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ReadError> {
        let machine: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let there = shortened(text.lines().nth(line - 1).unwrap_or(""));
            ReadError::Key {
                path: path.to_owned(),
                line,
                key: if there.is_empty() {
                    "the file".to_owned()
                } else {
                    there
                },
                why: error.message().trim().replace('\n', ", "),
            }
        })?;
        machine.check().map_err(|wrong| ReadError::Key {
            path: path.to_owned(),
            line: line_of_key(text, &wrong.key).unwrap_or(1),
            key: wrong.key,
            why: wrong.why,
        })?;
        Ok(machine)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&b| b == b'\n').count()
}

/// The line of a dotted key such as `shape.nodes` or `cache[1].ways`: of the deepest part of it
/// that the text has, so that a key that was left to its default is shown at its table.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?.into_inner();
    let mut parts = key.split('.');
    let (name, index) = indexed(parts.next()?);
    let (found, value) = table.get_key_value(name)?;
    let mut start = found.span().start;
    let mut value = value;
    if let (Some(index), DeValue::Array(array)) = (index, value.get_ref()) {
        value = array.get(index)?;
        start = value.span().start;
    }
    for part in parts {
        let DeValue::Table(table) = value.get_ref() else {
            break;
        };
        let (name, _) = indexed(part);
        let Some((found, inner)) = table.get_key_value(name) else {
            break;
        };
        start = found.span().start;
        value = inner;
    }
    Some(line_of(text, start))
}

fn indexed(part: &str) -> (&str, Option<usize>) {
    let split = part
        .strip_suffix(']')
        .and_then(|part| part.split_once('['))
        .and_then(|(name, index)| Some((name, index.parse().ok()?)));
    match split {
        Some((name, index)) => (name, Some(index)),
        None => (part, None),
    }
}
