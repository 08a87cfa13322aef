//! Parses what a runtime sends, from bytes to requests and responses. It reads no socket, so that tests can feed it any
//! bytes.
//!
//! Properties: an input gives the same requests and responses wherever it is cut; after the first error there are none;
//! no input makes it panic; it keeps [`Receiver::MOST_KEPT`] bytes at most.

use crate::error::Error;
use crate::mux::{ConnectionId, Demultiplexer, MOST_PAYLOAD};
use crate::ttrpc::{Assembler, Kind, MOST_DATA, Message, Request, Response, Unusable, decode};

/// What a runtime can send.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// It asks the plugin.
    Request {
        /// The stream on which the answer is due.
        stream: u32,
        /// What it asks.
        request: Request,
    },
    /// It answers the plugin.
    Response {
        /// The stream of the plugin's request.
        stream: u32,
        /// What it says.
        response: Response,
    },
}

/// Takes apart what a runtime sends.
#[derive(Debug, Default)]
pub struct Receiver {
    trunk: Demultiplexer,
    to_plugin: Assembler,
    to_runtime: Assembler,
    last: u32,
    failed: bool,
}

impl Receiver {
    /// The most bytes that are kept between two calls: a message of each connection, in a vector that doubles as it
    /// grows.
    pub const MOST_KEPT: usize = 4 * MOST_PAYLOAD;

    /// Takes these bytes, and appends the requests and responses that they complete to `into`. Those before an error
    /// are appended too.
    ///
    /// # Errors
    /// The runtime violates the protocol. The receiver ignores all later bytes.
    pub fn receive(&mut self, mut bytes: &[u8], into: &mut Vec<Incoming>) -> Result<(), Error> {
        while !self.failed
            && let Some((connection, mut piece)) = self.failing(|own| own.trunk.next(&mut bytes))?
        {
            while let Some(incoming) = self.failing(|own| own.next(connection, &mut piece))? {
                into.push(incoming);
            }
        }
        Ok(())
    }

    fn failing<T>(&mut self, take: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let taken = take(self);
        self.failed = taken.is_err();
        taken
    }

    fn next(&mut self, from: ConnectionId, piece: &mut &[u8]) -> Result<Option<Incoming>, Error> {
        let assembler = match from {
            ConnectionId::Plugin => &mut self.to_plugin,
            ConnectionId::Runtime => &mut self.to_runtime,
        };
        let message = assembler.next(piece).map_err(|why| unusable(why, from))?;
        let Some(Message { stream, kind, data }) = message else {
            return Ok(None);
        };
        Ok(Some(match (from, kind) {
            (ConnectionId::Plugin, Kind::Request) => {
                self.last = in_order(stream, self.last)?;
                let request = decode("a request", &data)?;
                Incoming::Request { stream, request }
            }
            (ConnectionId::Runtime, Kind::Response) => {
                let response = decode("a response", &data)?;
                Incoming::Response { stream, response }
            }
            (_, Kind::Request) => return Err(misplaced("a request".to_owned(), from)),
            (_, Kind::Response) => return Err(misplaced("a response".to_owned(), from)),
        }))
    }

    /// Whether a frame or a message is incomplete.
    pub fn is_midway(&self) -> bool {
        self.trunk.is_midway() || self.to_plugin.is_midway() || self.to_runtime.is_midway()
    }

    /// How many bytes are kept.
    pub fn kept(&self) -> usize {
        self.to_plugin.kept() + self.to_runtime.kept()
    }
}

/// Returns `stream` if it can be the number of a new stream.
fn in_order(stream: u32, last: u32) -> Result<u32, Error> {
    match stream % 2 == 1 && stream > last {
        true => Ok(stream),
        false => Err(Error::StreamOutOfOrder { stream, last }),
    }
}

fn misplaced(what: String, connection: ConnectionId) -> Error {
    Error::Misplaced { what, connection }
}

fn unusable(why: Unusable, connection: ConnectionId) -> Error {
    match why {
        Unusable::TooLarge(length) => Error::TooLarge {
            what: "message",
            length: length.into(),
            most: MOST_DATA,
        },
        Unusable::Kind(kind) => misplaced(format!("a message of kind {kind}"), connection),
        Unusable::GoesOn => misplaced("a request that goes on".to_owned(), connection),
    }
}
