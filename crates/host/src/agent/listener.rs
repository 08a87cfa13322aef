//! The host's side: listens to the agents of all machines, in a thread of its own.
//!
//! A machine's agent is reached at the UNIX socket that its virtio serial port is connected to:
//!
//! ```text
//! -device virtio-serial-pci
//! -chardev socket,id=numaherd,path=PATH,server=on,wait=off
//! -device virtserialport,chardev=numaherd,name=org.numaherd.agent.0
//! ```
//!
//! The thread waits for all sockets together, reads what is there and never waits for a single one. A
//! caller of [`AgentListener::state`] waits only for a lock that is held for look-ups, never during a
//! call that could take long. A peer that sends single bytes costs at most a hundred wakes a second:
//! after each round, the thread rests for [`REST`].

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use numaherd_world::in_step::lock;
use numaherd_world::{Agent, ProcessId};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Pid;

use super::hearing::{CUT_OFF, Hearing};
use super::protocol::{GuestTags, PORT_NAME};
use crate::error::HostError;
use crate::kernel::now;
use crate::stop::{Stop, WakeEvent};

/// How long to wait before trying a connection again.
const RETRY: Duration = Duration::from_secs(1);

/// Between two rounds of reading.
const REST: Duration = Duration::from_millis(10);

/// Bytes read from one socket in a round.
const ROUND_BYTES: usize = 16 << 10;

/// Where to reach a machine's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The process that runs the machine.
    pub(crate) machine: ProcessId,
    /// The machine's name, for messages.
    pub(crate) name: String,
    /// The socket.
    pub(crate) path: PathBuf,
    /// One more than the highest index of its vCPUs.
    pub(crate) vcpus: u32,
}

/// Listens to agents until it is dropped.
#[derive(Debug)]
pub(crate) struct AgentListener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    board: Mutex<Board>,
    /// Notified after each round.
    heard: Condvar,
    /// Wakes the thread when the ports have changed.
    changed: WakeEvent,
    /// Ends the thread.
    stop: Stop,
}

/// What is known about all agents, and what is to be reported.
#[derive(Debug, Default)]
struct Board {
    links: BTreeMap<ProcessId, AgentLink>,
    gaps: Vec<String>,
}

/// The connection to one agent, and what it has said.
#[derive(Debug)]
struct AgentLink {
    port: Port,
    hearing: Hearing,
    connection: Connection,
    /// Why it could not be reached, as was said last.
    said: Option<Unreachable>,
}

/// Why an agent cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Unreachable {
    #[error("{0}")]
    Kernel(Errno),
    /// Neither the machine nor root, who may make its socket (libvirt), listens there: a command line
    /// must not lead this program to just any socket.
    #[error("process {0} listens there, which is not the machine's")]
    Foreign(i32),
}

#[derive(Debug)]
enum Connection {
    /// Down until `retry`.
    Down {
        retry: Duration,
    },
    Up(Arc<OwnedFd>),
}

impl AgentListener {
    /// Starts to listen, to nobody yet.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub(crate) fn start() -> Result<Self, HostError> {
        let shared = Arc::new(Shared {
            board: Mutex::default(),
            heard: Condvar::new(),
            changed: WakeEvent::new()?,
            stop: Stop::new()?,
        });
        let listening = shared.clone();
        let thread = std::thread::Builder::new()
            .name("numaherd agents".to_owned())
            .spawn(move || listening.listen())
            .map_err(|source| HostError::Thread { source })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Listens to these machines' agents, and no longer to others.
    pub(crate) fn follow(&self, ports: Vec<Port>) {
        let mut board = self.shared.board();
        let mut before = std::mem::take(&mut board.links);
        let mut is_new = false;
        for port in ports {
            let mut link = before
                .remove(&port.machine)
                .filter(|link| link.port.path == port.path)
                .unwrap_or_else(|| {
                    is_new = true;
                    AgentLink::new(port.clone())
                });
            link.hearing.set_vcpus(port.vcpus);
            link.port = port;
            board.links.insert(link.port.machine, link);
        }
        drop(board);
        if is_new {
            self.shared.changed.wake();
        }
    }

    /// How a machine's agent stands, and what it tells if it is to be believed.
    pub(crate) fn state(&self, machine: ProcessId) -> (Agent, Option<GuestTags>) {
        let board = self.shared.board();
        let Some(link) = board.links.get(&machine) else {
            return (Agent::Silent, None);
        };
        let (agent, tags) = link.hearing.state(now());
        (agent, tags.cloned())
    }

    /// What to report since the last call about agents that were cut off or cannot be reached.
    pub(crate) fn gaps(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.board().gaps)
    }

    /// Waits until the agents are in an expected state; for tests.
    #[cfg(test)]
    fn wait_until(&self, mut condition: impl FnMut(&Self) -> bool) {
        let turn = Duration::from_millis(10);
        for _ in 0..6000 {
            if condition(self) {
                return;
            }
            let waited = self.shared.heard.wait_timeout(self.shared.board(), turn);
            drop(waited.expect("the thread is well"));
        }
        panic!("the expected message did not arrive");
    }
}

impl Drop for AgentListener {
    fn drop(&mut self) {
        self.shared.stop.ask();
        if let Some(thread) = self.thread.take() {
            // It ends after at most a round; a panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// The thread's work.
    fn listen(&self) {
        let mut buffer = vec![0; ROUND_BYTES];
        while !self.stop.is_asked() {
            self.connect();
            let (open, wait) = self.open();
            let descriptors: Vec<&OwnedFd> = open
                .iter()
                .map(|(_, socket)| &**socket)
                .chain([self.changed.descriptor()])
                .collect();
            self.stop.wait(wait, &descriptors);
            self.changed.take();
            for (machine, socket) in &open {
                let read = rustix::io::read(&**socket, buffer.as_mut_slice());
                self.take(*machine, socket, read.map(|length| &buffer[..length]));
            }
            self.heard.notify_all();
            self.stop.wait(REST, &[]);
        }
    }

    /// Connects to the agents that are due.
    fn connect(&self) {
        let now = now();
        let due: Vec<(ProcessId, PathBuf)> = self
            .board()
            .links
            .values()
            .filter(|link| matches!(link.connection, Connection::Down { retry } if retry <= now))
            .map(|link| (link.port.machine, link.port.path.clone()))
            .collect();
        for (machine, path) in due {
            let connected = connected(&path, machine);
            let mut board = self.board();
            let Board { links, gaps } = &mut *board;
            if let Some(link) = links.get_mut(&machine) {
                gaps.extend(link.connected(connected, now));
            }
        }
    }

    /// The open sockets, and the time until the next connection is to be tried.
    fn open(&self) -> (Vec<(ProcessId, Arc<OwnedFd>)>, Duration) {
        let now = now();
        let mut open = Vec::new();
        let mut wait = Duration::from_secs(3600);
        for (machine, link) in &self.board().links {
            match &link.connection {
                Connection::Up(socket) => open.push((*machine, socket.clone())),
                Connection::Down { retry } => wait = wait.min(retry.saturating_sub(now)),
            }
        }
        (open, wait)
    }

    /// Takes what a socket gave.
    fn take(&self, machine: ProcessId, socket: &Arc<OwnedFd>, read: Result<&[u8], Errno>) {
        let mut board = self.board();
        let Board { links, gaps } = &mut *board;
        let link = links
            .get_mut(&machine)
            // The port may now be another machine's, or have a newer connection.
            .filter(
                |link| matches!(&link.connection, Connection::Up(now) if Arc::ptr_eq(now, socket)),
            );
        if let Some(link) = link {
            gaps.extend(link.take(read, now()));
        }
    }
}

impl AgentLink {
    fn new(port: Port) -> Self {
        Self {
            port,
            hearing: Hearing::default(),
            connection: Connection::Down {
                retry: Duration::ZERO,
            },
            said: None,
        }
    }

    /// Takes a connection, or why there is none; what is to be said of it.
    fn connected(&mut self, made: Result<OwnedFd, Unreachable>, now: Duration) -> Option<String> {
        match made {
            Ok(socket) => {
                self.hearing.connected();
                self.connection = Connection::Up(Arc::new(socket));
                self.said = None;
                None
            }
            Err(why) => {
                self.connection = Connection::Down { retry: now + RETRY };
                // A machine that is just starting or ending is no news.
                let passing = [Errno::NOENT, Errno::CONNREFUSED, Errno::AGAIN];
                let is_passing = passing.map(Unreachable::Kernel).contains(&why);
                let is_new = self.said.as_ref() != Some(&why);
                let text = format!(
                    "the agent in {} cannot be reached at {}: {why}; check the permissions of \
                     that socket, and that it belongs to the port {PORT_NAME}",
                    self.port.name,
                    self.port.path.display()
                );
                self.said = Some(why);
                (is_new && !is_passing).then_some(text)
            }
        }
    }

    /// Takes what was read; what is to be said of it.
    fn take(&mut self, read: Result<&[u8], Errno>, now: Duration) -> Option<String> {
        match read {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) | Ok([]) => {
                self.hearing.disconnected();
                self.connection = Connection::Down { retry: now + RETRY };
                None
            }
            Ok(bytes) => {
                let rubbish = self.hearing.hear(bytes, now).err()?;
                let retry = self.hearing.distrusted_until(now).unwrap_or(now);
                self.connection = Connection::Down { retry };
                self.hearing.is_news().then(|| {
                    format!(
                        "the agent in {} is ignored: {rubbish}; its reports are discarded, and it \
                         is contacted again in {} s (is `numaherd agent` running there?)",
                        self.port.name,
                        CUT_OFF.as_secs()
                    )
                })
            }
        }
    }
}

/// Makes a connection without blocking.
fn connected(path: &Path, machine: ProcessId) -> Result<OwnedFd, Unreachable> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let made = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let peer = socket_peercred(&socket)?;
        Ok((socket, peer))
    };
    let (socket, peer) = made().map_err(Unreachable::Kernel)?;
    let listens = Pid::as_raw(Some(peer.pid));
    if u32::try_from(listens) == Ok(machine.pid) || peer.uid.is_root() {
        Ok(socket)
    } else {
        Err(Unreachable::Foreign(listens))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::LazyLock;

    use super::super::protocol;
    use super::*;

    /// This very process is the machine's.
    static MACHINE: LazyLock<ProcessId> = LazyLock::new(|| ProcessId {
        pid: std::process::id(),
        born: 70,
    });

    /// A socket as QEMU makes it for a port.
    struct Qemu {
        folder: tempfile::TempDir,
        socket: UnixListener,
    }

    impl Qemu {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = UnixListener::bind(folder.path().join("agent")).unwrap();
            Self { folder, socket }
        }

        fn port(&self, machine: ProcessId) -> Port {
            Port {
                machine,
                name: "the machine web".to_owned(),
                path: self.folder.path().join("agent"),
                vcpus: 4,
            }
        }

        fn accept(&self) -> UnixStream {
            self.socket.accept().unwrap().0
        }
    }

    fn tell(to: &mut UnixStream, sequence: u64, tagged: &[u32]) {
        let told = GuestTags {
            vcpus: 4,
            tagged: tagged.to_vec(),
        };
        to.write_all(&protocol::write(sequence, &told)).unwrap();
    }

    fn tags(listener: &AgentListener) -> Option<Vec<u32>> {
        listener.state(*MACHINE).1.map(|told| told.tagged)
    }

    #[test]
    fn what_an_agent_tells_is_known_and_what_it_takes_back_forgotten() {
        let (listener, qemu) = (AgentListener::start().unwrap(), Qemu::new());
        assert_eq!(listener.state(*MACHINE), (Agent::Silent, None));
        listener.follow(vec![qemu.port(*MACHINE)]);
        let mut agent = qemu.accept();
        tell(&mut agent, 0, &[1, 3]);
        listener.wait_until(|listener| tags(listener) == Some(vec![1, 3]));
        tell(&mut agent, 1, &[]);
        listener.wait_until(|listener| tags(listener) == Some(vec![]));
        assert_eq!(listener.state(*MACHINE).0, Agent::Telling);
        assert_eq!(listener.gaps(), Vec::<String>::new());
    }

    #[test]
    fn a_peer_that_closes_is_forgotten_and_connected_to_again() {
        let (listener, qemu) = (AgentListener::start().unwrap(), Qemu::new());
        listener.follow(vec![qemu.port(*MACHINE)]);
        let mut agent = qemu.accept();
        tell(&mut agent, 9, &[1]);
        listener.wait_until(|listener| tags(listener) == Some(vec![1]));
        drop(agent);
        listener.wait_until(|listener| listener.state(*MACHINE).0 == Agent::Silent);
        let mut agent = qemu.accept();
        tell(&mut agent, 4, &[2]);
        listener.wait_until(|listener| tags(listener) == Some(vec![2]));
    }

    #[test]
    fn rubbish_and_floods_end_the_connection_and_are_said_once() {
        let flood = [b"\n".as_slice(), &vec![b'x'; 1 << 20]].concat();
        for rubbish in [b"\nGET / HTTP/1.1\n".as_slice(), &flood] {
            let (listener, qemu) = (AgentListener::start().unwrap(), Qemu::new());
            listener.follow(vec![qemu.port(*MACHINE)]);
            let mut agent = qemu.accept();
            tell(&mut agent, 0, &[1]);
            listener.wait_until(|listener| tags(listener) == Some(vec![1]));
            // Of a flood, the rest is refused.
            let _ = agent.write_all(rubbish);
            listener.wait_until(|listener| listener.state(*MACHINE).0 == Agent::Distrusted);
            assert_eq!(tags(&listener), None);
            let gaps = listener.gaps();
            assert!(
                matches!(&gaps[..], [gap] if gap.starts_with("the agent in the machine web is ignored")),
                "{gaps:?}"
            );
            assert_eq!(listener.gaps(), Vec::<String>::new());
        }
    }

    #[test]
    fn one_that_says_rubbish_or_nothing_takes_nothing_from_the_others() {
        let listener = AgentListener::start().unwrap();
        let (mute, liar, honest) = (Qemu::new(), Qemu::new(), Qemu::new());
        let other = |born| ProcessId { born, ..*MACHINE };
        listener.follow(vec![
            mute.port(other(1)),
            liar.port(other(2)),
            honest.port(*MACHINE),
        ]);
        let _mute = mute.accept();
        liar.accept().write_all(b"\n{}\n").unwrap();
        let mut agent = honest.accept();
        tell(&mut agent, 0, &[0]);
        listener.wait_until(|listener| {
            tags(listener) == Some(vec![0]) && listener.state(other(2)).0 == Agent::Distrusted
        });
        assert_eq!(listener.state(other(1)).0, Agent::Silent);
    }

    #[test]
    fn a_machine_that_is_gone_is_not_listened_to() {
        let (listener, qemu) = (AgentListener::start().unwrap(), Qemu::new());
        listener.follow(vec![qemu.port(*MACHINE)]);
        let mut agent = qemu.accept();
        tell(&mut agent, 0, &[1]);
        listener.wait_until(|listener| tags(listener) == Some(vec![1]));
        listener.follow(Vec::new());
        assert_eq!(listener.state(*MACHINE), (Agent::Silent, None));
    }

    #[test]
    fn a_socket_that_may_not_be_used_is_said_once() {
        let qemu = Qemu::new();
        let mut link = AgentLink::new(qemu.port(*MACHINE));
        let mut tried = |why| link.connected(Err(why), Duration::ZERO);
        assert_eq!(tried(Unreachable::Kernel(Errno::NOENT)), None);
        let said = tried(Unreachable::Kernel(Errno::ACCESS)).unwrap();
        assert!(said.contains("cannot be reached"), "{said}");
        assert_eq!(tried(Unreachable::Kernel(Errno::ACCESS)), None);
        let said = tried(Unreachable::Foreign(8)).unwrap();
        assert!(said.contains("process 8 listens there"), "{said}");
    }
}
