//! Runs commands for the host, any number at the same time.
//!
//! One thread reads the port. Each command has a thread that forwards its output and reports its
//! end. A command has ended when its own process has. Processes that it left in the background may
//! keep the pipes open; the agent does not wait for them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use numaherd_lab_guest::protocol::{
    CommandLine, Decoder, Ending, Message, PORT_NAME, Stream, ToGuest, ToHost, VERSION,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::Context;

/// The PMU module's switch for the hardware model.
const GATE: &str = "/sys/module/lab_pmu/parameters/gate";

/// Longest piece of output in one message, in bytes.
const PIECE: usize = 64 << 10;

/// The port, shared by all threads that report.
type Port = Arc<Mutex<File>>;

/// Process groups of running commands, by the host's id.
type Running = Arc<Mutex<HashMap<u32, Pid>>>;

/// Serves the host until it asks to power off or closes the port.
pub fn serve() -> io::Result<()> {
    let mut incoming = open_port()?;
    let port: Port = Arc::new(Mutex::new(incoming.try_clone()?));
    let running = Running::default();
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; PIECE];
    let mut greeted = false;
    let mut waits = 0;
    loop {
        let length = match incoming.read(&mut buffer) {
            // Reading the port returns its end until QEMU has told the kernel that the host is connected.
            Ok(0) if !greeted && waits < 1000 => {
                waits += 1;
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Ok(0) => return Err(io::Error::other("the host has gone away")),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).during("reading from the host"),
        };
        decoder.push(&buffer[..length]);
        while let Some(message) = decoder.take().map_err(io::Error::other)? {
            greeted = true;
            match message {
                ToGuest::Hello { version } => {
                    let ready = ToHost::Ready {
                        version: VERSION,
                        kernel: rustix::system::uname().release().to_string_lossy().into(),
                    };
                    send(&port, &ready)?;
                    if version != VERSION {
                        return Err(io::Error::other(format!(
                            "the host uses version {version} of the protocol, this guest {VERSION}"
                        )));
                    }
                }
                ToGuest::Run { id, command } => start(&port, &running, id, &command)?,
                ToGuest::Signal { id, signal } => {
                    let group = lock(&running).get(&id).copied();
                    // The command may have ended meanwhile, which is no error.
                    if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(signal)) {
                        let _ = kill_process_group(group, signal);
                    }
                }
                ToGuest::Gate { on } => {
                    let set = fs::write(GATE, if on { "1" } else { "0" })
                        .map_err(|error| format!("writing {GATE}: {error}"));
                    send(&port, &ToHost::GateSet(set))?;
                }
                ToGuest::PowerOff => {
                    for group in lock(&running).values() {
                        let _ = kill_process_group(*group, Signal::KILL);
                    }
                    return send(&port, &ToHost::Goodbye);
                }
            }
        }
    }
}

/// Opens the virtio port with the protocol's name.
fn open_port() -> io::Result<File> {
    let class = "/sys/class/virtio-ports";
    for entry in fs::read_dir(class).during("listing the virtio ports")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT_NAME {
            let device = std::path::Path::new("/dev").join(entry.file_name());
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(&device)
                .about("opening", &device);
        }
    }
    Err(io::Error::other(format!(
        "no port in {class} is named {PORT_NAME}"
    )))
}

fn send(port: &Port, message: &ToHost) -> io::Result<()> {
    lock(port)
        .write_all(&message.frame())
        .during("writing to the host")
}

/// Locks `mutex`, poisoned or not: these critical sections leave no inconsistent state.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(port: &Port, running: &Running, id: u32, command: &CommandLine) -> io::Result<()> {
    let not_started = move |error: io::Error| ToHost::NotStarted {
        id,
        reason: error.to_string(),
    };
    let child = match spawn(command) {
        Ok(child) => child,
        Err(error) => return send(port, &not_started(error)),
    };
    lock(running).insert(id, Pid::from_child(&child));
    let pid = child.id();
    send(port, &ToHost::Started { id, pid })?;
    let (port, running) = (port.clone(), running.clone());
    thread::spawn(move || {
        let ended = attend(&port, id, child);
        lock(&running).remove(&id);
        let message = ended.map_or_else(not_started, |ending| ToHost::Ended { id, ending });
        // If the port has closed, the main thread ends as well.
        let _ = send(&port, &message);
    });
    Ok(())
}

/// Starts the command in a process group of its own.
fn spawn(command: &CommandLine) -> io::Result<Child> {
    let mut words = command.arguments.iter().map(|word| OsStr::from_bytes(word));
    let program = words
        .next()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let environment = command.environment.iter().filter_map(|entry| {
        let split = entry.iter().position(|&byte| byte == b'=')?;
        Some((
            OsStr::from_bytes(&entry[..split]),
            OsStr::from_bytes(&entry[split + 1..]),
        ))
    });
    let directory = std::path::Path::new(OsStr::from_bytes(&command.directory));
    if !directory.is_dir() {
        return Err(io::Error::other(format!(
            "there is no directory {}",
            directory.display()
        )));
    }
    Command::new(program)
        .args(words)
        .env_clear()
        .envs(environment)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .about("starting", std::path::Path::new(program))
}

/// Forwards the command's output until it has ended; returns how it ended.
fn attend(port: &Port, id: u32, mut child: Child) -> io::Result<Ending> {
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut pipes: Vec<(Stream, OwnedFd)> = Vec::new();
    pipes.extend(
        child
            .stdout
            .take()
            .map(|pipe| (Stream::Stdout, pipe.into())),
    );
    pipes.extend(
        child
            .stderr
            .take()
            .map(|pipe| (Stream::Stderr, pipe.into())),
    );
    for (_, pipe) in &pipes {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    let mut ended = false;
    while !ended {
        let mut waiting = vec![PollFd::new(&pidfd, PollFlags::IN)];
        waiting.extend(
            pipes
                .iter()
                .map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)),
        );
        match poll(&mut waiting, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Checked before the pipes are read, so that all output before the end is in them.
        ended = !waiting[0].revents().is_empty();
        let mut open = Vec::new();
        for (stream, pipe) in pipes {
            if !forward(port, id, stream, pipe.as_fd())? {
                open.push((stream, pipe));
            }
        }
        pipes = open;
    }
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, signal) => Ending::Killed(signal.unwrap_or_default()),
    })
}

/// Sends what can be read now; returns true at the end of the stream.
fn forward(port: &Port, id: u32, stream: Stream, pipe: BorrowedFd<'_>) -> io::Result<bool> {
    let mut buffer = vec![0; PIECE];
    loop {
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => return Ok(true),
            Ok(length) => {
                let bytes = buffer[..length].to_vec();
                send(port, &ToHost::Output { id, stream, bytes })?;
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
