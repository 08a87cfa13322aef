//! What holds for whatever a runtime sends, and for whatever a plugin sends.

use nri::api::{
    Container, LinuxContainer, LinuxCpu, LinuxResources, PodSandbox, SynchronizeRequest,
};
use nri::mux::{ConnectionId, frames};
use nri::ttrpc::{Kind, Message, Request, Response, Status};
use nri::{Incoming, Receiver};
use proptest::prelude::*;
use prost::Message as _;

/// What a receiver makes of bytes that arrive in pieces.
fn received<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<Incoming>, Option<String>, usize) {
    let mut receiver = Receiver::default();
    let (mut all, mut error, mut most) = (Vec::new(), None, 0);
    for piece in pieces {
        let came = receiver.receive(piece, &mut all);
        error = error.or(came.err().map(|error| error.to_string()));
        most = most.max(receiver.kept());
    }
    (all, error, most)
}

/// Bytes that are nearly what a runtime would send.
fn nearly_sound() -> impl Strategy<Value = Vec<u8>> {
    let header = (0u32..4, 0u32..40, 0u32..6, 0u8..4, 0u8..4);
    let piece = (header, proptest::collection::vec(any::<u8>(), 0..40));
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| {
        let mut bytes = Vec::new();
        for ((connection, length, stream, kind, flags), data) in pieces {
            bytes.extend(connection.to_be_bytes());
            bytes.extend((length + 10).to_be_bytes());
            bytes.extend(length.to_be_bytes());
            bytes.extend(stream.to_be_bytes());
            bytes.extend([kind, flags]);
            bytes.extend(data);
        }
        bytes
    })
}

fn pod() -> impl Strategy<Value = PodSandbox> {
    let words = proptest::collection::btree_map("[a-z./]{0,8}", ".{0,8}", 0..4);
    (words, ".{0,9}").prop_map(|(annotations, name)| PodSandbox {
        name,
        annotations,
        ..PodSandbox::default()
    })
}

fn container() -> impl Strategy<Value = Container> {
    let cpu = (any::<Option<u64>>(), any::<Option<i64>>(), "[0-9,-]{0,6}");
    cpu.prop_map(|(shares, quota, cpus)| {
        let cpu = LinuxCpu {
            shares,
            quota,
            cpus,
        };
        let resources = LinuxResources { cpu: Some(cpu) };
        let linux = LinuxContainer {
            resources: Some(resources),
            ..LinuxContainer::default()
        };
        Container {
            linux: Some(linux),
            ..Container::default()
        }
    })
}

proptest! {
    #[test]
    fn where_the_input_is_cut_makes_no_difference_and_no_input_is_too_much(
        bytes in prop_oneof![proptest::collection::vec(any::<u8>(), 0..400), nearly_sound()],
        cut in 1usize..50,
    ) {
        let (whole, error, _) = received(std::iter::once(&bytes[..]));
        let (pieces, same, most) = received(bytes.chunks(cut));
        prop_assert_eq!(whole, pieces);
        prop_assert_eq!(error, same);
        prop_assert!(most <= Receiver::MOST_KEPT);
    }

    #[test]
    fn what_is_sent_is_what_arrives(
        payload in proptest::collection::vec(any::<u8>(), 0..9000),
        method in ".{0,20}",
        code in any::<i32>(),
        cut in 1usize..5000,
    ) {
        let request = Request {
            service: "s".to_owned(),
            method: method.clone(),
            payload: payload.clone(),
            timeout_nano: 7,
        };
        let status = Status { code, message: method };
        let response = Response { status: Some(status), payload };
        let asked = Message::encoded(5, Kind::Request, &request).unwrap();
        let answered = Message::encoded(8, Kind::Response, &response).unwrap();
        let mut bytes = frames(ConnectionId::Plugin, &asked).unwrap();
        bytes.extend(frames(ConnectionId::Runtime, &answered).unwrap());
        let (all, error, _) = received(bytes.chunks(cut));
        prop_assert_eq!(error, None);
        let expected = [
            Incoming::Request { stream: 5, request },
            Incoming::Response { stream: 8, response },
        ];
        prop_assert_eq!(&all[..], &expected[..]);
    }

    #[test]
    fn a_message_reads_back_as_it_was_written_and_any_bytes_are_a_message_or_an_error(
        pods in proptest::collection::vec(pod(), 0..4),
        containers in proptest::collection::vec(container(), 0..4),
        more in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let list = SynchronizeRequest { pods, containers, more };
        prop_assert_eq!(SynchronizeRequest::decode(&*list.encode_to_vec()), Ok(list));
        let _ = SynchronizeRequest::decode(&*bytes);
    }
}

#[test]
fn a_message_that_never_ends_keeps_what_has_arrived_and_no_more() {
    let mut receiver = Receiver::default();
    let mut all = Vec::new();
    // A frame and a message of the largest size are announced; some bytes follow.
    let header = b"\0\0\0\x01\0\x40\0\x0a\0\x40\0\0\0\0\0\x01\x01\0abc";
    receiver.receive(header, &mut all).unwrap();
    assert!(receiver.is_midway() && receiver.kept() < 100);
    receiver.receive(&vec![0; 3 << 20], &mut all).unwrap();
    assert!(receiver.is_midway() && receiver.kept() <= Receiver::MOST_KEPT);
    assert_eq!(all, []);
}
