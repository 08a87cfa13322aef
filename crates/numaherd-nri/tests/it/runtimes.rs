//! The plugin with runtimes over a real socket: one after the other, hostile ones, one that closes midway; and that it
//! answers everything with nothing to change.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nri::Registration;
use nri::api::{
    Container, ContainerRequest, Event, LinuxPodSandbox, PodSandbox, StateChangeEvent,
    SynchronizeRequest, UpdateContainerRequest,
};
use nri::mux::{ConnectionId, frames};
use nri::ttrpc::{Kind, Message, Request, Response};
use numaherd_nri::pods::{Change, Pods};
use numaherd_nri::runtime;
use prost::Message as _;

/// What a runtime sends first, whatever comes of it.
fn registered() -> Vec<u8> {
    let answer = Message::encoded(1, Kind::Response, &Response::default()).unwrap();
    frames(ConnectionId::Runtime, &answer).unwrap()
}

fn asks(stream: u32, method: &str, message: &impl prost::Message) -> Vec<u8> {
    let request = Request {
        service: "nri.pkg.api.v1alpha1.Plugin".to_owned(),
        method: method.to_owned(),
        payload: message.encode_to_vec(),
        timeout_nano: 0,
    };
    let message = Message::encoded(stream, Kind::Request, &request).unwrap();
    frames(ConnectionId::Plugin, &message).unwrap()
}

fn pod(name: &str) -> PodSandbox {
    PodSandbox {
        id: name.to_owned(),
        name: name.to_owned(),
        namespace: "shop".to_owned(),
        linux: Some(LinuxPodSandbox {
            cgroup_parent: format!("/kubepods/{name}"),
        }),
        ..PodSandbox::default()
    }
}

fn list(pods: &[&str]) -> SynchronizeRequest {
    SynchronizeRequest {
        pods: pods.iter().map(|name| pod(name)).collect(),
        ..SynchronizeRequest::default()
    }
}

fn event(event: Event, name: &str) -> StateChangeEvent {
    StateChangeEvent {
        event: event.into(),
        pod: Some(pod(name)),
        container: None,
    }
}

/// A frame: its connection and payload. `None` at the end.
fn frame(stream: &mut UnixStream) -> Option<(u32, Vec<u8>)> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).ok()?;
    let [a, b, c, d, e, f, g, h] = header;
    let length = u32::from_be_bytes([e, f, g, h]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    Some((u32::from_be_bytes([a, b, c, d]), payload))
}

/// Serves these runtimes one after the other: each sends what it sends and reads that many frames. The changes that the
/// plugin passed on, and the answers that it gave.
fn served(runtimes: Vec<(Vec<u8>, usize)>) -> (Vec<Change>, Vec<Vec<Response>>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let count = runtimes.len();
    let serving = thread::spawn(move || {
        let serve = |(sends, frames): (Vec<u8>, usize)| {
            let (mut stream, _) = listener.accept().unwrap();
            // A plugin that has seen enough closes while this still sends.
            let _ = stream.write_all(&sends);
            let read = (0..frames).map_while(|_| frame(&mut stream));
            let answers = read.filter(|(connection, _)| *connection == 1);
            answers
                .map(|(_, message)| Response::decode(&message[10..]).unwrap())
                .collect()
        };
        runtimes.into_iter().map(serve).collect()
    });
    let (sender, receiver) = channel();
    let registration = Registration::new("numaherd", 90);
    let mut pauses = 0;
    runtime::watch(&socket, &registration, &sender, |_: Duration| {
        pauses += 1;
        pauses < count
    });
    drop(sender);
    (all(&receiver), serving.join().unwrap())
}

fn all(receiver: &Receiver<Change>) -> Vec<Change> {
    receiver.iter().collect()
}

fn picture(changes: Vec<Change>) -> Vec<String> {
    let mut pods = Pods::default();
    changes.into_iter().for_each(|change| pods.take(change));
    pods.pods.into_values().map(|pod| pod.name).collect()
}

#[test]
fn two_runtimes_one_after_the_other_and_the_second_ones_list_replaces_the_first() {
    let first = [
        registered(),
        asks(1, "Synchronize", &list(&["a", "b"])),
        asks(3, "StateChange", &event(Event::RunPodSandbox, "c")),
        asks(5, "StateChange", &event(Event::StopPodSandbox, "a")),
    ];
    let second = [
        registered(),
        asks(1, "Synchronize", &list(&["b"])),
        asks(3, "StateChange", &event(Event::RunPodSandbox, "d")),
    ];
    let (changes, _) = served(vec![(first.concat(), 4)]);
    assert_eq!(picture(changes), ["b", "c"]);
    let (changes, answers) = served(vec![(first.concat(), 4), (second.concat(), 3)]);
    assert_eq!(picture(changes), ["b", "d"]);
    assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn hostile_runtimes_are_left_and_the_next_is_tried() {
    let hostile: Vec<Vec<u8>> = vec![
        b"garbage garbage garbage".to_vec(),
        // A frame of more than 4 MiB.
        [&registered()[..], b"\0\0\0\x01\x00\x50\0\0", &[0; 9000]].concat(),
        // It closes in the middle of a list.
        [
            &registered()[..],
            &asks(1, "Synchronize", &list(&["x"]))[..30],
        ]
        .concat(),
        // A message that is none.
        [
            registered(),
            asks(
                1,
                "Synchronize",
                &Request {
                    timeout_nano: 7,
                    ..Request::default()
                },
            ),
        ]
        .concat(),
        Vec::new(),
    ];
    let sound = [registered(), asks(1, "Synchronize", &list(&["a"]))].concat();
    let mut runtimes: Vec<(Vec<u8>, usize)> = hostile.into_iter().map(|sends| (sends, 1)).collect();
    runtimes.push((sound, 2));
    let (changes, _) = served(runtimes);
    assert_eq!(picture(changes), ["a"]);
}

#[test]
fn every_answer_is_empty_so_that_nothing_is_adjusted_refused_or_evicted() {
    let container = || Some(Container::default());
    let create = ContainerRequest {
        container: container(),
    };
    let update = UpdateContainerRequest {
        container: container(),
        ..Default::default()
    };
    let stop = create.clone();
    let sends = [
        registered(),
        asks(1, "Synchronize", &list(&["a"])),
        asks(3, "CreateContainer", &create),
        asks(5, "UpdateContainer", &update),
        asks(7, "StopContainer", &stop),
        asks(9, "StateChange", &event(Event::RemovePodSandbox, "a")),
        // Requests without what they are about.
        asks(11, "CreateContainer", &ContainerRequest::default()),
        asks(13, "StateChange", &StateChangeEvent::default()),
    ];
    let (changes, answers) = served(vec![(sends.concat(), 8)]);
    assert_eq!(picture(changes), [""; 0]);
    assert_eq!(answers[0], vec![Response::default(); 7]);
}
