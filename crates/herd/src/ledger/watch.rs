//! Reads the lines that a running herd sends to its watchers.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::changes::Unfolded;
use super::reader::{damaged, header, read_line, record, without_feed};
use super::{Header, Line, Record};
use crate::error::HerdError;

/// The lines that a running herd sends to its watchers: a header, then records, sealed as in a file.
/// Lines are missing where the watcher could not keep up; they are counted.
pub struct Watched<R> {
    from: R,
    path: PathBuf,
    number: u64,
    last_sequence: Option<u64>,
    missing: u64,
    unfolded: Unfolded,
}

impl<R: BufRead> Watched<R> {
    /// Reads the header; `path` is for messages.
    ///
    /// # Errors
    /// [`HerdError::Io`]; [`HerdError::NotOurs`], [`HerdError::Newer`] or [`HerdError::Damaged`] when
    /// the input does not begin with a readable ledger header.
    pub fn begin(mut from: R, path: &Path) -> Result<(Self, Header), HerdError> {
        let mut first = Vec::new();
        read_line(&mut from, &mut first, path, 1, 0)?;
        let header = header(path, without_feed(&first))?;
        let watched = Self {
            from,
            path: path.to_owned(),
            number: 1,
            last_sequence: None,
            missing: 0,
            unfolded: Unfolded::default(),
        };
        Ok((watched, header))
    }

    /// How many lines are missing.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The next record, as soon as it comes; `None` when the herd has ended. Records of unknown kind
    /// are skipped.
    ///
    /// # Errors
    /// [`HerdError::Io`], and [`HerdError::Damaged`] when a line is no record.
    #[expect(
        clippy::should_implement_trait,
        reason = "whoever listens asks for one after the other, and for what is missing in between"
    )]
    pub fn next(&mut self) -> Result<Option<Line>, HerdError> {
        loop {
            let mut bytes = Vec::new();
            read_line(&mut self.from, &mut bytes, &self.path, self.number + 1, 0)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            let line = record(&mut self.unfolded, &bytes)
                .map_err(|why| damaged(&self.path, self.number, 0, why))?;
            if line.record == Record::Unknown {
                continue;
            }
            // The first two lines are the latest start and snapshot, whatever their numbers.
            let follows = matches!(line.record, Record::Start(_) | Record::Snapshot(_));
            if let Some(last) = self.last_sequence
                && !(follows && self.number <= 3)
            {
                self.missing += line.sequence.saturating_sub(last.saturating_add(1));
            }
            self.last_sequence = Some(line.sequence);
            return Ok(Some(line));
        }
    }
}

impl<R> std::fmt::Debug for Watched<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched")
            .field("path", &self.path)
            .field("line", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::super::follow::tests::{bytes_of, lines};
    use super::*;

    #[test]
    fn a_watched_herd_may_leave_lines_out() {
        let lines = lines(20);
        let some = [0, 7, 8, 12].map(|at| lines[at].clone());
        let bytes = bytes_of(&some);
        let path = Path::new("the socket");
        let (mut watched, header) = Watched::begin(BufReader::new(&bytes[..]), path).unwrap();
        assert_eq!(header.program, "test");
        let mut heard = Vec::new();
        while let Some(line) = watched.next().unwrap() {
            heard.push(line);
        }
        assert_eq!(heard, some);
        assert_eq!(watched.missing(), 6 + 3);
        let answer = b"{\"error\":\"no such thing to do\"}\n";
        assert!(Watched::begin(BufReader::new(&answer[..]), path).is_err());
    }
}
