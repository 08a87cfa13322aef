//! Paging in a thread of its own, at its own cadence, where the world's time passes by itself.
//!
//! The thread owns the pager and the paging half. It is told what is placed over a channel, and
//! sends back what is to be recorded. What it finds out of who shares pages it says once an interval, when
//! it is told: the placement has it an interval later. It stops when its flag is set; when it fails or panics, paging
//! ends with a message and the placement goes on.
//!
//! The half is behind a lock that the thread holds for a round and not while it waits. So it can be
//! paused and replaced between two rounds, and once that is done no round of before is still at work.
//! While it is paused the thread throws away what is sampled, lest it be taken for news later. A
//! cadence that changes holds from the round after next: the wait that is under way goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use numaherd_world::{Pager, Progress};

use super::{News, Observed, PagingChange, PagingHalf, Placed};

/// The running paging thread, as the placement sees it.
pub(crate) struct PagingThread {
    told: Sender<Placed>,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    shared: Arc<Mutex<Shared>>,
    handle: Option<JoinHandle<()>>,
}

/// What the loop and the thread have in common.
struct Shared {
    half: PagingHalf,
    paused: bool,
    cadence: Duration,
}

/// The lock of what is shared. A thread that panicked with it has ended, and said so.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PagingThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread left to give.
    pub(crate) fn start(
        half: PagingHalf,
        pager: Box<dyn Pager>,
        cadence: Duration,
    ) -> std::io::Result<Self> {
        let (told, hears) = unbounded();
        let (says, news) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let shared = Arc::new(Mutex::new(Shared {
            half,
            paused: false,
            cadence,
        }));
        let its = shared.clone();
        let handle = std::thread::Builder::new()
            .name("paging".to_owned())
            .spawn(move || run(&its, pager, &hears, &says, &flag))?;
        Ok(Self {
            told,
            news,
            stop,
            shared,
            handle: Some(handle),
        })
    }

    /// Tells it what is placed.
    pub(crate) fn tell(&self, told: Placed) {
        // When the thread has ended nobody hears it, and `news` has said why.
        let _ = self.told.send(told);
    }

    /// Has it rest or go on. Waits for a round that is under way.
    pub(crate) fn pause(&self, rests: bool) {
        lock(&self.shared).paused = rests;
    }

    /// Has it go on otherwise. Waits for a round that is under way.
    pub(crate) fn change(&self, change: PagingChange) -> Option<News> {
        let mut shared = lock(&self.shared);
        shared.cadence = change.settings.paging_interval();
        shared.half.change(change)
    }

    /// What it has said since the last call. A panic in it is news, once.
    pub(crate) fn news(&mut self) -> Vec<News> {
        let mut news: Vec<News> = self.news.try_iter().collect();
        if self.handle.as_ref().is_some_and(JoinHandle::is_finished) {
            news.extend(self.join());
        }
        news
    }

    /// Stops it, waits for it, and returns what it still had to say.
    pub(crate) fn stop(mut self) -> Vec<News> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(&mut self) -> Vec<News> {
        let Some(handle) = self.handle.take() else {
            return Vec::new();
        };
        let panicked = handle.join().err();
        let mut news: Vec<News> = self.news.try_iter().collect();
        news.extend(panicked.map(|panic| News::Ended(panic_message(&*panic))));
        news
    }
}

impl Drop for PagingThread {
    /// Whatever ends the placement, pages do not go on moving after it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn run(
    shared: &Mutex<Shared>,
    mut pager: Box<dyn Pager>,
    hears: &Receiver<Placed>,
    says: &Sender<News>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let cadence = lock(shared).cadence;
        if pager.run_for(cadence) == Progress::Ended {
            return;
        }
        let mut shared = lock(shared);
        let told: Vec<Placed> = hears.try_iter().collect();
        let news = match pager.samples() {
            Ok(_) if shared.paused => {
                pager.notices();
                continue;
            }
            Ok(samples) => {
                let notices = pager.notices();
                let seen = Observed { samples, notices };
                let half = &mut shared.half;
                let shared = if told.is_empty() { None } else { half.shared() };
                let round = half.round(cadence, told, &seen, |orders| pager.apply(orders));
                shared.into_iter().chain(round)
            }
            Err(error) => {
                // Nobody may be left to hear it; then it does not matter.
                let _ = says.send(News::Ended(error.to_string()));
                return;
            }
        };
        for news in news {
            if says.send(news).is_err() {
                return;
            }
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the paging thread panicked ({}), which is a bug: please report it",
        said.unwrap_or("without a message")
    )
}
