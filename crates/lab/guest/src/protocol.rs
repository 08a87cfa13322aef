//! Messages between host and guest, and their encoding on the virtio serial port.
//!
//! A frame is `length: u32` (of what follows), `kind: u8`, then the message's fields in order.
//! Numbers are little-endian; a string of bytes is `length: u32` and the bytes; a list is
//! `count: u32` and its items. Strings carry no encoding: arguments, environment and paths are
//! what the kernel takes, any bytes but NUL.
//!
//! The first message of the host is [`ToGuest::Hello`], the first of the guest [`ToHost::Ready`];
//! both carry [`VERSION`], and either side stops when the other's differs. After that any number
//! of commands may run at the same time, told apart by the id that the host chose.
//!
//! Decoding is a pure function of the bytes ([`Decoder`]): it never panics, whatever they are, and
//! keeps no more than one frame and what follows it in the buffer.

use thiserror::Error;

/// Version of this protocol. Raised by every change of a message.
pub const VERSION: u32 = 1;

/// Longest frame that is accepted, in bytes. Output is sent in pieces well below it.
pub const LONGEST_FRAME: usize = 4 << 20;

/// Name of the virtio serial port that carries the protocol.
pub const PORT_NAME: &str = "numaherd.agent";

/// A command for the guest to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Program and arguments; the program is looked up in the `PATH` of `environment`.
    pub arguments: Vec<Vec<u8>>,
    /// The whole environment, as `name=value`.
    pub environment: Vec<Vec<u8>>,
    /// Directory to start in.
    pub directory: Vec<u8>,
}

/// Which of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It returned this exit code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// What the host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// First message.
    Hello {
        /// The host's [`VERSION`].
        version: u32,
    },
    /// Start a command.
    Run {
        /// Chosen by the host; names the command in all later messages.
        id: u32,
        /// What to run.
        command: CommandLine,
    },
    /// Send a signal to the command's process group.
    Signal {
        /// The command.
        id: u32,
        /// Signal number.
        signal: i32,
    },
    /// Turn the hardware model on or off.
    Gate {
        /// On or off.
        on: bool,
    },
    /// Kill what still runs and power off.
    PowerOff,
}

/// What the guest sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// First message: the guest is up.
    Ready {
        /// The guest's [`VERSION`].
        version: u32,
        /// The kernel's release, as `uname -r` says it.
        kernel: Vec<u8>,
    },
    /// The command was started.
    Started {
        /// The command.
        id: u32,
        /// Its process id in the guest.
        pid: u32,
    },
    /// The command could not be started.
    NotStarted {
        /// The command.
        id: u32,
        /// Why.
        reason: Vec<u8>,
    },
    /// The command wrote something.
    Output {
        /// The command.
        id: u32,
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// The command ended; nothing follows for its id.
    Ended {
        /// The command.
        id: u32,
        /// How.
        ending: Ending,
    },
    /// Answer to [`ToGuest::Gate`].
    GateSet {
        /// Why it could not be set; empty when it was.
        error: Vec<u8>,
    },
    /// Last message, before the power goes.
    Goodbye,
}

/// Why bytes from the other side could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A frame claims more bytes than any message has.
    #[error(
        "a frame of {length} bytes was announced, at most {LONGEST_FRAME} are sent: the stream is damaged"
    )]
    TooLong {
        /// The announced length in bytes.
        length: usize,
    },
    /// No message has this number.
    #[error("no message has the number {kind}: the stream is damaged or the other side is newer")]
    UnknownKind {
        /// The number found.
        kind: u8,
    },
    /// The frame ended inside a field, or went on after the last.
    #[error("a message with the number {kind} has {what}: the stream is damaged")]
    Malformed {
        /// The message's number.
        kind: u8,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended {have} bytes into a frame")]
    Truncated {
        /// Bytes of the unfinished frame that had arrived.
        have: usize,
    },
}

/// A message that can be sent over the port.
pub trait Message: Sized {
    /// Appends the message's frame to `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a message from a frame's kind and fields.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownKind`] and [`ProtocolError::Malformed`].
    fn decode(kind: u8, fields: &[u8]) -> Result<Self, ProtocolError>;
}

/// Turns a stream of bytes, in pieces of any size, into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    read: usize,
}

impl Decoder {
    /// Adds bytes as they came from the port.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or nothing when more bytes are needed.
    ///
    /// # Errors
    /// Any [`ProtocolError`] but `Truncated`; the stream cannot be read on after one.
    pub fn take<M: Message>(&mut self) -> Result<Option<M>, ProtocolError> {
        let rest = &self.buffer[self.read..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST_FRAME {
            return Err(ProtocolError::TooLong { length });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let Some((&kind, fields)) = frame.split_first() else {
            return Err(ProtocolError::Malformed {
                kind: 0,
                what: "no kind",
            });
        };
        let message = M::decode(kind, fields)?;
        self.read += 4 + length;
        Ok(Some(message))
    }

    /// To be called at the end of the stream.
    ///
    /// # Errors
    /// [`ProtocolError::Truncated`] when it ended inside a frame.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        match self.buffer.len() - self.read {
            0 => Ok(()),
            have => Err(ProtocolError::Truncated { have }),
        }
    }
}

impl Message for ToGuest {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version } => frame(out, 1, |f| f.number(*version)),
            Self::Run { id, command } => frame(out, 2, |f| {
                f.number(*id);
                f.list(&command.arguments);
                f.list(&command.environment);
                f.bytes(&command.directory);
            }),
            Self::Signal { id, signal } => frame(out, 3, |f| {
                f.number(*id);
                f.signed(*signal);
            }),
            Self::Gate { on } => frame(out, 4, |f| f.number(u32::from(*on))),
            Self::PowerOff => frame(out, 5, |_| ()),
        }
    }

    fn decode(kind: u8, fields: &[u8]) -> Result<Self, ProtocolError> {
        let mut f = Fields { kind, rest: fields };
        let message = match kind {
            1 => Self::Hello {
                version: f.number()?,
            },
            2 => Self::Run {
                id: f.number()?,
                command: CommandLine {
                    arguments: f.list()?,
                    environment: f.list()?,
                    directory: f.bytes()?,
                },
            },
            3 => Self::Signal {
                id: f.number()?,
                signal: f.signed()?,
            },
            4 => Self::Gate { on: f.flag()? },
            5 => Self::PowerOff,
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        f.end(message)
    }
}

impl Message for ToHost {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ready { version, kernel } => frame(out, 65, |f| {
                f.number(*version);
                f.bytes(kernel);
            }),
            Self::Started { id, pid } => frame(out, 66, |f| {
                f.number(*id);
                f.number(*pid);
            }),
            Self::NotStarted { id, reason } => frame(out, 67, |f| {
                f.number(*id);
                f.bytes(reason);
            }),
            Self::Output { id, stream, bytes } => frame(out, 68, |f| {
                f.number(*id);
                f.number(u32::from(*stream == Stream::Stderr));
                f.bytes(bytes);
            }),
            Self::Ended { id, ending } => frame(out, 69, |f| {
                let (killed, value) = match *ending {
                    Ending::Exited(code) => (0, code),
                    Ending::Killed(signal) => (1, signal),
                };
                f.number(*id);
                f.number(killed);
                f.signed(value);
            }),
            Self::GateSet { error } => frame(out, 70, |f| f.bytes(error)),
            Self::Goodbye => frame(out, 71, |_| ()),
        }
    }

    fn decode(kind: u8, fields: &[u8]) -> Result<Self, ProtocolError> {
        let mut f = Fields { kind, rest: fields };
        let message = match kind {
            65 => Self::Ready {
                version: f.number()?,
                kernel: f.bytes()?,
            },
            66 => Self::Started {
                id: f.number()?,
                pid: f.number()?,
            },
            67 => Self::NotStarted {
                id: f.number()?,
                reason: f.bytes()?,
            },
            68 => Self::Output {
                id: f.number()?,
                stream: if f.flag()? {
                    Stream::Stderr
                } else {
                    Stream::Stdout
                },
                bytes: f.bytes()?,
            },
            69 => {
                let (id, killed, value) = (f.number()?, f.flag()?, f.signed()?);
                let ending = if killed {
                    Ending::Killed(value)
                } else {
                    Ending::Exited(value)
                };
                Self::Ended { id, ending }
            }
            70 => Self::GateSet { error: f.bytes()? },
            71 => Self::Goodbye,
            _ => return Err(ProtocolError::UnknownKind { kind }),
        };
        f.end(message)
    }
}

/// Appends one frame; `fill` writes its fields.
fn frame(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Writer<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    fill(&mut Writer { out });
    let length = length_field(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&length);
}

/// A length as it is sent. Nothing that a message holds comes near 4 GiB: the kernel limits
/// arguments and environment to far less, and output is sent in pieces.
fn length_field(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn number(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }
    fn signed(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }
    fn bytes(&mut self, value: &[u8]) {
        self.out.extend_from_slice(&length_field(value.len()));
        self.out.extend_from_slice(value);
    }
    fn list(&mut self, values: &[Vec<u8>]) {
        self.out.extend_from_slice(&length_field(values.len()));
        for value in values {
            self.bytes(value);
        }
    }
}

/// The fields of one frame that have not been read yet.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn malformed(&self, what: &'static str) -> ProtocolError {
        ProtocolError::Malformed {
            kind: self.kind,
            what,
        }
    }
    fn word(&mut self) -> Result<[u8; 4], ProtocolError> {
        let (word, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.malformed("too few bytes"))?;
        self.rest = rest;
        Ok(*word)
    }
    fn number(&mut self) -> Result<u32, ProtocolError> {
        self.word().map(u32::from_le_bytes)
    }
    fn signed(&mut self) -> Result<i32, ProtocolError> {
        self.word().map(i32::from_le_bytes)
    }
    fn flag(&mut self) -> Result<bool, ProtocolError> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed("a flag that is neither 0 nor 1")),
        }
    }
    fn bytes(&mut self) -> Result<Vec<u8>, ProtocolError> {
        let length = self.number()? as usize;
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.malformed("too few bytes"))?;
        self.rest = rest;
        Ok(bytes.to_vec())
    }
    fn list(&mut self) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let count = self.number()? as usize;
        // Every item takes at least its length field, so a false count cannot reserve memory.
        if count > self.rest.len() / 4 {
            return Err(self.malformed("too few bytes"));
        }
        (0..count).map(|_| self.bytes()).collect()
    }
    fn end<M>(self, message: M) -> Result<M, ProtocolError> {
        if self.rest.is_empty() {
            Ok(message)
        } else {
            Err(self.malformed("bytes too many"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn to_guest() -> impl Strategy<Value = ToGuest> {
        prop_oneof![
            any::<u32>().prop_map(|version| ToGuest::Hello { version }),
            (
                any::<u32>(),
                prop::collection::vec(bytes(), 0..6),
                prop::collection::vec(bytes(), 0..6),
                bytes()
            )
                .prop_map(|(id, arguments, environment, directory)| ToGuest::Run {
                    id,
                    command: CommandLine {
                        arguments,
                        environment,
                        directory
                    }
                }),
            (any::<u32>(), any::<i32>()).prop_map(|(id, signal)| ToGuest::Signal { id, signal }),
            any::<bool>().prop_map(|on| ToGuest::Gate { on }),
            Just(ToGuest::PowerOff),
        ]
    }

    fn to_host() -> impl Strategy<Value = ToHost> {
        let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
        let ending = prop_oneof![
            any::<i32>().prop_map(Ending::Exited),
            any::<i32>().prop_map(Ending::Killed)
        ];
        prop_oneof![
            (any::<u32>(), bytes()).prop_map(|(version, kernel)| ToHost::Ready { version, kernel }),
            (any::<u32>(), any::<u32>()).prop_map(|(id, pid)| ToHost::Started { id, pid }),
            (any::<u32>(), bytes()).prop_map(|(id, reason)| ToHost::NotStarted { id, reason }),
            (any::<u32>(), stream, bytes()).prop_map(|(id, stream, bytes)| ToHost::Output {
                id,
                stream,
                bytes
            }),
            (any::<u32>(), ending).prop_map(|(id, ending)| ToHost::Ended { id, ending }),
            bytes().prop_map(|error| ToHost::GateSet { error }),
            Just(ToHost::Goodbye),
        ]
    }

    /// Encodes the messages, cuts the stream into pieces of the given sizes and decodes them.
    fn through<M: Message>(messages: &[M], pieces: &[usize]) -> Vec<M> {
        let mut stream = Vec::new();
        for message in messages {
            message.encode(&mut stream);
        }
        let (mut decoder, mut seen, mut sizes) =
            (Decoder::default(), Vec::new(), pieces.iter().cycle());
        while !stream.is_empty() {
            let size = sizes
                .next()
                .map_or(stream.len(), |&size| size.clamp(1, stream.len()));
            decoder.push(&stream[..size]);
            stream.drain(..size);
            while let Some(message) = decoder.take().expect("our own messages") {
                seen.push(message);
            }
        }
        decoder.finish().expect("whole frames");
        seen
    }

    proptest! {
        #[test]
        fn messages_survive_any_cutting_of_the_stream(
            guest in prop::collection::vec(to_guest(), 0..5),
            host in prop::collection::vec(to_host(), 0..5),
            pieces in prop::collection::vec(1_usize..50, 1..10),
        ) {
            prop_assert_eq!(&through(&guest, &pieces), &guest);
            prop_assert_eq!(&through(&host, &pieces), &host);
        }

        #[test]
        fn garbage_is_an_error_or_incomplete_and_never_a_panic(
            garbage in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut decoder = Decoder::default();
            decoder.push(&garbage);
            while let Ok(Some(_)) = decoder.take::<ToHost>() {}
        }

        #[test]
        fn a_message_with_one_byte_less_is_refused(message in to_host()) {
            let mut stream = Vec::new();
            message.encode(&mut stream);
            let fields = &stream[5..];
            if let Some((_, shorter)) = fields.split_last() {
                prop_assert!(ToHost::decode(stream[4], shorter).is_err());
            }
            let mut longer = fields.to_vec();
            longer.push(0);
            prop_assert!(ToHost::decode(stream[4], &longer).is_err());
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_truncated() {
        let mut stream = Vec::new();
        ToHost::Ready {
            version: VERSION,
            kernel: b"6.12".to_vec(),
        }
        .encode(&mut stream);
        let mut decoder = Decoder::default();
        decoder.push(&stream[..stream.len() - 1]);
        assert_eq!(decoder.take::<ToHost>(), Ok(None));
        assert_eq!(
            decoder.finish(),
            Err(ProtocolError::Truncated {
                have: stream.len() - 1
            })
        );
    }

    #[test]
    fn an_absurd_length_is_refused_before_any_memory_is_taken() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(
            decoder.take::<ToHost>(),
            Err(ProtocolError::TooLong {
                length: u32::MAX as usize
            })
        );
    }

    #[test]
    fn a_false_count_is_refused_before_any_memory_is_taken() {
        let fields = [1_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert_eq!(
            ToGuest::decode(2, &fields),
            Err(ProtocolError::Malformed {
                kind: 2,
                what: "too few bytes"
            })
        );
    }
}
