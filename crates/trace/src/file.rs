//! The trace file.
//!
//! | part | bytes | holds |
//! |---|---|---|
//! | start | 40 | magic, version, page size, length and check sums |
//! | description | as said | a JSON object: command, machine, whatever the recorder knows |
//! | frames | 56 + content each | up to [`FRAME_EVENTS`] events of one thread, compressed; or entries of the thread table; or additions to the description |
//! | index | 56 + 64 per frame | offsets and headers of all frames |
//! | end | 24 | where the index is |
//!
//! Each frame can be read alone. Frames are in recorded order; the frames of one thread are in that thread's order. A
//! file whose end is missing (its recorder was killed, the disk was full) is read by going from frame to frame, up to
//! the damage. `coding` describes the content of a frame, and `header` the bytes of the headers.

mod coding;
mod header;
mod read;
mod scan;
mod source;
mod write;

pub use read::{FrameInfo, FrameReader, Trace};
pub use write::{EncodedFrame, Encoder, Writer};

/// The most events in a frame.
pub const FRAME_EVENTS: usize = 65_536;

/// Level of zstd: its fastest ordinary one. After `coding`, regular code leaves repetition, which any level finds.
const COMPRESSION: i32 = 1;

/// The most bytes of a thread's name that are kept.
const LONGEST_NAME: usize = 255;

/// The first bytes of a trace file, which identify it.
pub const MAGIC: [u8; 8] = header::MAGIC;
