//! Reads a ledger while it is being written: complete lines as they come.
//!
//! The last line may be half written; it is read once its line feed is there. A ledger that has reached its size is
//! renamed to `<name>.1` and begun anew under its name ([`super::Writer`]). The old file stays open: what is left of it
//! is read first, then the new file, whose repeated start is skipped. If the ledger was turned over before the first
//! look, the old file is read from its beginning, as by [`super::Reader`]. If it was turned over twice between two
//! looks, lines are missing; they are counted. Another run's ledger in its place is read from its beginning.
//!
//! A whole line that is no record, or is out of order, is damage here as for [`super::Reader`].
//!
//! Each line has a [`Place`], from which it can be read again: a program that looks back through hours of ledger need
//! not keep it in memory.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::changes::{Unfolded, is_changes};
use super::reader::{
    damaged, earlier_part, header, in_order, is_being_written, open, read_line, record,
    without_feed,
};
use super::text::{Bytes, Start, Text};
use super::{Header, Line, Record};
use crate::error::HerdError;

/// Bytes read at once.
const CHUNK: usize = 1 << 18;

/// Where a line is.
#[derive(Clone, Debug)]
pub struct Place {
    file: Arc<File>,
    /// Where in the file to begin for `from`.
    start: Start,
    /// The byte of the text at which to begin: the line, or the whole snapshot that its changes start from.
    from: u64,
    to: u64,
}

impl Place {
    /// Reads the line again; `None` when the file does not hold it any more.
    pub fn read(&self) -> Option<Line> {
        let file = Bytes::File(self.file.clone());
        let bytes = Text::again(file, self.start, self.from, self.to).ok()?;
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        let last = lines.pop()?;
        let mut unfolded = Unfolded::default();
        if let [whole, between @ ..] = &lines[..] {
            record(&mut unfolded, whole).ok()?;
            for line in between.iter().filter(|line| is_changes(without_feed(line))) {
                record(&mut unfolded, line).ok()?;
            }
        }
        record(&mut unfolded, last).ok()
    }
}

/// What comes next.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is handled one at a time, as a line is"
)]
pub enum Next {
    /// A line.
    Line(Line, Place),
    /// A ledger begins here: the first, or one that replaced the one before.
    Begins(Header),
    /// Nothing more is there now.
    NothingYet,
}

/// A ledger that grows.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: Option<Open>,
    /// Of the run being read, once a line was.
    next_sequence: Option<u64>,
    skipped: u64,
    missing: u64,
    failed: bool,
}

/// The file being read.
#[derive(Debug)]
struct Open {
    /// Its name when it was opened.
    path: PathBuf,
    file: Arc<File>,
    lines: BufReader<Text>,
    /// What is there of the line to come.
    begun: Vec<u8>,
    /// Where that line begins.
    byte: u64,
    /// The line to come, from 1.
    line: u64,
    /// Whether a record of it was read.
    has_record: bool,
    unfolded: Unfolded,
    /// Where the latest whole snapshot begins.
    whole_at: u64,
}

impl Follow {
    /// A ledger by its name. It need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            next_sequence: None,
            skipped: 0,
            missing: 0,
            failed: false,
        }
    }

    /// How many records of unknown kind were skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many lines were gone before they were read.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Bytes of a line that has no end yet.
    pub fn unfinished(&self) -> usize {
        let open = self.file.as_ref();
        open.map_or(0, |open| open.begun.len())
    }

    /// The damage that an unfinished line is, if no one writes the file any more.
    pub fn cut(&self) -> Option<HerdError> {
        let open = self.file.as_ref().filter(|open| !open.begun.is_empty())?;
        let why = format!("the line is cut off after {} bytes", open.begun.len());
        (!is_being_written(&open.file)).then(|| self.damage(open.line, open.byte, why))
    }

    /// Damage of the file being read.
    fn damage(&self, line: u64, byte: u64, why: String) -> HerdError {
        let open = self.file.as_ref();
        damaged(open.map_or(&self.path, |open| &open.path), line, byte, why)
    }

    /// What comes next, as far as it is there.
    ///
    /// # Errors
    /// As [`super::Reader::open`], except for a file that does not exist yet; [`HerdError::Damaged`] for a damaged
    /// line. After an error, nothing more comes.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends where nothing is; here more may come"
    )]
    pub fn next(&mut self) -> Result<Next, HerdError> {
        if self.failed {
            return Ok(Next::NothingYet);
        }
        let next = self.advance();
        self.failed = next.is_err();
        next
    }

    fn advance(&mut self) -> Result<Next, HerdError> {
        loop {
            let Some(open) = &mut self.file else {
                match self.open()? {
                    Some(open) => self.file = Some(open),
                    None => return Ok(Next::NothingYet),
                }
                continue;
            };
            let byte = open.byte;
            let Some(bytes) = open.next_line()? else {
                if self.is_replaced()? {
                    self.file = None;
                    continue;
                }
                return Ok(Next::NothingYet);
            };
            if open.line == 1 {
                let header = header(&open.path, without_feed(&bytes))?;
                open.line += 1;
                return Ok(Next::Begins(header));
            }
            let at = open.line;
            let first = !open.has_record;
            open.line += 1;
            open.has_record = true;
            let line = open.record(&bytes, byte).and_then(|(line, place)| {
                let line = self.ordered(line, first)?;
                Ok(line.map(|line| (line, place)))
            });
            match line.map_err(|why| self.damage(at, byte, why))? {
                Some((line, _)) if line.record == Record::Unknown => self.skipped += 1,
                Some((line, place)) => return Ok(Next::Line(line, place)),
                None => {}
            }
        }
    }

    /// The line, if it is to be shown: `None` for the repeated start of a file that continues the one before.
    fn ordered(&mut self, line: Line, first: bool) -> Result<Option<Line>, String> {
        if !first {
            return in_order(line, &mut self.next_sequence).map(Some);
        }
        let expected = self.next_sequence.take();
        let goes_on = line.sequence > 0 && matches!(line.record, Record::Start(_));
        if let Some(expected) = expected.filter(|_| goes_on) {
            self.missing += line.sequence.saturating_sub(expected);
        }
        let repeats = goes_on && expected.is_some();
        in_order(line, &mut self.next_sequence).map(|line| (!repeats).then_some(line))
    }

    fn open(&self) -> Result<Option<Open>, HerdError> {
        let is_first = self.next_sequence.is_none();
        let earlier = is_first.then(|| earlier_part(&self.path)).flatten();
        let path = earlier.unwrap_or_else(|| self.path.clone());
        match open(&path) {
            Ok(file) => {
                let file = Arc::new(file);
                Ok(Some(Open {
                    path,
                    lines: BufReader::with_capacity(CHUNK, Text::new(Bytes::File(file.clone()))),
                    file,
                    begun: Vec::new(),
                    byte: 0,
                    line: 1,
                    has_record: false,
                    unfolded: Unfolded::default(),
                    whole_at: 0,
                }))
            }
            Err(HerdError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether another file has the name by now, and all of this one is read. While there is none
    /// (it is just being turned over), this one is kept.
    fn is_replaced(&mut self) -> Result<bool, HerdError> {
        let failed = |error: io::Error| HerdError::io("read the ledger", &self.path, error);
        let Some(open) = &mut self.file else {
            return Ok(true);
        };
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let ours = open.file.metadata().map_err(failed)?;
        if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) {
            // It was emptied: it now holds another ledger.
            return Ok(now.len() < open.lines.get_ref().read_bytes());
        }
        // It was renamed after its last byte was written: the unread rest is read first.
        let is_read = open.lines.get_ref().read_bytes() >= ours.len();
        match self.cut().filter(|_| is_read) {
            Some(damage) => Err(damage),
            None => Ok(is_read),
        }
    }
}

impl Open {
    /// The next line with its line feed, if it is complete.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, HerdError> {
        let (number, byte) = (self.line, self.byte);
        read_line(&mut self.lines, &mut self.begun, &self.path, number, byte)?;
        if !self.begun.ends_with(b"\n") {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.begun);
        self.byte += line.len() as u64;
        Ok(Some(line))
    }

    /// The record in the line at `byte`, and where to read it again.
    fn record(&mut self, bytes: &[u8], byte: u64) -> Result<(Line, Place), String> {
        let line = record(&mut self.unfolded, bytes)?;
        let mut from = byte;
        if matches!(line.record, Record::Snapshot(_)) {
            if is_changes(without_feed(bytes)) {
                from = self.whole_at;
            } else {
                self.whole_at = byte;
            }
        }
        let place = Place {
            file: self.file.clone(),
            start: self.lines.get_ref().start_of(from),
            from,
            to: self.byte,
        };
        Ok((line, place))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::io::Write;

    use numaherd_topology::hwloc;
    use proptest::prelude::*;

    use super::super::{Notice, Reader, Start, Writer};
    use super::*;
    use crate::settings::Settings;

    /// Lines as a run writes them: a start, and notices.
    pub(in super::super) fn lines(number: u64) -> Vec<Line> {
        let start = Record::Start(Start {
            topology: hwloc::synthetic("numa:2 core:2 pu:1").unwrap(),
            signals: Vec::new(),
            settings: Settings::default(),
            policy: "linux".to_owned(),
            seed: 0,
            pager: false,
            paused: false,
        });
        let notice = |n: u64| {
            Record::Notice(Notice {
                text: format!("notice {n}"),
            })
        };
        let records = std::iter::once(start).chain((1..number).map(notice));
        let lined = (0..).zip(records).map(|(sequence, record)| Line {
            sequence,
            time_ns: sequence * 1_000,
            record,
        });
        lined.collect()
    }

    /// All that is there now.
    fn heard(follow: &mut Follow) -> Vec<Line> {
        let mut lines = Vec::new();
        loop {
            match follow.next().unwrap() {
                Next::Line(line, place) => {
                    assert_eq!(place.read().as_ref(), Some(&line));
                    lines.push(line);
                }
                Next::Begins(header) => assert_eq!(header.program, "test"),
                Next::NothingYet => return lines,
            }
        }
    }

    pub(in super::super) fn bytes_of(lines: &[Line]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut writer = Writer::create(&path, "test", None, 1 << 30).unwrap();
        lines
            .iter()
            .for_each(|line| writer.write(line.clone()).unwrap());
        writer.flush().unwrap();
        fs::read(&path).unwrap()
    }

    #[test]
    fn a_ledger_that_is_turned_over_is_read_without_a_gap() {
        is_read_without_a_gap("ledger", 16_000);
        is_read_without_a_gap("ledger.zst", 8000);
    }

    fn is_read_without_a_gap(name: &str, most_bytes: u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let mut follow = Follow::new(&path);
        assert!(heard(&mut follow).is_empty(), "it is not there yet");
        let lines = lines(200);
        let mut writer = Writer::create(&path, "test", None, most_bytes).unwrap();
        let mut all = Vec::new();
        for some in lines.chunks(7) {
            some.iter()
                .for_each(|line| writer.write(line.clone()).unwrap());
            writer.flush().unwrap();
            all.extend(heard(&mut follow));
        }
        assert_eq!(all, lines);
        assert!(
            folder.path().join(format!("{name}.1")).exists(),
            "it was turned over"
        );
        assert_eq!(follow.missing(), 0);
    }

    #[test]
    fn what_was_gone_before_it_was_read_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let lines = lines(200);
        let mut writer = Writer::create(&path, "test", None, 16_000).unwrap();
        let mut follow = Follow::new(&path);
        lines[..3]
            .iter()
            .for_each(|line| writer.write(line.clone()).unwrap());
        writer.flush().unwrap();
        let mut all = heard(&mut follow);
        // Turned over more than once before the next look; the file that was open is read to its end.
        lines[3..]
            .iter()
            .for_each(|line| writer.write(line.clone()).unwrap());
        writer.flush().unwrap();
        all.extend(heard(&mut follow));
        assert!(follow.missing() > 0);
        assert_eq!(all.len() as u64 + follow.missing(), 200);
        assert_eq!(all.last(), lines.last());
    }

    #[test]
    fn another_run_in_its_place_is_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut follow = Follow::new(&path);
        for number in [5, 3] {
            let lines = lines(number);
            let mut writer = Writer::create(&path, "test", None, 1 << 20).unwrap();
            lines
                .iter()
                .for_each(|line| writer.write(line.clone()).unwrap());
            writer.flush().unwrap();
            assert_eq!(heard(&mut follow), lines);
        }
        assert_eq!(follow.missing(), 0);
        let emptied = bytes_of(&lines(2));
        fs::write(&path, emptied).unwrap();
        assert_eq!(heard(&mut follow), lines(2));
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        fs::write(&path, "milk, bread\n").unwrap();
        let mut follow = Follow::new(&path);
        let error = follow.next().unwrap_err();
        assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
        assert!(matches!(follow.next(), Ok(Next::NothingYet)));
    }

    #[test]
    fn damage_in_a_compressed_ledger_is_found_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.zst");
        let lines = lines(20);
        let mut writer = Writer::create(&path, "test", None, 1 << 20).unwrap();
        let some = |writer: &mut Writer, lines: &[Line]| {
            lines
                .iter()
                .for_each(|line| writer.write(line.clone()).unwrap());
            writer.flush().unwrap();
        };
        some(&mut writer, &lines[..10]);
        let mut follow = Follow::new(&path);
        assert_eq!(heard(&mut follow), lines[..10]);
        let from = fs::read(&path).unwrap().len();
        some(&mut writer, &lines[10..]);
        let mut bytes = fs::read(&path).unwrap();
        // No block has this kind.
        bytes[from] |= 0b110;
        fs::write(&path, bytes).unwrap();
        let error = follow.next().unwrap_err().to_string();
        assert!(error.contains("is damaged at line 12 (byte "), "{error}");
        assert!(error.contains("it cannot be decompressed"), "{error}");
        let ledger = super::super::Ledger::read(&path).unwrap();
        assert_eq!(ledger.lines, lines[..10]);
        assert_eq!(ledger.damage.unwrap().to_string(), error);
    }

    proptest! {
        #[test]
        fn lines_come_whole_however_they_are_written(
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
            is_packed in any::<bool>(),
        ) {
            let lines = lines(12);
            let mut bytes = bytes_of(&lines);
            if is_packed {
                bytes = zstd::encode_all(&bytes[..], 3).unwrap();
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger");
            let mut file = File::create(&path).unwrap();
            let mut follow = Follow::new(&path);
            let mut all = Vec::new();
            let mut written = 0;
            for cut in cuts {
                file.write_all(&bytes[written..cut]).unwrap();
                written = cut;
                all.extend(heard(&mut follow));
                prop_assert_eq!(&all[..], &lines[..all.len()]);
            }
            prop_assert_eq!(all, lines);
            prop_assert_eq!(follow.unfinished(), 0);
        }

        #[test]
        fn what_is_damaged_is_read_as_the_reader_reads_it(
            at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut bytes = bytes_of(&lines(8));
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger");
            fs::write(&path, &bytes).unwrap();
            let mut follow = Follow::new(&path);
            let mut followed = Vec::new();
            let damage = loop {
                match follow.next() {
                    Ok(Next::Line(line, _)) => followed.push(line),
                    Ok(Next::Begins(_)) => {}
                    Ok(Next::NothingYet) => break None,
                    Err(error) => break Some(error.to_string()),
                }
            };
            let read = Reader::open(&path).map(super::super::Ledger::of);
            match read {
                Ok(ledger) => {
                    prop_assert_eq!(followed, ledger.lines);
                    // A last line without its end may still get it.
                    if follow.unfinished() == 0 {
                        prop_assert_eq!(damage, ledger.damage.map(|error| error.to_string()));
                    }
                }
                Err(error) => {
                    prop_assert!(followed.is_empty());
                    prop_assert_eq!(damage, Some(error.to_string()));
                }
            }
        }
    }
}
