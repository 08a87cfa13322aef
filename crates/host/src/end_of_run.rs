//! When the live world ends: on request, or when the processes watched by number have ended.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use numaherd_world::Progress;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::HostError;
use crate::files::Root;
use crate::kernel::can_be_read;
use crate::options::Selection;
use crate::stop::{Stop, WakeEvent};

/// The processes that the world ends with; none for a world that runs until stopped.
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

    /// Waits for an interval, or until it is woken, if there is a waker.
    pub(crate) fn run_for(
        &self,
        stop: &Stop,
        waker: Option<&WakeEvent>,
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
            if waker.is_some_and(WakeEvent::take) {
                return Progress::Woken { left };
            }
            awaited.extend(waker.map(WakeEvent::descriptor));
            stop.wait(left, &awaited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn nobody() -> Ending {
        Ending {
            processes: Vec::new(),
        }
    }

    #[test]
    fn a_waker_wakes_whoever_waits_next_once_and_leaves_the_rest_of_the_interval() {
        let (stop, waker) = (Stop::new().unwrap(), WakeEvent::new().unwrap());
        waker.wake();
        waker.wake();
        let Progress::Woken { left } = nobody().run_for(&stop, Some(&waker), HOUR) else {
            panic!("woken before the hour is over");
        };
        assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
        let soon = Duration::from_millis(1);
        assert_eq!(nobody().run_for(&stop, Some(&waker), soon), Progress::Ran);
    }

    #[test]
    fn a_waker_from_another_thread_is_felt_while_waiting() {
        let (stop, waker) = (Stop::new().unwrap(), WakeEvent::new().unwrap());
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        let woken = nobody().run_for(&stop, Some(&waker), HOUR);
        assert!(matches!(woken, Progress::Woken { .. }), "{woken:?}");
        thread.join().unwrap();
    }

    #[test]
    fn those_who_cannot_be_woken_wait_and_a_stop_comes_first() {
        let (stop, waker) = (Stop::new().unwrap(), WakeEvent::new().unwrap());
        waker.wake();
        let soon = Duration::from_millis(1);
        assert_eq!(nobody().run_for(&stop, None, soon), Progress::Ran);
        stop.ask();
        let ended = nobody().run_for(&stop, Some(&waker), HOUR);
        assert_eq!(ended, Progress::Ended);
    }
}
