//! Imports traces of other tools: reads their text line by line into the form of Numaherd's own recordings.
//!
//! | format | made by | has |
//! |---|---|---|
//! | [`Format::Lackey`] | `valgrind --tool=lackey --trace-mem=yes` | every load and store, with size and instructions between; no threads |
//! | [`Format::PerfScript`] | `perf script` of memory samples | a sample of loads and stores, with thread and time; neither size nor instructions |
//!
//! Text is less reliable than binary data: programs print into it, and tools add messages. The importer counts lines
//! that it cannot read and keeps the first few for display; it reads all others. It does not make up what the text
//! lacks; [`Imported`] and the trace's description say what is missing.

mod lackey;
mod perf;
mod sink;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::file::{MAGIC, Trace, Writer};
use sink::Sink;

/// How many unreadable lines are kept with their text.
const SHOWN: usize = 5;
/// The longest line that is read, in bytes. No format has longer lines.
const LONGEST: usize = 16 << 10;
/// Bytes at the start of a text by which its format is identified.
const LOOKED_AT: usize = 64 << 10;

/// The format of a tool's text.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Valgrind's Lackey with `--trace-mem=yes`.
    Lackey,
    /// `perf script` of samples with addresses.
    PerfScript,
}

impl Format {
    /// The tool's name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lackey => "valgrind --tool=lackey --trace-mem=yes",
            Self::PerfScript => "perf script",
        }
    }

    /// Determines the format from the first lines of a text: the format that more of them fit; `None` if they fit
    /// neither.
    pub fn of(text: &[u8]) -> Option<Self> {
        let count = |fits: fn(&[u8]) -> bool| {
            let lines = text.split(|&byte| byte == b'\n');
            lines.filter(|line| fits(line)).count()
        };
        let lackey = count(lackey::is_line);
        let samples = count(perf::is_line);
        match lackey.max(samples) {
            0 => None,
            _ if lackey >= samples => Some(Self::Lackey),
            _ => Some(Self::PerfScript),
        }
    }
}

/// What was found in a text.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Imported {
    /// The text's format.
    pub format: Format,
    /// Lines of the text.
    pub lines: u64,
    /// Events made from them.
    pub events: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first of these.
    pub bad_examples: Vec<BadLine>,
    /// Samples without an address, which say nothing about memory and were left out.
    pub without_address: u64,
    /// The samples by what was sampled; empty for a trace of all accesses.
    pub sampled: Vec<Sampled>,
}

/// A line that could not be read.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// Its text, cut to some 100 letters.
    pub text: String,
}

/// Samples of one event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Sampled {
    /// The event, as the tool names it.
    pub event: String,
    /// How many.
    pub samples: u64,
    /// How many events these samples stand for: the sum of the samples' periods. `None` if no sample had a period.
    pub happened: Option<u64>,
}

impl Sampled {
    /// The N of sampling one event in N, if that is known.
    pub fn one_in(&self) -> Option<f64> {
        let happened = self.happened? as f64;
        (self.samples > 0).then(|| happened / self.samples as f64)
    }
}

impl Imported {
    const fn new(format: Format) -> Self {
        Self {
            format,
            lines: 0,
            events: 0,
            bad_lines: 0,
            bad_examples: Vec::new(),
            without_address: 0,
            sampled: Vec::new(),
        }
    }

    fn bad(&mut self, line: &[u8]) {
        self.bad_lines += 1;
        if self.bad_examples.len() < SHOWN {
            let text = String::from_utf8_lossy(line);
            self.bad_examples.push(BadLine {
                line: self.lines,
                text: text.trim().chars().take(100).collect(),
            });
        }
    }

    /// The trace's description of itself.
    fn about(&self) -> Map<String, Value> {
        let mut about = Map::new();
        about.insert("recorded_by".to_owned(), json!(self.format.name()));
        about.insert("imported".to_owned(), json!(self));
        if self.format == Format::PerfScript {
            let silent = json!(["sizes", "instructions", "sleeps and wakes"]);
            about.insert("unknown".to_owned(), silent);
        } else {
            about.insert("unknown".to_owned(), json!(["threads", "times"]));
        }
        about
    }
}

/// Reads a tool's text and writes it as a trace.
///
/// # Errors
/// When the text cannot be read or is of no known format, or the trace cannot be written.
pub fn import<W: Write>(mut text: impl BufRead, to: W) -> Result<(W, Imported), Error> {
    let mut first = Vec::new();
    let mut beginning = (&mut text).take(LOOKED_AT as u64);
    beginning
        .read_to_end(&mut first)
        .map_err(|why| Error::Read { at: 0, why })?;
    let format = Format::of(&first).ok_or_else(|| {
        Error::UnknownText(String::from_utf8_lossy(&first[..first.len().min(60)]).into_owned())
    })?;
    let mut text = io::Cursor::new(first).chain(text);
    let mut imported = Imported::new(format);
    // Neither tool gives the size of pages; assume 4 KiB.
    let mut writer = Writer::new(to, 4096, &Map::new())?;
    let mut sink = Sink::new(&mut writer);
    match format {
        Format::Lackey => lackey::read(&mut text, &mut sink, &mut imported)?,
        Format::PerfScript => perf::read(&mut text, &mut sink, &mut imported)?,
    }
    imported.events = sink.finish()?;
    writer.note(&imported.about())?;
    Ok((writer.finish()?, imported))
}

/// Opens a trace, or imports the text of another tool into an unnamed temporary file first, which takes time and disk
/// space.
///
/// # Errors
/// When it cannot be read, or is neither a trace nor a known text.
pub fn open(path: &Path) -> Result<(Trace, Option<Imported>), Error> {
    let mut file = File::open(path).map_err(Error::open(path))?;
    let mut first = Vec::new();
    let beginning = (&mut file).take(MAGIC.len() as u64);
    BufReader::new(beginning)
        .read_to_end(&mut first)
        .map_err(Error::open(path))?;
    if first == MAGIC {
        return Ok((Trace::open(path)?, None));
    }
    let text = BufReader::with_capacity(1 << 20, io::Cursor::new(first).chain(file));
    let (file, imported) = import(text, unnamed()?)?;
    Ok((Trace::from_file(file)?, Some(imported)))
}

/// A temporary file that disappears when it is closed.
fn unnamed() -> Result<File, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("numaherd-trace-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(Error::open(&path))?;
    std::fs::remove_file(&path).map_err(Error::open(&path))?;
    Ok(file)
}

/// Calls `take` with each line; it says whether it could read the line.
fn each_line(
    text: &mut impl BufRead,
    imported: &mut Imported,
    mut take: impl FnMut(&[u8], &mut Imported) -> Result<bool, Error>,
) -> Result<(), Error> {
    let (mut line, mut at) = (Vec::new(), 0);
    let failed = |at| move |why| Error::Read { at, why };
    loop {
        line.clear();
        let mut part = text.by_ref().take(LONGEST as u64 + 1);
        at += part.read_until(b'\n', &mut line).map_err(failed(at))? as u64;
        if line.is_empty() {
            return Ok(());
        }
        imported.lines += 1;
        let is_whole = line.len() <= LONGEST;
        if !is_whole && !line.ends_with(b"\n") {
            at += text.skip_until(b'\n').map_err(failed(at))? as u64;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        if !is_whole || !(line.trim_ascii().is_empty() || take(line, imported)?) {
            imported.bad(line);
        }
    }
}

/// Parses all of `text` as a hexadecimal number, with or without `0x` before it.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        Some(value << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

/// Parses all of `text` as a decimal number.
fn decimal(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(text).ok()?.parse().ok())?
}
