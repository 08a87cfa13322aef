//! The multiplexer: two connections over one socket.
//!
//! A frame is a header of 8 bytes followed by the payload. The header holds the connection's number and the payload's
//! length, both big-endian. The payloads of a connection form one stream of bytes, in which the boundaries of frames
//! carry no meaning.
//!
//! Properties: the result does not depend on where the input is cut; payloads are not kept here.

use std::fmt;

use crate::error::Error;
use crate::ttrpc;

/// The length of a frame's header.
const HEADER: usize = 8;

/// The largest payload of a frame: a whole message.
pub const MOST_PAYLOAD: usize = ttrpc::HEADER + ttrpc::MOST_DATA;

/// The most bytes of a message in its first frame. The runtime's reader has a buffer of 4096 bytes; it reads beyond
/// that only once it knows the message's length.
const FIRST_FRAME: usize = 4096;

/// One of NRI's two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionId {
    /// The runtime's requests and the plugin's answers.
    Plugin = 1,
    /// The plugin's requests and the runtime's answers.
    Runtime = 2,
}

impl ConnectionId {
    fn of(number: u32) -> Result<Self, Error> {
        match number {
            1 => Ok(Self::Plugin),
            2 => Ok(Self::Runtime),
            other => Err(Error::UnknownConnection(other)),
        }
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plugin => "requests to the plugin",
            Self::Runtime => "requests to the runtime",
        })
    }
}

/// Takes frames apart as their bytes arrive.
#[derive(Debug)]
pub struct Demultiplexer {
    header: [u8; HEADER],
    /// How many bytes of the header have arrived.
    filled: usize,
    /// The connection of the current payload, and how many of its bytes are still due.
    due: Option<(ConnectionId, usize)>,
}

impl Default for Demultiplexer {
    fn default() -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            due: None,
        }
    }
}

impl Demultiplexer {
    /// Returns the next piece of a connection's stream in `bytes`, and advances `bytes` past it; `None` if `bytes`
    /// holds no further piece.
    ///
    /// # Errors
    /// The connection is not one of NRI's, or the frame is too large.
    pub fn next<'b>(
        &mut self,
        bytes: &mut &'b [u8],
    ) -> Result<Option<(ConnectionId, &'b [u8])>, Error> {
        loop {
            if let Some((connection, left)) = self.due {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                *bytes = rest;
                let left = left - piece.len();
                self.due = (left > 0).then_some((connection, left));
                return Ok(Some((connection, piece)));
            }
            let (taken, rest) = bytes.split_at((HEADER - self.filled).min(bytes.len()));
            *bytes = rest;
            self.header[self.filled..self.filled + taken.len()].copy_from_slice(taken);
            self.filled += taken.len();
            if self.filled < HEADER {
                return Ok(None);
            }
            self.filled = 0;
            let [a, b, c, d, e, f, g, h] = self.header;
            let connection = ConnectionId::of(u32::from_be_bytes([a, b, c, d]))?;
            let length = u32::from_be_bytes([e, f, g, h]);
            let payload = usize::try_from(length).unwrap_or(usize::MAX);
            if payload > MOST_PAYLOAD {
                return Err(Error::TooLarge {
                    what: "frame",
                    length: length.into(),
                    most: MOST_PAYLOAD,
                });
            }
            self.due = (payload > 0).then_some((connection, payload));
        }
    }

    /// Whether a frame has begun and not ended.
    pub fn is_midway(&self) -> bool {
        self.filled > 0 || self.due.is_some()
    }
}

/// Encodes a message as frames of a connection.
///
/// # Errors
/// The message is larger than [`MOST_PAYLOAD`].
pub fn frames(connection: ConnectionId, message: &[u8]) -> Result<Vec<u8>, Error> {
    if message.len() > MOST_PAYLOAD {
        return Err(Error::TooLarge {
            what: "message",
            length: message.len() as u64,
            most: MOST_PAYLOAD,
        });
    }
    let (first, rest) = message.split_at(message.len().min(FIRST_FRAME));
    let mut frames = Vec::with_capacity(message.len() + 2 * HEADER);
    for payload in [first, rest].into_iter().filter(|part| !part.is_empty()) {
        // A payload is far below 2^32 bytes.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        frames.extend((connection as u32).to_be_bytes());
        frames.extend(length.to_be_bytes());
        frames.extend(payload);
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_header_of_two_big_endian_numbers_and_the_payload() {
        let frame = frames(ConnectionId::Runtime, b"abc").unwrap();
        assert_eq!(frame, b"\0\0\0\x02\0\0\0\x03abc");
    }

    #[test]
    fn a_long_message_is_a_frame_of_4096_bytes_and_one_of_the_rest() {
        let frames = frames(ConnectionId::Plugin, &[7; 10_000]).unwrap();
        assert_eq!(frames.len(), 10_000 + 2 * HEADER);
        assert_eq!(frames[4..8], 4096u32.to_be_bytes());
        assert_eq!(frames[HEADER + 4096 + 4..][..4], 5904u32.to_be_bytes());
    }

    #[test]
    fn what_is_no_frame_of_nri_is_named() {
        let told = |header: &[u8]| {
            let next = Demultiplexer::default().next(&mut &*header).unwrap_err();
            next.to_string()
        };
        assert_eq!(
            told(b"\0\0\0\0\0\0\0\x01a"),
            "the runtime sent a frame for connection 0; NRI has 1 and 2 only"
        );
        assert_eq!(
            told(b"\0\0\0\x01\xff\xff\xff\xff"),
            "a frame of 4294967295 bytes is larger than the 4194314 that are allowed"
        );
    }

    #[test]
    fn an_empty_frame_is_passed_over() {
        let mut bytes: &[u8] = b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01z";
        let mut demultiplexer = Demultiplexer::default();
        let next = demultiplexer.next(&mut bytes).unwrap();
        assert_eq!(next, Some((ConnectionId::Runtime, &b"z"[..])));
        assert!(!demultiplexer.is_midway());
    }
}
