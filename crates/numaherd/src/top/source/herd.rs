//! Lines from a herd: the one that serves here, over its control socket, or a private one that only observes. A
//! thread listens to it and hands the lines on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_herd::ledger::Watched;
use numaherd_herd::{Herd, Line, Settings};
use numaherd_host::{Host, HostOptions, Selection, Stop};
use numaherd_policy::registry;
use numaherd_topology::sysfs;

use super::{Heard, Said};
use crate::ctl;
use crate::serve::protocol::Request;

/// The machine that is watched.
const ROOT: &str = "/";

/// Lines that wait to be taken, at most.
const WAITING: usize = 256;

/// How long a herd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches the herd that listens at a socket.
///
/// # Errors
/// No herd listens, this user may not use the socket, or what answers is not a herd.
pub fn watch(path: &Path) -> Result<Heard> {
    let from = ctl::ask(path, &Request::Watch, PATIENCE)?;
    let socket = from.get_ref().try_clone()?;
    let (mut watched, _header) = Watched::begin(from, path)?;
    // From here on, lines come only when something happens.
    socket.set_read_timeout(None)?;
    let (said, lines) = mpsc::sync_channel(WAITING);
    thread::spawn(move || {
        let why = loop {
            match watched.next() {
                Ok(Some(line)) => {
                    if said.send(Said::Line(Arc::new(line))).is_err() {
                        return;
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        // The receiver may have gone.
        let _ = said.send(Said::Over(why));
    });
    Ok(Heard {
        name: format!("the herd at {}", path.display()),
        lines,
        over: false,
        _ending: None,
    })
}

/// Ends a private herd when it is dropped.
pub struct Ending {
    asked: Arc<AtomicBool>,
    world: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.asked.store(true, Ordering::Relaxed);
        self.world.ask();
        if let Some(thread) = self.thread.take() {
            // It has said why it ended, if it panicked.
            let _ = thread.join();
        }
    }
}

/// Watches this machine with a private herd under the kernel's own policy, which changes nothing. It observes what
/// its user may observe, and needs no privileges.
///
/// # Errors
/// When the machine cannot be read.
pub fn of_ones_own() -> Result<Heard> {
    let topology = Arc::new(sysfs::read(Path::new(ROOT))?);
    let policy = registry::build("linux", &numaherd_policy::Settings::default())
        .context("the kernel's own policy is not there")?;
    let (said, lines) = mpsc::sync_channel(WAITING);
    let (began, begins) = mpsc::sync_channel(1);
    let asked = Arc::new(AtomicBool::new(false));
    let stop = asked.clone();
    let thread = thread::spawn(move || {
        let mut options = HostOptions::new(Selection::Machine);
        options.samples.enabled = false;
        let mut host = match Host::new(options, topology) {
            Ok(host) => host,
            Err(error) => {
                let _ = began.send(Err(error.to_string()));
                return;
            }
        };
        let _ = began.send(Ok(host.stop()));
        let settings = Settings {
            dry_run: true,
            ..Settings::default()
        };
        let watcher = said.clone();
        let hand_on = move |line: &Arc<Line>| hand_on(&watcher, line.clone());
        let herd = Herd::new(&mut host, policy)
            .settings(settings)
            .with_losses()
            .watched_by(Box::new(hand_on));
        let why = herd.run(&stop).err().map(|error| error.to_string());
        let _ = said.send(Said::Over(why));
    });
    let world = begins
        .recv()
        .context("the herd that watches this machine did not begin")?
        .map_err(anyhow::Error::msg)?;
    Ok(Heard {
        name: "this machine, by a herd that only looks".to_owned(),
        lines,
        over: false,
        _ending: Some(Ending {
            asked,
            world,
            thread: Some(thread),
        }),
    })
}

/// Hands a line on. If too many wait already, drops it: the next snapshot is complete again.
fn hand_on(said: &SyncSender<Said>, line: Arc<Line>) {
    match said.try_send(Said::Line(line)) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
