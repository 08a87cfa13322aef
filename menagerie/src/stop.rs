//! Ends a run early: after SIGINT or SIGTERM, the result so far is still reported. A second signal
//! kills the program.

use crate::error::Error;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the run shall end.
#[derive(Debug)]
pub struct Stop {
    wanted: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    /// Readable once a signal has come.
    woken: Option<UnixStream>,
}

impl Stop {
    /// Stops only by [`Stop::end`].
    pub fn new() -> Stop {
        Stop {
            wanted: Arc::default(),
            signal: Arc::default(),
            woken: None,
        }
    }

    /// Stops by SIGINT or SIGTERM as well.
    pub fn on_signals() -> Result<Stop, Error> {
        let mut stop = Stop::new();
        stop.listen().map_err(Error::system("listen to signals"))?;
        Ok(stop)
    }

    fn listen(&mut self) -> std::io::Result<()> {
        let (read, write) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or(0);
            // In this order: the first signal finds the flag unset.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&self.wanted),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&self.wanted))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&self.signal), number)?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        self.woken = Some(read);
        Ok(())
    }

    /// Ends the run because of a failure.
    pub fn end(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the run shall end.
    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The signal that ended the run.
    pub fn signal(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(signal).ok(),
        }
    }

    /// A descriptor that becomes readable when a signal comes, if [`Stop::on_signals`] made this.
    pub fn woken(&self) -> Option<BorrowedFd<'_>> {
        self.woken.as_ref().map(AsFd::as_fd)
    }
}
