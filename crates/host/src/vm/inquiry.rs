//! One inquiry at a machine's monitor: connect, ask, and check what was said.
//!
//! Runs in a thread of its own, so that no one who watches the machine waits for it.
//!
//! A monitor is believed if that very process listens at the socket (`SO_PEERCRED`, so a command
//! line cannot lead to someone else's socket), it greets as a monitor does before it is told
//! anything, and each thread that it names is a thread of that very process, other than its first,
//! which runs no vCPU. A thread may end between answer and check (a vCPU that is unplugged), so a
//! false answer is asked for once more before it counts as a lie.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use numaherd_world::{ProcessId, ThreadId, VirtualCpu};
use serde_json::Value;

use crate::files::Root;
use crate::proc::{decimal, lines, stat, words};
use crate::vm::answers::{self, Backend, CpuThread, Name, Status};
use crate::vm::qmp::{Conversation, Limits, NoAnswer, Wire};
use crate::vm::sockets;

/// The longest time for one inquiry, all of its questions together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer, whatever the number of vCPUs.
const ANSWER_BYTES: usize = 1 << 20;
/// Additional bytes of an answer for each thread of the process: QEMU takes some 200 for a vCPU.
const BYTES_PER_THREAD: usize = 4096;

/// An inquiry: what is asked, and which monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inquiry {
    /// The machine's process.
    pub(crate) process: ProcessId,
    /// Its monitor, by its command line.
    pub(crate) monitor: PathBuf,
    /// The longest time for the inquiry.
    pub(crate) patience: Duration,
}

/// A monitor's checked answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// The vCPUs, ascending by index.
    pub(crate) vcpus: Vec<VirtualCpu>,
    /// Memory that the guest system sees.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) name: Option<String>,
    /// What people should know about the machine's memory and state, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// Why nothing of a monitor is used.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.sentence())]
pub(crate) struct Unheard {
    pub(super) process: ProcessId,
    pub(super) monitor: PathBuf,
    pub(super) asked: &'static str,
    pub(super) why: NoAnswer,
}

impl Unheard {
    fn sentence(&self) -> String {
        let Self {
            process,
            monitor,
            asked,
            why,
        } = self;
        let monitor = format!("the monitor at {} of {process}", monitor.display());
        match why {
            NoAnswer::Unreachable(_) => format!("cannot query {monitor}: {why}"),
            NoAnswer::Impossible(_) => format!(
                "{monitor} gave an impossible answer to {asked}: {why}; it is not queried again"
            ),
            _ => format!("querying {monitor} failed at {asked}: {why}"),
        }
    }
}

/// A conversation in which every error knows what was asked.
struct Interview<W> {
    talk: Conversation<W>,
}

/// What was asked, and why there is no answer.
type Failure = (&'static str, NoAnswer);

impl<W: Wire> Interview<W> {
    fn ask<T>(
        &mut self,
        asked: &'static str,
        read: impl Fn(Value) -> Result<T, NoAnswer>,
    ) -> Result<T, Failure> {
        let answer = self.talk.ask(asked);
        answer.and_then(read).map_err(|why| (asked, why))
    }

    /// A question that an older QEMU may not know.
    fn optional<T>(
        &mut self,
        asked: &'static str,
        read: impl Fn(Value) -> Result<T, NoAnswer>,
    ) -> Result<Option<T>, Failure> {
        match self.ask(asked, read) {
            Err((_, NoAnswer::Refused(_))) => Ok(None),
            answer => answer.map(Some),
        }
    }
}

impl Inquiry {
    /// Connects, asks and checks; takes no longer than its patience.
    ///
    /// # Errors
    /// [`Unheard`].
    pub(crate) fn run(&self, root: &Root) -> Result<Answers, Unheard> {
        let began = Instant::now();
        let answers = sockets::connect(root, self.process, &self.monitor)
            .map_err(|why| ("", why))
            .and_then(|socket| self.ask(root, Live { socket, began }));
        answers.map_err(|(asked, why)| Unheard {
            process: self.process,
            monitor: self.monitor.clone(),
            asked,
            why,
        })
    }

    /// Asks over a connection.
    fn ask(&self, root: &Root, wire: impl Wire) -> Result<Answers, Failure> {
        let threads = root.numbers(&format!("proc/{}/task", self.process.pid), "");
        let message_bytes = ANSWER_BYTES + BYTES_PER_THREAD * threads.map_or(0, |tids| tids.len());
        let limits = Limits {
            time: self.patience,
            message_bytes,
            // Seven answers, and the events between them.
            bytes: 16 * message_bytes,
        };
        let talk = Conversation::begin(wire, limits).map_err(|why| ("its greeting", why))?;
        let mut talk = Interview { talk };
        let mut vcpus = || talk.ask("query-cpus-fast", |answer| self.vcpus(root, answer));
        let vcpus = match vcpus() {
            Err((_, NoAnswer::Impossible(_))) => vcpus()?,
            other => other?,
        };
        let size = talk.optional("query-memory-size-summary", answers::memory_bytes)?;
        talk.optional("query-memory-devices", |answer| {
            let plugged = answers::plugged_bytes(answer)?;
            match size.filter(|&size| plugged > size) {
                Some(size) => Err(NoAnswer::Impossible(format!(
                    "devices of {plugged} bytes in a machine of {size}"
                ))),
                None => Ok(()),
            }
        })?;
        let backends = talk.optional("query-memdev", answers::read::<Vec<Backend>>)?;
        let name = talk.optional("query-name", answers::read::<Name>)?;
        let status = talk.optional("query-status", answers::read::<Status>)?;
        let mut notes: Vec<String> = backends.iter().flatten().filter_map(memory_note).collect();
        notes.extend(status.and_then(|status| state_note(&status.status)));
        Ok(Answers {
            vcpus,
            memory_bytes: size,
            name: name.and_then(|name| name.name),
            notes,
        })
    }

    /// The vCPUs with their threads' identities, if all belong to this process.
    fn vcpus(&self, root: &Root, answer: Value) -> Result<Vec<VirtualCpu>, NoAnswer> {
        let pid = self.process.pid;
        let numbers = Numbers::of(root, pid);
        let vcpu = |CpuThread { index, thread }| {
            let tid = numbers.here(thread);
            match tid.and_then(|tid| thread_of(root, pid, tid)) {
                None => Err(NoAnswer::Impossible(format!(
                    "the thread {thread} of vCPU {index} is not a thread of this process"
                ))),
                Some(thread) if thread.tid == pid => Err(NoAnswer::Impossible(format!(
                    "vCPU {index} is its first thread"
                ))),
                Some(thread) => Ok(VirtualCpu { index, thread }),
            }
        };
        let cpus = answers::cpus(answer)?;
        let vcpus: Result<Vec<VirtualCpu>, NoAnswer> = cpus.into_iter().map(vcpu).collect();
        // If the process still has its number, the threads were its own.
        let still = thread_of(root, pid, pid);
        if still.is_none_or(|thread| thread.born != self.process.born) {
            let why = "the process has ended".to_owned();
            return Err(NoAnswer::Impossible(why));
        }
        vcpus
    }
}

/// What of a piece of memory people should know before its pages are moved.
fn memory_note(backend: &Backend) -> Option<String> {
    let name = super::machine::printable(&backend.id);
    let bound = matches!(backend.policy.as_str(), "bind" | "interleave" | "preferred");
    bound.then(|| {
        let nodes = &backend.host_nodes;
        format!(
            "its owner set its memory {name} to nodes {nodes:?} (policy {}): pages that are moved \
             stay where they are put, but new ones go there",
            backend.policy
        )
    })
}

/// What of a machine's state people should know.
fn state_note(status: &str) -> Option<String> {
    let why = match status {
        "inmigrate" => "it is being received from another host",
        "finish-migrate" | "postmigrate" => "it has gone to another host",
        "io-error" | "internal-error" | "guest-panicked" | "watchdog" => "it has stopped by itself",
        _ => return None,
    };
    Some(format!("{why} (status {status}): moving it has no use now"))
}

/// The thread with this number in a process; `None` if there is none, or it has ended.
fn thread_of(root: &Root, pid: u32, tid: u32) -> Option<ThreadId> {
    let text = root.read(&format!("proc/{pid}/task/{tid}/stat")).ok()?;
    let stat = stat::parse(&text).filter(|stat| !stat.has_ended())?;
    Some(ThreadId {
        tid,
        born: stat.born,
    })
}

/// How to translate thread numbers from where QEMU runs to here: a process in a container has its
/// own number space (pid_namespaces(7)).
enum Numbers {
    Same,
    /// Pairs of the number there and the number here.
    Own(Vec<(u32, u32)>),
}

impl Numbers {
    fn of(root: &Root, pid: u32) -> Self {
        let inner = |path: String| {
            let text = root.read(&path).ok()?;
            inner_number(&text)
        };
        if inner(format!("proc/{pid}/status")).is_none() {
            return Self::Same;
        }
        let tids = root.numbers(&format!("proc/{pid}/task"), "");
        let pair = |tid| Some((inner(format!("proc/{pid}/task/{tid}/status"))?, tid));
        Self::Own(
            tids.unwrap_or_default()
                .into_iter()
                .filter_map(pair)
                .collect(),
        )
    }

    fn here(&self, there: u32) -> Option<u32> {
        match self {
            Self::Same => Some(there),
            Self::Own(pairs) => pairs
                .iter()
                .find(|(inner, _)| *inner == there)
                .map(|&(_, tid)| tid),
        }
    }
}

/// A thread's number in its innermost number space, from its status file; `None` if that is ours.
fn inner_number(status: &[u8]) -> Option<u32> {
    let line = lines(status).find_map(|line| line.strip_prefix(b"NSpid:"))?;
    let mut numbers = words(line);
    numbers.next()?;
    numbers.last().and_then(decimal)?.try_into().ok()
}

/// A connection and the clock.
#[derive(Debug)]
struct Live {
    socket: UnixStream,
    began: Instant,
}

impl Wire for Live {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn read(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(within))?;
        self.socket.read(buffer)
    }

    fn write(&mut self, bytes: &[u8], within: Duration) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(within))?;
        self.socket.write(bytes)
    }
}

#[cfg(test)]
mod tests;
