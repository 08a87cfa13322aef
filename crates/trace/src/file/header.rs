//! The plain bytes of a trace file: its start, the headers of its frames, its last bytes.
//!
//! All numbers are little-endian. Each of the three has its own check sum, so that a reader never trusts a length that
//! was not written.

/// First bytes of a trace file.
pub(super) const MAGIC: [u8; 8] = *b"NHTRACE\n";
/// First bytes of a frame.
const FRAME_MAGIC: [u8; 4] = *b"NHfr";
/// First bytes of a finished file's last [`Trailer::BYTES`].
const TRAILER_MAGIC: [u8; 8] = *b"NHTRend\n";

/// The format version that is written, and the latest that can be read.
pub(super) const VERSION: u32 = 1;

/// FNV-1a of 64 bits: a change of any one byte changes it.
pub(super) fn check_sum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk();
    u32::from_le_bytes(*word.expect("callers hand in whole headers"))
}

fn double(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk();
    u64::from_le_bytes(*word.expect("callers hand in whole headers"))
}

/// The start of a file; the description (JSON) follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) version: u32,
    pub(super) page_bytes: u64,
    pub(super) about_bytes: u32,
    about_sum: u64,
}

impl Start {
    pub(super) const BYTES: usize = 40;

    pub(super) fn new(page_bytes: u64, about: &[u8]) -> Self {
        Self {
            version: VERSION,
            page_bytes,
            about_bytes: about.len() as u32,
            about_sum: check_sum(&[about]),
        }
    }

    pub(super) fn write(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.about_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.page_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.about_sum.to_le_bytes());
        let sum = check_sum(&[&bytes[..32]]);
        bytes[32..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(bytes: &[u8; Self::BYTES]) -> Result<Self, &'static str> {
        if bytes[..8] != MAGIC {
            return Err("it does not start as one");
        }
        if double(bytes, 32) != check_sum(&[&bytes[..32]]) {
            return Err("its first bytes are damaged");
        }
        Ok(Self {
            version: word(bytes, 8),
            about_bytes: word(bytes, 12),
            page_bytes: double(bytes, 16),
            about_sum: double(bytes, 24),
        })
    }

    pub(super) fn is_of(self, about: &[u8]) -> bool {
        self.about_sum == check_sum(&[about])
    }
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(super) enum Content {
    /// Events of one thread, compressed.
    Events = 1,
    /// Threads, plain: each its number, process, tid, length of name (four bytes each), name.
    Threads = 2,
    /// A JSON object to be merged into the description, plain.
    Note = 3,
    /// The headers of all frames before, each after its offset (eight bytes), plain.
    Index = 4,
}

/// What stands before a frame's content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) content: Content,
    /// Bytes of content that follow.
    pub(super) stored: u32,
    /// Bytes of content once expanded; for an index, the upper 32 bits of the length in `stored` instead.
    pub(super) expanded: u32,
    pub(super) thread: u32,
    pub(super) events: u32,
    pub(super) instructions: u64,
    pub(super) time_ns: u64,
    /// Check sum of plain content; compressed content holds its own.
    pub(super) content_sum: u64,
}

impl Header {
    pub(super) const BYTES: usize = 56;

    /// The header of plain content.
    ///
    /// Only an index may be longer than 32 bits can express.
    pub(super) fn plain(kind: Content, content: &[u8]) -> Self {
        Self {
            content: kind,
            stored: content.len() as u32,
            expanded: (content.len() as u64 >> 32) as u32,
            thread: 0,
            events: 0,
            instructions: 0,
            time_ns: 0,
            content_sum: check_sum(&[content]),
        }
    }

    /// Bytes of content that follow.
    pub(super) fn stored_bytes(&self) -> u64 {
        let upper = match self.content {
            Content::Index => u64::from(self.expanded) << 32,
            _ => 0,
        };
        upper | u64::from(self.stored)
    }

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&FRAME_MAGIC);
        let words = [
            self.content as u32,
            self.stored,
            self.expanded,
            self.thread,
            self.events,
        ];
        for (place, word) in bytes[4..24].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let doubles = [self.instructions, self.time_ns, self.content_sum];
        for (place, double) in bytes[24..48].chunks_exact_mut(8).zip(doubles) {
            place.copy_from_slice(&double.to_le_bytes());
        }
        let sum = check_sum(&[&bytes[..48]]);
        bytes[48..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(bytes: &[u8; Self::BYTES]) -> Result<Self, &'static str> {
        if bytes[..4] != FRAME_MAGIC {
            return Err("no frame starts here");
        }
        if double(bytes, 48) != check_sum(&[&bytes[..48]]) {
            return Err("a frame's header does not fit its check sum");
        }
        let content = match word(bytes, 4) {
            1 => Content::Events,
            2 => Content::Threads,
            3 => Content::Note,
            4 => Content::Index,
            _ => return Err("a frame holds something unknown"),
        };
        Ok(Self {
            content,
            stored: word(bytes, 8),
            expanded: word(bytes, 12),
            thread: word(bytes, 16),
            events: word(bytes, 20),
            instructions: double(bytes, 24),
            time_ns: double(bytes, 32),
            content_sum: double(bytes, 40),
        })
    }
}

/// The last bytes of a finished file: where its index is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trailer {
    pub(super) index_at: u64,
}

impl Trailer {
    pub(super) const BYTES: usize = 24;

    pub(super) fn write(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&TRAILER_MAGIC);
        bytes[8..16].copy_from_slice(&self.index_at.to_le_bytes());
        let sum = check_sum(&[&bytes[..16]]);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a trailer.
    pub(super) fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let is_one = bytes[..8] == TRAILER_MAGIC && double(bytes, 16) == check_sum(&[&bytes[..16]]);
        is_one.then(|| Self {
            index_at: double(bytes, 8),
        })
    }
}
