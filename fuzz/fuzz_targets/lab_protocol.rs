//! The stream between the host and the agent in the lab's guest, in both directions.
//!
//! Holds: no bytes make the decoder panic; every message that it returns survives another encoding;
//! where the stream is cut makes no difference.
//!
//! Reader: crates/lab/guest/src/protocol.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_lab_guest::protocol::{Decoder, Message, ProtocolError, ToGuest, ToHost};

numaherd_fuzz::target!(|input: (u8, &[u8])| {
    let (cut, stream) = input;
    check::<ToGuest>(stream, cut);
    check::<ToHost>(stream, cut);
});

fn check<M: Message + PartialEq + std::fmt::Debug>(stream: &[u8], cut: u8) {
    let (whole, whole_end) = decode::<M>(&[stream]);
    let piece = usize::from(cut).max(1);
    let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
    let (cut, cut_end) = decode::<M>(&pieces);
    assert_eq!(cut, whole);
    assert_eq!(cut_end, whole_end);

    let encoded: Vec<u8> = whole.iter().flat_map(Message::frame).collect();
    assert_eq!(decode::<M>(&[&encoded]), (whole, Ok(())));
}

/// The messages of a stream that comes in these pieces, and how it ended.
fn decode<M: Message>(pieces: &[&[u8]]) -> (Vec<M>, Result<(), ProtocolError>) {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.take() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Err(error)),
            }
        }
    }
    (messages, decoder.finish())
}
