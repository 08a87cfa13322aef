//! QEMU's process: started, watched, and never left behind.
//!
//! One thread, the keeper, starts QEMU, waits for it and kills it when its time is up or on
//! request. QEMU also ends if this program ends first:
//!
//! * `setpriv --pdeathsig KILL` asks the kernel to kill QEMU when the thread that started it ends.
//!   That is the keeper, which lives as long as QEMU, so QEMU ends with this program, however that
//!   ends (Ctrl-C, panic, `kill -9`).
//! * QEMU is in a process group of its own, so Ctrl-C reaches only this program, which can still
//!   show the guest's output.
//! * The guest powers off when the agent's socket closes, which covers the time before setpriv has
//!   taken effect.
//!
//! Files that QEMU reads are anonymous memory (memfd), so no file on disk is left behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Context, Result};

/// How many bytes at the end of the console's and of QEMU's output are kept.
const KEPT: usize = 64 << 10;

/// Makes the C library ask for huge pages for allocations of QEMU and the plugin, as QEMU does for the guest's memory.
/// A modelled miss accesses a few tables of MiB; with small pages, each would cost a page walk.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// A file without a name that a child process can open under [`AnonymousFile::path`].
#[derive(Debug)]
pub struct AnonymousFile(OwnedFd);

impl AnonymousFile {
    /// Creates one with the given content.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn with(name: &str, content: &[u8]) -> Result<Self> {
        let file = Self::empty(name, content.len() as u64)?;
        let mut writer = File::from(
            file.0
                .try_clone()
                .context(|| format!("sharing the file {name}"))?,
        );
        writer
            .write_all(content)
            .context(|| format!("filling the file {name}"))?;
        Ok(file)
    }

    /// Creates one of `bytes` zero bytes, which take no memory until written.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn empty(name: &str, bytes: u64) -> Result<Self> {
        // Without close-on-exec, so that QEMU inherits it.
        let fd = memfd_create(name, MemfdFlags::empty())
            .context(|| format!("creating the anonymous file {name}"))?;
        rustix::fs::ftruncate(&fd, bytes)
            .context(|| format!("growing the anonymous file {name} to {bytes} bytes"))?;
        Ok(Self(fd))
    }

    /// Its content as text.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn text(&self) -> Result<String> {
        let path = self.path();
        std::fs::read_to_string(&path).context(|| format!("reading {}", path.display()))
    }

    /// The path under which a child process finds it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The end of a stream of text that something writes.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = lock(&self.0);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }

    /// The kept text, without carriage returns.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0)).replace('\r', "")
    }

    /// The last `lines` lines that are not empty.
    #[must_use]
    pub fn last_lines(&self, lines: usize) -> String {
        let text = self.text();
        let all: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// How QEMU's life ended.
#[derive(Clone, Debug)]
pub struct End {
    /// What it returned.
    pub status: ExitStatus,
    /// The time limit, if it was killed for exceeding it.
    pub limit: Option<Duration>,
    /// Whether it was killed by [`Qemu::kill`].
    pub stopped: bool,
}

/// A QEMU process, running or ended.
#[derive(Debug)]
pub struct Qemu {
    /// QEMU's process id.
    pub pid: u32,
    /// What the kernel wrote on its console.
    pub console: Tail,
    /// What QEMU and the plugin wrote on stderr.
    pub messages: Tail,
    stop: Arc<OwnedFd>,
    end: Arc<(Mutex<Option<End>>, Condvar)>,
    keeper: Option<JoinHandle<()>>,
}

impl Qemu {
    /// Starts `program` with `arguments` and with its standard input connected to the returned
    /// socket. Keeps `files` open until it has ended, and kills it after `limit`.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn start(
        program: PathBuf,
        arguments: Vec<std::ffi::OsString>,
        files: Vec<AnonymousFile>,
        limit: Option<Duration>,
    ) -> Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair().context(|| "creating the agent's socket".into())?;
        let stop = Arc::new(
            eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .context(|| "creating an event for the guest's end".into())?,
        );
        let (console, messages) = (Tail::default(), Tail::default());
        let end = Arc::new((Mutex::new(None), Condvar::new()));
        let (started, start) = mpsc::channel();
        let keeper = {
            let (stop, end) = (stop.clone(), end.clone());
            let tails = (console.clone(), messages.clone());
            thread::Builder::new()
                .name("lab keeper".to_owned())
                .spawn(move || match spawn(&program, arguments, theirs) {
                    Err(error) => drop(started.send(Err(error))),
                    Ok(mut child) => {
                        drop(started.send(Ok(child.id())));
                        let readers = [
                            follow(child.stdout.take(), tails.0),
                            follow(child.stderr.take(), tails.1),
                        ];
                        let ending = keep(&mut child, &stop, limit);
                        drop(files);
                        for reader in readers.into_iter().flatten() {
                            drop(reader.join());
                        }
                        *lock(&end.0) = Some(ending);
                        end.1.notify_all();
                    }
                })
        }
        .context(|| "starting the thread that keeps QEMU".into())?;
        let pid = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that keeps QEMU panicked")))
            .context(|| "starting QEMU by setpriv".into())?;
        Ok((
            Self {
                pid,
                console,
                messages,
                stop,
                end,
                keeper: Some(keeper),
            },
            ours,
        ))
    }

    /// Kills QEMU, if it still runs.
    pub fn kill(&self) {
        // Writing to an eventfd fails only if its counter is full, and then it is set.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Waits until QEMU has ended.
    pub fn wait(&self) -> End {
        let mut end = lock(&self.end.0);
        loop {
            if let Some(end) = &*end {
                return end.clone();
            }
            end = self.end.1.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits at most `patience` for QEMU to end by itself, then kills it.
    pub fn wait_or_kill(&self, patience: Duration) -> End {
        let end = lock(&self.end.0);
        let (end, _) = self
            .end
            .1
            .wait_timeout_while(end, patience, |end| end.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            self.kill();
        }
        drop(end);
        self.wait()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
        if let Some(keeper) = self.keeper.take() {
            drop(keeper.join());
        }
    }
}

fn spawn(
    program: &std::path::Path,
    arguments: Vec<std::ffi::OsString>,
    agent: UnixStream,
) -> io::Result<Child> {
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(arguments)
        .env("GLIBC_TUNABLES", HUGE_PAGES)
        .stdin(Stdio::from(OwnedFd::from(agent)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Waits for the child's end, a request to stop or the time limit; kills the child for the latter two.
fn keep(child: &mut Child, stop: &OwnedFd, limit: Option<Duration>) -> End {
    let until = limit.map(|limit| Instant::now() + limit);
    let (mut limit_hit, mut stopped) = (None, false);
    if let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        loop {
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
            let mut waiting = [
                PollFd::new(&process, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            match poll(&mut waiting, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => stopped = true,
                Ok(0) => limit_hit = limit,
                Ok(_) if !waiting[0].revents().is_empty() => break,
                Ok(_) => stopped = true,
            }
            // Fails only if it has ended by itself.
            let _ = pidfd_send_signal(process.as_fd(), Signal::KILL);
            break;
        }
    } else {
        stopped = true;
        let _ = child.kill();
    }
    // Waiting for a child fails only if it was waited for elsewhere; then it has ended, too.
    let status = child.wait().unwrap_or_default();
    End {
        status,
        limit: limit_hit,
        stopped,
    }
}

/// Reads a stream to its end into a tail, in a thread of its own.
fn follow(stream: Option<impl Read + Send + 'static>, tail: Tail) -> Option<JoinHandle<()>> {
    let mut stream = stream?;
    thread::Builder::new()
        .name("lab console".to_owned())
        .spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                tail.push(&buffer[..length]);
            }
        })
        .ok()
}

/// Locks `mutex`, poisoned or not: this crate's critical sections leave no inconsistent state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as if it were QEMU.
    fn script(text: &str, limit: Option<Duration>) -> (Qemu, UnixStream) {
        let arguments = ["-c", text].map(Into::into).to_vec();
        Qemu::start("/bin/sh".into(), arguments, Vec::new(), limit).expect("a shell starts")
    }

    #[test]
    fn output_and_status_are_kept() {
        let (qemu, _agent) = script("echo console; echo message >&2; exit 3", None);
        let end = qemu.wait();
        assert_eq!(end.status.code(), Some(3));
        assert!(!end.stopped && end.limit.is_none());
        assert_eq!(qemu.console.text(), "console\n");
        assert_eq!(qemu.messages.text(), "message\n");
    }

    #[test]
    fn the_agents_socket_is_standard_input() {
        let (qemu, mut agent) = script("read line; echo got $line", None);
        agent.write_all(b"hello\n").expect("the shell reads");
        qemu.wait();
        assert_eq!(qemu.console.text(), "got hello\n");
    }

    #[test]
    fn an_anonymous_file_is_found_by_its_path() {
        let file = AnonymousFile::with("test", b"content").expect("memory");
        let arguments = vec!["-c".into(), format!("cat {}", file.path().display()).into()];
        let (qemu, _agent) =
            Qemu::start("/bin/sh".into(), arguments, vec![file], None).expect("a shell starts");
        qemu.wait();
        assert_eq!(qemu.console.text(), "content");
    }

    #[test]
    fn a_time_limit_kills() {
        let limit = Duration::from_millis(1);
        let (qemu, _agent) = script("exec sleep 1000", Some(limit));
        let end = qemu.wait();
        assert_eq!(end.limit, Some(limit));
        assert!(!end.status.success());
    }

    #[test]
    fn dropping_kills() {
        let (qemu, _agent) = script("exec sleep 1000", None);
        let pid = Pid::from_raw(qemu.pid.cast_signed()).expect("a pid");
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
        drop(qemu);
        let mut waiting = [PollFd::new(&process, PollFlags::IN)];
        assert_eq!(poll(&mut waiting, None), Ok(1));
    }

    #[test]
    fn only_the_tail_of_a_long_console_is_kept() {
        let tail = Tail::default();
        for line in 0..20_000 {
            tail.push(format!("line {line}\r\n").as_bytes());
        }
        assert!(tail.text().len() <= KEPT);
        assert_eq!(tail.last_lines(2), "line 19998\nline 19999");
    }
}
