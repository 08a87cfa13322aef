//! Control of a herd that runs: pause, resume, another policy, other settings.
//!
//! Two ends: a [`Control`], of which anyone may hold a clone (a control socket, a signal's thread), and
//! the [`Requests`] that the loop hears ([`crate::Herd::controlled`]). The loop answers between two
//! intervals; a world that waits and can be woken ([`numaherd_world::World::waker`]) is, so that a
//! request is heard at once. What was asked and what came of it is in the ledger
//! ([`crate::Record::Control`]), from which everything people see is drawn: nothing else needs to ask
//! the loop.
//!
//! A request that cannot be met is refused with a sentence that says why, and changes nothing. An asker
//! that has gone, or has lost its patience, changes nothing either: the request is carried out when its
//! turn comes. No more than [`MOST_WAITING`] wait at once.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use numaherd_policy::groups::Policies;
use numaherd_world::Waker;

use crate::ledger::Trial;
use crate::settings::Settings;

/// The most requests that wait for the loop at once: more than people send, and little to hold.
pub const MOST_WAITING: usize = 64;

/// What can be asked of a herd that runs.
pub enum Request {
    /// To decide and carry out nothing until it is resumed. What is seen is still recorded.
    Pause {
        /// Whether threads get the affinities back that they were found with; otherwise they keep those
        /// that they have.
        give_back: bool,
    },
    /// To pause, take threads back to the CPUs on which they were found when decisions began (at the start,
    /// or after the latest pause), and give them the affinities back that they were found with: the kernel
    /// goes on from where it was.
    TakeBack,
    /// To go on after a pause.
    Resume,
    /// To go on by another policy, other settings, or both, from the next decision on.
    Change(Box<Change>),
    /// To record what a trial, which goes on by these requests, says of itself. Changes nothing.
    Trial(Box<Trial>),
}

/// Another policy and other settings. Threads keep the cores that they have been given until the
/// policy that is in charge then says otherwise; what they were found with is given back at the end,
/// whoever is in charge then. One with neither changes nothing: the ledger has its words.
pub struct Change {
    /// The policy; `None` keeps the one in charge, with all that it has learnt.
    pub policy: Option<Policies>,
    /// The settings, as a user gives them: what is left out is the policy's own affair or the usual.
    /// `None` keeps those in force.
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

/// What others hold. Clones ask the same herd.
#[derive(Clone)]
pub struct Control {
    requests: SyncSender<Waiting>,
    waker: Arc<Mutex<Option<Waker>>>,
    name: Arc<str>,
}

/// What the loop hears. Whoever waits for an answer when it is dropped has none to wait for.
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

/// Two ends that belong together.
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
    /// The same under a name, by which the ledger says who asked: `SIGHUP`, `control socket (uid 0)`.
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
    /// Has the world woken when a request comes.
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
