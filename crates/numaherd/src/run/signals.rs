//! Signals: SIGINT and SIGTERM end a run, SIGHUP has its configuration read again.
//!
//! A terminal that goes away also sends SIGHUP: a run that was started on a terminal and has lost it ends, as other
//! programs do.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::reload::Reload;
use super::service;

/// The name of the asker in the ledger.
const BY: &str = "SIGHUP";

/// Ends a run as SIGINT does.
pub struct Ender {
    asked: Arc<AtomicBool>,
    world: numaherd_host::Stop,
}

impl Ender {
    /// With the loop's flag, and the world that may be waiting.
    pub(super) fn of(asked: &Arc<AtomicBool>, world: numaherd_host::Stop) -> Self {
        let asked = asked.clone();
        Self { asked, world }
    }

    /// Ends the run, after its current step.
    pub fn end(&self) {
        service::stopping();
        self.asked.store(true, Ordering::Relaxed);
        self.world.ask();
    }
}

/// A flag that SIGINT and SIGTERM set. A second of these ends the program at once; what it owes is in the
/// journal.
///
/// # Errors
/// The kernel refuses a handler.
pub fn stop() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot watch for signals")?;
    }
    Ok(stop)
}

/// From now on SIGINT and SIGTERM wake the world as well, and SIGHUP reloads.
///
/// # Errors
/// The kernel refuses a handler, or a thread.
pub fn watch(ender: Ender, reload: Reload) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let had_terminal = on_terminal();
    let watch = move || {
        for signal in signals.forever() {
            let hung_up = signal == SIGHUP && had_terminal && !on_terminal();
            if signal != SIGHUP || hung_up {
                ender.end();
                return;
            }
            // The reload reports its outcome.
            let _ = reload.now(BY);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread
        .spawn(watch)
        .context("cannot start a thread that watches for signals")?;
    Ok(())
}

/// Whether this program is connected to a terminal.
fn on_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}
