//! Why a session with a runtime fails.

use std::io;
use std::time::Duration;

use crate::mux::ConnectionId;

/// Why a session cannot begin or continue. The connection cannot be used afterwards.
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
    /// The runtime neither continues nor closes the connection.
    #[error("the runtime did not {what} within {patience:?}")]
    Stalled {
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        patience: Duration,
    },
    /// A frame names a connection that NRI does not have.
    #[error("the runtime sent a frame for connection {0}; NRI has 1 and 2 only")]
    UnknownConnection(u32),
    /// A frame or a message exceeds the size limit.
    #[error("a {what} of {length} bytes is larger than the {most} that are allowed")]
    TooLarge {
        /// `frame`, `message`, `answer`.
        what: &'static str,
        /// Its length, in bytes.
        length: u64,
        /// The most that is allowed, in bytes.
        most: usize,
    },
    /// A message arrived on a connection that does not carry messages of its kind.
    #[error("the runtime sent {what} on the connection for {connection}")]
    Misplaced {
        /// What it sent.
        what: String,
        /// The connection that carried it.
        connection: ConnectionId,
    },
    /// An answer arrived to a request that was not sent.
    #[error("the runtime answered on stream {0}, on which nothing was asked")]
    UnknownStream(u32),
    /// A request has a stream number that no new request can have.
    #[error("the runtime began stream {stream} after {last}; streams are odd and ascend")]
    StreamOutOfOrder {
        /// Its number.
        stream: u32,
        /// The latest before it.
        last: u32,
    },
    /// The bytes do not encode the expected message.
    #[error("cannot decode {what} of {length} bytes: {source}")]
    Undecodable {
        /// The expected message.
        what: &'static str,
        /// How many bytes there are.
        length: usize,
        /// What is wrong with them.
        source: prost::DecodeError,
    },
    /// The runtime lists more pods and containers than are accepted.
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
