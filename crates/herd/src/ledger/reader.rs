//! Reads a ledger line by line, up to the damage.
//!
//! Property: whatever happens to a ledger's bytes, what is read is a prefix of what was written, and
//! the reader says at which line and byte it ends. A last line that is still being written is neither read
//! nor damage.
//!
//! If a ledger was turned over ([`super::Writer`]), both files are read as one; the repeated start of the later one is
//! skipped.

use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numaherd_files::read::is_named_pipe;
use serde::Deserialize;

use super::changes::Unfolded;
use super::sound::flaw;
use super::text::{Bytes, Text};
use super::writer::older;
use super::{Header, Line, Record, VERSION};
use crate::error::HerdError;
use crate::sealed::{SEAL, is_whole};

/// A ledger being read: an iterator of lines. Where there is damage, it ends there with an error that names it. Records
/// of kinds unknown to this program are skipped and counted.
pub struct Reader {
    path: PathBuf,
    /// The file of the lines; `None` for a ledger in memory.
    file: Option<Arc<File>>,
    lines: BufReader<Text>,
    header: Header,
    line: u64,
    byte: u64,
    next_sequence: Option<u64>,
    unfolded: Unfolded,
    skipped: u64,
    ended: bool,
    /// The file that continues this one.
    later: Option<Box<Self>>,
}

/// The part of a header that every version has.
#[derive(Deserialize)]
struct AnyHeader {
    #[serde(rename = "numaherd-ledger")]
    version: u64,
}

impl Reader {
    /// Opens a ledger, with the file that holds what came before, if there is one.
    ///
    /// # Errors
    /// [`HerdError::Io`] when it cannot be opened, [`HerdError::NotOurs`] when it is no ledger,
    /// [`HerdError::Newer`] when a later program wrote it, [`HerdError::Damaged`] when its header
    /// is damaged.
    pub fn open(path: &Path) -> Result<Self, HerdError> {
        let reader = Self::open_part(path)?;
        Ok(match earlier_part(path) {
            Some(earlier) => Self {
                later: Some(Box::new(reader)),
                ..Self::open_part(&earlier)?
            },
            None => reader,
        })
    }

    /// Opens one file.
    fn open_part(path: &Path) -> Result<Self, HerdError> {
        let file = Arc::new(open(path)?);
        Self::read(path, Some(file.clone()), Bytes::File(file))
    }

    /// Reads a ledger from memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, HerdError> {
        Self::read(path, None, Bytes::Memory(bytes.into()))
    }

    fn read(path: &Path, file: Option<Arc<File>>, bytes: Bytes) -> Result<Self, HerdError> {
        let mut lines = BufReader::new(Text::new(bytes));
        let mut first = Vec::new();
        read_line(&mut lines, &mut first, path, 1, 0)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            lines,
            header: header(path, without_feed(&first))?,
            line: 1,
            byte: first.len() as u64,
            next_sequence: None,
            unfolded: Unfolded::default(),
            skipped: 0,
            ended: false,
            later: None,
        })
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many records of unknown kind were skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn next_line(&mut self) -> Result<Option<Line>, HerdError> {
        loop {
            let at = self.byte;
            let mut bytes = Vec::new();
            read_line(&mut self.lines, &mut bytes, &self.path, self.line + 1, at)?;
            let is_unfinished = !bytes.ends_with(b"\n");
            let file = self.file.as_deref().filter(|_| is_unfinished);
            if bytes.is_empty() || file.is_some_and(is_being_written) {
                let Some(later) = self.later.take() else {
                    return Ok(None);
                };
                let earlier = std::mem::replace(self, *later);
                self.go_on_after(&earlier)?;
                continue;
            }
            self.line += 1;
            self.byte += bytes.len() as u64;
            let line = record(&mut self.unfolded, &bytes)
                .and_then(|line| in_order(line, &mut self.next_sequence))
                .map_err(|why| damaged(&self.path, self.line, at, why))?;
            if line.record != Record::Unknown {
                return Ok(Some(line));
            }
            self.skipped += 1;
        }
    }

    /// Skips the repeated start at which `earlier` ended.
    fn go_on_after(&mut self, earlier: &Self) -> Result<(), HerdError> {
        let (line, byte) = (self.line + 1, self.byte);
        if let Some(start) = self.next_line()? {
            let mut next = earlier.next_sequence;
            in_order(start, &mut next).map_err(|why| damaged(&self.path, line, byte, why))?;
        }
        self.skipped += earlier.skipped;
        Ok(())
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
    /// The lines, up to any damage.
    pub lines: Vec<Line>,
    /// How many records of unknown kind were skipped.
    pub skipped: u64,
    /// What stopped the reading, if not the end of the file.
    pub damage: Option<HerdError>,
}

impl Ledger {
    /// Reads all that can be read of a ledger.
    ///
    /// # Errors
    /// As [`Reader::open`]; later damage is in [`Ledger::damage`].
    pub fn read(path: &Path) -> Result<Self, HerdError> {
        Ok(Self::of(Reader::open(path)?))
    }

    /// Reads the rest of a ledger.
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

/// Opens a ledger's file; a named pipe is refused.
pub(super) fn open(path: &Path) -> Result<File, HerdError> {
    if is_named_pipe(path) {
        return Err(not_ours(path, &format!("it is a named pipe; {GIVE}")));
    }
    File::open(path).map_err(|error| HerdError::io("open the ledger", path, error))
}

/// The file that holds what came before the ledger at `path`, if that begins in the middle of a run.
pub fn earlier_part(path: &Path) -> Option<PathBuf> {
    let begin = |path: &Path| {
        let mut reader = path.is_file().then(|| Reader::open_part(path).ok())??;
        let first = reader.next()?.ok()?;
        Some((reader.header, first.sequence))
    };
    let (header, first) = begin(path).filter(|(_, first)| *first > 0)?;
    let earlier = older(path);
    let is_of_run = |(of, begins): (Header, u64)| of == header && begins < first;
    begin(&earlier).is_some_and(is_of_run).then_some(earlier)
}

/// Longest first line that is taken, in bytes: a header says little.
const LONGEST_HEADER: usize = 1 << 16;
/// The longest later line, in bytes: beyond any that a machine of 1,000,000 threads makes, and short enough to hold.
const LONGEST_LINE: usize = 1 << 28;

/// Reads on to the end of a line, whose beginning `line` may hold. The line is `number`, from 1, and begins at `byte`.
/// What lacks a line feed is left as it is.
pub(super) fn read_line(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
    path: &Path,
    number: u64,
    byte: u64,
) -> Result<(), HerdError> {
    let most = if number == 1 {
        LONGEST_HEADER
    } else {
        LONGEST_LINE
    };
    let left = most.saturating_sub(line.len()) as u64;
    from.by_ref()
        .take(left)
        .read_until(b'\n', line)
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidData if number == 1 => not_ours(
                path,
                &format!("it cannot be decompressed ({error}); {GIVE}"),
            ),
            ErrorKind::InvalidData => {
                let why = format!("it cannot be decompressed ({error})");
                damaged(path, number, byte, why)
            }
            _ => HerdError::io("read", path, error),
        })?;
    if line.len() < most || line.ends_with(b"\n") {
        return Ok(());
    }
    // A caller that keeps a line's beginning need not keep this one.
    *line = Vec::new();
    Err(if number == 1 {
        not_ours(
            path,
            &format!("its first line is longer than {most} bytes; {GIVE}"),
        )
    } else {
        damaged(
            path,
            number,
            byte,
            format!("the line is longer than {most} bytes"),
        )
    })
}

/// Whether a [`super::Writer`] has this file open, by its lock.
pub(super) fn is_being_written(file: &File) -> bool {
    let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    // Only to look: whoever begins to write may have it.
    let _ = file.unlock();
    is_locked
}

/// What to do about a file that is no ledger.
const GIVE: &str = "give a file that `numaherd run` wrote";

fn not_ours(path: &Path, why: &str) -> HerdError {
    HerdError::NotOurs {
        path: path.to_owned(),
        what: "ledger",
        why: why.to_owned(),
    }
}

/// The record in the next line of a file, with or without its line feed; else why it holds none.
pub(super) fn record(unfolded: &mut Unfolded, bytes: &[u8]) -> Result<Line, String> {
    let text = without_feed(bytes);
    if !is_whole(text) {
        return Err(if bytes.ends_with(b"\n") {
            "its sum is wrong".to_owned()
        } else {
            "the line is cut off or its sum is wrong".to_owned()
        });
    }
    let read = unfolded.line(text);
    let sound = read.and_then(|line| flaw(&line.record).map_or(Ok(line), Err));
    sound.map_err(|flaw| format!("the line is intact but {flaw}"))
}

/// The line, if it is the expected one; `next` holds its number after a file's first line.
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
    if line.is_empty() {
        return Err(not_ours(path, "the file is empty"));
    }
    let Ok(AnyHeader { version }) = serde_json::from_slice(line) else {
        let why = format!("its first line is not a ledger's header; {GIVE}");
        return Err(not_ours(path, &why));
    };
    let whole = is_whole(line);
    // A later version may seal its lines differently; a wrong seal of ours is damage.
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
