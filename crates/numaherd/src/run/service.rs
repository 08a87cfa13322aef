//! What a service reports to systemd (`sd_notify`): that it is ready, once it has seen the first interval; what it
//! does; that it is alive; that it reads its configuration again; that it ends. Without a listener, it sends nothing.
//!
//! The loop itself reports that it is alive, with the lines that it records: a loop that hangs is silent, and the
//! watchdog (`WatchdogSec=` of the unit) ends it. The journal holds what it owes, and the next start restores that. A
//! herd that records less often than the watchdog expects asks for a longer wait.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use numaherd_herd::ledger::Start;
use numaherd_herd::{Line, Record};
use sd_notify::NotifyState;

/// A loop that is silent for this many of its longest silences hangs.
const SILENCES: u32 = 3;

/// How long a message waits for a manager that does not read (chosen here).
const PATIENCE: Duration = Duration::from_millis(200);

/// Sends, if a manager listens. One that has gone or does not read does not end the herd, or keep it from ending.
pub(crate) fn send(state: &[NotifyState<'_>]) {
    let _ = try_send(state);
}

fn try_send(state: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(manager) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match manager.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&manager)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let message: String = state.iter().map(|line| format!("{line}\n")).collect();
    socket.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

/// The configuration is about to be read again (`Type=notify-reload`).
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        // Without the time, the manager would take this for a reload before its signal.
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// It is ready again after a reload; `told` is its status until that changes.
pub(super) fn ready(told: Option<&str>) {
    match told.map(one_line) {
        Some(told) => send(&[NotifyState::Ready, NotifyState::Status(&told)]),
        None => send(&[NotifyState::Ready]),
    }
}

/// It has been told to end, or ends.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// A status is one line.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// How long the manager waits for a sign of life, according to the environment (`sd_watchdog_enabled(3)`). If that
/// names a process, only that one is meant.
fn watchdog(micros: Option<&str>, meant: Option<&str>, own: u32) -> Option<Duration> {
    if meant.is_some_and(|meant| meant.parse() != Ok(own)) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// Sees the loop's lines and tells the manager.
pub(super) struct Service {
    /// How long the manager waits for a sign of life; `None` where it does not.
    watchdog: Option<Duration>,
    /// Whether readiness has been reported, which follows the first interval.
    is_ready: bool,
    /// The start with all later changes; `None` before the first line.
    current: Option<Start>,
    /// Threads and processes seen in the latest interval.
    seen: (usize, usize),
    status: String,
}

impl Service {
    /// A service, if a manager listens.
    pub(super) fn new() -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        let text = |name| std::env::var(name).ok();
        Some(Self::watched_for(watchdog(
            text("WATCHDOG_USEC").as_deref(),
            text("WATCHDOG_PID").as_deref(),
            std::process::id(),
        )))
    }

    fn watched_for(watchdog: Option<Duration>) -> Self {
        Self {
            watchdog,
            is_ready: false,
            current: None,
            seen: (0, 0),
            status: String::new(),
        }
    }

    /// Takes in a line, and reports that the loop is alive and what it does.
    pub(super) fn line(&mut self, line: &Line) {
        if let Some(wait) = self.take_in(line) {
            let wait = format!("WATCHDOG_USEC={}", wait.as_micros());
            send(&[NotifyState::Custom(&wait)]);
        }
        if !self.is_ready && matches!(line.record, Record::Snapshot(_)) {
            self.is_ready = true;
            send(&[NotifyState::Ready]);
        }
        if self.watchdog.is_some() {
            send(&[NotifyState::Watchdog]);
        }
        let status = self.status();
        if matches!(line.record, Record::End(_)) {
            stopping();
        }
        if status != self.status {
            send(&[NotifyState::Status(&status)]);
        }
        self.status = status;
    }

    /// Takes in a line. Returns how long the manager must wait from now on, if that is longer than before.
    fn take_in(&mut self, line: &Line) -> Option<Duration> {
        match &line.record {
            Record::Start(start) => self.current = Some(start.clone()),
            Record::Control(controlled) => self.current.as_mut()?.follow(controlled),
            Record::Snapshot(snapshot) => {
                self.seen = (snapshot.threads.len(), snapshot.processes.len());
                return None;
            }
            _ => return None,
        }
        let settings = &self.current.as_ref()?.settings;
        // The longest that a healthy loop may be silent.
        let recorded = Duration::from_millis(settings.record_interval_ms);
        let silence = settings.placement_interval(u64::MAX).max(recorded);
        let needed = silence.saturating_mul(SILENCES);
        let watchdog = self.watchdog?;
        (watchdog < needed).then(|| *self.watchdog.insert(needed))
    }

    fn status(&self) -> String {
        let Some(current) = &self.current else {
            return String::new();
        };
        let (threads, processes) = self.seen;
        let mut status = format!(
            "{}: observing {threads} threads of {processes} processes",
            current.policy
        );
        if current.settings.dry_run {
            status += "; a dry run, nothing is carried out";
        }
        if current.paused {
            status += "; paused, nothing is decided";
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use numaherd_herd::Settings;
    use numaherd_herd::ledger::Asked;
    use numaherd_herd::run::LONGEST_STOP;
    use numaherd_testing::ledger::{first_line, start};

    use super::*;

    /// One that has seen a run begin.
    fn begun(watchdog: Option<Duration>) -> Service {
        let mut service = Service::watched_for(watchdog);
        let machine = numaherd_testing::shape::machine(1, 1);
        service.take_in(&first_line(Record::Start(start(&machine, "dino"))));
        service
    }

    fn change(placement_interval_ms: u64) -> Line {
        let settings = Settings {
            placement_interval_ms: Some(placement_interval_ms),
            dry_run: true,
            ..Settings::default()
        };
        first_line(Record::Control(numaherd_herd::ledger::Controlled {
            by: String::new(),
            asked: Asked::Change {
                policy: Some("n-mass".to_owned()),
                settings: Some(Box::new(settings)),
                why: String::new(),
            },
            refused: None,
        }))
    }

    #[test]
    fn a_herd_that_is_silent_for_longer_than_the_watchdog_waits_asks_for_more() {
        let seconds = Duration::from_secs;
        let mut service = begun(Some(seconds(30)));
        assert_eq!(service.take_in(&change(1000)), None);
        assert_eq!(service.take_in(&change(10_000)), None);
        assert_eq!(service.take_in(&change(60_000)), Some(seconds(180)));
        assert_eq!(
            service.take_in(&change(60_000)),
            None,
            "it has been asked for"
        );
        let mut unwatched = begun(None);
        assert_eq!(unwatched.take_in(&change(60_000)), None);
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names_or_for_any() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        for wrong in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(watchdog(wrong, None, 7), None);
        }
    }

    #[test]
    fn a_service_and_a_pod_have_time_to_stop() {
        let unit = include_str!("../../../../contrib/systemd/numaherd.service");
        let pod = include_str!("../../../../packaging/kubernetes/chart/templates/daemonset.yaml");
        let last_look = Duration::from_secs(5);
        for (text, key) in [
            (unit, "TimeoutStopSec="),
            (pod, "terminationGracePeriodSeconds: "),
        ] {
            let mut lines = text.lines();
            let seconds = lines.find_map(|line| line.trim().strip_prefix(key));
            let seconds = seconds.unwrap().trim_end_matches('s').parse();
            let granted = Duration::from_secs(seconds.unwrap());
            assert!(granted >= LONGEST_STOP + last_look, "{key}{granted:?}");
        }
    }

    #[test]
    fn what_it_does_is_one_line() {
        let mut service = begun(None);
        service.take_in(&change(1000));
        let asked = |asked| {
            first_line(Record::Control(numaherd_herd::ledger::Controlled {
                by: String::new(),
                asked,
                refused: None,
            }))
        };
        service.take_in(&asked(Asked::Pause {
            give_back: false,
            given_back: 0,
        }));
        assert_eq!(
            service.status(),
            "n-mass: observing 0 threads of 0 processes; a dry run, nothing is carried out; paused, \
             nothing is decided"
        );
        service.take_in(&asked(Asked::Resume));
        assert!(!service.status().contains("paused"));
        assert_eq!(
            one_line("a file is wrong\n  here\n  there"),
            "a file is wrong here there"
        );
    }
}
