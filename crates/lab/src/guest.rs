//! A running guest: one boot, many commands, one after another or at the same time.
//!
//! A thread reads the agent's messages and hands each to the thread that waits for it. When the
//! stream ends, for any reason, all waits end, and [`Guest::death`] finds out why.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use numaherd_lab_guest::protocol::{Decoder, Message, ProtocolError, ToGuest, ToHost, VERSION};
pub use numaherd_lab_guest::protocol::{Ending, Stream};

use crate::command::Command;
use crate::command_line::{self, Inherited, Model, SerialPort, shared_bytes};
use crate::error::{Cause, Context, Error, Result};
use crate::files::KernelFiles;
use crate::initrd;
use crate::qemu::{AnonymousFile, Qemu, lock};
use crate::shape::Shape;

/// Lines of QEMU's own messages that an error shows.
const SHOWN_LINES: usize = 15;

/// How long QEMU may take to end by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// How to start a guest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its nodes, CPUs, memory and distances.
    pub shape: Shape,
    /// Its kernel.
    pub kernel: KernelFiles,
    /// The hardware model; without one the guest has no counters and runs in real time.
    pub model: Option<Model>,
    /// Further kernel parameters.
    pub kernel_parameters: Vec<String>,
    /// A port for a program in the guest to talk to one on the host.
    pub serial_port: Option<SerialPort>,
    /// How long it may take to boot.
    pub boot_limit: Duration,
    /// Limit of its whole life, boot included.
    pub time_limit: Option<Duration>,
}

impl Options {
    /// Default limit of a boot. On a host with two busy CPUs, a guest of 32 takes most of a minute.
    pub const BOOT_LIMIT: Duration = Duration::from_secs(180);

    /// A guest without a model, with three minutes to boot and no limit on its life.
    #[must_use]
    pub fn new(shape: Shape, kernel: KernelFiles) -> Self {
        Self {
            shape,
            kernel,
            model: None,
            kernel_parameters: Vec::new(),
            serial_port: None,
            boot_limit: Self::BOOT_LIMIT,
            time_limit: None,
        }
    }
}

/// An event in a command's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was started, with this process id in the guest.
    Started(u32),
    /// It wrote something.
    Output(Stream, Vec<u8>),
    /// It ended.
    Ended(Ending),
}

/// A finished command's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// What remains of a guest that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The plugin's report, a JSON document with the counters of every vCPU and thread, if there
    /// was a model.
    pub report: Option<String>,
    /// The end of what the kernel wrote on its console.
    pub console: String,
    /// The end of what QEMU and the plugin wrote on stderr.
    pub messages: String,
}

/// The state that the reading thread shares with others.
#[derive(Debug)]
struct Inbox {
    /// The waiter for each command; empty once the stream has ended.
    commands: HashMap<u32, Sender<ToHost>>,
    /// The waiter for messages about the guest as a whole; None once the stream has ended.
    guest: Option<Sender<ToHost>>,
    /// Why reading the stream failed.
    error: Option<ProtocolError>,
}

/// A guest that is up.
#[derive(Debug)]
pub struct Guest {
    qemu: Qemu,
    report: AnonymousFile,
    agent: Arc<Mutex<UnixStream>>,
    inbox: Arc<Mutex<Inbox>>,
    /// Locked while a thread asks the guest as a whole something and waits for the answer.
    answers: Mutex<Receiver<ToHost>>,
    next_id: AtomicU32,
    reader: Option<JoinHandle<()>>,
    kernel: String,
    failed_boots: Vec<String>,
}

/// A command that runs in a guest. It is killed if this is dropped before its end.
#[derive(Debug)]
pub struct Running<'a> {
    guest: &'a Guest,
    id: u32,
    events: Receiver<ToHost>,
    ended: bool,
}

impl Guest {
    /// Boots a guest and waits until its agent answers. If the kernel or QEMU crashed or hung
    /// ([`Error::is_worth_another_boot`]), it tries again, up to [`Self::BOOTS`] boots in all. Such failures are rare:
    /// QEMU's multi-threaded emulation may run kernel code that another CPU is patching, and the kernel patches most
    /// while it boots (docs/lab.md, "Limits of the model"). Any other failure would recur.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Io`], and [`Error::NoBoot`] with the kernel's last lines.
    pub fn start(options: &Options) -> Result<Self> {
        let mut failed_boots = Vec::new();
        loop {
            match Self::boot(options) {
                Ok(mut guest) => {
                    guest.failed_boots = failed_boots;
                    return Ok(guest);
                }
                Err(error)
                    if error.is_worth_another_boot() && failed_boots.len() + 1 < Self::BOOTS =>
                {
                    failed_boots.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The most boots of a guest until it is up.
    pub const BOOTS: usize = 3;

    fn boot(options: &Options) -> Result<Self> {
        let refuse = |reason| Error::Shape {
            machine: "asked for".to_owned(),
            reason,
        };
        options.shape.check().map_err(refuse)?;
        let model = options.model.as_ref();
        let packed = initrd::pack(&options.kernel, model.is_some())?;
        // Without a model, these files are empty and take no memory.
        let configuration = model.map_or("", |model| &model.configuration);
        let recording = model.and_then(|model| model.recording.as_ref());
        let about = recording.map_or("", |recording| &recording.about);
        let initrd = AnonymousFile::with("lab-initrd", &packed)?;
        let shared = AnonymousFile::empty("lab-shared", shared_bytes(&options.shape))?;
        let configuration = AnonymousFile::with("lab-configuration", configuration.as_bytes())?;
        let about = AnonymousFile::with("lab-about", about.as_bytes())?;
        let report = AnonymousFile::empty("lab-report", 0)?;
        let inherited = Inherited {
            initrd: initrd.path(),
            shared: shared.path(),
            configuration: configuration.path(),
            report: report.path(),
            about: about.path(),
        };
        let arguments = command_line::arguments(
            &options.shape,
            &options.kernel.image,
            &options.kernel_parameters,
            model,
            options.serial_port.as_ref(),
            &inherited,
        );
        let files = vec![initrd, shared, configuration, about];
        let program = options.kernel.qemu.clone();
        let (qemu, agent) = Qemu::start(program, arguments, files, options.time_limit)?;
        Self::greet(qemu, agent, report, options.boot_limit)
    }

    /// Exchanges the first messages.
    fn greet(
        qemu: Qemu,
        agent: UnixStream,
        report: AnonymousFile,
        limit: Duration,
    ) -> Result<Self> {
        let (to_guest_waiter, answers) = channel();
        let inbox = Arc::new(Mutex::new(Inbox {
            commands: HashMap::new(),
            guest: Some(to_guest_waiter),
            error: None,
        }));
        let incoming = agent
            .try_clone()
            .context(|| "sharing the agent's socket".into())?;
        let reader = {
            let inbox = inbox.clone();
            thread::Builder::new()
                .name("lab agent".to_owned())
                .spawn(move || read_messages(incoming, &inbox))
                .context(|| "starting the thread that reads from the guest".into())?
        };
        let mut guest = Self {
            qemu,
            report,
            agent: Arc::new(Mutex::new(agent)),
            inbox,
            answers: Mutex::new(answers),
            next_id: AtomicU32::new(1),
            reader: Some(reader),
            kernel: String::new(),
            failed_boots: Vec::new(),
        };
        // A QEMU that refuses its arguments ends before it reads anything.
        let _ = guest.send(&ToGuest::Hello { version: VERSION });
        let answer = lock(&guest.answers).recv_timeout(limit);
        let cause = match answer {
            Ok(ToHost::Ready {
                version: VERSION,
                kernel,
            }) => {
                guest.kernel = kernel;
                return Ok(guest);
            }
            Ok(ToHost::Ready { version, .. }) => Some(Cause::Version {
                found: version,
                expected: VERSION,
            }),
            Err(RecvTimeoutError::Timeout) => Some(Cause::BootLimit(limit)),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => None,
        };
        let (cause, console) = match cause {
            Some(cause) => (cause, Cause::excerpt(&guest.qemu.console.text())),
            None => guest.death(),
        };
        Err(Error::NoBoot { cause, console })
    }

    /// The guest kernel's release.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The causes of the failed boots before this one: the kernel or QEMU crashed or hung.
    #[must_use]
    pub fn failed_boots(&self) -> &[String] {
        &self.failed_boots
    }

    /// QEMU's process id on the host.
    #[must_use]
    pub fn qemu_pid(&self) -> u32 {
        self.qemu.pid
    }

    /// The end of what QEMU and the plugin have written on stderr so far.
    #[must_use]
    pub fn messages(&self) -> String {
        self.qemu.messages.text()
    }

    /// The end of what the guest's kernel has written on its console so far.
    #[must_use]
    pub fn console(&self) -> String {
        self.qemu.console.text()
    }

    /// Starts a command.
    ///
    /// # Errors
    /// [`Error::NotStarted`] with the guest's reason, [`Error::Died`], [`Error::Nul`].
    pub fn spawn(&self, command: &Command) -> Result<Running<'_>> {
        let line = command.line()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = channel();
        {
            let mut inbox = lock(&self.inbox);
            if inbox.guest.is_none() {
                drop(inbox);
                return Err(self.died());
            }
            inbox.commands.insert(id, sender);
        }
        let running = Running {
            guest: self,
            id,
            events,
            ended: false,
        };
        self.send(&ToGuest::Run { id, command: line })?;
        Ok(running)
    }

    /// Runs a command to its end and collects its output.
    ///
    /// # Errors
    /// As [`Guest::spawn`], and [`Error::CommandTimeLimit`].
    pub fn output(&self, command: &Command, limit: Option<Duration>) -> Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let ending = self.stream(command, limit, |stream, bytes| {
            match stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            }
            .extend_from_slice(bytes);
        })?;
        Ok(Output {
            ending,
            stdout,
            stderr,
        })
    }

    /// Runs a command to its end and passes its output on as it comes.
    ///
    /// # Errors
    /// As [`Guest::output`].
    pub fn stream(
        &self,
        command: &Command,
        limit: Option<Duration>,
        mut sink: impl FnMut(Stream, &[u8]),
    ) -> Result<Ending> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut running = self.spawn(command)?;
        loop {
            match running.next(until)? {
                None => {
                    let limit = limit.unwrap_or_default();
                    return Err(Error::CommandTimeLimit { limit });
                }
                Some(Event::Started(_)) => {}
                Some(Event::Output(stream, bytes)) => sink(stream, &bytes),
                Some(Event::Ended(ending)) => return Ok(ending),
            }
        }
    }

    /// Writes a file of the guest, such as a kernel setting below `/proc` or `/sys`.
    ///
    /// # Errors
    /// [`Error::NotStarted`] with the reason if it cannot be written, [`Error::Died`].
    pub fn write_file(&self, path: &str, text: &str) -> Result<()> {
        let words = ["sh", "-c", "printf %s \"$2\" > \"$1\"", "sh", path, text];
        let command = Command {
            arguments: words.map(Into::into).to_vec(),
            environment: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
            directory: "/".into(),
        };
        let output = self.output(&command, None)?;
        if output.ending == Ending::Exited(0) {
            Ok(())
        } else {
            let reason = String::from_utf8_lossy(&output.stderr);
            Err(Error::NotStarted(format!(
                "writing {text:?} to {path}: {}",
                reason.trim()
            )))
        }
    }

    /// Turns the hardware model on, for the guest as a whole.
    ///
    /// # Errors
    /// [`Error::Gate`] if there is no model or the plugin refuses; [`Error::Died`].
    pub fn start_model(&self) -> Result<()> {
        self.set_gate(true)
    }

    /// Turns the hardware model off.
    ///
    /// # Errors
    /// As [`Self::start_model`].
    pub fn stop_model(&self) -> Result<()> {
        self.set_gate(false)
    }

    fn set_gate(&self, on: bool) -> Result<()> {
        match self.ask(&ToGuest::Gate { on })? {
            ToHost::GateSet(set) => set.map_err(Error::Gate),
            _ => Err(self.died()),
        }
    }

    /// Powers the guest off and waits until QEMU has ended.
    ///
    /// # Errors
    /// [`Error::Died`] if it had died before.
    pub fn stop(self) -> Result<Stopped> {
        match self.ask(&ToGuest::PowerOff)? {
            ToHost::Goodbye => {
                self.qemu.wait_or_kill(PATIENCE);
                // Empty without a model, or if QEMU crashed on its way out, which does no other harm.
                let report = self.report.text()?;
                Ok(Stopped {
                    report: (!report.is_empty()).then_some(report),
                    console: self.console(),
                    messages: self.messages(),
                })
            }
            _ => Err(self.died()),
        }
    }

    /// Sends a message about the guest as a whole and waits for the answer.
    fn ask(&self, message: &ToGuest) -> Result<ToHost> {
        let answers = lock(&self.answers);
        self.send(message)?;
        answers.recv().map_err(|_| self.died())
    }

    fn send(&self, message: &ToGuest) -> Result<()> {
        lock(&self.agent)
            .write_all(&message.frame())
            .map_err(|_| self.died())
    }

    fn died(&self) -> Error {
        let (cause, console) = self.death();
        Error::Died { cause, console }
    }

    /// Why the guest is gone, and the kernel's last lines. Called once the stream has ended.
    fn death(&self) -> (Cause, String) {
        let damaged = lock(&self.inbox).error.clone();
        if damaged.is_some() {
            self.qemu.kill();
        }
        let end = self.qemu.wait_or_kill(PATIENCE);
        let console = self.qemu.console.text();
        let cause = if let Some(limit) = end.limit {
            Cause::TimeLimit(limit)
        } else if let Some(cause) = Cause::from_console(&console) {
            cause
        } else if let Some(error) = damaged {
            Cause::Protocol(error)
        } else if end.stopped {
            Cause::Stopped
        } else {
            let message = self.qemu.messages.last_lines(SHOWN_LINES);
            Cause::Qemu {
                status: end.status,
                message,
            }
        };
        (cause, Cause::excerpt(&console))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.qemu.kill();
        self.qemu.wait();
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

impl Running<'_> {
    /// The command's next event; None if `until` has passed without one. To be called until it
    /// returns [`Event::Ended`] or an error.
    ///
    /// # Errors
    /// [`Error::NotStarted`] and [`Error::Died`].
    pub fn next(&mut self, until: Option<Instant>) -> Result<Option<Event>> {
        let message = match until {
            None => self
                .events
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => {
                let rest = until.saturating_duration_since(Instant::now());
                self.events.recv_timeout(rest)
            }
        };
        let message = match message {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(self.guest.died()),
        };
        Ok(Some(match message {
            ToHost::Output { stream, bytes, .. } => Event::Output(stream, bytes),
            ToHost::Ended { ending, .. } => {
                self.ended = true;
                Event::Ended(ending)
            }
            ToHost::NotStarted { reason, .. } => {
                self.ended = true;
                return Err(Error::NotStarted(reason));
            }
            ToHost::Started { pid, .. } => Event::Started(pid),
            // The reader passes on only messages with an id, which are those above.
            ToHost::Ready { .. } | ToHost::GateSet(_) | ToHost::Goodbye => return Ok(None),
        }))
    }

    /// Sends a signal, by number, to the command's process group.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.guest.send(&ToGuest::Signal {
            id: self.id,
            signal,
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.guest.inbox).commands.remove(&self.id);
        if !self.ended {
            // With the guest gone there is nothing to kill.
            let _ = self.signal(rustix::process::Signal::KILL.as_raw());
        }
    }
}

/// Reads messages until the stream ends or is malformed, and hands each to its waiter.
fn read_messages(mut stream: UnixStream, inbox: &Mutex<Inbox>) {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break decoder.finish().err(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The other end of a socket pair can only go away.
            Err(_) => break None,
            Ok(length) => {
                decoder.push(&buffer[..length]);
                if let Err(error) = hand_out(&mut decoder, inbox) {
                    break Some(error);
                }
            }
        }
    };
    let mut inbox = lock(inbox);
    inbox.error = error;
    inbox.guest = None;
    inbox.commands.clear();
}

/// Hands out all complete messages.
fn hand_out(decoder: &mut Decoder, inbox: &Mutex<Inbox>) -> Result<(), ProtocolError> {
    while let Some(message) = decoder.take::<ToHost>()? {
        let inbox = lock(inbox);
        let waiter = match &message {
            ToHost::Started { id, .. }
            | ToHost::NotStarted { id, .. }
            | ToHost::Output { id, .. }
            | ToHost::Ended { id, .. } => inbox.commands.get(id),
            ToHost::Ready { .. } | ToHost::GateSet(_) | ToHost::Goodbye => inbox.guest.as_ref(),
        };
        if let Some(waiter) = waiter {
            // The receiver may have stopped waiting.
            let _ = waiter.send(message);
        }
    }
    Ok(())
}
