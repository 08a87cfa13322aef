//! ttrpc: requests and their answers over one connection.
//!
//! A message is a header of 10 bytes followed by its data, which in NRI is a [`Request`] or a [`Response`]. The header
//! holds the length of the data and the number of the stream, both big-endian, then the kind and the flags. A stream
//! has one request and one answer. NRI does not use streams that stay open; requests for them are refused.
//!
//! Properties: the result does not depend on where the input is cut; a connection keeps at most the part of one message
//! that has arrived.

use crate::error::Error;

/// The length of a message's header.
pub const HEADER: usize = 10;

/// The most data that a message may have: 4 MiB.
pub const MOST_DATA: usize = 4 << 20;

/// The flag by which a request asks for a stream that stays open.
const STAYS_OPEN: u8 = 2;

/// A request of a method, with its message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    /// The service, with its package.
    #[prost(string, tag = "1")]
    pub service: String,
    /// The method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded message.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// How long the client waits, in ns; 0 for no limit.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// The result of a request: a message, or a status other than 0.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Response {
    /// Left out on success.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The encoded message.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    /// As in gRPC; 0 if it is not refused.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The reason.
    #[prost(string, tag = "2")]
    pub message: String,
}

impl Status {
    /// The code of an error of unspecified kind.
    pub const UNKNOWN: i32 = 2;
    /// The code for a method that does not exist.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Begins a stream.
    Request = 1,
    /// Ends it.
    Response = 2,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its stream.
    pub stream: u32,
    /// What it is.
    pub kind: Kind,
    /// What it holds.
    pub data: Vec<u8>,
}

impl Message {
    /// Encodes a message with its header.
    ///
    /// # Errors
    /// The data is larger than [`MOST_DATA`].
    pub fn encoded(stream: u32, kind: Kind, data: &impl prost::Message) -> Result<Vec<u8>, Error> {
        let length = data.encoded_len();
        let Some(announced) = u32::try_from(length).ok().filter(|_| length <= MOST_DATA) else {
            return Err(Error::TooLarge {
                what: "message",
                length: length as u64,
                most: MOST_DATA,
            });
        };
        let mut bytes = Vec::with_capacity(HEADER + length);
        bytes.extend(announced.to_be_bytes());
        bytes.extend(stream.to_be_bytes());
        bytes.extend([kind as u8, 0]);
        bytes.extend(data.encode_to_vec());
        Ok(bytes)
    }
}

/// Puts the messages of a connection together as their bytes arrive.
#[derive(Debug, Default)]
pub struct Assembler {
    /// What has arrived of the message that is due.
    bytes: Vec<u8>,
}

impl Assembler {
    /// Takes bytes of the next message from `bytes`, which it advances past them. Returns the message once it is
    /// complete, otherwise `None`.
    ///
    /// # Errors
    /// The message is too large, or of a kind that NRI does not use; the reason says which.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, Unusable> {
        self.take(HEADER, bytes);
        let Some((&[a, b, c, d, e, f, g, h, kind, flags], _)) = self.bytes.split_first_chunk()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        let data = usize::try_from(length).unwrap_or(usize::MAX);
        if data > MOST_DATA {
            return Err(Unusable::TooLarge(length));
        }
        let kind = match kind {
            1 if flags & STAYS_OPEN != 0 => return Err(Unusable::GoesOn),
            1 => Kind::Request,
            2 => Kind::Response,
            other => return Err(Unusable::Kind(other)),
        };
        self.take(HEADER + data, bytes);
        if self.bytes.len() < HEADER + data {
            return Ok(None);
        }
        let data = self.bytes.split_off(HEADER);
        self.bytes = Vec::new();
        let stream = u32::from_be_bytes([e, f, g, h]);
        Ok(Some(Message { stream, kind, data }))
    }

    /// Moves bytes over until there are `wanted`, or none is left.
    fn take(&mut self, wanted: usize, bytes: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.bytes.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.bytes.extend_from_slice(taken);
        *bytes = rest;
    }

    /// Whether a message has begun and not ended.
    pub fn is_midway(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// How many bytes are kept.
    pub fn kept(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Why a message cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Its data has this many bytes.
    TooLarge(u32),
    /// It is neither a request nor a response.
    Kind(u8),
    /// It is a request for a stream that stays open.
    GoesOn,
}

/// Decodes a message; an error calls it `what`.
///
/// # Errors
/// The bytes do not encode a message of that type.
pub fn decode<M: prost::Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, Error> {
    M::decode(bytes).map_err(|source| Error::Undecodable {
        what,
        length: bytes.len(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_header_of_ten_bytes_and_its_data() {
        let status = Status {
            code: 12,
            message: "no".to_owned(),
        };
        let response = Response {
            status: Some(status),
            payload: Vec::new(),
        };
        let bytes = Message::encoded(3, Kind::Response, &response).unwrap();
        // Field 1, a message of 6 bytes: field 1, 12; field 2, "no".
        assert_eq!(
            bytes,
            b"\0\0\0\x08\0\0\0\x03\x02\0\x0a\x06\x08\x0c\x12\x02no"
        );
        let read = Assembler::default().next(&mut &*bytes).unwrap().unwrap();
        assert_eq!((read.stream, read.kind), (3, Kind::Response));
        assert_eq!(
            decode::<Response>("a response", &read.data).unwrap(),
            response
        );
    }

    #[test]
    fn what_is_no_message_of_nri_is_refused_by_its_header() {
        let refused = |header: &[u8]| Assembler::default().next(&mut &*header).unwrap_err();
        assert_eq!(
            refused(b"\0\x40\0\x01\0\0\0\x01\x01\0"),
            Unusable::TooLarge((4 << 20) + 1)
        );
        assert_eq!(refused(b"\0\0\0\0\0\0\0\x01\x03\0"), Unusable::Kind(3));
        assert_eq!(refused(b"\0\0\0\0\0\0\0\x01\x01\x02"), Unusable::GoesOn);
    }

    #[test]
    fn the_largest_message_is_taken_and_one_byte_more_is_not_sent() {
        let of = |length| Response {
            status: None,
            payload: vec![0; length],
        };
        // The payload's own header takes five bytes.
        let bytes = Message::encoded(1, Kind::Response, &of(MOST_DATA - 5)).unwrap();
        assert_eq!(bytes.len(), crate::mux::MOST_PAYLOAD);
        let read = Assembler::default().next(&mut &*bytes).unwrap().unwrap();
        assert_eq!(read.data.len(), MOST_DATA);
        assert!(Message::encoded(1, Kind::Response, &of(MOST_DATA - 4)).is_err());
    }
}
