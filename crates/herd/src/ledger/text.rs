//! The text of a ledger's file, compressed if the file's name ends with `.zst`.
//!
//! A compressed file is a sequence of zstd frames (RFC 8878), which `zstdcat` shows. Text is compressed as it is
//! written, and each flush puts all of it into the file: readers see it as early as plain text, and it survives a kill.
//! A frame begins with a whole snapshot where there is one, and ends after some [`FRAME_BYTES`] of text: to read a line
//! again, a reader need not begin at the beginning of the file.
//!
//! Readers recognise a compressed file by its first byte, whatever its name: plain text begins with a brace.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
use zstd::stream::write::Encoder;

/// The first byte of a frame (RFC 8878, 3.1.1).
const FRAME: u8 = 0x28;
/// How hard to compress: the default of the zstd program (chosen here).
const LEVEL: i32 = 3;
/// Bytes of text after which a frame ends (chosen here: decompressed in some 10 ms).
const FRAME_BYTES: u64 = 4 << 20;
/// The largest window that a frame may require, as a power of 2 of bytes: 8 MiB. Frames of [`LEVEL`] require 2 MiB.
const WINDOW_LOG: u32 = 23;
/// The least bytes of text between two starts that a reader notes.
const NOTED_BYTES: u64 = 1 << 18;
/// Compressed bytes read at once.
const CHUNK: usize = 1 << 16;
/// Bytes of the header of a block (RFC 8878, 3.1.1.2).
const BLOCK_HEADER: usize = 3;

/// Where the bytes of a ledger are.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    File(Arc<File>),
    Memory(Arc<[u8]>),
}

impl Bytes {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => match file.read_at(into, at) {
                // A pipe is read in order.
                Err(error) if error.kind() == ErrorKind::NotSeekable => file.as_ref().read(into),
                read => read,
            },
            Self::Memory(bytes) => {
                let at = usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
                (&bytes[at..]).read(into)
            }
        }
    }
}

/// A byte of the file at which reading can begin, and the byte of the text there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    file: u64,
    text: u64,
}

/// Reads a ledger's text. At its present end, more may come later.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Bytes,
    /// Bytes of the file read so far.
    at: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Nothing was read yet.
    Unknown,
    Plain,
    Compressed(Box<Frames>),
}

impl Text {
    /// The text from its beginning.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self::from(bytes, Start::default())
    }

    fn from(bytes: Bytes, start: Start) -> Self {
        Self {
            bytes,
            at: start.file,
            form: Form::Unknown,
        }
    }

    /// Bytes of the file read so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.at
    }

    /// Where to begin reading the text again from `byte`, once read.
    pub(super) fn start_of(&self, byte: u64) -> Start {
        match &self.form {
            Form::Unknown | Form::Plain => Start {
                file: byte,
                text: byte,
            },
            Form::Compressed(frames) => {
                let after = frames.starts.partition_point(|start| start.text <= byte);
                frames.starts[after.saturating_sub(1)]
            }
        }
    }

    /// Reads text again, from one byte to another; `start` is where to begin for the first.
    pub(super) fn again(bytes: Bytes, start: Start, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut text = Self::from(bytes, start);
        io::copy(
            &mut text.by_ref().take(from.saturating_sub(start.text)),
            &mut io::sink(),
        )?;
        let length = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        let mut again = vec![0; length];
        text.read_exact(&mut again)?;
        Ok(again)
    }
}

impl Read for Text {
    /// # Errors
    /// [`ErrorKind::InvalidData`] where compressed bytes are damaged.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Form::Compressed(frames) = &mut self.form {
            return frames.read(&self.bytes, &mut self.at, into);
        }
        let read = self.bytes.read_at(into, self.at)?;
        let began_at = self.at;
        self.at += read as u64;
        match (&self.form, into[..read].first()) {
            (Form::Unknown, Some(&FRAME)) => {
                let mut frames = Box::new(Frames::new(into[..read].to_vec(), began_at)?);
                let text = frames.read(&self.bytes, &mut self.at, into);
                self.form = Form::Compressed(frames);
                text
            }
            (Form::Unknown, Some(_)) => {
                self.form = Form::Plain;
                Ok(read)
            }
            _ => Ok(read),
        }
    }
}

/// Frames of compressed text, being read.
struct Frames {
    decoder: Decoder<'static>,
    input: Vec<u8>,
    /// Bytes of the input that the decoder has taken.
    taken: usize,
    /// Bytes that the decoder wants next: mostly a block and the next one's header. 0 where a frame begins.
    wanted: usize,
    /// Whether the decoder may have text left that needs no more input.
    is_full: bool,
    /// Bytes of text so far.
    text: u64,
    /// Beginnings of frames, ascending.
    starts: Vec<Start>,
}

impl Frames {
    /// Frames that begin with `input`, which is at byte `at` of the file.
    fn new(input: Vec<u8>, at: u64) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self {
            decoder,
            input,
            taken: 0,
            wanted: 0,
            is_full: false,
            text: 0,
            starts: vec![Start { file: at, text: 0 }],
        })
    }

    fn read(&mut self, bytes: &Bytes, at: &mut u64, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() {
            if self.taken == self.input.len() && !self.is_full {
                self.input.resize(CHUNK, 0);
                self.taken = 0;
                let read = bytes.read_at(&mut self.input, *at);
                self.input.truncate(*read.as_ref().unwrap_or(&0));
                if read? == 0 {
                    break;
                }
                *at += self.input.len() as u64;
            }
            if self.wanted == 0 {
                self.note_start(*at);
            }
            // One block at a time, without the next header: a damaged one would take this block's text along.
            let wanted = match self.wanted {
                few @ 0..=BLOCK_HEADER => few.max(1),
                more => more - BLOCK_HEADER,
            };
            let end = self.input.len().min(self.taken + wanted);
            let mut input = InBuffer::around(&self.input[self.taken..end]);
            let mut output = OutBuffer::around(&mut *into);
            let wanted = self.decoder.run(&mut input, &mut output);
            let (taken, given) = (input.pos(), output.pos());
            self.wanted = wanted.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.taken += taken;
            self.text += given as u64;
            self.is_full = given == into.len();
            if given > 0 {
                return Ok(given);
            }
        }
        Ok(0)
    }

    /// Notes that the next byte of the input begins a frame; the input was read up to byte `at` of the file.
    fn note_start(&mut self, at: u64) {
        let last = self.starts.last().map_or(0, |start| start.text);
        if self.text >= last + NOTED_BYTES {
            self.starts.push(Start {
                file: at - (self.input.len() - self.taken) as u64,
                text: self.text,
            });
        }
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames")
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

/// Writes a ledger's text to its file. What was flushed is whole text, whatever happens later.
#[derive(Debug)]
pub(super) struct TextWriter {
    to: To,
    /// Bytes of the file at the latest flush, and of text since.
    flushed: u64,
    unflushed: u64,
    /// Bytes of text in this frame.
    in_frame: u64,
}

#[derive(Debug)]
enum To {
    Plain(BufWriter<Counted>),
    /// `None` once a frame could not be ended or begun.
    Compressed(Option<FrameWriter>),
    /// Nothing more is written.
    Ended,
}

struct FrameWriter(Encoder<'static, Counted>);

impl std::fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FrameWriter")
            .field(self.0.get_ref())
            .finish()
    }
}

/// A file with what was written to it.
#[derive(Debug)]
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl TextWriter {
    /// Begins the text of a new file named `path`.
    pub(super) fn new(file: File, path: &Path) -> io::Result<Self> {
        let file = Counted { file, bytes: 0 };
        let to = if path.extension().is_some_and(|end| end == "zst") {
            To::Compressed(Some(FrameWriter(Encoder::new(file, LEVEL)?)))
        } else {
            To::Plain(BufWriter::new(file))
        };
        Ok(Self {
            to,
            flushed: 0,
            unflushed: 0,
            in_frame: 0,
        })
    }

    fn file(&self) -> Option<&Counted> {
        match &self.to {
            To::Plain(file) => Some(file.get_ref()),
            To::Compressed(frame) => frame.as_ref().map(|frame| frame.0.get_ref()),
            To::Ended => None,
        }
    }

    /// The file's size, if what is not flushed yet could not be compressed.
    pub(super) fn size(&self) -> u64 {
        self.file().map_or(0, |file| file.bytes) + self.unflushed
    }

    /// Ends the text where it was last flushed: what came after may be incomplete.
    pub(super) fn end_at_flushed(&mut self) {
        // If it cannot be cut off, a reader finds the damage.
        let _ = (self.file()).map(|file| file.file.set_len(self.flushed));
        if let To::Plain(file) = std::mem::replace(&mut self.to, To::Ended) {
            // Else it would write what it still has.
            drop(file.into_parts());
        }
    }

    /// Ends the frame if it is long enough: what comes next can be read without what came before.
    pub(super) fn may_begin_frame(&mut self) -> io::Result<()> {
        if let To::Compressed(frame) = &mut self.to
            && self.in_frame >= FRAME_BYTES
            && let Some(ended) = frame.take()
        {
            let file = ended.0.finish()?;
            *frame = Some(FrameWriter(Encoder::new(file, LEVEL)?));
            self.in_frame = 0;
        }
        Ok(())
    }

    fn to(&mut self) -> io::Result<&mut dyn Write> {
        match &mut self.to {
            To::Plain(file) => Ok(file),
            To::Compressed(Some(frame)) => Ok(&mut frame.0),
            To::Compressed(None) | To::Ended => Err(io::Error::other("it has failed before")),
        }
    }
}

impl Write for TextWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to()?.write(bytes)?;
        self.unflushed += written as u64;
        self.in_frame += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to()?.flush()?;
        self.flushed = self.file().map_or(0, |file| file.bytes);
        self.unflushed = 0;
        Ok(())
    }
}

impl Drop for TextWriter {
    /// Ends the last frame; it can be read without its end, too.
    fn drop(&mut self) {
        if let To::Compressed(frame) = &mut self.to
            && let Some(frame) = frame.take()
        {
            let _ = frame.0.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of three frames, as lines of a number; each thousand is flushed.
    fn written(path: &Path) -> String {
        let mut writer = TextWriter::new(File::create_new(path).unwrap(), path).unwrap();
        let mut text = String::new();
        while (text.len() as u64) < 3 * FRAME_BYTES - 10_000 {
            let lines = format!("{}\n", text.len()).repeat(1000);
            writer.may_begin_frame().unwrap();
            writer.write_all(lines.as_bytes()).unwrap();
            writer.flush().unwrap();
            text += &lines;
        }
        text
    }

    #[test]
    fn text_is_read_again_from_the_frame_that_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ledger", "ledger.zst"] {
            let path = folder.path().join(name);
            let expected = written(&path);
            let bytes = Bytes::File(Arc::new(File::open(&path).unwrap()));
            let mut text = Text::new(bytes.clone());
            let mut read = String::new();
            text.read_to_string(&mut read).unwrap();
            assert!(read == expected, "{name}");
            let length = std::fs::metadata(&path).unwrap().len();
            assert_eq!(text.read_bytes(), length);
            let mut furthest = 0;
            for at in (0..expected.len() - 100).step_by(100_000) {
                let from = at as u64;
                let start = text.start_of(from);
                assert!(from - start.text < FRAME_BYTES + 10_000);
                furthest = furthest.max(start.file);
                let again = Text::again(bytes.clone(), start, from, from + 100).unwrap();
                assert_eq!(again, expected.as_bytes()[at..at + 100]);
            }
            assert!(furthest > length / 2);
        }
    }
}
