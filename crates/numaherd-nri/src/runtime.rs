//! Connects to the runtime, and reconnects whenever a session ends, after pauses that double.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nri::{Plugin as _, Registration, Session};

use crate::pods::Change;
use crate::say;
use crate::watcher::Watcher;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// After a session of at least this length, the next pause is [`FIRST`] again.
const WAS_WELL: Duration = Duration::from_secs(60);

/// Watches the pods of the runtime that listens at `socket`, and reconnects whatever happens to it. `pause` waits; the
/// function returns once `pause` returns false.
pub fn watch(
    socket: &Path,
    registration: &Registration,
    changes: &Sender<Change>,
    mut pause: impl FnMut(Duration) -> bool,
) {
    let mut said = String::new();
    let mut next = FIRST;
    loop {
        let begun = Instant::now();
        let told = match session(socket, registration, changes) {
            Ok(()) => "the runtime closed the connection".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if begun.elapsed() >= WAS_WELL {
            next = FIRST;
            said.clear();
        }
        if told != said {
            say(format!(
                "{told}; trying again until a runtime listens at {}",
                socket.display()
            ));
            said = told;
        }
        if !pause(next) {
            return;
        }
        next = (next * 2).min(LONGEST);
    }
}

/// One session, from its beginning to its end.
///
/// # Errors
/// No runtime listens, or the session fails before the runtime closes it.
pub fn session(socket: &Path, registration: &Registration, changes: &Sender<Change>) -> Result<()> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to the runtime at {}", socket.display()))?;
    let mut watcher = Watcher::new(changes.clone());
    let mut session = Session::register(stream, registration, &mut watcher)?;
    session.serve(&mut watcher)?;
    watcher.shut_down();
    Ok(())
}
