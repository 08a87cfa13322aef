//! Paging at its own cadence: in a thread of its own where the world has a [`Pager`], within the
//! placement's loop where it has none.
//!
//! The thread owns the pager, the policy's paging half and the page half of the governor. It is told
//! what is settled over a channel, and sends back what is to be recorded. It stops when its flag is
//! set; when it fails or panics, paging ends with a message and the placement goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use numaherd_policy::{Paging, Random, Settled};
use numaherd_topology::Topology;
use numaherd_world::{PageOrder, PageOutcome, Pager, Pages, Progress, Snapshot, WorldError};

use crate::governor::{GovernedPages, Guard, PageGovernor};
use crate::ledger::PagingTick;

/// What the placement tells the paging, once an interval.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) settled: Vec<Settled>,
    pub(crate) snapshot: Arc<Snapshot>,
}

/// What the paging tells the placement.
#[derive(Debug)]
pub(crate) enum News {
    /// Something was wanted or done.
    Tick { time_ns: u64, tick: PagingTick },
    /// Paging has ended, and why.
    Ended(String),
}

/// The paging half of a policy with its half of the governor.
pub(crate) struct PagingHalf {
    pub(crate) paging: Box<dyn Paging>,
    pub(crate) governor: PageGovernor,
    pub(crate) topology: Arc<Topology>,
    pub(crate) random: Random,
    pub(crate) dry_run: bool,
}

impl PagingHalf {
    /// Tells the paging what is settled; returns what it wants.
    pub(crate) fn settled(&mut self, told: Told) -> Vec<PageOrder> {
        let orders = self.paging.settled(&told.settled, &told.snapshot);
        self.governor.see(told.snapshot);
        orders
    }

    /// Governs a plan, has it carried out and tells the paging what came of it.
    pub(crate) fn carry_out(
        &mut self,
        plan: Vec<PageOrder>,
        apply: impl FnOnce(&[PageOrder]) -> Vec<PageOutcome>,
    ) -> PagingTick {
        let governed = self.governor.govern(&plan);
        let mut tick = PagingTick {
            carried_out: !self.dry_run,
            ordered_pages: self.governor.pages_in(&governed.orders),
            ..PagingTick::default()
        };
        let mut told = not_tried(&plan, &governed);
        if !self.dry_run && !governed.orders.is_empty() {
            tick.outcomes = apply(&governed.orders);
            self.governor.carried_out(&governed.orders, &tick.outcomes);
            told.extend(tick.outcomes.iter().cloned());
        }
        if !told.is_empty() {
            self.paging.moved(&told);
        }
        tick.plan = plan;
        tick.waiting = governed.waiting;
        tick.refusals = governed.refusals;
        tick
    }
}

/// What the policy is told of orders for which there was no bandwidth: that nothing was tried.
fn not_tried(plan: &[PageOrder], governed: &GovernedPages) -> Vec<PageOutcome> {
    governed
        .refusals
        .iter()
        .filter(|refusal| refusal.guard == Guard::Bandwidth)
        .filter_map(|refusal| Some((refusal, plan.get(refusal.entry?)?)))
        .map(|(refusal, order)| PageOutcome {
            process: order.process,
            thread: order.thread,
            pages: order.pages,
            to: order.to,
            moved: 0,
            already_there: 0,
            failed: std::collections::BTreeMap::new(),
            not_tried: match order.pages {
                Pages::Window { count, .. } => count,
                Pages::All => 0,
            },
            took_ns: 0,
            longest_batch_ns: 0,
            error: Some(refusal.why.clone()),
        })
        .collect()
}

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
    let mut tally = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        if pager.run_for(cadence) == Progress::Ended {
            return;
        }
        match tick(&mut half, &mut *pager, cadence, hears, &mut tally) {
            Ok(None) => {}
            Ok(Some(tick)) => {
                let time_ns = half.governor.now_ns();
                if says.send(News::Tick { time_ns, tick }).is_err() {
                    return;
                }
            }
            Err(error) => {
                // Nobody may be left to hear it; then it does not matter.
                let _ = says.send(News::Ended(error.to_string()));
                return;
            }
        }
    }
}

/// One round at the paging cadence; `None` when nothing is worth recording. `tally` counts samples,
/// and of those remote ones, since the last round that was recorded.
fn tick(
    half: &mut PagingHalf,
    pager: &mut dyn Pager,
    cadence: Duration,
    hears: &Receiver<Told>,
    tally: &mut (u64, u64),
) -> Result<Option<PagingTick>, WorldError> {
    let samples = pager.samples()?;
    let passed = u64::try_from(cadence.as_nanos()).unwrap_or(u64::MAX);
    let now_ns = half.governor.now_ns().saturating_add(passed);
    let latest = samples.last().map_or(0, |sample| sample.time_ns);
    half.governor.advance(now_ns.max(latest));
    let mut plan: Vec<PageOrder> = Vec::new();
    for told in hears.try_iter() {
        plan.extend(half.settled(told));
    }
    if !samples.is_empty() {
        let topology = half.topology.clone();
        plan.extend(half.paging.sampled(&samples, &topology, &mut half.random));
    }
    tally.0 += samples.len() as u64;
    tally.1 += samples.iter().filter(|s| s.source.is_remote()).count() as u64;
    let tick = half.carry_out(plan, |orders| pager.apply(orders));
    if tick.is_empty() {
        return Ok(None);
    }
    let (samples, remote) = std::mem::take(tally);
    Ok(Some(PagingTick {
        samples,
        remote,
        ..tick
    }))
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
