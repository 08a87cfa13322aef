//! The lines of a text of any length, each of bounded length.

use std::io::{BufRead, Read};

use crate::error::Error;

/// The longest line that is read, in bytes. What is longer is no line of any format.
const LONGEST: usize = 16 << 10;

#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Without its end.
    Whole(&'a [u8]),
    /// The start of a line that is too long.
    TooLong(&'a [u8]),
}

#[derive(Debug)]
pub(super) struct Lines<R> {
    text: R,
    line: Vec<u8>,
    at: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(text: R) -> Self {
        Self {
            text,
            line: Vec::new(),
            at: 0,
        }
    }

    /// The next line; None after the last.
    ///
    /// # Errors
    /// When the text cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, Error> {
        self.line.clear();
        self.up_to_end(false)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        if self.line.len() > LONGEST {
            while !self.line.ends_with(b"\n") && self.up_to_end(true)? > 0 {}
            self.line.truncate(LONGEST);
            return Ok(Some(Line::TooLong(&self.line)));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(Line::Whole(line)))
    }

    /// Reads on up to the end of the line, one byte more than the longest at most, and says how
    /// many. What was read before is kept at most to that length.
    fn up_to_end(&mut self, is_rest: bool) -> Result<usize, Error> {
        if is_rest {
            self.line.truncate(LONGEST);
        }
        let mut part = (&mut self.text).take(LONGEST as u64 + 1);
        let read = part.read_until(b'\n', &mut self.line);
        let read = read.map_err(|why| Error::Read { at: self.at, why })?;
        self.at += read as u64;
        Ok(read)
    }
}
