//! Why a session with a runtime ends other than by its end.

use std::io;
use std::time::Duration;

use crate::mux::ConnectionId;

/// Why a session cannot begin or go on. The connection is of no use afterwards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name or the index is not one that runtimes accept.
    #[error("cannot register a plugin called {name:?} with the index {index}: {why}")]
    Registration {
        /// The name.
        name: String,
        /// The index.
        index: u8,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The operating system refuses to read or write.
    #[error("cannot {doing} the runtime's socket: {source}")]
    Io {
        /// `read from`, `write to`.
        doing: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The runtime closed the connection within a message.
    #[error("the runtime closed the connection in the middle of a message")]
    ClosedMidway,
    /// The runtime closed the connection while an answer was due.
    #[error("the runtime closed the connection before it answered {method}")]
    ClosedUnanswered {
        /// What was asked.
        method: &'static str,
    },
    /// The runtime neither goes on nor closes the connection.
    #[error("the runtime did not {what} within {patience:?}")]
    Stalled {
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        patience: Duration,
    },
    /// A connection that NRI does not have.
    #[error("the runtime sent a frame for connection {0}; NRI has 1 and 2 only")]
    UnknownConnection(u32),
    /// A frame or a message that is larger than any may be.
    #[error("a {what} of {length} bytes is larger than the {most} that are allowed")]
    TooLarge {
        /// `frame`, `message`, `answer`.
        what: &'static str,
        /// Its length, in bytes.
        length: u64,
        /// The most that is allowed, in bytes.
        most: usize,
    },
    /// A message that has no place on its connection.
    #[error("the runtime sent {what} on the connection for {connection}")]
    Misplaced {
        /// What it sent.
        what: String,
        /// Where.
        connection: ConnectionId,
    },
    /// An answer to a question that was not asked.
    #[error("the runtime answered on stream {0}, on which nothing was asked")]
    UnknownStream(u32),
    /// A request with a number that no new request can have.
    #[error("the runtime began stream {stream} after {last}; streams are odd and ascend")]
    StreamOutOfOrder {
        /// Its number.
        stream: u32,
        /// The latest before it.
        last: u32,
    },
    /// Bytes that are not the message that they should be.
    #[error("cannot decode {what} of {length} bytes: {source}")]
    Undecodable {
        /// What they should be.
        what: &'static str,
        /// How many bytes there are.
        length: usize,
        /// What is wrong with them.
        source: prost::DecodeError,
    },
    /// More pods and containers than a machine can have.
    #[error("the runtime lists {listed} pods and containers; more than {most} are not accepted")]
    TooManyListed {
        /// How many it lists.
        listed: usize,
        /// How many are accepted.
        most: usize,
    },
    /// The runtime refuses a request.
    #[error("the runtime refuses {method}: {message} (status {code})")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// Its code, as in gRPC.
        code: i32,
        /// Its reason, shortened.
        message: String,
    },
}
