//! Signals: SIGINT and SIGTERM end a run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A flag that SIGINT and SIGTERM set, waking the world as well. A second signal ends the program
/// at once; what it owes is in the journal.
///
/// # Errors
/// The kernel refuses a handler, or a thread.
pub fn stop_on_signals(world: numaherd_host::Stop) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot watch for signals")?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            world.ask();
        }
    });
    Ok(stop)
}
