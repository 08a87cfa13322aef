//! The guest's side: tells the host which vCPUs run threads that care where they run.
//!
//! It looks at the masks ([`super::masks`]) every [`AgentOptions::interval`] and sends a line when
//! something has changed, but at least once per [`HEARTBEAT`]: the host can thus tell an agent
//! without news from one that is gone. While the host does not listen, it neither looks nor sends,
//! and tries again each second; it then sends the present state.

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use super::masks::Masks;
use super::port::{self, Port};
use super::protocol::{self, GuestTags};
use crate::error::HostError;
use crate::files::Root;
use crate::kernel::{now, of_root};
use crate::stop::Stop;

/// At least so often the host hears something.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long to wait before a port that nobody listens to is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a user may set about the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// Where /proc, /sys and /dev are found: `/`, or a captured tree.
    pub root: PathBuf,
    /// The port to the host; `None` for the port with the agent's name.
    pub port: Option<PathBuf>,
    /// How often to look at masks.
    pub interval: Duration,
}

impl AgentOptions {
    /// The default of [`Self::interval`].
    pub const INTERVAL: Duration = Duration::from_millis(100);
}

impl Default for AgentOptions {
    /// The usual settings for the live machine.
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            port: None,
            interval: Self::INTERVAL,
        }
    }
}

/// How it goes with the host, whenever that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentNews {
    /// The host listens.
    Heard,
    /// No one listens; it tries again.
    NotHeard,
    /// The port is gone or cannot be written; it tries again.
    PortLost {
        /// The port.
        port: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The agent in a guest.
#[derive(Debug)]
pub struct GuestAgent {
    options: AgentOptions,
    root: Root,
    masks: Masks,
    path: PathBuf,
    port: Option<Port>,
    stop: Stop,
    /// The number of the next line.
    sequence: u64,
    /// What was told last, and when, since the host began to listen.
    told: Option<(Duration, GuestTags)>,
    news: Option<AgentNews>,
}

impl GuestAgent {
    /// Opens the port.
    ///
    /// # Errors
    /// [`HostError::AgentPort`] if there is none, or it cannot be opened, with what to do.
    pub fn new(options: AgentOptions) -> Result<Self, HostError> {
        let root = Root::new(&options.root);
        let path = port::find(&root, options.port.as_deref())?;
        let port = Port::open(&path)?;
        Self::with_port(options, path, port)
    }

    fn with_port(options: AgentOptions, path: PathBuf, port: Port) -> Result<Self, HostError> {
        let root = Root::new(&options.root);
        Ok(Self {
            masks: Masks::new(root.clone(), of_root(&root)),
            root,
            options,
            path,
            port: Some(port),
            stop: Stop::new()?,
            sequence: 0,
            told: None,
            news: None,
        })
    }

    /// A way to stop the agent from elsewhere.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Looks and tells until it is stopped; `say` gets the news.
    ///
    /// # Errors
    /// [`HostError::Read`] when /proc cannot be read.
    pub fn run(&mut self, mut say: impl FnMut(&AgentNews)) -> Result<(), HostError> {
        while !self.stop.is_asked() {
            let wait = self.turn(now(), &mut say)?;
            self.stop.wait(wait, &[]);
        }
        Ok(())
    }

    /// Looks once, tells the host, and gives what was told.
    ///
    /// # Errors
    /// [`HostError::AgentPort`] when nobody listens, and as [`GuestAgent::run`].
    pub fn once(&mut self) -> Result<GuestTags, HostError> {
        let told = self.look()?;
        self.turn(now(), &mut |_| ())?;
        let reason = match self.news.take() {
            Some(AgentNews::Heard) | None => return Ok(told),
            Some(AgentNews::NotHeard) => "nothing on the host listens".to_owned(),
            Some(AgentNews::PortLost { reason, .. }) => reason,
        };
        Err(HostError::AgentPort {
            path: self.path.clone(),
            reason,
            remedy: "start numaherd run on the host, then this again".to_owned(),
        })
    }

    /// One turn; how long to wait until the next.
    fn turn(
        &mut self,
        now: Duration,
        say: &mut impl FnMut(&AgentNews),
    ) -> Result<Duration, HostError> {
        let Some(port) = &mut self.port else {
            // It may come back under another device name.
            let opened = port::find(&self.root, self.options.port.as_deref())
                .and_then(|path| Ok((Port::open(&path)?, path)));
            if let Ok((port, path)) = opened {
                (self.port, self.path) = (Some(port), path);
                return Ok(Duration::ZERO);
            }
            return Ok(RETRY);
        };
        if !port.is_heard() {
            self.told = None;
            self.say(AgentNews::NotHeard, say);
            return Ok(RETRY);
        }
        let written = if port.is_idle() {
            let told = self.look()?;
            self.tell(told, now)
        } else {
            port.write(&[])
        };
        match written {
            Ok(()) => self.say(AgentNews::Heard, say),
            Err(errno) => {
                self.port = None;
                self.told = None;
                let lost = AgentNews::PortLost {
                    port: self.path.clone(),
                    reason: errno.to_string(),
                };
                self.say(lost, say);
            }
        }
        Ok(self.options.interval)
    }

    fn look(&mut self) -> Result<GuestTags, HostError> {
        let remedy = "are /proc and /sys mounted?";
        self.masks
            .look()
            .map_err(HostError::read(&self.root, "proc", remedy))
    }

    /// Sends a line if there is something to tell.
    fn tell(&mut self, told: GuestTags, now: Duration) -> Result<(), Errno> {
        let is_news = match &self.told {
            Some((at, last)) => *last != told || now >= *at + HEARTBEAT,
            None => true,
        };
        let Some(port) = self.port.as_mut().filter(|_| is_news) else {
            return Ok(());
        };
        port.write(&protocol::write(self.sequence, &told))?;
        self.sequence += 1;
        self.told = Some((now, told));
        Ok(())
    }

    fn say(&mut self, news: AgentNews, say: &mut impl FnMut(&AgentNews)) {
        if self.news.as_ref() != Some(&news) {
            say(&news);
            self.news = Some(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use numaherd_world::Agent;

    use super::super::hearing::Hearing;
    use super::*;

    /// A guest of four CPUs in which one thread is bound to a CPU, or none is.
    fn write_tree(root: &Path, bound_to: Option<u32>) {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3\n");
        let mask = bound_to.map_or("0-3".to_owned(), |cpu| cpu.to_string());
        let cpu = bound_to.unwrap_or(0);
        for folder in ["proc/50", "proc/50/task/50"] {
            write(
                &format!("{folder}/status"),
                &format!("Cpus_allowed_list:\t{mask}\n"),
            );
            write(
                &format!("{folder}/stat"),
                &format!(
                    "50 (x) R 1 0 0 0 -1 0 0 0 0 0 7 5 0 0 20 0 1 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                     0 \
                     17 {cpu} 0 0 0 0\n"
                ),
            );
        }
    }

    struct Guest {
        tree: tempfile::TempDir,
        agent: GuestAgent,
        host: Option<UnixStream>,
        news: Vec<AgentNews>,
    }

    impl Guest {
        fn new() -> Self {
            let tree = tempfile::tempdir().unwrap();
            write_tree(tree.path(), None);
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.set_nonblocking(true).unwrap();
            let options = AgentOptions {
                root: tree.path().to_owned(),
                ..AgentOptions::default()
            };
            let port = Port::new(ours.into());
            let agent = GuestAgent::with_port(options, "the port".into(), port).unwrap();
            Self {
                tree,
                agent,
                host: Some(theirs),
                news: Vec::new(),
            }
        }

        fn bind(&self, cpu: Option<u32>) {
            write_tree(self.tree.path(), cpu);
        }

        fn turn(&mut self, milliseconds: u64) -> Duration {
            let now = Duration::from_millis(milliseconds);
            let news = &mut self.news;
            let mut say = |told: &AgentNews| news.push(told.clone());
            self.agent.turn(now, &mut say).unwrap()
        }

        /// What has arrived at the host.
        fn heard(&mut self) -> Vec<u8> {
            let mut bytes = Vec::new();
            let _ = self.host.as_mut().unwrap().read_to_end(&mut bytes);
            bytes
        }
    }

    #[test]
    fn changes_are_told_at_once_and_nothing_new_once_a_second() {
        let mut guest = Guest::new();
        let mut hearing = Hearing::default();
        hearing.set_vcpus(4);
        hearing.connected();
        let mut told = Vec::new();
        for turn in 0..30 {
            // Bound after the sixth look, and free again after the twelfth.
            guest.bind((6..12).contains(&turn).then_some(2));
            assert_eq!(guest.turn(turn * 100), AgentOptions::INTERVAL);
            let bytes = guest.heard();
            if !bytes.is_empty() {
                let now = Duration::from_millis(turn * 100);
                hearing.hear(&bytes, now).unwrap();
                let (agent, tags) = hearing.state(now);
                assert_eq!(agent, Agent::Telling);
                told.push((turn, tags.unwrap().tagged.clone()));
            }
        }
        let expected = [(0, vec![]), (6, vec![2]), (12, vec![]), (22, vec![])];
        assert_eq!(told, expected);
        assert_eq!(guest.news, [AgentNews::Heard]);
    }

    #[test]
    fn while_nobody_listens_it_waits_for_a_second_and_says_so_once() {
        let mut guest = Guest::new();
        guest.turn(0);
        guest.host = None;
        for turn in 1..4 {
            assert_eq!(guest.turn(turn * 1000), RETRY);
        }
        assert_eq!(guest.news, [AgentNews::Heard, AgentNews::NotHeard]);
        let told = guest.agent.once().unwrap_err().to_string();
        assert!(told.contains("nothing on the host listens"), "{told}");
    }

    #[test]
    fn who_listens_again_is_told_at_once() {
        let mut guest = Guest::new();
        guest.turn(0);
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        guest.host = None;
        guest.turn(100);
        guest.agent.port = Some(Port::new(ours.into()));
        guest.host = Some(theirs);
        guest.turn(200);
        let framed = guest.heard();
        let read = protocol::read(framed.trim_ascii(), 4, Some(0)).unwrap();
        assert_eq!(read.0, 1, "the line after the first");
    }

    #[test]
    fn a_host_that_stops_reading_gets_the_newest_and_no_backlog() {
        let mut guest = Guest::new();
        // Fill the kernel's buffer for it.
        let port = guest.agent.port.as_mut().unwrap();
        port.write(&vec![b'\n'; 1 << 22]).unwrap();
        assert!(!port.is_idle());
        for turn in 0..50 {
            guest.bind(Some(turn % 4));
            guest.turn(u64::from(turn) * 100);
        }
        assert_eq!(guest.agent.sequence, 0, "nothing is queued behind it");
        guest.bind(Some(1));
        let mut all = Vec::new();
        while guest.agent.sequence == 0 {
            all = guest.heard();
            guest.turn(9000);
        }
        all.extend(guest.heard());
        let line = all.trim_ascii();
        assert_eq!(protocol::read(line, 4, None).unwrap().1.tagged, [1]);
    }

    #[test]
    fn it_stops_when_asked() {
        let mut guest = Guest::new();
        guest.agent.stop().ask();
        guest.agent.run(|_| ()).unwrap();
    }

    #[test]
    fn once_tells_what_is_so() {
        let mut guest = Guest::new();
        guest.bind(Some(3));
        let told = guest.agent.once().unwrap();
        let (vcpus, tagged) = (4, vec![3]);
        assert_eq!(told, GuestTags { vcpus, tagged });
        let framed = guest.heard();
        let read = protocol::read(framed.trim_ascii(), 4, None).unwrap();
        assert_eq!(read, (0, told));
    }
}
