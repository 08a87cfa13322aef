//! Ways to stop a waiting world, or just to wake it, from another thread or a signal handler's
//! thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::HostError;

/// Asks a world to stop, for good. Clones ask the same world.
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    asked: AtomicBool,
    wake: OwnedFd,
}

impl Stop {
    pub(crate) fn new() -> Result<Self, HostError> {
        let wake = event()?;
        Ok(Self {
            shared: Arc::new(Shared {
                asked: AtomicBool::new(false),
                wake,
            }),
        })
    }

    /// Asks. Waiting threads wake at once; page moves end after the batch that they are in.
    pub fn ask(&self) {
        self.shared.asked.store(true, Ordering::Release);
        // It is never read and so stays readable for ever. A full counter is readable too.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }

    /// Whether someone has asked.
    pub fn is_asked(&self) -> bool {
        self.shared.asked.load(Ordering::Acquire)
    }

    /// Waits until the time is over, someone asks, or one of the descriptors can be read.
    pub(crate) fn wait(&self, time: Duration, others: &[&OwnedFd]) {
        let end = Instant::now() + time;
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.shared.wake.as_fd())
            .chain(others.iter().map(|fd| fd.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        loop {
            if self.is_asked() {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut fds, Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// A descriptor that becomes readable when written to.
fn event() -> Result<OwnedFd, HostError> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| HostError::Wake { errno })
}

/// Wakes a waiting world without stopping it. Clones wake the same world.
#[derive(Clone, Debug)]
pub(crate) struct WakeEvent {
    wake: Arc<OwnedFd>,
}

impl WakeEvent {
    pub(crate) fn new() -> Result<Self, HostError> {
        let wake = Arc::new(event()?);
        Ok(Self { wake })
    }

    /// Wakes whoever waits, or will wait next. A full counter wakes as well.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Whether it has been used since the last call.
    pub(crate) fn take(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&*self.wake, &mut count).is_ok()
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.wake
    }
}
