//! Sessions with runtimes that are well behaved, hostile or slow. A runtime is a script: what it has sent by the time
//! the plugin reads.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use nri::api::{
    ConfigureRequest, ConfigureResponse, Container, ContainerRequest, Empty, Event, PodSandbox,
    StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
};
use nri::mux::{ConnectionId, frames};
use nri::ttrpc::{Kind, Message, Request, Response, Status};
use nri::{Error, Events, Incoming, Plugin, Refusal, Registration, Session, Trunk};
use prost::Message as _;

/// What a runtime does next.
enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends nothing for longer than anybody waits.
    Stall,
}

/// A runtime, which closes the connection when it has done all.
#[derive(Default)]
struct Script {
    acts: VecDeque<Act>,
    /// What the plugin has sent.
    sent: Vec<u8>,
    /// Whether it does not read.
    is_deaf: bool,
}

impl Script {
    fn of(acts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            acts: acts.into_iter().map(Act::Send).collect(),
            ..Self::default()
        }
    }

    fn then_stall(mut self) -> Self {
        self.acts.push_back(Act::Stall);
        self
    }
}

impl Read for &mut Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.acts.pop_front() {
            None => Ok(0),
            Some(Act::Stall) => Err(ErrorKind::WouldBlock.into()),
            Some(Act::Send(mut bytes)) => {
                let length = bytes.len().min(buffer.len());
                buffer[..length].copy_from_slice(&bytes[..length]);
                let rest = bytes.split_off(length);
                if !rest.is_empty() {
                    self.acts.push_front(Act::Send(rest));
                }
                Ok(length)
            }
        }
    }
}

impl Write for &mut Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_deaf {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.sent.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Trunk for &mut Script {
    fn wait_at_most(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

/// Writes down what it hears of.
#[derive(Default)]
struct Recorder {
    heard: Vec<String>,
}

impl Plugin for Recorder {
    fn configure(&mut self, runtime: ConfigureRequest) -> Result<Events, Refusal> {
        self.heard
            .push(format!("configure {}", runtime.runtime_name));
        Ok(Events::of(&[Event::RunPodSandbox, Event::CreateContainer]))
    }

    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<(), Refusal> {
        let (pods, containers) = (pods.len(), containers.len());
        self.heard
            .push(format!("{pods} pods, {containers} containers"));
        Ok(())
    }

    fn create_container(&mut self, request: ContainerRequest) -> Result<(), Refusal> {
        let name = request.container.unwrap_or_default().name;
        match name.as_str() {
            "bad" => Err(Refusal("not that one".to_owned())),
            _ => Ok(()),
        }
    }

    fn state_changed(&mut self, event: StateChangeEvent) -> Result<(), Refusal> {
        let pod = event.pod.clone().unwrap_or_default().name;
        self.heard.push(format!("{:?} {pod}", event.event()));
        Ok(())
    }

    fn shut_down(&mut self) {
        self.heard.push("shutdown".to_owned());
    }
}

const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";

fn asks(stream: u32, method: &str, message: &impl prost::Message) -> Vec<u8> {
    let request = Request {
        service: PLUGIN.to_owned(),
        method: method.to_owned(),
        payload: message.encode_to_vec(),
        timeout_nano: 2_000_000_000,
    };
    let message = Message::encoded(stream, Kind::Request, &request).unwrap();
    frames(ConnectionId::Plugin, &message).unwrap()
}

fn answers(stream: u32, response: &Response) -> Vec<u8> {
    let message = Message::encoded(stream, Kind::Response, response).unwrap();
    frames(ConnectionId::Runtime, &message).unwrap()
}

fn registered() -> Vec<u8> {
    answers(1, &Response::default())
}

fn runs(pod: &str) -> StateChangeEvent {
    StateChangeEvent {
        event: Event::RunPodSandbox.into(),
        pod: Some(PodSandbox {
            name: pod.to_owned(),
            ..PodSandbox::default()
        }),
        container: None,
    }
}

/// A whole session; what the plugin heard, and how it ended.
fn session(runtime: &mut Script) -> (Vec<String>, Result<(), Error>) {
    let mut recorder = Recorder::default();
    let registration = Registration {
        patience: Duration::from_secs(60),
        ..Registration::new("recorder", 5)
    };
    let session = Session::register(runtime, &registration, &mut recorder);
    let ended = session.and_then(|mut session| session.serve(&mut recorder));
    (recorder.heard, ended)
}

/// What the plugin said: its requests and its answers, by their streams.
fn said(runtime: &Script) -> (Vec<Request>, Vec<(u32, Response)>) {
    // The plugin's requests are on the connection on which a runtime answers, and the other way round.
    let mut swapped = runtime.sent.clone();
    let mut at = 0;
    while at < swapped.len() {
        let length = u32::from_be_bytes(swapped[at + 4..at + 8].try_into().unwrap());
        swapped[at + 3] = 3 - swapped[at + 3];
        at += 8 + usize::try_from(length).unwrap();
    }
    let mut all = Vec::new();
    nri::Receiver::default()
        .receive(&swapped, &mut all)
        .unwrap();
    let (mut requests, mut responses) = (Vec::new(), Vec::new());
    for incoming in all {
        match incoming {
            Incoming::Request { request, .. } => requests.push(request),
            Incoming::Response { stream, response } => responses.push((stream, response)),
        }
    }
    (requests, responses)
}

#[test]
fn a_session_registers_is_configured_hears_of_everything_and_ends_with_the_connection() {
    let configure = ConfigureRequest {
        runtime_name: "containerd".to_owned(),
        ..ConfigureRequest::default()
    };
    let list = SynchronizeRequest {
        pods: vec![PodSandbox::default(); 2],
        ..SynchronizeRequest::default()
    };
    // The configuration may come before the answer to the registration.
    let mut runtime = Script::of([
        asks(1, "Configure", &configure),
        registered(),
        asks(3, "Synchronize", &list),
        asks(5, "StateChange", &runs("a")),
        asks(7, "Shutdown", &Empty {}),
    ]);
    let (heard, ended) = session(&mut runtime);
    ended.unwrap();
    let expected = [
        "configure containerd",
        "2 pods, 0 containers",
        "RunPodSandbox a",
        "shutdown",
    ];
    assert_eq!(heard, expected);
    let (requests, responses) = said(&runtime);
    assert_eq!(requests[0].service, "nri.pkg.api.v1alpha1.Runtime");
    assert_eq!(requests[0].method, "RegisterPlugin");
    assert_eq!(
        responses
            .iter()
            .map(|(stream, _)| *stream)
            .collect::<Vec<_>>(),
        [1, 3, 5, 7]
    );
    let configured = ConfigureResponse::decode(&*responses[0].1.payload).unwrap();
    assert_eq!(configured.events, 0b1001);
    assert!(
        responses
            .iter()
            .all(|(_, response)| response.status.is_none())
    );
}

#[test]
fn a_list_in_several_messages_is_heard_as_one() {
    let part = |more| SynchronizeRequest {
        pods: vec![PodSandbox::default(); 3],
        containers: vec![Container::default(); 4],
        more,
    };
    let mut runtime = Script::of([
        registered(),
        asks(1, "Synchronize", &part(true)),
        asks(3, "Synchronize", &part(false)),
        asks(5, "Synchronize", &part(false)),
    ]);
    let (heard, ended) = session(&mut runtime);
    ended.unwrap();
    assert_eq!(heard, ["6 pods, 8 containers", "3 pods, 4 containers"]);
    let more = |at: usize| {
        let (_, responses) = said(&runtime);
        SynchronizeResponse::decode(&*responses[at].1.payload)
            .unwrap()
            .more
    };
    assert_eq!([more(0), more(1)], [true, false]);
}

#[test]
fn a_refusal_and_an_unknown_method_are_answers_with_a_status() {
    let request = ContainerRequest {
        container: Some(Container {
            name: "bad".to_owned(),
            ..Container::default()
        }),
    };
    let mut runtime = Script::of([
        registered(),
        asks(1, "CreateContainer", &request),
        asks(3, "UpdatePodSandbox", &Empty {}),
    ]);
    let (_, ended) = session(&mut runtime);
    ended.unwrap();
    let (_, responses) = said(&runtime);
    let status = |at: usize| responses[at].1.status.clone().unwrap();
    assert_eq!(
        (status(0).code, &*status(0).message),
        (Status::UNKNOWN, "not that one")
    );
    assert_eq!(status(1).code, Status::UNIMPLEMENTED);
    assert_eq!(
        status(1).message,
        format!("no method {PLUGIN}/UpdatePodSandbox")
    );
}

#[test]
fn what_a_hostile_runtime_does_ends_the_session_with_a_sentence() {
    let told = |acts: Vec<Vec<u8>>| {
        let (heard, ended) = session(&mut Script::of(acts));
        assert_eq!(heard, [""; 0]);
        ended.unwrap_err().to_string()
    };
    let refused = Response {
        status: Some(Status {
            code: 7,
            message: "x".repeat(5000),
        }),
        payload: Vec::new(),
    };
    let expected = format!(
        "the runtime refuses RegisterPlugin: {} (status 7)",
        "x".repeat(400)
    );
    assert_eq!(told(vec![answers(1, &refused)]), expected);
    assert_eq!(
        told(vec![answers(3, &Response::default())]),
        "the runtime answered on stream 3, on which nothing was asked"
    );
    assert_eq!(
        told(vec![registered(), registered()]),
        "the runtime answered on stream 1, on which nothing was asked"
    );
    assert_eq!(
        told(vec![]),
        "the runtime closed the connection before it answered RegisterPlugin"
    );
    assert_eq!(
        told(vec![registered(), b"\0\0\0\x01\0\0\0\x05abc".to_vec()]),
        "the runtime closed the connection in the middle of a message"
    );
    assert_eq!(
        told(vec![b"HTTP/1.1 400 Bad Request".to_vec()]),
        "the runtime sent a frame for connection 1213486160; NRI has 1 and 2 only"
    );
    let large = [
        &b"\0\0\0\x02\0\x40\0\x0a\0\x40\0\x01\0\0\0\x01\x02\0"[..],
        &[0; 4096],
    ]
    .concat();
    assert_eq!(
        told(vec![large]),
        "a message of 4194305 bytes is larger than the 4194304 that are allowed"
    );
    assert_eq!(
        told(vec![registered(), asks(2, "Shutdown", &Empty {})]),
        "the runtime began stream 2 after 0; streams are odd and ascend"
    );
    let request = Message::encoded(1, Kind::Request, &Request::default()).unwrap();
    assert_eq!(
        told(vec![frames(ConnectionId::Runtime, &request).unwrap()]),
        "the runtime sent a request on the connection for requests to the runtime"
    );
}

#[test]
fn a_message_that_cannot_be_decoded_ends_the_session_so_that_no_pod_is_refused() {
    let broken = Request {
        service: PLUGIN.to_owned(),
        method: "CreateContainer".to_owned(),
        payload: vec![0x0a, 0xff],
        timeout_nano: 0,
    };
    let message = Message::encoded(1, Kind::Request, &broken).unwrap();
    let mut runtime = Script::of([
        registered(),
        frames(ConnectionId::Plugin, &message).unwrap(),
    ]);
    let (_, ended) = session(&mut runtime);
    let told = ended.unwrap_err().to_string();
    assert!(
        told.starts_with("cannot decode CreateContainer of 2 bytes: "),
        "{told}"
    );
    assert_eq!(said(&runtime).1, []);
}

#[test]
fn a_list_of_countless_pods_is_not_taken() {
    let list = |count| SynchronizeRequest {
        pods: vec![PodSandbox::default(); count],
        containers: Vec::new(),
        more: true,
    };
    let mut once = Script::of([registered(), asks(1, "Synchronize", &list(20_000))]);
    let told = session(&mut once).1.unwrap_err().to_string();
    assert_eq!(
        told,
        "the runtime lists 20000 pods and containers; more than 16384 are not accepted"
    );
    let parts = (0..3).map(|part| asks(2 * part + 1, "Synchronize", &list(6000)));
    let mut again = Script::of(std::iter::once(registered()).chain(parts));
    let told = session(&mut again).1.unwrap_err().to_string();
    assert!(told.starts_with("the runtime lists 18000 pods"), "{told}");
}

#[test]
fn a_runtime_that_stops_within_something_is_not_waited_for_without_end() {
    let (_, ended) = session(&mut Script::default().then_stall());
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the runtime did not answer a request within 60s"
    );
    let begun = asks(1, "Shutdown", &Empty {})[..20].to_vec();
    let (_, ended) = session(&mut Script::of([registered(), begun]).then_stall());
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the runtime did not finish a message within 60s"
    );
    let mut deaf = Script {
        is_deaf: true,
        ..Script::default()
    };
    assert_eq!(
        session(&mut deaf).1.unwrap_err().to_string(),
        "the runtime did not read an answer within 60s"
    );
}

#[test]
fn a_name_or_an_index_that_runtimes_refuse_is_not_sent() {
    for (name, index) in [("", 1), ("a b", 1), ("ü", 1), ("a", 100)] {
        let mut runtime = Script::default();
        let registration = Registration::new(name, index);
        let session = Session::register(&mut runtime, &registration, &mut Recorder::default());
        assert!(matches!(session.err(), Some(Error::Registration { .. })));
        assert_eq!(runtime.sent, b"");
    }
}
