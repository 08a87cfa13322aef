//! The one loop: run, observe, place, govern, carry out, tell the paging, record.
//!
//! Order within an interval: the world runs, and a paging in step with its time looks after pages
//! meanwhile; a snapshot is taken; the placement makes a plan; the governor turns it into orders and
//! refusals; what is about to change is in the journal; the world carries it out; the paging is told
//! what is settled; all of it is recorded, but that at a quick cadence intervals in which nothing was
//! decided are recorded together (`passed_over`). In a dry run the world is never asked to change anything.
//! At the end every thread that has a mask of ours is given back.
//!
//! Deterministic from the seed where the world is and has no pager that runs by itself: the same
//! snapshots, samples and seed give the same ledger.

mod passed_over;
mod record;
mod settled;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use numaherd_policy::{Policy, Random};
use numaherd_topology::Topology;
use numaherd_world::{
    AffinityOutcome, Orders, Outcome, Placement, Plan, ProcessId, Progress, Sharing, Snapshot,
    ThreadId, World, WorldError,
};
use rand::SeedableRng;

use crate::error::HerdError;
use crate::governor::{Governed, Guard, PageGovernor, Refusal, ThreadChange, ThreadGovernor};
use crate::journal::{Entry, Journal};
use crate::ledger::{Line, Placing, Record, Start, Writer};
use crate::needs::{self, Alternative};
use crate::paging::in_step::{Failed, PagingInStep};
use crate::paging::thread::PagingThread;
use crate::paging::{News, PagingHalf, Seen, Told};
use crate::settings::Settings;
use crate::summary::{Ending, Summary};
use passed_over::PassedOver;
use record::Recorder;
use settled::settled;

/// Sees every line as it is recorded.
pub type Watcher<'w> = Box<dyn FnMut(&Line) + 'w>;

/// A world, a policy, and what stands between them.
pub struct Herd<'w> {
    world: &'w mut dyn World,
    policy: Policy,
    settings: Settings,
    ledger: Option<Writer>,
    journal: Option<Journal>,
    alternatives: Vec<Alternative>,
    watcher: Option<Watcher<'w>>,
}

impl<'w> Herd<'w> {
    /// A herd that has not run yet. Without a ledger nothing is kept; without a journal a killed
    /// herd cannot be released, which is right only for worlds that end with the program.
    pub fn new(
        world: &'w mut dyn World,
        policy: Policy,
        settings: Settings,
        ledger: Option<Writer>,
        journal: Option<Journal>,
    ) -> Self {
        Self {
            world,
            policy,
            settings,
            ledger,
            journal,
            alternatives: Vec::new(),
            watcher: None,
        }
    }

    /// Policies to name where this one's signals cannot be had, nearest in strength first.
    pub fn or_else(mut self, alternatives: Vec<Alternative>) -> Self {
        self.alternatives = alternatives;
        self
    }

    /// Shows every line to `watcher` as it is recorded, with or without a ledger: what is drawn live
    /// is drawn from the same lines as later.
    pub fn watched(mut self, watcher: impl FnMut(&Line) + 'w) -> Self {
        self.watcher = Some(Box::new(watcher));
        self
    }

    /// Runs until the intervals are over, `stop` is set, or the world ends or fails; then gives back
    /// what was changed.
    ///
    /// # Errors
    /// Before anything has happened: a setting that cannot be ([`HerdError::Setting`]), a signal
    /// that the policy needs and this world does not measure ([`HerdError::MissingSignals`]), or a
    /// rule for new pages that this world cannot follow ([`HerdError::NewPages`]). A
    /// world that fails later ends the run with [`Ending::Failed`].
    pub fn run(mut self, stop: &AtomicBool) -> Result<Summary, HerdError> {
        self.settings.check()?;
        needs::check(&self.policy, self.world.signals(), &self.alternatives)?;
        self.ask_world()?;
        let mut running = Running::begin(self);
        let ending = running.run(stop);
        Ok(running.end(ending))
    }

    /// Says to the world what the policy wants of it before time passes. In a dry run new pages go
    /// where they would without us.
    fn ask_world(&mut self) -> Result<(), HerdError> {
        if !self.settings.dry_run {
            let rule = self.policy.new_pages;
            let placed = self.world.place_new_pages(rule);
            placed.map_err(|error| HerdError::NewPages {
                policy: self.policy.name.clone(),
                rule,
                world: error.world,
                reason: error.reason,
            })?;
        }
        self.world.attend(&self.policy.needs());
        Ok(())
    }
}

/// How the paging is run.
enum PagingPlace {
    /// Within the loop, once an interval: the world has no pager.
    Here(Box<PagingHalf>),
    /// Within the loop at its own cadence: the pager is in step with the world's time.
    InStep(Box<PagingInStep>),
    /// In its own thread.
    Thread(PagingThread),
    /// It has ended.
    Over,
}

/// A herd that runs.
struct Running<'w> {
    world: &'w mut dyn World,
    placement: Box<dyn numaherd_policy::Place>,
    settings: Settings,
    topology: Arc<Topology>,
    governor: ThreadGovernor,
    random: Random,
    paging: PagingPlace,
    journal: Option<Journal>,
    record: Recorder<'w>,
    /// How much threads shared pages since the last interval, as the paging found out.
    shared: BTreeMap<ProcessId, Sharing>,
    last: Option<Arc<Snapshot>>,
}

impl<'w> Running<'w> {
    fn begin(herd: Herd<'w>) -> Self {
        let Herd {
            world,
            policy,
            settings,
            ledger,
            journal,
            watcher,
            ..
        } = herd;
        let settings = settings.resolved(&*policy.placement);
        let topology = world.topology().clone();
        let random = Random::seed_from_u64(settings.seed);
        let mut paging_random = random.clone();
        // 2^128 numbers on: the halves never draw the same ones.
        paging_random.jump();
        let caveat = policy.paging.caveat();
        let half = PagingHalf::new(
            policy.paging,
            PageGovernor::new(&settings.limits, &topology),
            topology.clone(),
            paging_random,
            settings.dry_run,
        );
        let pager = world.pager();
        let summary = Summary::new(&policy.name, settings.dry_run);
        let mut record = Recorder::new(ledger, watcher, summary, PassedOver::new(&settings));
        record.add(|| {
            Record::Start(Start {
                topology: (*topology).clone(),
                signals: world.signals().to_vec(),
                settings: settings.clone(),
                policy: policy.name,
                seed: settings.seed,
                pager: pager.is_some(),
            })
        });
        if let Some(caveat) = caveat {
            record.notice(caveat.to_owned());
        }
        let cadence = settings.paging_interval();
        let paging = match pager {
            None => PagingPlace::Here(Box::new(half)),
            Some(pager) if pager.in_step() => {
                PagingPlace::InStep(Box::new(PagingInStep::new(half, pager, cadence)))
            }
            Some(pager) => match PagingThread::start(half, pager, cadence) {
                Ok(thread) => PagingPlace::Thread(thread),
                Err(error) => {
                    record.notice(format!(
                        "pages are not looked after: cannot start a thread for it: {error}; \
                         raise the limit of processes (ulimit -u, pids.max)"
                    ));
                    PagingPlace::Over
                }
            },
        };
        record.flush();
        Self {
            governor: ThreadGovernor::new(&settings.limits, &topology),
            placement: policy.placement,
            world,
            settings,
            topology,
            random,
            paging,
            journal,
            record,
            shared: BTreeMap::new(),
            last: None,
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> Ending {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ending::Stopped;
            }
            let seen = self.record.summary.intervals;
            if self.settings.intervals.is_some_and(|most| seen >= most) {
                return Ending::Intervals;
            }
            let now_ns = self.last.as_ref().map_or(0, |last| last.time_ns);
            let Some(interval) = self.settings.next_interval(seen, now_ns) else {
                return Ending::Length;
            };
            if self.run_for(interval) == Progress::Ended {
                return if stop.load(Ordering::Relaxed) {
                    Ending::Stopped
                } else {
                    Ending::World
                };
            }
            if let Err(error) = self.interval() {
                let error = error.to_string();
                return Ending::Failed { error };
            }
        }
    }

    /// Lets the world run for an interval; a paging in step looks after pages meanwhile.
    fn run_for(&mut self, interval: Duration) -> Progress {
        let (world, record, shared) = (&mut *self.world, &mut self.record, &mut self.shared);
        let PagingPlace::InStep(paging) = &mut self.paging else {
            return world.run_for(interval);
        };
        let hear = |news| match news {
            News::Shared(found) => add_sharing(shared, found),
            news => record.heard(news),
        };
        match paging.run_for(world, interval, hear) {
            Ok(progress) => progress,
            Err(Failed { error, left }) => {
                self.hear([News::Ended(error.to_string())]);
                if left.is_zero() {
                    Progress::Ran
                } else {
                    self.world.run_for(left)
                }
            }
        }
    }

    /// What follows an interval, from its snapshot to its records.
    fn interval(&mut self) -> Result<(), WorldError> {
        let mut snapshot = self.world.observe()?;
        for process in &mut snapshot.processes {
            if let Some(found) = self.shared.remove(&process.id) {
                process.sharing = Some(Arc::new(found));
            }
        }
        self.shared.clear();
        let snapshot = Arc::new(snapshot);
        self.last = Some(snapshot.clone());
        self.record.time_ns = self.record.time_ns.max(snapshot.time_ns);
        self.record.summary.saw(&snapshot);

        let placements = self
            .placement
            .place(&snapshot, &self.topology, &mut self.random);
        let mut governed = self.governor.govern(&snapshot, &placements);
        let recorded = self.record.saw(&snapshot, &governed);
        self.leave_changed_alone(&mut governed);
        if !self.settings.dry_run {
            self.write_down(&mut governed);
        }
        let outcome = self.carry_out(&snapshot, &governed);
        let told = Told {
            settled: settled(
                &snapshot,
                &self.topology,
                &governed.changes,
                &outcome,
                self.settings.dry_run,
            ),
            snapshot: snapshot.clone(),
        };
        self.record_placing(&snapshot, recorded, placements, governed, outcome);
        self.page(told);
        self.record.flush();
        Ok(())
    }

    /// Leaves alone what someone else has changed since; the journal owes it nothing any more.
    fn leave_changed_alone(&mut self, governed: &mut Governed) {
        let world = &*self.world;
        self.governor
            .leave_changed_alone(governed, |thread| world.affinity_of(thread));
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.settle(&governed.left_alone)
        {
            self.record.notice(error.to_string());
        }
    }

    /// Has in the journal what is about to change. What cannot be written down is refused.
    fn write_down(&mut self, governed: &mut Governed) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let adopted = governed
            .adopted
            .iter()
            .map(|(thread, held)| Entry::of(*thread, held));
        let placed = governed
            .changes
            .iter()
            .filter(|change| change.order.core.is_some())
            .map(|change| Entry::of(change.order.thread, &change.held));
        let entries: Vec<Entry> = adopted.chain(placed).collect();
        let Err(error) = journal.record(&entries) else {
            return;
        };
        self.record.notice(format!(
            "threads are not moved, because it cannot be written down how they were found: {error}"
        ));
        let why = error.to_string();
        let refused = governed
            .changes
            .extract_if(.., |change| change.order.core.is_some());
        governed.refusals.extend(refused.map(|change| Refusal {
            entry: change.entry(),
            thread: change.order.thread,
            guard: Guard::Journal,
            why: why.clone(),
        }));
        let kept: BTreeSet<ThreadId> = governed.changes.iter().map(|c| c.order.thread).collect();
        governed
            .undone
            .retain(|undone| kept.contains(&undone.thread));
        governed
            .stolen
            .retain(|stolen| kept.contains(&stolen.thread));
    }

    /// Has the changes carried out. In a dry run nothing is done and nothing came of it.
    fn carry_out(&mut self, snapshot: &Snapshot, governed: &Governed) -> Outcome {
        if self.settings.dry_run || governed.changes.is_empty() {
            return Outcome::default();
        }
        let orders = Orders {
            affinities: governed.orders(),
            pages: Vec::new(),
        };
        let outcome = self.world.apply(&orders);
        self.note(snapshot.time_ns, &governed.changes, &outcome.affinities);
        outcome
    }

    /// Tells governor, journal and summary what was done.
    fn note(&mut self, now_ns: u64, changes: &[ThreadChange], outcomes: &[AffinityOutcome]) -> u64 {
        let done = self.governor.carried_out(now_ns, changes, outcomes);
        self.record.summary.thread_moves += done.moves;
        self.record.summary.undone += done.undone;
        self.record.summary.stolen += done.stolen;
        for notice in done.notices {
            self.record.notice(notice);
        }
        if let Some(journal) = &mut self.journal {
            let narrowed: Vec<Entry> = done
                .narrowed
                .iter()
                .map(|(thread, held)| Entry::of(*thread, held))
                .collect();
            let written = journal
                .record(&narrowed)
                .and_then(|()| journal.settle(&done.settled));
            if let Err(error) = written {
                self.record.notice(error.to_string());
            }
        }
        done.settled.len() as u64
    }

    /// Records what was made of a plan, if it is to be `recorded`.
    fn record_placing(
        &mut self,
        snapshot: &Snapshot,
        recorded: bool,
        placements: Vec<Placement>,
        mut governed: Governed,
        outcome: Outcome,
    ) {
        let guards = governed.refusals.iter().map(|refusal| refusal.guard);
        self.record.summary.refused(guards);
        let moves = governed.changes.iter().filter(|change| change.is_move());
        self.record.summary.planned_thread_moves += moves.count() as u64;
        let carried_out = !self.settings.dry_run;
        let notices = std::mem::take(&mut governed.notices);
        if recorded {
            self.record.add(|| {
                Record::Placing(Placing {
                    snapshot: snapshot.sequence,
                    affinities: governed.orders(),
                    plan: Plan {
                        placements,
                        pages: Vec::new(),
                    },
                    refusals: governed.refusals,
                    undone: governed.undone,
                    stolen: governed.stolen,
                    carried_out,
                })
            });
        }
        if !outcome.affinities.is_empty() {
            self.record.add(|| Record::Outcome(outcome));
        }
        for notice in notices {
            self.record.notice(notice);
        }
    }

    /// Tells the paging what is settled, and records what it has done.
    fn page(&mut self, told: Told) {
        match &mut self.paging {
            PagingPlace::Over => {}
            PagingPlace::Here(half) => {
                let world = &mut *self.world;
                let news = half.round(Duration::ZERO, [told], &Seen::default(), |orders| {
                    let orders = Orders {
                        affinities: Vec::new(),
                        pages: orders.to_vec(),
                    };
                    world.apply(&orders).pages
                });
                self.hear(news);
            }
            PagingPlace::InStep(paging) => {
                let news = paging.tell(told);
                self.hear(news);
            }
            PagingPlace::Thread(thread) => {
                thread.tell(told);
                let news = thread.news();
                self.hear(news);
            }
        }
    }

    fn hear(&mut self, news: impl IntoIterator<Item = News>) {
        for news in news {
            match news {
                News::Shared(found) => add_sharing(&mut self.shared, found),
                News::Ended(_) => {
                    self.paging = PagingPlace::Over;
                    self.record.heard(news);
                }
                News::Tick { .. } => self.record.heard(news),
            }
        }
    }

    /// Stops paging, gives back every thread, closes ledger and journal.
    fn end(mut self, ending: Ending) -> Summary {
        if let PagingPlace::Thread(thread) = std::mem::replace(&mut self.paging, PagingPlace::Over)
        {
            let news = thread.stop();
            self.hear(news);
        }
        self.record.passed_over_last();
        self.give_back();
        if let Some(journal) = self.journal.take() {
            match journal.close() {
                Ok(false) => {}
                Ok(true) => self.record.notice(
                    "some affinities could not be given back; they are still in the journal: try \
                     `numaherd release`"
                        .to_owned(),
                ),
                Err(error) => self.record.notice(error.to_string()),
            }
        }
        self.record.summary.ending = ending;
        let summary = self.record.summary.clone();
        self.record.add(|| Record::End(summary));
        self.record.flush();
        self.record.summary
    }

    fn give_back(&mut self) {
        if self.governor.holdings().iter().next().is_none() {
            return;
        }
        // Masks may have changed since the last interval; where the world cannot be seen any more,
        // the last snapshot must do.
        let fresh = self.world.observe().ok().map(Arc::new);
        let Some(snapshot) = fresh.or_else(|| self.last.clone()) else {
            return;
        };
        let mut governed = self.governor.release(&snapshot);
        self.leave_changed_alone(&mut governed);
        for notice in &governed.notices {
            self.record.notice(notice.clone());
        }
        let orders = Orders {
            affinities: governed.orders(),
            pages: Vec::new(),
        };
        let outcome = self.world.apply(&orders);
        let given_back = self.note(snapshot.time_ns, &governed.changes, &outcome.affinities);
        self.record.summary.restored += given_back;
        // What was observed just now is no interval and is not recorded.
        let recorded = self.record.last_recorded();
        self.record.add(|| {
            Record::Placing(Placing {
                snapshot: recorded,
                affinities: orders.affinities,
                carried_out: true,
                ..Placing::default()
            })
        });
        self.record.add(|| Record::Outcome(outcome));
    }
}

/// Adds what was found out of sharing to what is known of the interval.
fn add_sharing(known: &mut BTreeMap<ProcessId, Sharing>, found: Vec<(ProcessId, Sharing)>) {
    for (process, more) in found {
        let sharing = known.entry(process).or_default();
        let before = std::mem::take(&mut sharing.pairs);
        *sharing = Sharing::of(before.into_iter().chain(more.pairs));
    }
}
