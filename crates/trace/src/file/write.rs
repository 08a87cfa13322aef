//! Writing a trace, in two steps, so that many threads can write at once: an [`Encoder`] makes a frame, by itself and
//! without a lock; the one [`Writer`] appends it, which copies some 100 KiB.

use std::io::Write;

use serde_json::{Map, Value};

use super::coding::{Columns, Guesses, most_bytes};
use super::header::{Content, Header, Start, Trailer};
use super::{COMPRESSION, FRAME_EVENTS, LONGEST_NAME};
use crate::error::Error;
use crate::event::{Event, ThreadInfo};

/// Makes frames of events. It keeps its buffers from frame to frame: use one per writing thread.
pub struct Encoder {
    guesses: Guesses,
    columns: Columns,
    plain: Vec<u8>,
    frame: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
}

/// A frame, ready to be appended to a file.
#[derive(Clone, Copy, Debug)]
pub struct EncodedFrame<'a> {
    pub(super) header: Header,
    /// The frame with its header.
    bytes: &'a [u8],
}

impl EncodedFrame<'_> {
    /// Bytes that it takes in the file.
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Instructions that its thread executed in it.
    pub const fn instructions(&self) -> u64 {
        self.header.instructions
    }
}

impl Encoder {
    /// An encoder with empty buffers.
    ///
    /// # Panics
    /// When there is no memory for the compressor.
    pub fn new() -> Self {
        let mut compressor =
            zstd::bulk::Compressor::new(COMPRESSION).expect("the level is one of zstd's");
        compressor
            .include_checksum(true)
            .expect("zstd knows check sums");
        Self {
            guesses: Guesses::new(),
            columns: Columns::new(),
            plain: Vec::new(),
            frame: Vec::new(),
            compressor,
        }
    }

    /// Makes a frame of up to [`FRAME_EVENTS`] events of thread number `thread`, recorded at
    /// `time_ns` (nanoseconds of any clock that starts with the recording).
    ///
    /// # Errors
    /// When there are too many events, or no memory to compress them.
    pub fn encode(
        &mut self,
        thread: u32,
        time_ns: u64,
        events: &[Event],
    ) -> Result<EncodedFrame<'_>, Error> {
        if events.len() > FRAME_EVENTS {
            return Err(Error::FrameFull {
                given: events.len(),
                most: FRAME_EVENTS,
            });
        }
        self.columns
            .encode(&mut self.guesses, events, &mut self.plain);
        let room = zstd::zstd_safe::compress_bound(self.plain.len());
        self.frame.resize(Header::BYTES + room, 0);
        let stored = self
            .compressor
            .compress_to_buffer(&self.plain, &mut self.frame[Header::BYTES..])
            .map_err(|why| Error::Compress { thread, why })?;
        let header = Header {
            content: Content::Events,
            stored: stored as u32,
            expanded: self.plain.len() as u32,
            thread,
            events: events.len() as u32,
            instructions: events.iter().map(|event| u64::from(event.gap)).sum(),
            time_ns,
            content_sum: 0,
        };
        debug_assert!(self.plain.len() <= most_bytes(FRAME_EVENTS));
        self.frame[..Header::BYTES].copy_from_slice(&header.write());
        Ok(EncodedFrame {
            header,
            bytes: &self.frame[..Header::BYTES + stored],
        })
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

/// A trace file being written.
///
/// Frames that have been appended can be read whatever happens afterwards; [`Writer::finish`] adds the index. The
/// writer writes whole frames, so `W` needs no buffer of its own.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    at: u64,
    threads: u32,
    /// Entries of the thread table that are not in the file yet.
    pending: Vec<u8>,
    index: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a file. `page_bytes` is the size of the recorded machine's pages; `about` describes the recording:
    /// command, machine, tool.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(to: W, page_bytes: u64, about: &Map<String, Value>) -> Result<Self, Error> {
        let about = json(about);
        let mut writer = Self {
            to,
            at: 0,
            threads: 0,
            pending: Vec::new(),
            index: Vec::new(),
        };
        writer.put(&Start::new(page_bytes, &about).write())?;
        writer.put(&about)?;
        Ok(writer)
    }

    /// Adds a thread to the table and returns its number in the trace. Names are cut after 255 bytes.
    pub fn thread(&mut self, info: &ThreadInfo) -> u32 {
        let thread = self.threads;
        self.threads += 1;
        self.describe(thread, info);
        thread
    }

    /// Replaces a thread's entry in the table, for instance once the thread has given itself a name.
    ///
    /// # Panics
    /// When the table has no such thread.
    pub fn describe(&mut self, thread: u32, info: &ThreadInfo) {
        assert!(thread < self.threads, "thread {thread} was never added");
        let cut = info.name.floor_char_boundary(LONGEST_NAME);
        let name = &info.name.as_bytes()[..cut];
        for word in [thread, info.process, info.tid, cut as u32] {
            self.pending.extend_from_slice(&word.to_le_bytes());
        }
        self.pending.extend_from_slice(name);
    }

    /// Appends a frame. The frames of one thread must come in that thread's order.
    ///
    /// # Errors
    /// When the frame cannot be written, or its thread was never added.
    pub fn append(&mut self, frame: EncodedFrame<'_>) -> Result<(), Error> {
        if frame.header.thread >= self.threads {
            return Err(Error::UnknownThread {
                thread: frame.header.thread,
                known: self.threads,
            });
        }
        self.put_pending()?;
        self.put_frame(&frame.header, &[frame.bytes])
    }

    /// Adds to the description of the recording; an existing key gets the new value.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, about: &Map<String, Value>) -> Result<(), Error> {
        self.put_plain(Content::Note, &json(about))
    }

    /// Bytes written so far.
    pub const fn bytes(&self) -> u64 {
        self.at
    }

    /// Ends the file with its index.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<W, Error> {
        self.put_pending()?;
        let index_at = self.at;
        let index = std::mem::take(&mut self.index);
        self.put_plain(Content::Index, &index)?;
        self.put(&Trailer { index_at }.write())?;
        let at = self.at;
        self.to.flush().map_err(|why| Error::Write { at, why })?;
        Ok(self.to)
    }

    fn put_pending(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let threads = std::mem::take(&mut self.pending);
        self.put_plain(Content::Threads, &threads)
    }

    fn put_plain(&mut self, kind: Content, content: &[u8]) -> Result<(), Error> {
        let header = Header::plain(kind, content);
        self.put_frame(&header, &[&header.write(), content])
    }

    fn put_frame(&mut self, header: &Header, parts: &[&[u8]]) -> Result<(), Error> {
        self.index.extend_from_slice(&self.at.to_le_bytes());
        self.index.extend_from_slice(&header.write());
        parts.iter().try_for_each(|part| self.put(part))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let at = self.at;
        self.to
            .write_all(bytes)
            .map_err(|why| Error::Write { at, why })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn json(object: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(object).expect("an object of JSON can be written as JSON")
}
