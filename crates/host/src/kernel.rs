//! What the host asks of the kernel, as two traits: [`Hands`] act on threads and pages, [`Senses`]
//! open counters. The live ones are system calls; tests give kernels that refuse.
//!
//! Why traits: a permission that is denied, a node that is full, a number that is used again while
//! it is being looked at cannot be had on order from the machine that runs the tests.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

pub use crate::sys::perf::{Attribute, flag};
pub use rustix::io::Errno;

use crate::files::Root;
use crate::proc::{stat, status};
use crate::stop::Stop;
use crate::sys;

/// A hold on a process: as long as it is alive by this hold, its number is its own.
#[derive(Debug)]
pub struct Hold {
    /// Which process.
    pub process: ProcessId,
    /// The kernel's descriptor of it; none in captured trees and tests.
    pub descriptor: Option<OwnedFd>,
}

/// Acts on threads and pages.
pub trait Hands: Debug + Send + Sync {
    /// Reads the affinity mask of a thread into `words`.
    ///
    /// # Errors
    /// `ESRCH` when there is no such thread.
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno>;

    /// Sets the affinity mask of a thread.
    ///
    /// # Errors
    /// As `sched_setaffinity(2)`.
    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Result<(), Errno>;

    /// When the thread that has this number now started, in clock ticks since boot; `None` when no
    /// thread has it.
    fn born(&self, tid: u32) -> Option<u64>;

    /// Takes hold of a process; `None` when it has ended or its number is another's.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    fn hold(&self, process: ProcessId) -> Result<Option<Hold>, Errno>;

    /// Whether a held process is alive.
    fn is_alive(&self, hold: &Hold) -> bool;

    /// Asks where pages are: node number or negative errno each.
    ///
    /// # Errors
    /// As `move_pages(2)`.
    fn where_are(&self, pid: u32, addresses: &[u64], status: &mut [i32]) -> Result<(), Errno>;

    /// Moves pages to one node; gives the number of pages not moved or not tried. Statuses are only
    /// meaningful when that is 0.
    ///
    /// # Errors
    /// As `move_pages(2)`.
    fn move_pages(
        &self,
        pid: u32,
        addresses: &[u64],
        node: i32,
        status: &mut [i32],
        shared_too: bool,
    ) -> Result<u64, Errno>;

    /// Now, on a clock that does not jump, in ns.
    fn now_ns(&self) -> u64;

    /// Waits, or until asked to stop.
    fn wait(&self, time: Duration, stop: &Stop);
}

/// Opens counters.
pub trait Senses: Debug + Send + Sync {
    /// Opens an event on a thread (0 for the caller, `None` for all) and a CPU (`None` for any).
    ///
    /// # Errors
    /// As `perf_event_open(2)`.
    fn open(
        &self,
        attribute: &Attribute,
        tid: Option<u32>,
        cpu: Option<u32>,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno>;
}

/// The clock of all times here: monotonic, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Time since boot in ns, suspended time included, as thread starts are counted.
pub(crate) fn since_boot_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

fn nanoseconds(time: Timespec) -> u64 {
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The start of the thread that has this number, read under a root.
fn born(root: &Root, tid: u32) -> Option<u64> {
    let text = root.read(&format!("proc/{tid}/stat")).ok()?;
    stat::parse(&text)
        .filter(|stat| !stat.has_ended())
        .map(|stat| stat.born)
}

/// The running kernel.
#[derive(Debug)]
pub(crate) struct Live {
    root: Root,
}

impl Live {
    pub(crate) fn new(root: Root) -> Self {
        Self { root }
    }
}

impl Hands for Live {
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        sys::affinity::get(tid, words)
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Result<(), Errno> {
        sys::affinity::set(tid, cpus.as_words())
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
        let same = self.born(process.pid) == Some(process.born);
        Ok(same.then_some(Hold {
            process,
            descriptor,
        }))
    }

    fn is_alive(&self, hold: &Hold) -> bool {
        match &hold.descriptor {
            Some(descriptor) => !can_be_read(descriptor),
            None => self.born(hold.process.pid) == Some(hold.process.born),
        }
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
        shared_too: bool,
    ) -> Result<u64, Errno> {
        let nodes = vec![node; addresses.len()];
        sys::page_moves::order(pid, addresses, &nodes, status, shared_too)
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn wait(&self, time: Duration, stop: &Stop) {
        stop.wait(time, &[]);
    }
}

impl Senses for Live {
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

/// Whether a descriptor can be read now; a pidfd can once its process has ended.
pub(crate) fn can_be_read(descriptor: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&at_once)), Ok(ready) if ready > 0)
}

/// A captured tree: it can be looked at, but nothing can be done to it and it has no counters.
#[derive(Debug)]
pub(crate) struct Captured {
    root: Root,
}

impl Captured {
    pub(crate) fn new(root: Root) -> Self {
        Self { root }
    }
}

impl Hands for Captured {
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        let text = self
            .root
            .read(&format!("proc/{tid}/status"))
            .map_err(|_| Errno::SRCH)?;
        let cpus = status::parse(&text).cpus.ok_or(Errno::SRCH)?;
        words.clear();
        words.extend_from_slice(cpus.as_words());
        Ok(())
    }

    fn set_affinity(&self, _: u32, _: &CpuSet) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn born(&self, tid: u32) -> Option<u64> {
        born(&self.root, tid)
    }

    fn hold(&self, process: ProcessId) -> Result<Option<Hold>, Errno> {
        let same = self.born(process.pid) == Some(process.born);
        Ok(same.then_some(Hold {
            process,
            descriptor: None,
        }))
    }

    fn is_alive(&self, hold: &Hold) -> bool {
        self.born(hold.process.pid) == Some(hold.process.born)
    }

    fn where_are(&self, _: u32, _: &[u64], _: &mut [i32]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn move_pages(&self, _: u32, _: &[u64], _: i32, _: &mut [i32], _: bool) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn wait(&self, time: Duration, stop: &Stop) {
        stop.wait(time, &[]);
    }
}

impl Senses for Captured {
    fn open(
        &self,
        _: &Attribute,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno> {
        Err(Errno::NOSYS)
    }
}
