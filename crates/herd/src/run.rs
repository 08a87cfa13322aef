//! The loop: run, observe, place, govern, carry out, tell the paging, record.
//!
//! Order within an interval: the world runs, while a paging in step with its time looks after pages; a snapshot is
//! taken; the placement makes a plan; the governor turns it into orders and refusals; the journal saves what is about
//! to change; the world carries the orders out (`carry_out`); the paging learns what is placed; all of it is recorded.
//! At a quick cadence, intervals without decisions are recorded together (`thinned`). In a dry run, the world is never
//! asked to change anything. At the end, every thread with a mask of ours is given back.
//!
//! Between two intervals, the loop gives back what placed threads have started (`glance`), and answers requests
//! ([`crate::control`], `requests`). While it is paused, it only observes and records. Another policy or other settings
//! hold from the next decision on. A waiting world is woken for a request, and the interval then goes on.
//!
//! Without requests, and if the world is deterministic and has no pager that runs by itself, the same snapshots,
//! samples and seed give the same ledger.

mod carry_out;
mod glance;
mod placed;
mod record;
mod requests;
mod thinned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use numaherd_policy::Random;
use numaherd_policy::groups::{OwnOfAll, Policies};
use numaherd_policy::losses::Observer;
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{
    Effort, NewPages, Outcome, Plan, ProcessId, Progress, Sharing, Snapshot, ThreadId, World,
    WorldError,
};
use rand::SeedableRng;

use crate::control::Requests;
use crate::error::HerdError;
use crate::governor::{Governed, ThreadGovernor};
use crate::groups::{Placements, halves};
use crate::heirs;
use crate::journal::Journal;
use crate::ledger::{Line, Placing, Record, Start, Writer};
use crate::needs::{self, Alternative};
use crate::paging::in_step::Failed;
use crate::paging::place::PagingPlace;
use crate::paging::{News, PagingHalf, Placed};
use crate::settings::Settings;
use crate::summary::{Ending, Summary};
use placed::placed;
use record::Recorder;
use thinned::PassedOver;

/// How long a stop or a pause waits for a move of pages that is under way.
const LONGEST_MOVE: Duration = Duration::from_secs(10);

/// How long a stop waits for it before it says so (chosen here).
const SOON: Duration = Duration::from_secs(1);

/// How long a stop may take, except for the last look at the machine's threads. Whoever kills a process that does not
/// end waits longer first.
pub const LONGEST_STOP: Duration = heirs::LONGEST
    .saturating_add(SOON)
    .saturating_add(LONGEST_MOVE);

/// Sees every line as it is recorded. It runs inside the loop and must not delay it: a watcher that does more than a
/// few comparisons hands the line on over a bounded channel (cloning the [`Arc`] costs next to nothing) and counts the
/// lines that find no room there.
pub type Watcher<'w> = Box<dyn FnMut(&Arc<Line>) + 'w>;

/// A world, a policy, and what stands between them.
pub struct Herd<'w> {
    world: &'w mut dyn World,
    policy: Policies,
    settings: Settings,
    ledger: Option<Writer>,
    journal: Option<Journal>,
    alternatives: Vec<Alternative>,
    watchers: Vec<Watcher<'w>>,
    requests: Option<Requests>,
    losses: Option<Observer>,
}

impl<'w> Herd<'w> {
    /// A herd that has not run yet, with default settings and neither ledger nor journal.
    pub fn new(world: &'w mut dyn World, policy: impl Into<Policies>) -> Self {
        Self {
            world,
            policy: policy.into(),
            settings: Settings::default(),
            ledger: None,
            journal: None,
            alternatives: Vec::new(),
            watchers: Vec::new(),
            requests: None,
            losses: None,
        }
    }

    /// Runs with these settings. They must be within their ranges, which their reader checks
    /// (`numaherd_files::setting`).
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Records everything; without a ledger nothing is kept.
    pub fn ledger(mut self, ledger: impl Into<Option<Writer>>) -> Self {
        self.ledger = ledger.into();
        self
    }

    /// Writes down which threads are owed what. Without a journal, a killed herd cannot be released: right only for
    /// worlds that end with the program.
    pub fn journal(mut self, journal: impl Into<Option<Journal>>) -> Self {
        self.journal = journal.into();
        self
    }

    /// Policies to suggest if this one's signals are missing, nearest in strength first.
    pub fn or_else(mut self, alternatives: Vec<Alternative>) -> Self {
        self.alternatives = alternatives;
        self
    }

    /// Shows every line to `watcher` as it is recorded, with or without a ledger: live output is drawn from the same
    /// lines as later output. Each line goes to all watchers in the order in which they were added.
    pub fn watched(self, mut watcher: impl FnMut(&Line) + 'w) -> Self {
        self.watched_by(Box::new(move |line: &Arc<Line>| watcher(line)))
    }

    /// The same for a watcher that keeps lines or hands them on.
    pub fn watched_by(mut self, watcher: Watcher<'w>) -> Self {
        self.watchers.push(watcher);
        self
    }

    /// Records what the machine loses ([`numaherd_policy::losses`]), under any policy.
    pub fn with_losses(mut self) -> Self {
        self.losses = Some(Observer::default());
        self
    }

    /// Answers requests while it runs. See [`crate::control`].
    pub fn controlled(mut self, requests: Requests) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Runs until the intervals are over, `stop` is set, or the world ends or fails; then gives back what was changed.
    ///
    /// # Errors
    /// Before anything has happened: a signal that the policy needs and this world does not measure
    /// ([`HerdError::MissingSignals`]), or a rule for new pages that this world cannot follow
    /// ([`HerdError::NewPages`]). A world that fails later ends the run with [`Ending::Failed`].
    pub fn run(self, stop: &AtomicBool) -> Result<Summary, HerdError> {
        let dry_run = self.settings.dry_run;
        ask_world(&mut *self.world, &self.policy, &self.alternatives, dry_run)?;
        let mut running = Running::begin(self);
        let ending = running.run(stop);
        Ok(running.end(ending))
    }
}

/// Tells the world what a policy wants of it before time passes, if it can do that.
fn ask_world(
    world: &mut dyn World,
    policy: &Policies,
    alternatives: &[Alternative],
    dry_run: bool,
) -> Result<(), HerdError> {
    let needs = policy.needs();
    needs::check(&policy.name, &needs, world.signals(), alternatives)?;
    place_new_pages(world, &policy.name, policy.new_pages, dry_run)?;
    world.attend(&policy.attends());
    Ok(())
}

/// Has the world place new pages by a policy's rule; in a dry run, where they are first touched.
fn place_new_pages(
    world: &mut dyn World,
    policy: &str,
    rule: NewPages,
    dry_run: bool,
) -> Result<(), HerdError> {
    let rule = if dry_run { NewPages::FirstTouch } else { rule };
    let placed = world.place_new_pages(rule);
    placed.map_err(|error| HerdError::NewPages {
        policy: policy.to_owned(),
        rule,
        world: error.world,
        reason: error.reason,
    })
}

/// A herd that runs.
struct Running<'w> {
    world: &'w mut dyn World,
    placements: Placements,
    /// The policies' own cadences and scopes.
    own: OwnOfAll,
    /// Where the policy wants new pages.
    new_pages: NewPages,
    /// The settings as given: the policy decides what they leave out.
    given: Settings,
    /// The settings as used.
    settings: Settings,
    topology: Arc<Topology>,
    governor: ThreadGovernor,
    random: Random,
    paging: PagingPlace,
    journal: Option<Journal>,
    alternatives: Vec<Alternative>,
    requests: Option<Requests>,
    paused: Option<Paused>,
    /// Where each thread was when decisions began, or began again; `None` before the first of these.
    found: Option<Found>,
    record: Recorder<'w>,
    /// How much threads shared pages since the last interval, as the paging found out.
    shared: BTreeMap<ProcessId, Sharing>,
    last: Option<Arc<Snapshot>>,
    /// Threads that are back, or gone. They stay in the journal until their heirs have been looked for.
    settling: Vec<ThreadId>,
    /// Those of them whose heirs have been looked for.
    settled: Vec<ThreadId>,
    /// Threads that are finished although they have a mask like one of ours.
    done_with: BTreeSet<ThreadId>,
    /// Threads whose affinity the kernel refused to restore in a giving back of all: each is tried once.
    refused: BTreeSet<ThreadId>,
    /// After how long what placed threads have started is looked for next.
    next_glance: Duration,
}

/// On which CPU each thread was.
type Found = BTreeMap<ThreadId, CpuId>;

/// How the herd is paused.
#[derive(Clone, Copy, Debug)]
struct Paused {
    /// Whether threads get the affinities back that they were found with.
    give_back: bool,
}

/// How an interval passed.
enum Waited {
    /// Its time is over.
    Over,
    /// A request ended it early; the interval has been seen and recorded.
    Seen,
    /// The world has ended.
    Ended,
}

/// Generators for placement and paging, from one seed.
fn generators(seed: u64) -> (Random, Random) {
    let placement = Random::seed_from_u64(seed);
    let mut paging = placement.clone();
    // 2^128 numbers on: the halves never draw the same ones.
    paging.jump();
    (placement, paging)
}

impl<'w> Running<'w> {
    fn begin(herd: Herd<'w>) -> Self {
        let Herd {
            world,
            policy,
            settings: given,
            ledger,
            journal,
            alternatives,
            watchers,
            requests,
            losses,
        } = herd;
        let own = policy.own();
        let settings = given.clone().resolved(&own);
        let topology = world.topology().clone();
        let (random, paging_random) = generators(settings.seed);
        let caveats = policy.caveats(world.signals());
        let (placements, pagings) = halves(policy.parts);
        let half = PagingHalf::new(pagings, &settings, topology.clone(), paging_random);
        let pager = world.pager();
        let summary = Summary::new(&policy.name, settings.dry_run, world.enforcement());
        let losses = losses.map(|observer| (observer, topology.clone()));
        let passed_over = PassedOver::new(&settings);
        let mut record = Recorder::new(ledger, watchers, summary, passed_over, losses);
        record.add(|| {
            Record::Start(Start {
                topology: (*topology).clone(),
                signals: world.signals().to_vec(),
                settings: settings.clone(),
                policy: policy.name,
                seed: settings.seed,
                pager: pager.is_some(),
                paused: false,
            })
        });
        for caveat in caveats {
            record.notice(caveat);
        }
        let paging =
            PagingPlace::of(half, pager, settings.paging_interval()).unwrap_or_else(|error| {
                record.notice(format!(
                    "pages are not moved: cannot start the paging thread: {error}; raise the limit of \
                     processes (ulimit -u, pids.max)"
                ));
                PagingPlace::Over
            });
        record.flush();
        if let Some(requests) = &requests {
            requests.woken_by(world.waker());
        }
        Self {
            governor: ThreadGovernor::new(&settings.limits, &topology)
                .enforced(world.enforcement()),
            placements,
            own,
            new_pages: policy.new_pages,
            world,
            given,
            settings,
            topology,
            random,
            paging,
            journal,
            alternatives,
            requests,
            paused: None,
            found: None,
            record,
            shared: BTreeMap::new(),
            last: None,
            settling: Vec::new(),
            settled: Vec::new(),
            done_with: BTreeSet::new(),
            refused: BTreeSet::new(),
            next_glance: glance::EACH,
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> Ending {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ending::Stopped;
            }
            let seen = self.record.summary.totals.intervals;
            if self.settings.intervals.is_some_and(|most| seen >= most) {
                return Ending::Intervals;
            }
            let now_ns = self.last.as_ref().map_or(0, |last| last.time_ns);
            let Some(interval) = self.settings.next_interval(seen, now_ns) else {
                return Ending::Length;
            };
            let interval = self
                .placements
                .next_look()
                .map_or(interval, |next| next.min(interval));
            let done = match self.wait(interval) {
                Waited::Over => self.interval(),
                Waited::Seen => Ok(()),
                Waited::Ended if stop.load(Ordering::Relaxed) => return Ending::Stopped,
                Waited::Ended => return Ending::World,
            };
            if let Err(error) = done {
                let error = error.to_string();
                return Ending::Failed { error };
            }
        }
    }

    /// Lets an interval pass, and answers requests meanwhile: when it is over, or as soon as one wakes the world.
    fn wait(&mut self, interval: Duration) -> Waited {
        let mut left = interval;
        loop {
            let until_glance = self.until_glance().unwrap_or(left).min(left);
            let later = left - until_glance;
            let progress = self.run_for(until_glance);
            if progress == Progress::Ended {
                return Waited::Ended;
            }
            if self.answer_requests() {
                return Waited::Seen;
            }
            left = match progress {
                // The cadence may have changed.
                Progress::Woken { left } => {
                    (left + later).min(self.settings.placement_interval(u64::MAX))
                }
                _ if later.is_zero() => return Waited::Over,
                _ => later.saturating_sub(self.glance()),
            };
        }
    }

    /// Lets the world run for an interval; a paging in step looks after pages meanwhile.
    fn run_for(&mut self, interval: Duration) -> Progress {
        let (world, record, shared) = (&mut *self.world, &mut self.record, &mut self.shared);
        let placements = &mut self.placements;
        let paging = match &mut self.paging {
            PagingPlace::InStep(paging) if self.paused.is_none() => paging,
            _ => return world.run_for(interval),
        };
        let hear = |news| match news {
            News::Shared(found) => add_sharing(shared, found),
            news => {
                placements.moved(news.outcomes());
                record.heard(news);
            }
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

    /// What was seen in an interval that is over.
    fn look(&mut self) -> Result<Arc<Snapshot>, WorldError> {
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
        self.record.summary.totals.add_snapshot(&snapshot, 1);
        Ok(snapshot)
    }

    /// What follows an interval, from its snapshot to its records.
    fn interval(&mut self) -> Result<(), WorldError> {
        if let Some(paused) = self.paused {
            self.watch(paused, None)?;
            return Ok(());
        }
        let snapshot = self.look()?;
        self.found.get_or_insert_with(|| {
            let threads = snapshot.threads.iter();
            threads.map(|thread| (thread.id, thread.cpu)).collect()
        });
        self.find_heirs(Effort::Quick);
        let plan = self
            .placements
            .plan(&snapshot, &self.topology, &mut self.random);
        let losses = self.placements.losses();
        let mut governed = self.governor.govern(&snapshot, &plan);
        let recorded = self.record.saw(&snapshot, &governed, losses);
        let outcome = self.carry_out(&snapshot, &mut governed);
        let told = Placed {
            threads: placed(&snapshot, &self.topology, &governed.changes, &outcome),
            pages: plan.pages.clone(),
            rations: self.placements.rations(),
            snapshot: snapshot.clone(),
        };
        self.record_placing(&snapshot, recorded, plan, governed, outcome);
        let news = self.paging.tell(told, &mut *self.world);
        self.hear(news);
        self.record.flush();
        Ok(())
    }

    /// Records what came of a plan, if it is to be `recorded`.
    fn record_placing(
        &mut self,
        snapshot: &Snapshot,
        recorded: bool,
        plan: Plan,
        mut governed: Governed,
        outcome: Outcome,
    ) {
        let totals = &mut self.record.summary.totals;
        totals.add_refusals(&governed.refusals);
        let moves = governed.changes.iter().filter(|change| change.is_move());
        totals.planned_thread_moves += moves.count() as u64;
        let carried_out = !self.settings.dry_run;
        let notices = std::mem::take(&mut governed.notices);
        if recorded {
            self.record.add(|| {
                Record::Placing(Placing {
                    snapshot: snapshot.sequence,
                    affinities: governed.orders(),
                    plan,
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

    fn hear(&mut self, news: impl IntoIterator<Item = News>) {
        for news in news {
            match news {
                News::Shared(found) => add_sharing(&mut self.shared, found),
                news => {
                    if let News::Ended(_) = news {
                        self.paging = PagingPlace::Over;
                    }
                    self.placements.moved(news.outcomes());
                    self.record.heard(news);
                }
            }
        }
    }

    /// Stops paging, gives back every thread, closes ledger and journal. Threads get their affinities before it waits
    /// for page moves of the kernel: those can take half a minute.
    fn end(mut self, ending: Ending) -> Summary {
        self.paging.ask_to_stop();
        self.record.passed_over_last();
        self.give_back_at_the_end();
        if !self.paging.wait_for_round(SOON) {
            self.record.notice(format!(
                "the stop waits for the kernel, which is moving pages, for at most {} s",
                LONGEST_MOVE.as_secs()
            ));
        }
        let paging = std::mem::replace(&mut self.paging, PagingPlace::Over);
        self.hear(paging.stop(LONGEST_MOVE));
        if let Some(journal) = self.journal.take() {
            match journal.close() {
                Ok(false) => {}
                Ok(true) => self.record.notice(
                    "some affinities could not be restored; they are still in the journal: try `numaherd \
                     release`"
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
}

/// Adds newly found sharing to what is known of the interval.
fn add_sharing(known: &mut BTreeMap<ProcessId, Sharing>, found: Vec<(ProcessId, Sharing)>) {
    for (process, more) in found {
        let sharing = known.entry(process).or_default();
        let before = std::mem::take(&mut sharing.pairs);
        *sharing = Sharing::of(before.into_iter().chain(more.pairs));
    }
}
