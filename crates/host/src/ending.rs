//! When the live world ends: someone asks, or the processes that were watched by number have ended.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use numaherd_world::Progress;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::HostError;
use crate::files::Root;
use crate::kernel::can_be_read;
use crate::options::Selection;
use crate::stop::{Nudge, Stop};

/// The processes that the world ends with; none for one that goes on until it is stopped.
#[derive(Debug)]
pub(crate) struct Ending {
    processes: Vec<OwnedFd>,
}

impl Ending {
    pub(crate) fn new(root: &Root, selection: &Selection) -> Result<Self, HostError> {
        let pids = match selection {
            Selection::Child { pid } => std::slice::from_ref(pid),
            Selection::Processes { pids, .. } => pids,
            Selection::Machine
            | Selection::Cgroup { .. }
            | Selection::Command { .. }
            | Selection::User { .. } => &[],
        };
        let mut processes = Vec::new();
        for &pid in pids {
            let no_such = || HostError::NoSuchProcess { pid };
            if !root.path(&format!("proc/{pid}/stat")).exists() {
                return Err(no_such());
            }
            if !root.is_live() {
                continue;
            }
            let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
            match pidfd_open(number.ok_or_else(no_such)?, PidfdFlags::empty()) {
                Ok(descriptor) => processes.push(descriptor),
                Err(Errno::SRCH) => return Err(no_such()),
                Err(errno) => return Err(HostError::Wake { errno }),
            }
        }
        Ok(Self { processes })
    }

    /// Waits for an interval, or until it is nudged, by those who can be.
    pub(crate) fn run_for(
        &self,
        stop: &Stop,
        nudge: Option<&Nudge>,
        interval: Duration,
    ) -> Progress {
        let end = Instant::now() + interval;
        loop {
            let mut awaited: Vec<&OwnedFd> =
                self.processes.iter().filter(|p| !can_be_read(p)).collect();
            let all_ended = awaited.is_empty() && !self.processes.is_empty();
            if stop.is_asked() || all_ended {
                return Progress::Ended;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Progress::Ran;
            }
            if nudge.is_some_and(Nudge::take) {
                return Progress::Woken { left };
            }
            awaited.extend(nudge.map(Nudge::descriptor));
            stop.wait(left, &awaited);
        }
    }
}
