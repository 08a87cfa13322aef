//! pair: a client that sends a request, waits for the reply and sends the next, and a server that
//! touches pages of its working set for each request. The two never run at the same time, so the
//! best place for both is the node of the server's memory, on cores that share a cache.

use crate::channel::{self, Pipes, Wire};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::memory::Placement;
use crate::options::Via;
use crate::random::{self, mix};
use crate::sys::{Region, spin};
use crate::workload::{Detail, Workload};
use rustix::param::page_size;
use std::ffi::OsString;
use std::hint::black_box;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

/// The server's work for requests.
#[derive(Debug)]
pub struct Service {
    region: Region,
    page_words: usize,
    pages: u64,
    random: u64,
}

impl Service {
    /// Changes one line on each of `pages` random pages of `region` for each request.
    pub fn new(region: Region, pages: u64, seed: u64) -> Service {
        let page_words = page_size() / size_of::<u64>();
        Service {
            region,
            page_words,
            pages,
            random: mix(seed),
        }
    }

    /// Serves one request; the reply repeats its number.
    fn answer(&mut self, request: u64) -> u64 {
        let page_words = self.page_words;
        let words = self.region.words();
        for _ in 0..self.pages {
            self.random = random::next(self.random);
            let page = random::index(self.random, words.len() / page_words);
            // The lower half of the number selects the line, so that pages do not all compete for
            // the same cache set.
            let word = random::index(self.random << 32, page_words / 8) * 8;
            words[page * page_words + word] += 1;
        }
        request
    }

    /// Introduces the calling thread as the server, then answers until the client has left.
    pub fn serve(mut self, wire: &mut dyn Wire) -> io::Result<()> {
        wire.send(introduction())?;
        while let Some(request) = wire.receive()? {
            wire.send(self.answer(request))?;
        }
        Ok(())
    }
}

/// The calling thread's process and thread ids in one number.
fn introduction() -> u64 {
    u64::from(std::process::id()) << 32 | rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// The server's thread or process.
enum Server {
    Thread(Option<JoinHandle<Result<(), Error>>>),
    Process(Child),
}

impl Server {
    /// Waits for the end of a server without a client; returns its error, if it failed.
    fn end(&mut self) -> Result<(), Error> {
        match self {
            Server::Thread(thread) => match thread.take().map(JoinHandle::join) {
                Some(Ok(result)) => result,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Ok(()),
            },
            Server::Process(child) => {
                let failed = Error::system("wait for a server");
                let status = child.wait().map_err(&failed)?;
                if status.success() {
                    Ok(())
                } else {
                    Err(failed(io::Error::other(status.to_string())))
                }
            }
        }
    }
}

/// The client: the measured half.
pub struct Pair {
    index: usize,
    /// None once the server has been told to end.
    wire: Option<Box<dyn Wire>>,
    server: Server,
    server_pid: u32,
    server_tid: u32,
    think: u64,
    next: u64,
    waited: Histogram,
}

/// The parameters of a run's pairs.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The channel between client and server: pipes, if they are processes.
    pub via: Via,
    /// Whether every server is a process of its own.
    pub processes: bool,
    /// Bytes of a server's working set.
    pub working_set: usize,
    /// Pages that a request touches.
    pub pages: u64,
    /// Iterations of the compute loop between a reply and the next request.
    pub think: u64,
    /// Command line of a serving process.
    pub server_command: Vec<OsString>,
}

impl Pair {
    /// Starts the server of pair `index`, waits until its memory is set up, and places the calling
    /// thread. Members are counted client, server, client, server, …
    pub fn start(
        terms: &Terms,
        placement: &Placement,
        index: usize,
        seed: u64,
    ) -> Result<Pair, Error> {
        let (wire, server) = match (terms.processes, terms.via) {
            (true, _) => process(terms, placement, index, seed)?,
            (false, via) => {
                let [client, server] = match via {
                    Via::Pipe => channel::pipes().map_err(Error::system("make two pipes"))?,
                    Via::Futex => channel::mailboxes(),
                };
                (client, thread(terms, placement, index, seed, server)?)
            }
        };
        let mut pair = Pair {
            index,
            wire: Some(wire),
            server,
            server_pid: 0,
            server_tid: 0,
            think: terms.think,
            next: 0,
            waited: Histogram::default(),
        };
        let introduction = pair.receive()?;
        pair.server_pid = (introduction >> 32) as u32;
        pair.server_tid = introduction as u32;
        placement.settle(2 * index, || Ok(pair))
    }

    fn receive(&mut self) -> Result<u64, Error> {
        let pair = self.index;
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let received = match &mut self.wire {
            Some(wire) => wire.receive(),
            None => Err(gone()),
        };
        match received {
            Ok(Some(number)) => Ok(number),
            Ok(None) => {
                self.wire = None;
                self.server.end()?;
                Err(Error::Server {
                    pair,
                    source: gone(),
                })
            }
            Err(source) => Err(Error::Server { pair, source }),
        }
    }

    fn request(&mut self) -> Result<(), Error> {
        let pair = self.index;
        let start = Instant::now();
        if let Some(wire) = &mut self.wire {
            wire.send(self.next)
                .map_err(|source| Error::Server { pair, source })?;
        }
        let reply = self.receive()?;
        self.waited
            .add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if reply != self.next {
            let source = io::Error::other(format!("{} was answered by {reply}", self.next));
            return Err(Error::Server { pair, source });
        }
        self.next += 1;
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.wire = None;
        // The request that noticed the failure has reported its cause.
        let _ = self.server.end();
    }
}

fn thread(
    terms: &Terms,
    placement: &Placement,
    index: usize,
    seed: u64,
    mut wire: Box<dyn Wire>,
) -> Result<Server, Error> {
    let (placement, working_set, pages) = (placement.clone(), terms.working_set, terms.pages);
    let serve = move || {
        let service = placement.settle(2 * index + 1, || {
            Ok(Service::new(placement.memory(working_set)?, pages, seed))
        })?;
        service
            .serve(wire.as_mut())
            .map_err(|source| Error::Server {
                pair: index,
                source,
            })
    };
    std::thread::Builder::new()
        .name(format!("server-{index}"))
        .spawn(serve)
        .map(|thread| Server::Thread(Some(thread)))
        .map_err(|source| Error::Thread { index, source })
}

fn process(
    terms: &Terms,
    placement: &Placement,
    index: usize,
    seed: u64,
) -> Result<(Box<dyn Wire>, Server), Error> {
    let failed = Error::system("start a serving process");
    let program = std::env::current_exe().map_err(&failed)?;
    let mut command = Command::new(program);
    command
        .args(&terms.server_command)
        .arg("--seed")
        .arg(seed.to_string());
    if let Some(cpu) = placement.pin(2 * index + 1) {
        command.arg("--cpus").arg(cpu.to_string());
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(&failed)?;
    match (child.stdout.take(), child.stdin.take()) {
        (Some(from), Some(to)) => Ok((Box::new(Pipes::new(from, to)), Server::Process(child))),
        _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
    }
}

impl Workload for Pair {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        for _ in 0..operations {
            if self.think > 0 {
                black_box(spin(black_box(self.next), self.think));
            }
            self.request()?;
        }
        Ok(())
    }

    fn batch(&self) -> u64 {
        16
    }

    fn round(&self) -> u64 {
        1
    }

    fn detail(&self) -> Detail {
        Detail::Pair {
            server_pid: self.server_pid,
            server_tid: self.server_tid,
            latency_ns: self.waited.latencies(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::memory::Start;
    use crate::sys::HugePages;
    use std::path::Path;

    fn placement() -> Placement {
        let machine = Machine::at(Path::new("/"));
        Placement::new(&machine, None, Start::Any, &[], HugePages::Default).unwrap()
    }

    #[test]
    fn a_request_changes_as_many_lines_as_asked_for() {
        let region = placement().memory(1 << 20).unwrap();
        let mut service = Service::new(region, 7, 1);
        for request in 0..5 {
            assert_eq!(service.answer(request), request);
        }
        assert_eq!(service.region.words().iter().sum::<u64>(), 35);
        let lines: Vec<usize> = service
            .region
            .words()
            .iter()
            .enumerate()
            .filter(|(_, word)| **word > 0)
            .map(|(index, _)| index % 512 / 8)
            .collect();
        assert!(
            lines.windows(2).any(|pair| pair[0] != pair[1]),
            "always the same line of a page"
        );
    }

    #[test]
    fn every_request_is_timed() {
        for via in [Via::Pipe, Via::Futex] {
            let terms = Terms {
                via,
                processes: false,
                working_set: 8192,
                pages: 1,
                think: 10,
                server_command: Vec::new(),
            };
            let mut pair = Pair::start(&terms, &placement(), 0, 1).unwrap();
            pair.run(40).unwrap();
            let Detail::Pair {
                server_pid,
                server_tid,
                latency_ns,
            } = pair.detail()
            else {
                panic!()
            };
            assert_eq!(server_pid, std::process::id());
            assert_ne!(server_tid, introduction() as u32);
            assert!(latency_ns.mean > 0.0 && latency_ns.p99 <= latency_ns.max);
            assert_eq!(pair.next, 40);
        }
    }

    #[test]
    fn a_server_that_cannot_set_up_says_why() {
        let terms = Terms {
            via: Via::Futex,
            processes: false,
            working_set: 1 << 60,
            pages: 1,
            think: 0,
            server_command: Vec::new(),
        };
        let error = Pair::start(&terms, &placement(), 0, 1).err().unwrap();
        assert!(matches!(error, Error::Map { .. }), "{error}");
    }
}
