//! How the paging is run, and what the loop does with it.

use std::time::Duration;

use numaherd_world::{Orders, Pager, World};

use super::in_step::PagingInStep;
use super::thread::PagingThread;
use super::{News, Observed, PagingChange, PagingHalf, Placed};

/// How the paging is run.
pub(crate) enum PagingPlace {
    /// In the loop, once an interval: the world has no pager.
    Here(Box<PagingHalf>),
    /// In the loop at its own cadence: the pager is in step with the world's time.
    InStep(Box<PagingInStep>),
    /// In its own thread.
    Thread(PagingThread),
    /// It has ended.
    Over,
}

impl PagingPlace {
    /// The place that suits the world's pager.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn of(
        half: PagingHalf,
        pager: Option<Box<dyn Pager>>,
        cadence: Duration,
    ) -> std::io::Result<Self> {
        match pager {
            None => Ok(Self::Here(Box::new(half))),
            Some(pager) if pager.in_step() => {
                let paging = PagingInStep::new(half, pager, cadence);
                Ok(Self::InStep(Box::new(paging)))
            }
            Some(pager) => PagingThread::start(half, pager, cadence).map(Self::Thread),
        }
    }

    /// Tells it what is placed; returns what it has done then or since.
    pub(crate) fn tell(&mut self, told: Placed, world: &mut dyn World) -> Vec<News> {
        match self {
            Self::Over => Vec::new(),
            Self::Here(half) => {
                let news = half.round(Duration::ZERO, [told], &Observed::default(), |orders| {
                    let orders = Orders {
                        affinities: Vec::new(),
                        pages: orders.to_vec(),
                    };
                    world.apply(&orders).pages
                });
                news.into_iter().collect()
            }
            Self::InStep(paging) => paging.tell(told).into_iter().collect(),
            Self::Thread(thread) => {
                thread.tell(told);
                thread.news()
            }
        }
    }

    /// What it has done since it was last asked or told.
    pub(crate) fn news(&mut self) -> Vec<News> {
        match self {
            Self::Thread(thread) => thread.news(),
            Self::Here(_) | Self::InStep(_) | Self::Over => Vec::new(),
        }
    }

    /// Pauses it. No round begins any more; one may be under way. Within the loop, it rests because it is
    /// neither told anything nor run.
    pub(crate) fn pause(&self) {
        if let Self::Thread(thread) = self {
            thread.pause();
        }
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        if let Self::Thread(thread) = self {
            thread.resume();
        }
    }

    /// Waits, at most `longest`, for a round that is under way; returns whether none is.
    pub(crate) fn wait_for_round(&self, longest: Duration) -> bool {
        match self {
            Self::Thread(thread) => thread.wait_for_round(longest),
            Self::Here(_) | Self::InStep(_) | Self::Over => true,
        }
    }

    /// Makes a change.
    pub(crate) fn change(&mut self, change: PagingChange) -> Option<News> {
        match self {
            Self::Over => None,
            Self::Here(half) => half.change(change),
            Self::InStep(paging) => paging.change(change),
            Self::Thread(thread) => thread.change(change),
        }
    }

    /// Has it begin nothing more, without waiting for what is under way.
    pub(crate) fn ask_to_stop(&self) {
        if let Self::Thread(thread) = self {
            thread.ask_to_stop();
        }
    }

    /// Ends it, waits for it at most `longest`, and returns what it still had to say.
    pub(crate) fn stop(self, longest: Duration) -> Vec<News> {
        match self {
            Self::Thread(thread) => thread.stop(longest),
            Self::Here(_) | Self::InStep(_) | Self::Over => Vec::new(),
        }
    }
}
