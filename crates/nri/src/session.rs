//! A session with a runtime: registers a plugin, and answers the runtime's requests until the connection ends.
//!
//! Everything happens in the thread that calls. While the session waits for an answer of the runtime, it answers the
//! runtime's requests. It waits without limit for a runtime that sends nothing; a runtime that stops within a message,
//! or owes an answer, gets the registration's patience.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::api::{Empty, RegisterPluginRequest};
use crate::error::Error;
use crate::mux::{ConnectionId, frames};
use crate::plugin::Plugin;
use crate::receiver::{Incoming, Receiver};
use crate::service::Service;
use crate::ttrpc::{Kind, Message, Request, Response, decode};

/// The service that a runtime offers.
const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";

/// The most bytes that are read at once.
const READ: usize = 64 << 10;

/// The most of a runtime's reason that is kept, in characters.
const MOST_REASON: usize = 400;

/// The shortest time that a socket can wait.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A socket to a runtime.
pub trait Trunk: Read + Write {
    /// From now on, reading and writing fail after this time ([`ErrorKind::WouldBlock`] or [`ErrorKind::TimedOut`]);
    /// `None` waits without end.
    ///
    /// # Errors
    /// The operating system refuses it.
    fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()>;
}

impl Trunk for UnixStream {
    fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(time)?;
        self.set_write_timeout(time)
    }
}

/// How a plugin registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The plugin's name: letters, digits and `-_.+`.
    pub name: String,
    /// The plugin's place, 0 to 99. The runtime asks plugins in ascending order.
    pub index: u8,
    /// How long a runtime may take to finish what it has begun.
    pub patience: Duration,
}

impl Registration {
    /// Creates a registration with a patience of 5 s, which runtimes have for registrations too.
    pub fn new(name: &str, index: u8) -> Self {
        Self {
            name: name.to_owned(),
            index,
            patience: Duration::from_secs(5),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        let why = if self.name.is_empty() || !self.name.chars().all(is_usual) {
            "a name has letters, digits and -_.+ only, and at least one"
        } else if self.index > 99 {
            "an index has two digits"
        } else {
            return Ok(());
        };
        Err(Error::Registration {
            name: self.name.clone(),
            index: self.index,
            why,
        })
    }
}

/// A session with a runtime.
#[derive(Debug)]
pub struct Session<S> {
    trunk: S,
    patience: Duration,
    receiver: Receiver,
    service: Service,
    /// What has arrived but has not been handled.
    arrived: VecDeque<Incoming>,
    /// When the incomplete message began.
    begun: Option<Instant>,
    /// The stream of the next request.
    stream: u32,
}

impl<S: Trunk> Session<S> {
    /// Registers a plugin. The runtime may configure it before this returns.
    ///
    /// # Errors
    /// The registration is invalid; the runtime refuses the plugin, does not answer, or violates the protocol; or the
    /// connection breaks.
    pub fn register(
        trunk: S,
        registration: &Registration,
        plugin: &mut impl Plugin,
    ) -> Result<Self, Error> {
        registration.check()?;
        let mut session = Self {
            trunk,
            patience: registration.patience,
            receiver: Receiver::default(),
            service: Service::default(),
            arrived: VecDeque::new(),
            begun: None,
            stream: 1,
        };
        let request = RegisterPluginRequest {
            plugin_name: registration.name.clone(),
            plugin_idx: format!("{:02}", registration.index),
        };
        let Empty {} = session.call("RegisterPlugin", &request, plugin)?;
        Ok(session)
    }

    /// Answers the runtime's requests until it closes the connection.
    ///
    /// # Errors
    /// The runtime violates the protocol or stops within a message, or the connection breaks.
    pub fn serve(&mut self, plugin: &mut impl Plugin) -> Result<(), Error> {
        while let Some(incoming) = self.next(None)? {
            match incoming {
                Incoming::Request { stream, request } => self.answer(stream, &request, plugin)?,
                Incoming::Response { stream, .. } => return Err(Error::UnknownStream(stream)),
            }
        }
        Ok(())
    }

    fn call<A: prost::Message + Default>(
        &mut self,
        method: &'static str,
        message: &impl prost::Message,
        plugin: &mut impl Plugin,
    ) -> Result<A, Error> {
        let asked = self.stream;
        self.stream = self.stream.wrapping_add(2);
        let request = Request {
            service: RUNTIME.to_owned(),
            method: method.to_owned(),
            payload: message.encode_to_vec(),
            timeout_nano: i64::try_from(self.patience.as_nanos()).unwrap_or(i64::MAX),
        };
        let message = Message::encoded(asked, Kind::Request, &request)?;
        self.write(&frames(ConnectionId::Runtime, &message)?)?;
        let until = Instant::now() + self.patience;
        loop {
            match self.next(Some(until))? {
                None => return Err(Error::ClosedUnanswered { method }),
                Some(Incoming::Request { stream, request }) => {
                    self.answer(stream, &request, plugin)?;
                }
                Some(Incoming::Response { stream, response }) if stream == asked => {
                    return answered(method, &response);
                }
                Some(Incoming::Response { stream, .. }) => {
                    return Err(Error::UnknownStream(stream));
                }
            }
        }
    }

    fn answer(
        &mut self,
        stream: u32,
        request: &Request,
        plugin: &mut impl Plugin,
    ) -> Result<(), Error> {
        let response = self.service.answer(request, plugin)?;
        let message = Message::encoded(stream, Kind::Response, &response)?;
        self.write(&frames(ConnectionId::Plugin, &message)?)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let patience = self.patience;
        let wait = self.trunk.wait_at_most(Some(patience));
        let written = wait.and_then(|()| self.trunk.write_all(bytes));
        written.map_err(|source| match is_late(&source) {
            true => Error::Stalled {
                what: "read an answer",
                patience,
            },
            false => Error::Io {
                doing: "write to",
                source,
            },
        })
    }

    /// Returns what the runtime sends next; `None` once it has closed the connection. It fails if nothing has come by
    /// `until`.
    fn next(&mut self, until: Option<Instant>) -> Result<Option<Incoming>, Error> {
        loop {
            if let Some(incoming) = self.arrived.pop_front() {
                return Ok(Some(incoming));
            }
            let whole = self.begun.map(|begun| begun + self.patience);
            let (due, what) = match (whole, until) {
                (Some(whole), until) if until.is_none_or(|until| whole <= until) => {
                    (Some(whole), "finish a message")
                }
                (_, until) => (until, "answer a request"),
            };
            if !self.read(due, what)? {
                return match self.receiver.is_midway() {
                    true => Err(Error::ClosedMidway),
                    false => Ok(None),
                };
            }
        }
    }

    /// Reads what there is; false at the connection's end.
    fn read(&mut self, due: Option<Instant>, what: &'static str) -> Result<bool, Error> {
        let stalled = Error::Stalled {
            what,
            patience: self.patience,
        };
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(stalled);
        }
        let mut buffer = [0; READ];
        let wait = self
            .trunk
            .wait_at_most(left.map(|left| left.max(SHORTEST_WAIT)));
        let length = match wait.and_then(|()| self.trunk.read(&mut buffer)) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) if is_late(&error) => return Err(stalled),
            Err(source) => {
                let doing = "read from";
                return Err(Error::Io { doing, source });
            }
        };
        let mut arrived = Vec::new();
        self.receiver.receive(&buffer[..length], &mut arrived)?;
        if !arrived.is_empty() {
            self.begun = None;
        }
        if self.receiver.is_midway() {
            self.begun.get_or_insert_with(Instant::now);
        } else {
            self.begun = None;
        }
        self.arrived.extend(arrived);
        Ok(true)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn answered<A: prost::Message + Default>(
    method: &'static str,
    response: &Response,
) -> Result<A, Error> {
    match response.status.as_ref().filter(|status| status.code != 0) {
        None => decode(method, &response.payload),
        Some(status) => Err(Error::Refused {
            method,
            code: status.code,
            message: status.message.chars().take(MOST_REASON).collect(),
        }),
    }
}
