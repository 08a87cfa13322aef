//! Reads a ledger line by line, up to the damage.
//!
//! Property: whatever happens to a ledger's bytes, what is read is a prefix of what was written, and
//! the reader says at which line and byte it ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::sound::flaw;
use super::{Header, Line, Record, VERSION};
use crate::error::HerdError;
use crate::sealed::{SEAL, is_whole};

/// A ledger being read: an iterator of lines that ends at the damage, if there is any, with an error
/// that names it. Records of kinds that this program does not know are passed over and counted.
pub struct Reader {
    path: PathBuf,
    lines: Box<dyn BufRead + Send>,
    header: Header,
    line: u64,
    byte: u64,
    next_sequence: Option<u64>,
    skipped: u64,
    ended: bool,
}

/// The part of a header that every version has.
#[derive(Deserialize)]
struct AnyHeader {
    #[serde(rename = "numaherd-ledger")]
    version: u64,
}

impl Reader {
    /// Opens a ledger.
    ///
    /// # Errors
    /// [`HerdError::Io`] when it cannot be opened, [`HerdError::NotOurs`] when it is no ledger,
    /// [`HerdError::Newer`] when a later program wrote it, [`HerdError::Damaged`] when its header
    /// is damaged.
    pub fn open(path: &Path) -> Result<Self, HerdError> {
        let file =
            File::open(path).map_err(|error| HerdError::io("open the ledger", path, error))?;
        Self::read(path, Box::new(BufReader::new(file)))
    }

    /// Reads a ledger from memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, HerdError> {
        Self::read(path, Box::new(Cursor::new(bytes)))
    }

    fn read(path: &Path, mut lines: Box<dyn BufRead + Send>) -> Result<Self, HerdError> {
        let mut first = Vec::new();
        let read = lines
            .read_until(b'\n', &mut first)
            .map_err(|error| HerdError::io("read the ledger", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            lines,
            header: header(path, without_feed(&first))?,
            line: 1,
            byte: read as u64,
            next_sequence: None,
            skipped: 0,
            ended: false,
        })
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many records of unknown kind were passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn next_line(&mut self) -> Result<Option<Line>, HerdError> {
        loop {
            let at = self.byte;
            let mut bytes = Vec::new();
            let read = self
                .lines
                .read_until(b'\n', &mut bytes)
                .map_err(|error| HerdError::io("read the ledger", &self.path, error))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.byte += read as u64;
            let line = record(&bytes)
                .and_then(|line| in_order(line, &mut self.next_sequence))
                .map_err(|why| damaged(&self.path, self.line, at, why))?;
            if line.record != Record::Unknown {
                return Ok(Some(line));
            }
            self.skipped += 1;
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Line, HerdError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_line().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.path)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

/// A ledger in memory.
#[derive(Debug)]
pub struct Ledger {
    /// The first line.
    pub header: Header,
    /// The lines, up to the damage if there is any.
    pub lines: Vec<Line>,
    /// How many records of unknown kind were passed over.
    pub skipped: u64,
    /// What stopped the reading, if not the end of the file.
    pub damage: Option<HerdError>,
}

impl Ledger {
    /// Reads all of a ledger that can be read.
    ///
    /// # Errors
    /// As [`Reader::open`]; later damage is in [`Ledger::damage`].
    pub fn read(path: &Path) -> Result<Self, HerdError> {
        Ok(Self::of(Reader::open(path)?))
    }

    /// Reads what is left of a ledger.
    pub fn of(mut reader: Reader) -> Self {
        let mut lines = Vec::new();
        let mut damage = None;
        for line in &mut reader {
            match line {
                Ok(line) => lines.push(line),
                Err(error) => damage = Some(error),
            }
        }
        Self {
            header: reader.header,
            lines,
            skipped: reader.skipped,
            damage,
        }
    }
}

/// The record that a line holds, with or without its line feed; why it holds none.
pub(super) fn record(bytes: &[u8]) -> Result<Line, String> {
    let text = without_feed(bytes);
    if !is_whole(text) {
        return Err(if bytes.ends_with(b"\n") {
            "its sum is wrong".to_owned()
        } else {
            "the line is cut off or its sum is wrong".to_owned()
        });
    }
    let line = Line::read(text)
        .map_err(|error| format!("the line is intact but is not a record: {error}"))?;
    match flaw(&line.record) {
        Some(flaw) => Err(format!("the line is intact but {flaw}")),
        None => Ok(line),
    }
}

/// The line, if it is the one to come; which that is, `next` knows after the first line of a file.
pub(super) fn in_order(line: Line, next: &mut Option<u64>) -> Result<Line, String> {
    if let Some(next) = *next
        && line.sequence != next
    {
        return Err(format!(
            "it is record {}, where {next} was to come: lines are missing",
            line.sequence
        ));
    }
    // The start is repeated with the number of the line after it when a file is turned over.
    let repeated = next.is_none() && line.sequence > 0;
    let step = u64::from(!(repeated && matches!(line.record, Record::Start(_))));
    *next = Some(line.sequence.saturating_add(step));
    Ok(line)
}

pub(super) fn header(path: &Path, line: &[u8]) -> Result<Header, HerdError> {
    let not_ours = |why: &str| HerdError::NotOurs {
        path: path.to_owned(),
        what: "ledger",
        why: why.to_owned(),
    };
    if line.is_empty() {
        return Err(not_ours("the file is empty"));
    }
    let Ok(AnyHeader { version }) = serde_json::from_slice(line) else {
        return Err(not_ours(
            "its first line is not a ledger's header; give a file that `numaherd run` wrote",
        ));
    };
    let whole = is_whole(line);
    // A later version may seal its lines in another way; a seal of ours that is wrong is damage.
    let sealed = line.windows(SEAL.len()).any(|part| part == SEAL);
    if version > VERSION && (whole || !sealed) {
        return Err(HerdError::Newer {
            path: path.to_owned(),
            what: "a ledger",
            version,
            known: VERSION,
        });
    }
    if !whole {
        return Err(damaged(path, 1, 0, "the header's sum is wrong".to_owned()));
    }
    serde_json::from_slice(line)
        .map_err(|error| damaged(path, 1, 0, format!("the header cannot be read: {error}")))
}

pub(super) fn damaged(path: &Path, line: u64, byte: u64, why: String) -> HerdError {
    HerdError::Damaged {
        path: path.to_owned(),
        line,
        byte,
        why,
    }
}

pub(super) fn without_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
