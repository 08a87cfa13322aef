//! Paging in a thread of its own, at its own cadence, where the world's time passes by itself.
//!
//! The thread owns the pager, and shares the paging half with the loop. It receives what is placed over a channel, and
//! sends back what is to be recorded. It reports shared pages once an interval, when it is told: the placement has that
//! an interval later. It stops when its flag is set; if it fails or panics, paging ends with a message and the
//! placement goes on.
//!
//! While the policy does not listen and no order waits for bandwidth, and while it is paused, nothing is sampled and
//! the thread sleeps until a message arrives.
//!
//! The thread holds the half only during a round, so that it can be paused and changed between rounds. A round that
//! moves pages to a full node can take half a minute: a pause begins with the next round, and its caller can wait for
//! the round under way; a change that comes meanwhile is made when the round is over. A new cadence holds from the
//! round after next: the wait that is under way goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use numaherd_world::{Pager, Progress, WorldError};

use super::{News, Observed, PagingChange, PagingHalf, Placed};

/// How long a change waits for a round that is under way, which is seldom that long (chosen here).
const BRIEFLY: Duration = Duration::from_millis(100);

/// The running paging thread, as the placement sees it.
pub(crate) struct PagingThread {
    told: Sender<Told>,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    common: Arc<Common>,
    handle: Option<JoinHandle<()>>,
}

/// A message to the thread.
enum Told {
    /// What is placed.
    Placed(Placed),
    /// To look for shared changes, and whether to stop.
    Look,
}

/// What the loop and the thread share.
struct Common {
    shared: Mutex<Shared>,
    /// A round is over.
    over: Condvar,
}

struct Shared {
    /// `None` while a round is under way.
    half: Option<PagingHalf>,
    paused: bool,
    cadence: Duration,
    /// Changes to make when the round is over.
    changes: Vec<PagingChange>,
}

impl Shared {
    /// Whether a round could do something though nothing more is placed.
    fn has_work(&self) -> bool {
        let has_work = |half: &PagingHalf| half.listens() || half.has_waiting();
        !self.paused && self.half.as_ref().is_some_and(has_work)
    }
}

impl Common {
    /// Locks what is shared. A thread that panicked with the lock has ended, and said so.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same once no round is under way, or after `longest`.
    fn lock_after_round(&self, longest: Duration) -> MutexGuard<'_, Shared> {
        let is_under_way = |shared: &mut Shared| shared.half.is_none();
        let waited = self
            .over
            .wait_timeout_while(self.lock(), longest, is_under_way);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Begins a round, unless it is paused.
    fn begin_round<'r>(&'r self, says: &'r Sender<News>) -> Option<Round<'r>> {
        let mut shared = self.lock();
        let half = if shared.paused {
            None
        } else {
            shared.half.take()
        }?;
        Some(Round {
            common: self,
            half: Some(half),
            says,
        })
    }
}

/// A round under way, which has the half until it ends, in whatever way.
struct Round<'r> {
    common: &'r Common,
    half: Option<PagingHalf>,
    says: &'r Sender<News>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut shared = self.common.lock();
        let changes = std::mem::take(&mut shared.changes);
        if let Some(half) = &mut self.half
            && !std::thread::panicking()
        {
            for news in changes.into_iter().filter_map(|change| half.change(change)) {
                // It does not matter if no receiver is left.
                let _ = self.says.send(news);
            }
        }
        shared.half = self.half.take();
        self.common.over.notify_all();
    }
}

impl PagingThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn start(
        half: PagingHalf,
        pager: Box<dyn Pager>,
        cadence: Duration,
    ) -> std::io::Result<Self> {
        let (told, hears) = unbounded();
        let (says, news) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let common = Arc::new(Common {
            shared: Mutex::new(Shared {
                half: Some(half),
                paused: false,
                cadence,
                changes: Vec::new(),
            }),
            over: Condvar::new(),
        });
        let its = common.clone();
        let handle = std::thread::Builder::new()
            .name("paging".to_owned())
            .spawn(move || run(&its, pager, &hears, &says, &flag))?;
        Ok(Self {
            told,
            news,
            stop,
            common,
            handle: Some(handle),
        })
    }

    /// Tells it what is placed.
    pub(crate) fn tell(&self, told: Placed) {
        self.send(Told::Placed(told));
    }

    fn send(&self, told: Told) {
        // A thread that has ended hears nothing; `news` has said why.
        let _ = self.told.send(told);
    }

    /// Pauses it from the next round on.
    pub(crate) fn pause(&self) {
        self.common.lock().paused = true;
        self.send(Told::Look);
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        self.common.lock().paused = false;
        self.send(Told::Look);
    }

    /// Waits, at most `longest`, for a round that is under way; returns whether it is over.
    pub(crate) fn wait_for_round(&self, longest: Duration) -> bool {
        self.common.lock_after_round(longest).half.is_some()
    }

    /// Makes a change, from the next round on.
    pub(crate) fn change(&self, change: PagingChange) -> Option<News> {
        let mut shared = self.common.lock_after_round(BRIEFLY);
        shared.cadence = change.settings.paging_interval();
        self.send(Told::Look);
        match &mut shared.half {
            Some(half) => half.change(change),
            None => {
                shared.changes.push(change);
                None
            }
        }
    }

    /// What it has said since the last call. A panic in it is news, once.
    pub(crate) fn news(&mut self) -> Vec<News> {
        let mut news: Vec<News> = self.news.try_iter().collect();
        if self.handle.as_ref().is_some_and(JoinHandle::is_finished) {
            news.extend(self.join());
        }
        news
    }

    /// Asks it to stop as soon as the orders that it carries out allow.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.send(Told::Look);
    }

    /// Stops it, waits for it at most `longest`, and returns what it still had to say. If it is left behind in a system
    /// call, it begins no other.
    pub(crate) fn stop(mut self, longest: Duration) -> Vec<News> {
        self.ask_to_stop();
        let until = Instant::now() + longest;
        let mut news = Vec::new();
        loop {
            match self.news.recv_deadline(until) {
                Ok(more) => news.push(more),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    news.push(News::LeftBehind { waited: longest });
                    return news;
                }
            }
        }
        news.extend(self.join());
        news
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
        self.ask_to_stop();
    }
}

fn run(
    common: &Common,
    mut pager: Box<dyn Pager>,
    hears: &Receiver<Told>,
    says: &Sender<News>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let works = Some(common.lock()).filter(|shared| shared.has_work());
        let cadence = works.map(|shared| shared.cadence);
        let Some(told) = wait(cadence, &mut *pager, hears) else {
            return;
        };
        let Some(mut round) = common.begin_round(says) else {
            continue;
        };
        let Some(half) = &mut round.half else { return };
        let seen = match cadence.is_some() && half.listens() {
            true => observe(&mut *pager),
            false => Ok(Observed::default()),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                // It does not matter if no receiver is left.
                let _ = says.send(News::Ended(error.to_string()));
                return;
            }
        };
        let sharing = if told.is_empty() { None } else { half.shared() };
        let passed = cadence.unwrap_or(Duration::ZERO);
        let tick = half.round(passed, told, &seen, |orders| pager.apply(orders));
        for news in sharing.into_iter().chain(tick) {
            if says.send(news).is_err() {
                return;
            }
        }
    }
}

/// Lets an interval pass or, without one, rests until a message arrives. Returns what has been placed; `None` when no
/// sender is left, or the world has ended.
fn wait(
    cadence: Option<Duration>,
    pager: &mut dyn Pager,
    hears: &Receiver<Told>,
) -> Option<Vec<Placed>> {
    let first = match cadence {
        Some(cadence) if pager.run_for(cadence) == Progress::Ended => return None,
        Some(_) => None,
        None => {
            pager.rest();
            Some(hears.recv().ok()?)
        }
    };
    let told = first.into_iter().chain(hears.try_iter());
    let placed = told.filter_map(|told| match told {
        Told::Placed(placed) => Some(placed),
        Told::Look => None,
    });
    Some(placed.collect())
}

fn observe(pager: &mut dyn Pager) -> Result<Observed, WorldError> {
    Ok(Observed {
        samples: pager.samples()?,
        notices: pager.notices(),
    })
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

#[cfg(test)]
mod tests {
    use numaherd_policy::groups::Policies;
    use numaherd_policy::{Random, registry};
    use numaherd_testing::machine;
    use numaherd_world::{PageOrder, PageOutcome, Sample};
    use rand::SeedableRng;

    use super::*;
    use crate::groups::halves;
    use crate::settings::Settings;

    /// A call that does not return, until the test has ended.
    struct Stuck {
        begun: Sender<()>,
        ends: Receiver<()>,
    }

    impl Pager for Stuck {
        fn run_for(&mut self, _: Duration) -> Progress {
            Progress::Ran
        }

        fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
            Ok(Vec::new())
        }

        fn rest(&mut self) {
            let _ = self.begun.send(());
            let _ = self.ends.recv();
        }

        fn apply(&mut self, _: &[PageOrder]) -> Vec<PageOutcome> {
            Vec::new()
        }
    }

    #[test]
    fn a_stop_leaves_a_call_that_does_not_return_behind_and_says_so() {
        let settings = Settings::default();
        let policy = registry::build("linux", &Default::default()).unwrap();
        let (_, pagings) = halves(Policies::from(policy).parts);
        let random = Random::seed_from_u64(0);
        let half = PagingHalf::new(pagings, &settings, machine(1, 1), random);
        let (begun, begins) = unbounded();
        let (_until_the_end, ends) = unbounded();
        let pager = Box::new(Stuck { begun, ends });
        let thread = PagingThread::start(half, pager, Duration::ZERO).unwrap();
        begins.recv().unwrap();
        let news = thread.stop(Duration::ZERO);
        let [News::LeftBehind { waited }] = news[..] else {
            panic!("{news:?}");
        };
        assert_eq!(waited, Duration::ZERO);
    }
}
