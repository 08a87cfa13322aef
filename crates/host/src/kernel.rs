//! What the host asks of the kernel, as one trait: [`Kernel`] acts on threads and pages, and opens counters. [`Live`]
//! makes system calls, [`Captured`] reads files; tests supply kernels that refuse.
//!
//! Why a trait: a denied permission, a full node, or a number that is reused while it is looked at cannot be produced
//! on demand on the machine that runs the tests.

use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{ProcessId, ThreadId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

pub use crate::sys::hint_map::HintMap;
pub use crate::sys::page_moves::Mapped;
pub use crate::sys::perf::{Attribute, flag};
pub use rustix::io::Errno;

use crate::files::Root;
use crate::proc::{stat, status};
use crate::sys;

/// A hold on a process: while it shows the process alive, the number is not reused.
#[derive(Debug)]
pub struct Hold {
    /// Which process.
    pub process: ProcessId,
    /// The kernel's descriptor of it; none in captured trees and tests.
    pub descriptor: Option<OwnedFd>,
}

/// Acts on threads and pages, and opens counters. What a kernel cannot do fails with `ENOSYS`.
pub trait Kernel: Debug + Send + Sync {
    /// Reads the affinity mask of a thread into `words`.
    ///
    /// # Errors
    /// `ESRCH` when there is no such thread.
    fn affinity(&self, _tid: u32, _words: &mut Vec<u64>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// CPU time so far in ns of all threads of a process, ended ones included; `None` if unknown.
    fn process_ran_ns(&self, _pid: u32) -> Option<u64> {
        None
    }

    /// Sets the affinity mask of a thread.
    ///
    /// # Errors
    /// As `sched_setaffinity(2)`.
    fn set_affinity(&self, _tid: u32, _cpus: &CpuSet) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Gives a thread a hint; `false` when it has ended or its number was reused.
    ///
    /// # Errors
    /// As `pidfd_open(2)` and `bpf(2)`.
    fn set_hint(&self, _map: &HintMap, _thread: ThreadId, _hint: u64) -> Result<bool, Errno> {
        Err(Errno::NOSYS)
    }

    /// The hint of the thread with this number; `None` when it has none, or there is no such thread.
    ///
    /// # Errors
    /// As `pidfd_open(2)` and `bpf(2)`.
    fn hint_of(&self, _map: &HintMap, _tid: u32) -> Result<Option<u64>, Errno> {
        Err(Errno::NOSYS)
    }

    /// When the thread with this number started, in clock ticks since boot; `None` when there is no such thread.
    fn born(&self, _tid: u32) -> Option<u64> {
        None
    }

    /// Takes hold of a process; `None` when it has ended or its number was reused.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    fn hold(&self, process: ProcessId) -> Result<Option<Hold>, Errno> {
        let is_same = self.born(process.pid) == Some(process.born);
        Ok(is_same.then_some(Hold {
            process,
            descriptor: None,
        }))
    }

    /// Whether a held process is alive.
    fn is_alive(&self, hold: &Hold) -> bool {
        match &hold.descriptor {
            Some(descriptor) => !can_be_read(descriptor),
            None => self.born(hold.process.pid) == Some(hold.process.born),
        }
    }

    /// Asks where pages are: node number or negative errno each.
    ///
    /// # Errors
    /// As `move_pages(2)`.
    fn where_are(&self, _pid: u32, _addresses: &[u64], _status: &mut [i32]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Moves pages to one node; returns the number of pages not moved or not tried. Statuses are meaningful only if
    /// that is 0.
    ///
    /// # Errors
    /// As `move_pages(2)`.
    fn move_pages(
        &self,
        _pid: u32,
        _addresses: &[u64],
        _node: i32,
        _status: &mut [i32],
        _which: Mapped,
    ) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Writes a value to a kernel control file.
    ///
    /// # Errors
    /// As `open(2)` and `write(2)`.
    fn write(&self, path: &Path, value: &str) -> Result<(), Errno> {
        let written = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Opens an event on a thread (0 for the caller, `None` for all) and a CPU (`None` for any).
    ///
    /// # Errors
    /// As `perf_event_open(2)`.
    fn open(
        &self,
        _attribute: &Attribute,
        _tid: Option<u32>,
        _cpu: Option<u32>,
        _leader: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno> {
        Err(Errno::NOSYS)
    }

    /// Now, on a clock that does not jump, in ns.
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Waits, while the kernel goes on.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The kernel under a root: the running one for `/`, else a captured tree.
pub(crate) fn of_root(root: &Root) -> Arc<dyn Kernel> {
    let root = root.clone();
    if root.is_live() {
        Arc::new(Live { root })
    } else {
        Arc::new(Captured { root })
    }
}

/// The clock of all times here: monotonic, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Now on that clock.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// Time since boot in ns, suspended time included, like thread starts.
pub(crate) fn since_boot_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

/// Now, on the clock of thread starts: clock ticks since boot.
pub(crate) fn births_now() -> u64 {
    since_boot_ns() / (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

fn nanoseconds(time: Timespec) -> u64 {
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The start of the thread with this number, read under a root.
fn born(root: &Root, tid: u32) -> Option<u64> {
    let text = root.read(&format!("proc/{tid}/stat")).ok()?;
    stat::parse(&text)
        .filter(|stat| !stat.has_ended())
        .map(|stat| stat.born)
}

/// The mask in a thread's status file, read under a root.
fn listed_affinity(root: &Root, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
    let text = root.read(&format!("proc/{tid}/status"));
    let cpus = text.ok().and_then(|text| status::parse(&text).cpus);
    words.clear();
    words.extend_from_slice(cpus.ok_or(Errno::SRCH)?.as_words());
    Ok(())
}

/// The running kernel.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) root: Root,
}

impl Kernel for Live {
    /// The call leaves out offline CPUs. A sleeping thread keeps a mask of only such CPUs until it wakes; its status
    /// file then shows what the kernel keeps.
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        sys::affinity::get(tid, words)?;
        if words.iter().any(|&word| word != 0) {
            return Ok(());
        }
        listed_affinity(&self.root, tid, words)
    }

    fn process_ran_ns(&self, pid: u32) -> Option<u64> {
        sys::process_clock::ran_ns(pid)
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Result<(), Errno> {
        sys::affinity::set(tid, cpus.as_words())
    }

    fn set_hint(&self, map: &HintMap, thread: ThreadId, hint: u64) -> Result<bool, Errno> {
        let Some(descriptor) = of_thread(thread.tid)? else {
            return Ok(false);
        };
        // The descriptor is of whoever had the number when it was opened; was that the one meant?
        if self.born(thread.tid) != Some(thread.born) {
            return Ok(false);
        }
        match map.set(descriptor.as_fd(), hint) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn hint_of(&self, map: &HintMap, tid: u32) -> Result<Option<u64>, Errno> {
        let Some(descriptor) = of_thread(tid)? else {
            return Ok(None);
        };
        match map.get(descriptor.as_fd()) {
            Err(Errno::SRCH) => Ok(None),
            answer => answer,
        }
    }

    fn born(&self, tid: u32) -> Option<u64> {
        born(&self.root, tid)
    }

    fn hold(&self, process: ProcessId) -> Result<Option<Hold>, Errno> {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Some(descriptor),
            Err(Errno::SRCH) => return Ok(None),
            // Before Linux 5.3, or behind a filter: the start time alone must do.
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(errno) => return Err(errno),
        };
        // The descriptor is of whoever had the number when it was opened; was that the one meant?
        let is_same = self.born(process.pid) == Some(process.born);
        Ok(is_same.then_some(Hold {
            process,
            descriptor,
        }))
    }

    fn where_are(&self, pid: u32, addresses: &[u64], status: &mut [i32]) -> Result<(), Errno> {
        sys::page_moves::query(pid, addresses, status)
    }

    fn move_pages(
        &self,
        pid: u32,
        addresses: &[u64],
        node: i32,
        status: &mut [i32],
        which: Mapped,
    ) -> Result<u64, Errno> {
        let nodes = vec![node; addresses.len()];
        sys::page_moves::order(pid, addresses, &nodes, status, which)
    }

    fn open(
        &self,
        attribute: &Attribute,
        tid: Option<u32>,
        cpu: Option<u32>,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno> {
        sys::perf::open(attribute, tid, cpu, leader)
    }
}

/// A descriptor of a thread; `None` if no thread has the number.
fn of_thread(tid: u32) -> Result<Option<OwnedFd>, Errno> {
    // `PIDFD_THREAD` (Linux 6.9), which rustix does not name.
    let of_thread = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
    let Some(tid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    match pidfd_open(tid, of_thread) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A captured tree: it can be read, but takes no orders and has no counters.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) root: Root,
}

impl Kernel for Captured {
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        listed_affinity(&self.root, tid, words)
    }

    fn born(&self, tid: u32) -> Option<u64> {
        born(&self.root, tid)
    }
}

/// Whether a descriptor can be read now; a pidfd can once its process has ended.
pub(crate) fn can_be_read(descriptor: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(ready) if ready > 0)
}
