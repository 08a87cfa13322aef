//! Messages between host and guest, and their encoding on the virtio serial port.
//!
//! A frame is a `length: u32`, little-endian, and that many bytes: a message in the encoding of [`postcard`].
//! Arguments, environment and paths are byte strings, as the kernel takes them, without NUL.
//!
//! The first message of the host is [`ToGuest::Hello`], the first of the guest [`ToHost::Ready`];
//! both carry [`VERSION`], and either side stops if the other's differs. After that, any number of
//! commands may run at the same time. The host gives each an id.
//!
//! Decoding is a pure function of the bytes ([`Decoder`]): it never panics on any input, and drops
//! decoded bytes at the next push.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Version of this protocol. Every change of a message raises it.
pub const VERSION: u32 = 2;

/// Longest frame that is accepted, in bytes. Output is sent in pieces well below it.
pub const LONGEST_FRAME: usize = 4 << 20;

/// Prefix of the kernel parameter with the modelled last-level cache's size in bytes.
pub const LAST_LEVEL: &str = "numaherd.last_level_bytes=";

/// Name of the virtio serial port that carries the protocol.
pub const PORT_NAME: &str = "numaherd.agent";

/// A command for the guest to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine {
    /// Program and arguments; the program is looked up in the `PATH` of `environment`.
    pub arguments: Vec<Vec<u8>>,
    /// The whole environment, as `name=value`.
    pub environment: Vec<Vec<u8>>,
    /// Directory to start in.
    pub directory: Vec<u8>,
}

/// One of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It returned this exit code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// What the host sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost {
    /// First message: the guest is up.
    Ready {
        /// The guest's [`VERSION`].
        version: u32,
        /// The kernel's release, as `uname -r` says it.
        kernel: String,
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
        reason: String,
    },
    /// The command wrote something.
    Output {
        /// The command.
        id: u32,
        /// Where to.
        stream: Stream,
        /// What.
        #[serde(with = "as_bytes")]
        bytes: Vec<u8>,
    },
    /// The command ended; nothing follows for its id.
    Ended {
        /// The command.
        id: u32,
        /// How.
        ending: Ending,
    },
    /// Answer to [`ToGuest::Gate`], with the reason if it could not be set.
    GateSet(Result<(), String>),
    /// Last message, before the guest powers off.
    Goodbye,
}

/// Why bytes from the other side could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A frame announces more bytes than any message has.
    #[error(
        "a frame of {length} bytes was announced, at most {LONGEST_FRAME} are sent: the stream is damaged"
    )]
    TooLong {
        /// The announced length in bytes.
        length: usize,
    },
    /// A frame holds no message.
    #[error(
        "a frame holds no message ({0}): the stream is damaged or the other side uses another version"
    )]
    Malformed(#[from] postcard::Error),
    /// A frame has bytes after its message.
    #[error("a message is followed by {0} bytes that belong to none: the stream is damaged")]
    Surplus(usize),
    /// The stream ended inside a frame.
    #[error("the stream ended {have} bytes into a frame")]
    Truncated {
        /// Bytes of the unfinished frame that had arrived.
        have: usize,
    },
}

/// A message that can be sent over the port.
pub trait Message: Serialize + DeserializeOwned {
    /// The message's frame.
    fn frame(&self) -> Vec<u8> {
        let frame = postcard::to_extend(self, vec![0; 4]);
        let mut frame = frame.expect("messages have no part that cannot be encoded");
        // The kernel limits arguments and environment to far less than 4 GiB, and output is sent
        // in pieces.
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame
    }
}

impl Message for ToGuest {}
impl Message for ToHost {}

/// Decodes a stream of bytes, which comes in pieces of any size, into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    read: usize,
}

impl Decoder {
    /// Adds bytes from the port.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, or None if more bytes are needed.
    ///
    /// # Errors
    /// Any [`ProtocolError`] except `Truncated`. After an error, the stream cannot be decoded any further.
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
        let (message, surplus) = postcard::take_from_bytes(frame)?;
        if !surplus.is_empty() {
            return Err(ProtocolError::Surplus(surplus.len()));
        }
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

/// Encodes bytes as a whole, not one by one.
mod as_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
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
            (any::<u32>(), ".*").prop_map(|(version, kernel)| ToHost::Ready { version, kernel }),
            (any::<u32>(), any::<u32>()).prop_map(|(id, pid)| ToHost::Started { id, pid }),
            (any::<u32>(), ".*").prop_map(|(id, reason)| ToHost::NotStarted { id, reason }),
            (any::<u32>(), stream, bytes()).prop_map(|(id, stream, bytes)| ToHost::Output {
                id,
                stream,
                bytes
            }),
            (any::<u32>(), ending).prop_map(|(id, ending)| ToHost::Ended { id, ending }),
            ".*".prop_map(|error| ToHost::GateSet(Err(error))),
            Just(ToHost::GateSet(Ok(()))),
            Just(ToHost::Goodbye),
        ]
    }

    /// Encodes the messages, cuts the stream into pieces of the given sizes and decodes them.
    fn through<M: Message>(messages: &[M], pieces: &[usize]) -> Vec<M> {
        let mut stream: Vec<u8> = messages.iter().flat_map(Message::frame).collect();
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
        fn a_message_with_a_byte_less_or_more_is_refused(message in to_host()) {
            let frame = message.frame();
            let body = &frame[4..];
            for other in [&body[..body.len() - 1], &[body, &[0]].concat()] {
                let length = u32::try_from(other.len()).unwrap();
                let mut decoder = Decoder::default();
                decoder.push(&length.to_le_bytes());
                decoder.push(other);
                prop_assert!(decoder.take::<ToHost>().is_err());
            }
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_truncated() {
        let stream = ToHost::Ready {
            version: VERSION,
            kernel: "6.12".to_owned(),
        }
        .frame();
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
        // Run, its id, and the length of a list of 2^32 - 1 arguments.
        let body = [1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f];
        let mut decoder = Decoder::default();
        decoder.push(&[7, 0, 0, 0]);
        decoder.push(&body);
        let refused = decoder.take::<ToGuest>();
        assert!(
            matches!(refused, Err(ProtocolError::Malformed(_))),
            "{refused:?}"
        );
    }
}
