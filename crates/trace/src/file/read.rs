//! Reading a trace: what is in it, one thread's events, or all of it in recorded order.
//!
//! A trace is never in memory as a whole: it keeps the header of each frame, and each reader holds the frame that it is
//! at. Any number of readers may read one trace at once.
//!
//! Damage of the file's structure (an end that is missing, a header that was changed) is found when it is opened, and
//! everything beyond is left out. Damage within a frame is found when that frame is read; [`Trace::check`] reads all
//! frames once, and then leaves out everything beyond such damage as well.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use super::coding::{Guesses, decode};
use super::header::Header;
use super::scan::Contents;
use super::source::Source;
use crate::error::{Damage, Error};
use crate::event::{Event, ThreadInfo};

/// One frame of events, without the events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameInfo {
    /// Number of its thread.
    pub thread: u32,
    /// Events in it.
    pub events: u32,
    /// Instructions that the thread executed from its previous frame to the last of these events.
    pub instructions: u64,
    /// When it was recorded, in nanoseconds of the recorder's clock.
    pub time_ns: u64,
    /// Bytes that it takes in the file.
    pub bytes: u64,
    /// Its offset in bytes from the start of the file.
    pub at: u64,
    stored: u32,
    expanded: u32,
}

impl FrameInfo {
    pub(super) fn new(at: u64, header: &Header) -> Self {
        Self {
            thread: header.thread,
            events: header.events,
            instructions: header.instructions,
            time_ns: header.time_ns,
            bytes: Header::BYTES as u64 + u64::from(header.stored),
            at,
            stored: header.stored,
            expanded: header.expanded,
        }
    }
}

/// A trace that can be read.
#[derive(Debug)]
pub struct Trace {
    shared: Arc<Shared>,
    page_bytes: u64,
    about: Map<String, Value>,
    threads: Vec<ThreadInfo>,
    frames: Arc<[FrameInfo]>,
    damage: Option<Damage>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    /// Buffers that no reader uses at the moment.
    spare: Mutex<Vec<Buffers>>,
}

#[derive(Default)]
struct Buffers {
    stored: Vec<u8>,
    expanded: Vec<u8>,
    guesses: Option<Box<Guesses>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens a trace file.
    ///
    /// # Errors
    /// When the file cannot be read, or does not start like a trace. Damage further on is no error: see
    /// [`Trace::damage`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::from_file(File::open(path).map_err(Error::open(path))?)
    }

    /// Reads a trace from an open file, whatever its position.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_file(file: File) -> Result<Self, Error> {
        let length = file.metadata().map(|data| data.len());
        let length = length.map_err(|why| Error::Read { at: 0, why })?;
        Self::new(Source::File { file, length })
    }

    /// Reads a trace from memory.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::new(Source::Bytes(bytes))
    }

    fn new(source: Source) -> Result<Self, Error> {
        let contents = Contents::read(&source)?;
        Ok(Self {
            shared: Arc::new(Shared {
                source,
                spare: Mutex::default(),
            }),
            page_bytes: contents.page_bytes,
            about: contents.about,
            threads: contents.threads,
            frames: contents.frames.into(),
            damage: contents.damage,
        })
    }

    /// The threads; a thread's place is its number.
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.threads
    }

    /// The recorder's description of the recording.
    pub const fn about(&self) -> &Map<String, Value> {
        &self.about
    }

    /// Size of the recorded machine's pages, in bytes.
    pub const fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.shared.source.length()
    }

    /// The frames of events, in recorded order, up to the damage.
    pub fn frames(&self) -> &[FrameInfo] {
        &self.frames
    }

    /// Events in all frames.
    pub fn events(&self) -> u64 {
        let frames = self.frames.iter();
        frames.map(|frame| u64::from(frame.events)).sum()
    }

    /// The damage beyond which nothing is read, as far as it is known.
    pub const fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Reads all events once, to find damage within frames. Afterwards no reader meets damage: everything from the
    /// first damaged frame on is left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn check(&mut self) -> Result<Option<&Damage>, Error> {
        let mut events = Vec::new();
        let mut recorded = self.recorded();
        loop {
            match recorded.next_frame(&mut events) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(self.damage()),
                Err(Error::Damaged(damage)) => self.cut(damage),
                Err(error) => return Err(error),
            }
        }
    }

    /// Leaves out all frames from the damage on.
    pub fn cut(&mut self, damage: Damage) {
        let kept = self.frames.partition_point(|frame| frame.at < damage.at);
        self.frames = self.frames[..kept].into();
        self.damage = Some(damage);
    }

    /// A reader of each thread's events, in the thread's order.
    pub fn all_threads(&self) -> Vec<FrameReader> {
        let mut frames = vec![Vec::new(); self.threads.len()];
        for frame in self.frames.iter() {
            frames[frame.thread as usize].push(*frame);
        }
        let readers = frames.into_iter().map(|frames| self.reader(frames.into()));
        readers.collect()
    }

    /// A reader of all events, frame by frame in recorded order.
    pub fn recorded(&self) -> FrameReader {
        self.reader(Arc::clone(&self.frames))
    }

    fn reader(&self, frames: Arc<[FrameInfo]>) -> FrameReader {
        FrameReader {
            shared: Arc::clone(&self.shared),
            frames,
            next: 0,
        }
    }
}

/// Reads events frame by frame: those of one thread, or all.
#[derive(Debug)]
pub struct FrameReader {
    shared: Arc<Shared>,
    frames: Arc<[FrameInfo]>,
    next: usize,
}

impl FrameReader {
    /// Begins again with the first frame.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// Skips `frames` frames, or as many as are left.
    pub fn skip(&mut self, frames: usize) {
        self.next = self.next.saturating_add(frames).min(self.frames.len());
    }

    /// Frames that were read or skipped so far.
    pub const fn frames_read(&self) -> usize {
        self.next
    }

    /// Replaces `events` by those of the next frame, and returns that frame; `None`, and no events, after the last.
    ///
    /// # Errors
    /// When the frame is damaged or cannot be read. Nothing follows it then.
    pub fn next_frame(&mut self, events: &mut Vec<Event>) -> Result<Option<FrameInfo>, Error> {
        events.clear();
        // After an error there is no next frame.
        let at = std::mem::replace(&mut self.next, self.frames.len());
        let Some(frame) = self.frames.get(at) else {
            return Ok(None);
        };
        self.shared.read(frame, events)?;
        self.next = at + 1;
        Ok(Some(*frame))
    }
}

impl Shared {
    /// Replaces `events` by those of a frame.
    fn read(&self, frame: &FrameInfo, events: &mut Vec<Event>) -> Result<(), Error> {
        let spare = self.spare.lock().ok().and_then(|mut spare| spare.pop());
        let mut buffers = spare.unwrap_or_default();
        let read = self.read_with(&mut buffers, frame, events);
        if let Ok(mut spare) = self.spare.lock() {
            spare.push(buffers);
        }
        if read.is_err() {
            events.clear();
        }
        read
    }

    fn read_with(
        &self,
        buffers: &mut Buffers,
        frame: &FrameInfo,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let damaged = |why: &str| {
            Error::Damaged(Damage {
                at: frame.at,
                why: format!("a frame of thread {} cannot be read: {why}", frame.thread),
            })
        };
        let Buffers {
            stored,
            expanded,
            guesses,
            decompressor,
        } = buffers;
        stored.resize(Header::BYTES + frame.stored as usize, 0);
        if !self.source.read(frame.at, stored)? {
            return Err(damaged("the file ends in it"));
        }
        let (header, content) = stored
            .split_first_chunk()
            .expect("it is as long as a header");
        let header = Header::read(header).map_err(damaged)?;
        if FrameInfo::new(frame.at, &header) != *frame {
            return Err(damaged("its header is not the one that the index has"));
        }
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(
                zstd::bulk::Decompressor::new().map_err(|why| Error::Read { at: frame.at, why })?,
            ),
        };
        expanded.clear();
        expanded.reserve(frame.expanded as usize);
        decompressor
            .decompress_to_buffer(content, expanded)
            .map_err(|why| damaged(&why.to_string()))?;
        let guesses = guesses.get_or_insert_with(|| Box::new(Guesses::new()));
        decode(guesses, frame.events as usize, expanded, events).map_err(damaged)?;
        let instructions: u64 = events.iter().map(|event| u64::from(event.gap)).sum();
        if instructions != frame.instructions {
            return Err(damaged("its instructions do not match its header"));
        }
        Ok(())
    }
}
