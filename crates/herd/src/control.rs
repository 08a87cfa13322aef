//! Control of a running herd: pause, resume, another policy, other settings.
//!
//! Two ends: a [`Control`], which anyone may clone (a control socket, a signal's thread), and the
//! [`Requests`] that the loop hears ([`crate::Herd::controlled`]). The loop answers between two intervals.
//! A world that can be woken while it waits ([`numaherd_world::World::waker`]) is woken for each request.
//! The ledger records what was asked and what came of it ([`crate::Record::Control`]), and all output is
//! drawn from the ledger: nothing else needs to ask the loop.
//!
//! The loop refuses a request that it cannot meet with a sentence that says why; nothing changes then. A
//! request is carried out when its turn comes, even if its asker has gone or no longer waits. At most
//! [`MOST_WAITING`] requests wait at once.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use numaherd_policy::groups::Policies;
use numaherd_world::Waker;

use crate::ledger::Trial;
use crate::settings::Settings;

/// The most requests that wait for the loop at once: more than people send, and cheap to hold.
pub const MOST_WAITING: usize = 64;

/// What a running herd can be asked.
pub enum Request {
    /// To decide and carry out nothing until resumed. Observations are still recorded.
    Pause {
        /// Whether threads get back the affinities they were found with; otherwise they keep their present
        /// ones.
        give_back: bool,
    },
    /// To pause, move threads to the CPUs where they were found when decisions began (at the start, or
    /// after the latest pause), and give back the affinities they were found with: the kernel goes on from
    /// where it was.
    TakeBack,
    /// To go on after a pause.
    Resume,
    /// To use another policy, other settings, or both, from the next decision on.
    Change(Box<Change>),
    /// To record what a trial says of itself. Changes nothing.
    Trial(Box<Trial>),
}

/// Another policy, other settings, or both. Threads keep their cores until the policy then in charge says
/// otherwise; the run's end gives back the affinities they were found with, whatever the policy. A change
/// with neither only records its reason.
pub struct Change {
    /// The policy; `None` keeps the one in charge, with all it has learned.
    pub policy: Option<Policies>,
    /// The settings as a user gives them: the policy or the default decides what is left out. `None` keeps
    /// those in force.
    pub settings: Option<Settings>,
    /// Why, for the ledger: a few words, for instance `the configuration was read again`.
    pub why: String,
}

/// Why a request was not met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The loop refused it; everything is as it was. A sentence with the reason.
    #[error("{0}")]
    Refused(String),
    /// The loop has not answered yet. The request is carried out when its turn comes.
    #[error(
        "the herd has not answered within {} ms; it will at the end of its interval, and `status` will \
         show the result", .patience.as_millis()
    )]
    NoAnswer {
        /// How long was waited.
        patience: Duration,
    },
    /// Too many requests wait already.
    #[error("{MOST_WAITING} requests are already waiting for the herd; try again later")]
    Busy,
    /// The herd has ended.
    #[error("the herd has ended")]
    Ended,
}

impl ControlError {
    /// A refusal, and why.
    pub(crate) fn refused(why: impl ToString) -> Self {
        Self::Refused(why.to_string())
    }
}

/// The askers' half. Clones ask the same herd.
#[derive(Clone)]
pub struct Control {
    requests: SyncSender<Waiting>,
    waker: Arc<Mutex<Option<Waker>>>,
    name: Arc<str>,
}

/// The loop's half. When it is dropped, waiting askers get [`ControlError::Ended`].
pub struct Requests {
    requests: Receiver<Waiting>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// A request that waits for the loop.
pub(crate) struct Waiting {
    pub(crate) request: Request,
    /// The asker's name, as given.
    pub(crate) by: Arc<str>,
    pub(crate) answer: Answer,
}

/// Where an answer goes, if anybody waits for it.
pub(crate) struct Answer(Option<SyncSender<Result<(), ControlError>>>);

impl Answer {
    /// Sends the outcome. The asker may have gone.
    pub(crate) fn give(self, outcome: Result<(), ControlError>) {
        if let Some(asker) = self.0 {
            let _ = asker.send(outcome);
        }
    }
}

/// A connected pair of ends.
pub fn pair() -> (Control, Requests) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let waker = Arc::default();
    let control = Control {
        requests: sender,
        waker: Arc::clone(&waker),
        name: Arc::from(""),
    };
    let requests = Requests {
        requests: receiver,
        waker,
    };
    (control, requests)
}

impl Control {
    /// The same under a name that the ledger records: `SIGHUP`, `control socket (uid 0)`.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self {
            name: Arc::from(name),
            ..self.clone()
        }
    }

    /// Sends a request and waits for the answer, at most `patience`.
    ///
    /// # Errors
    /// [`ControlError`]: why it was not met, or not yet.
    pub fn ask(&self, request: Request, patience: Duration) -> Result<(), ControlError> {
        let (answer, answered) = sync_channel(1);
        self.send(request, Answer(Some(answer)))?;
        match answered.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(ControlError::NoAnswer { patience }),
            Err(RecvTimeoutError::Disconnected) => Err(ControlError::Ended),
        }
    }

    /// Sends a request and does not wait.
    ///
    /// # Errors
    /// [`ControlError::Busy`] and [`ControlError::Ended`].
    pub fn tell(&self, request: Request) -> Result<(), ControlError> {
        self.send(request, Answer(None))
    }

    fn send(&self, request: Request, answer: Answer) -> Result<(), ControlError> {
        let waiting = Waiting {
            request,
            by: self.name.clone(),
            answer,
        };
        self.requests
            .try_send(waiting)
            .map_err(|error| match error {
                TrySendError::Full(_) => ControlError::Busy,
                TrySendError::Disconnected(_) => ControlError::Ended,
            })?;
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = &*waker {
            wake();
        }
        Ok(())
    }
}

impl Requests {
    /// Sets what wakes the world on a request.
    pub(crate) fn woken_by(&self, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    /// The next request, if one waits.
    pub(crate) fn next(&self) -> Option<Waiting> {
        self.requests.try_recv().ok()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_that_ends_leaves_nobody_waiting() {
        let (control, requests) = pair();
        let (answer, answered) = sync_channel(1);
        control.send(Request::Resume, Answer(Some(answer))).unwrap();
        drop(requests);
        // As `ask` waits: it would wait for ever if the request still lay there.
        assert!(answered.recv().is_err());
        let late = control.ask(Request::Resume, Duration::MAX);
        assert_eq!(late, Err(ControlError::Ended));
    }
}
