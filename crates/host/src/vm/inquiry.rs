//! One inquiry at a machine's monitor: connect, ask, and check what was said.
//!
//! Runs in a thread of its own, so that whoever watches the machine never waits for it.
//!
//! What makes a monitor believed: the socket was made to listen by that very process (`SO_PEERCRED`,
//! so a command line cannot lead to someone else's socket), it greets as a monitor does before it
//! is told anything, and each thread that it names is a thread of that very process, and not its
//! first, which runs no vCPU. A thread may end between answer and check (a vCPU that is unplugged),
//! so what does not hold is asked once more before it is a lie.

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

/// The longest that one inquiry takes, all of its questions together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer that has nothing to do with the number of vCPUs.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes that an answer may have for each thread of the process: QEMU takes some 200 for a vCPU.
const BYTES_PER_THREAD: usize = 4096;

/// What is asked of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inquiry {
    /// The machine's process.
    pub(crate) process: ProcessId,
    /// Its monitor, as its command line has it.
    pub(crate) monitor: PathBuf,
    /// The longest that the inquiry takes.
    pub(crate) patience: Duration,
}

/// What a monitor said that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// The vCPUs, ascending by index.
    pub(crate) vcpus: Vec<VirtualCpu>,
    /// Memory that the machine's system sees.
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

    /// The vCPUs with their threads' identities, if all of them are this process's.
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
        // Whoever has the number now, it was this process's threads that were looked at.
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

/// The thread of that number in a process; `None` when it has none, or the thread has ended.
fn thread_of(root: &Root, pid: u32, tid: u32) -> Option<ThreadId> {
    let text = root.read(&format!("proc/{pid}/task/{tid}/stat")).ok()?;
    let stat = stat::parse(&text).filter(|stat| !stat.has_ended())?;
    Some(ThreadId {
        tid,
        born: stat.born,
    })
}

/// How the numbers of threads where QEMU runs are to be read here: a process in a container has a
/// number space of its own (pid_namespaces(7)).
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

/// The number of a thread in the innermost space that it is in, from its status file; `None` where
/// it is in no other than ours.
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
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;

    /// Threads of this process for a monitor to tell of; they end with the value.
    struct Crew {
        tids: Vec<u32>,
        ends: Vec<(Sender<()>, JoinHandle<()>)>,
    }

    impl Crew {
        fn of(count: usize) -> Self {
            let mut crew = Self {
                tids: Vec::new(),
                ends: Vec::new(),
            };
            for _ in 0..count {
                let (began, begun) = channel();
                let (end, ended) = channel();
                let thread = std::thread::spawn(move || {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    began.send(tid.unsigned_abs()).unwrap();
                    let _ = ended.recv();
                });
                crew.tids.push(begun.recv().unwrap());
                crew.ends.push((end, thread));
            }
            crew
        }

        fn cpus(&self) -> String {
            let cpus = self.tids.iter().enumerate();
            let cpus = cpus.map(|(i, tid)| format!("{{\"cpu-index\":{i},\"thread-id\":{tid}}}"));
            format!("[{}]", cpus.collect::<Vec<_>>().join(","))
        }
    }

    impl Drop for Crew {
        fn drop(&mut self) {
            for (end, thread) in self.ends.drain(..) {
                drop(end);
                thread.join().unwrap();
            }
        }
    }

    /// What a monitor answers: the text for a question, or nothing but the end.
    type Script = fn(&str, &Crew) -> Option<String>;

    /// As a well-behaved QEMU does.
    fn honest(question: &str, crew: &Crew) -> Option<String> {
        Some(match question {
            "query-cpus-fast" => crew.cpus(),
            "query-memory-size-summary" => r#"{"base-memory":1024,"plugged-memory":512}"#.into(),
            "query-memory-devices" => r#"[{"type":"dimm","data":{"size":512}}]"#.into(),
            "query-memdev" => {
                r#"[{"id":"ram","size":1024,"share":true,"host-nodes":[1],"policy":"bind"}]"#.into()
            }
            "query-name" => r#"{"name":"web"}"#.into(),
            "query-status" => r#"{"status":"postmigrate","running":false}"#.into(),
            _ => "{}".into(),
        })
    }

    /// A monitor in this process, and an inquiry at it.
    fn asked(process: ProcessId, answers: Script) -> Result<Answers, Unheard> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let crew = Crew::of(3);
        std::thread::scope(|scope| {
            let crew = &crew;
            scope.spawn(move || serve(listener.accept().unwrap().0, answers, crew));
            let inquiry = Inquiry {
                process,
                monitor: path,
                // What is tested is not how fast this machine is.
                patience: Duration::from_secs(60),
            };
            let told = inquiry.run(&Root::new(Path::new("/")));
            if let Ok(told) = &told {
                let tids: Vec<u32> = told.vcpus.iter().map(|vcpu| vcpu.thread.tid).collect();
                assert_eq!(tids, crew.tids);
            }
            told
        })
    }

    /// Serves until the other side has gone.
    fn serve(stream: UnixStream, answers: Script, crew: &Crew) {
        use std::io::BufRead;
        let mut out = &stream;
        // Who has gone hears nothing.
        let _ = writeln!(out, "{GREETING}");
        for line in io::BufReader::new(&stream).lines().map_while(Result::ok) {
            let asked: Value = serde_json::from_str(&line).unwrap();
            let answer = answers(asked["execute"].as_str().unwrap(), crew);
            let Some(answer) = answer else {
                return;
            };
            let _ = writeln!(out, r#"{{"return":{answer},"id":{}}}"#, asked["id"]);
        }
    }

    /// This process, as a machine.
    fn own() -> ProcessId {
        let pid = std::process::id();
        let root = Root::new(Path::new("/"));
        let born = thread_of(&root, pid, pid).unwrap().born;
        ProcessId { pid, born }
    }

    fn lie(answers: Script) -> String {
        match asked(own(), answers) {
            Err(lie) if matches!(lie.why, NoAnswer::Impossible(_)) => lie.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_monitor_is_asked_for_all_that_it_knows() {
        let told = asked(own(), honest).unwrap();
        assert_eq!(told.memory_bytes, Some(1536));
        assert_eq!(told.name.as_deref(), Some("web"));
        assert_eq!(told.notes.len(), 2, "{:?}", told.notes);
        assert!(told.notes[0].contains("nodes [1] (policy bind)"));
        assert!(told.notes[1].contains("gone to another host"));
    }

    #[test]
    fn a_monitor_that_never_greets_is_given_up_after_the_inquirys_own_patience() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        // The kernel takes the connection; nobody else does.
        let _listener = UnixListener::bind(&path).unwrap();
        let inquiry = Inquiry {
            process: own(),
            monitor: path,
            patience: Duration::from_millis(40),
        };
        let error = inquiry.run(&Root::new(Path::new("/"))).unwrap_err();
        let expected =
            "at its greeting: it did not answer within 40 ms: it is serving another program";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(PATIENCE <= Duration::from_secs(1));
    }

    #[test]
    fn a_monitor_that_closes_half_way_is_told_with_what_it_was_asked() {
        let error = asked(own(), |question, crew| match question {
            "query-memdev" => None,
            _ => honest(question, crew),
        });
        let error = error.unwrap_err().to_string();
        let expected = "failed at query-memdev: it closed the connection instead";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_thread_of_another_process_is_a_lie() {
        let foreign = lie(|question, crew| match question {
            "query-cpus-fast" => Some(r#"[{"cpu-index":0,"thread-id":1}]"#.into()),
            _ => honest(question, crew),
        });
        let expected = "gave an impossible answer to query-cpus-fast: the thread 1 of vCPU 0 is not a \
                        thread of this process; it is not queried again";
        assert!(foreign.contains(expected), "{foreign}");
    }

    #[test]
    fn the_first_thread_runs_no_vcpu() {
        let first = lie(|question, crew| match question {
            "query-cpus-fast" => {
                let pid = std::process::id();
                Some(format!(r#"[{{"cpu-index":4,"thread-id":{pid}}}]"#))
            }
            _ => honest(question, crew),
        });
        assert!(first.contains("vCPU 4 is its first thread"), "{first}");
    }

    #[test]
    fn what_cannot_be_is_a_lie_whatever_was_asked() {
        let twice = lie(|question, crew| match question {
            "query-cpus-fast" => Some(crew.cpus().replace("\"cpu-index\":1", "\"cpu-index\":0")),
            _ => honest(question, crew),
        });
        assert!(twice.contains("it names vCPU 0 twice"), "{twice}");
        let huge = lie(|question, crew| match question {
            "query-memory-size-summary" => {
                Some(r#"{"base-memory":1e300,"plugged-memory":0}"#.into())
            }
            _ => honest(question, crew),
        });
        assert!(huge.contains("not as QEMU describes it"), "{huge}");
        let more = lie(|question, crew| match question {
            "query-memory-devices" => Some(r#"[{"data":{"size":4096}}]"#.into()),
            _ => honest(question, crew),
        });
        assert!(
            more.contains("devices of 4096 bytes in a machine of 1536"),
            "{more}"
        );
        let nothing = lie(|question, crew| match question {
            "query-status" => Some("[]".into()),
            _ => honest(question, crew),
        });
        assert!(nothing.contains("answer to query-status"), "{nothing}");
    }

    #[test]
    fn a_process_that_has_ended_is_not_taken_for_its_successor() {
        let successor = ProcessId { born: 1, ..own() };
        let error = asked(successor, honest).unwrap_err().to_string();
        assert!(error.contains("the process has ended"), "{error}");
    }

    #[test]
    fn anothers_socket_is_left_alone_whoever_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let ask = |monitor: &Path, pid: u32| {
            let process = ProcessId { pid, born: 1 };
            let root = Root::new(Path::new("/"));
            sockets::connect(&root, process, monitor)
                .unwrap_err()
                .to_string()
        };
        let own = std::process::id();
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let refused = ask(&path, other.id());
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(
            refused.contains(&format!("a socket of process {own}")),
            "{refused}"
        );
        let (mut taken, _) = listener.accept().unwrap();
        let mut said = Vec::new();
        taken.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"", "nothing was said to it");
        drop(listener);
        assert!(ask(&path, own).contains("nothing listens"));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(ask(&folder.path().join("file"), own).contains("not a socket"));
        assert!(ask(&folder.path().join("none"), own).contains("removed"));
    }

    #[test]
    fn a_monitor_whose_queue_is_full_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than a socket's own name may be.
        let deep = folder.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let short = folder.path().join("qmp");
        let listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, deep.join("qmp")).unwrap();
        let root = Root::new(Path::new("/"));
        let connect = || sockets::connect(&root, own(), &deep.join("qmp"));
        let mut held = Vec::new();
        let refused = loop {
            match connect() {
                Ok(socket) => held.push(socket),
                Err(refused) => break refused.to_string(),
            }
        };
        assert!(refused.contains("others wait for it already"), "{refused}");
        drop(listener);
    }

    #[test]
    fn numbers_of_threads_in_a_container_are_read_as_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, spaces: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("Name:\tq\nNSpid:\t{spaces}\nThreads:\t2\n")).unwrap();
        };
        write("proc/50/status", "50\t1");
        write("proc/50/task/50/status", "50\t1");
        write("proc/50/task/53/status", "53\t4");
        write("proc/60/status", "60");
        let root = Root::new(folder.path());
        let inside = Numbers::of(&root, 50);
        assert_eq!((inside.here(4), inside.here(53)), (Some(53), None));
        assert_eq!(Numbers::of(&root, 60).here(4), Some(4));
    }
}
