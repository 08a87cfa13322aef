//! Paging in a thread of its own, at its own cadence, where the world's time passes by itself.
//!
//! The thread owns the pager and the paging half. It is told what is settled over a channel, and
//! sends back what is to be recorded. What it finds out of who shares pages it says once an interval, when
//! it is told: the placement has it an interval later. It stops when its flag is set; when it fails or panics, paging
//! ends with a message and the placement goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use numaherd_world::{Pager, Progress};

use super::{News, PagingHalf, Seen, Told};

/// The running paging thread, as the placement sees it.
pub(crate) struct PagingThread {
    told: Sender<Told>,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
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
        let handle = std::thread::Builder::new()
            .name("paging".to_owned())
            .spawn(move || run(half, pager, cadence, &hears, &says, &flag))?;
        Ok(Self {
            told,
            news,
            stop,
            handle: Some(handle),
        })
    }

    /// Tells it what is settled.
    pub(crate) fn tell(&self, told: Told) {
        // When the thread has ended nobody hears it, and `news` has said why.
        let _ = self.told.send(told);
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
    mut half: PagingHalf,
    mut pager: Box<dyn Pager>,
    cadence: Duration,
    hears: &Receiver<Told>,
    says: &Sender<News>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        if pager.run_for(cadence) == Progress::Ended {
            return;
        }
        let news = match pager.samples() {
            Ok(samples) => {
                let notices = pager.notices();
                let seen = Seen { samples, notices };
                let told: Vec<Told> = hears.try_iter().collect();
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
