//! Writes a ledger, and keeps it within its size.
//!
//! When the file has grown to half of what is allowed, it is renamed to `<name>.1` (replacing an earlier one), and a
//! new file begins with the same header and start. Each file is a ledger in itself, and together they hold at least the
//! latest half of what is allowed.
//!
//! A snapshot is written as its changes since the one before if that is in the same file ([`super::changes`]). The text
//! is compressed if the name ends with `.zst` ([`super::text`]); the size is then that of the compressed files.
//!
//! A file that can no longer be written ends where it was last flushed. One that cannot be begun is removed, and the
//! one before it gets its name back: on a full disk, all that was flushed is kept.
//!
//! The file is locked (`flock`) while it is written.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::changes::{Changes, ChangesLine, KIND, MOST_CHANGES};
use super::text::{Bytes, Text, TextWriter};
use super::{Head, Header, Line, Record, Start, VERSION};
use crate::error::HerdError;
use crate::sealed::{seal, seal_into};

/// What every ledger begins with, by which a file is known as one.
const MARK: &[u8] = b"{\"numaherd-ledger\":";

/// Writes a ledger.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: TextWriter,
    header: Vec<u8>,
    // The line being written; its memory is reused.
    line: Vec<u8>,
    // The first record, with what has changed since. It is repeated in each file so that each can be read by itself.
    start: Option<Start>,
    // The latest snapshot in this file; the bytes of the latest whole one and of the changes since.
    last: Option<Arc<Line>>,
    whole_bytes: u64,
    changes_bytes: u64,
    // Lines in this file after the start.
    lines: u64,
    most_bytes: u64,
}

impl Writer {
    /// Begins a ledger. A ledger of that name is renamed to `<name>.1`; any other file is left
    /// alone and refused. `most_bytes` bounds this file and the earlier half together.
    ///
    /// # Errors
    /// [`HerdError::NotOurs`] when something else has that name, [`HerdError::Io`] when the file cannot be made.
    pub fn create(
        path: &Path,
        program: &str,
        begun_unix_ms: Option<u64>,
        most_bytes: u64,
    ) -> Result<Self, HerdError> {
        if is_there(path)? {
            keep_as_older(path)?;
        }
        let header = seal(&Header {
            version: VERSION,
            program: program.to_owned(),
            begun_unix_ms,
        });
        let mut writer = Self {
            path: path.to_owned(),
            file: begin(path)?,
            header,
            line: Vec::new(),
            start: None,
            last: None,
            whole_bytes: 0,
            changes_bytes: 0,
            lines: 0,
            most_bytes,
        };
        writer.write_header()?;
        Ok(writer)
    }

    /// Whether a ledger may be begun at `path`, given what is there; changes nothing.
    ///
    /// # Errors
    /// As [`Writer::create`], as far as can be known.
    pub fn check(path: &Path) -> Result<(), HerdError> {
        is_there(path).map(drop)
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line. It may not be in the file before [`Writer::flush`].
    ///
    /// # Errors
    /// [`HerdError::Io`]: the disk is full or failing. The ledger ends there; what was flushed before is whole.
    pub fn write(&mut self, line: impl Into<Arc<Line>>) -> Result<(), HerdError> {
        let mut bytes = std::mem::take(&mut self.line);
        let written = self.write_sealed(&mut bytes, line.into());
        self.line = bytes;
        written
    }

    fn write_sealed(&mut self, bytes: &mut Vec<u8>, line: Arc<Line>) -> Result<(), HerdError> {
        let mut is_whole = !self.seal_changes(bytes, &line);
        if is_whole {
            seal_into(bytes, &*line);
        }
        if self.lines > 0
            && !self.has_room_for(bytes.len())?
            && let Some(start) = &self.start
        {
            let again = Line {
                record: Record::Start(start.clone()),
                ..Line::clone(&line)
            };
            self.turn_over(&seal(&again))?;
            if !is_whole {
                // The new file lacks what has changed.
                seal_into(bytes, &*line);
                is_whole = true;
            }
        }
        match (&line.record, &mut self.start) {
            (Record::Start(start), _) => self.start = Some(start.clone()),
            (Record::Control(controlled), Some(start)) => {
                start.follow(controlled);
                self.lines += 1;
            }
            _ => self.lines += 1,
        }
        if matches!(line.record, Record::Snapshot(_)) {
            let bytes = bytes.len() as u64;
            if is_whole {
                (self.whole_bytes, self.changes_bytes) = (bytes, 0);
                let begun = self.file.may_begin_frame();
                self.written(begun)?;
            } else {
                self.changes_bytes += bytes;
            }
            self.last = Some(line);
        }
        self.write_bytes(bytes)
    }

    /// Makes `bytes` the line with a snapshot's changes, if it is to be written as such.
    fn seal_changes(&self, bytes: &mut Vec<u8>, line: &Line) -> bool {
        let last = self.last.as_deref().map(|last| &last.record);
        let (Some(Record::Snapshot(last)), Record::Snapshot(now)) = (last, &line.record) else {
            return false;
        };
        if self.changes_bytes >= self.whole_bytes.saturating_mul(MOST_CHANGES) {
            return false;
        }
        let Some(changes) = Changes::between(last, now) else {
            return false;
        };
        let head = Head {
            record: line.sequence,
            at_ns: line.time_ns,
            kind: KIND.into(),
        };
        seal_into(bytes, &ChangesLine { head, changes });
        true
    }

    /// Adds lines of another ledger as they are, whatever the size.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn copy(&mut self, lines: &[u8]) -> Result<(), HerdError> {
        self.write_bytes(lines)
    }

    /// Hands what was written to the operating system.
    ///
    /// # Errors
    /// [`HerdError::Io`]: the disk is full or failing.
    pub fn flush(&mut self) -> Result<(), HerdError> {
        let flushed = self.file.flush();
        self.written(flushed)
    }

    /// Whether this file may grow by so many bytes of text.
    fn has_room_for(&mut self, bytes: usize) -> Result<bool, HerdError> {
        let half = self.most_bytes / 2;
        let fits = |file: &TextWriter| file.size() + bytes as u64 <= half;
        if fits(&self.file) {
            return Ok(true);
        }
        // Then the compressed size is known.
        self.flush()?;
        Ok(fits(&self.file))
    }

    /// Ends the file if a write failed.
    fn written(&mut self, written: io::Result<()>) -> Result<(), HerdError> {
        written.map_err(|error| {
            self.file.end_at_flushed();
            HerdError::io("write the ledger", &self.path, error)
        })
    }

    fn turn_over(&mut self, start: &[u8]) -> Result<(), HerdError> {
        self.flush()?;
        keep_as_older(&self.path)?;
        self.lines = 0;
        self.last = None;
        self.file = begin(&self.path).inspect_err(|_| take_back(&self.path))?;
        let begun = self.write_header().and_then(|()| self.write_bytes(start));
        begun.and_then(|()| self.flush()).inspect_err(|_| {
            let _ = fs::remove_file(&self.path);
            take_back(&self.path);
        })
    }

    fn write_header(&mut self) -> Result<(), HerdError> {
        self.write_bytes(&self.header.clone())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), HerdError> {
        let written = self.file.write_all(bytes);
        self.written(written)
    }
}

/// The name of the earlier half.
pub(super) fn older(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".1");
    path.with_file_name(name)
}

fn begin(path: &Path) -> Result<TextWriter, HerdError> {
    let failed = |error| HerdError::io("make the ledger", path, error);
    let file = File::create_new(path).map_err(failed)?;
    // By the lock, readers know that an incomplete line will be completed. On a file system without locks they take it
    // for damage.
    let _ = file.try_lock();
    TextWriter::new(file, path).map_err(failed)
}

fn keep_as_older(path: &Path) -> Result<(), HerdError> {
    fs::rename(path, older(path))
        .map_err(|error| HerdError::io("keep the earlier ledger beside", path, error))
}

/// Gives the earlier ledger its name back, unless something has it.
fn take_back(path: &Path) {
    if fs::symlink_metadata(path).is_err() {
        let _ = fs::rename(older(path), path);
    }
}

/// Whether a ledger already exists. Anything else there is refused.
fn is_there(path: &Path) -> Result<bool, HerdError> {
    // Opening a named pipe would wait for its writer.
    let (regular, length) = match fs::metadata(path) {
        Ok(about) => (about.is_file(), about.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(HerdError::io("look at the ledger", path, error)),
    };
    let mut first = Vec::new();
    if regular {
        let file =
            File::open(path).map_err(|error| HerdError::io("read the ledger", path, error))?;
        let text = Text::new(Bytes::File(Arc::new(file)));
        match text.take(MARK.len() as u64).read_to_end(&mut first) {
            Err(error) if error.kind() != ErrorKind::InvalidData => {
                return Err(HerdError::io("read the ledger", path, error));
            }
            _ => {}
        }
    }
    if regular && (length == 0 || first == MARK) {
        return Ok(true);
    }
    Err(HerdError::NotOurs {
        path: path.to_owned(),
        what: "ledger",
        why:
            "a file that is not a ledger already exists there; move it away, or choose another name"
                .to_owned(),
    })
}
