//! What a container runtime sends to a plugin of the Node Resource Interface.
//!
//! Holds: no bytes make the plugin panic; where the stream is cut makes no difference to what is received; what is kept
//! between two reads is bounded; a session with any runtime ends, and answers each request at most once, in their order.
//!
//! Reader: crates/nri/src/mux.rs crates/nri/src/ttrpc.rs crates/nri/src/receiver.rs crates/nri/src/service.rs crates/nri/src/session.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::io::{self, Read, Write};
use std::time::Duration;

use nri::api::ConfigureRequest;
use nri::{Events, Incoming, Plugin, Receiver, Refusal, Registration, Session, Trunk};

/// A runtime that sends these bytes and then closes the connection.
struct Runtime<'d> {
    sends: &'d [u8],
    step: usize,
    answers: usize,
}

impl Read for &mut Runtime<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.step.min(buffer.len()).min(self.sends.len());
        let (now, rest) = self.sends.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.sends = rest;
        Ok(length)
    }
}

impl Write for &mut Runtime<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The connection of the plugin's answers.
        self.answers += usize::from(bytes.starts_with(&[0, 0, 0, 1]));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Trunk for &mut Runtime<'_> {
    fn wait_at_most(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

struct Listener;

impl Plugin for Listener {
    fn configure(&mut self, _: ConfigureRequest) -> Result<Events, Refusal> {
        Ok(Events::ALL)
    }
}

numaherd_fuzz::target!(|input: (u8, &[u8])| {
    let (cut, stream) = input;
    let step = usize::from(cut).max(1);
    let (mut whole, mut pieces) = (Receiver::default(), Receiver::default());
    let (mut all, mut one_by_one) = (Vec::new(), Vec::new());
    let error = whole.receive(stream, &mut all).err();
    let mut same = None;
    for piece in stream.chunks(step) {
        let came = pieces.receive(piece, &mut one_by_one);
        same = same.or(came.err());
        assert!(pieces.kept() <= Receiver::MOST_KEPT);
    }
    assert_eq!(all, one_by_one);
    assert_eq!(error.map(|e| e.to_string()), same.map(|e| e.to_string()));

    let asked = |incoming: &&Incoming| matches!(incoming, Incoming::Request { .. });
    let asked = all.iter().filter(asked).count();
    let mut runtime = Runtime {
        sends: stream,
        step,
        answers: 0,
    };
    let registration = Registration::new("fuzz", 1);
    if let Ok(mut session) = Session::register(&mut runtime, &registration, &mut Listener) {
        let _ = session.serve(&mut Listener);
    }
    assert!(runtime.answers <= asked);
});
