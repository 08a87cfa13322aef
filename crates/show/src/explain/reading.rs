//! Reads a ledger's lines in order and hands each thread what concerns it.
//!
//! How records belong together: a placing follows the snapshot that it is drawn from; what became of
//! its orders, in their order, is in the outcome right after it. What became of a page order is in
//! the same tick, unless the order waited for bandwidth: then in a later tick, beside that tick's
//! own plan.

mod told;

pub(crate) use told::about;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_herd::ledger::{Controlled, Ledger, PagingTick, Placing, Start};
use numaherd_herd::{Line, Record, Refusal, Summary};
use numaherd_policy::registry::{PAGINGS, PLACEMENTS};
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{
    AffinityOrder, AffinityResult, Outcome, PageOrder, PageOutcome, Pages, Placement, ProcessId,
    Release, Residency, Snapshot, Thread, ThreadId,
};

use super::alternative::Layout;
use super::choice::Choice;
use super::story::Track;
use super::{
    Asked, CitedRule, Decision, Gap, Happened, Moved, PagesMoved, Said, Sampled, Seen, Verdict,
    Wanted,
};
use crate::controlled;
use crate::guards::{meaning, settings};
use crate::guests::Guest;
use crate::totals::{Totals, add};

/// A process while it is read of.
#[derive(Debug, Default)]
struct ProcessTrack {
    name: String,
    guest: Option<Guest>,
    group: Option<Arc<str>>,
    pages: Option<Moved>,
}

/// Accesses in an interval, of all threads whose lines' nodes were counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accesses {
    pub(super) local: u64,
    pub(super) all: u64,
}

/// What has been read.
#[derive(Default)]
pub(super) struct Reading<'l> {
    choice: Choice,
    /// The number of the record that is being read.
    record: u64,
    start: Option<&'l Start>,
    /// What holds now: the start, and what was asked since.
    now: Option<Start>,
    asked: Vec<Asked>,
    end: Option<&'l Summary>,
    snapshot: Option<&'l Snapshot>,
    threads: BTreeMap<ThreadId, Track>,
    processes: BTreeMap<ProcessId, ProcessTrack>,
    waiting: BTreeMap<(ProcessId, ThreadId), &'l PageOrder>,
    /// Where each process's pages were, at the end of which interval.
    residencies: BTreeMap<ProcessId, Vec<(u64, &'l Residency)>>,
    /// Which thread was moved when.
    moved: Vec<(u64, ThreadId)>,
    /// By interval.
    accesses: Vec<Accesses>,
    /// What ran where when the pages of a snapshot were looked after.
    layout: Option<(u64, Layout<'l>)>,
    totals: Totals,
    notices: Vec<Said>,
    gaps: Vec<Gap>,
    gap_at: BTreeMap<&'l str, usize>,
}

impl<'l> Reading<'l> {
    /// Reads all of a ledger; of its decisions, those that are chosen.
    pub(super) fn of(ledger: &'l Ledger, choice: Choice) -> Self {
        let mut reading = Self {
            choice,
            ..Self::default()
        };
        let mut lines = ledger.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let next = lines.peek().map(|line| &line.record);
            reading.line(line, next);
        }
        reading
    }

    fn line(&mut self, line: &'l Line, next: Option<&'l Record>) {
        self.record = line.sequence;
        match &line.record {
            Record::Start(start) => {
                self.start = Some(start);
                self.now = Some(start.clone());
            }
            Record::Snapshot(snapshot) => self.snapshot(snapshot),
            Record::Placing(placing) => {
                let outcome = match next {
                    Some(Record::Outcome(outcome)) => Some(outcome),
                    _ => None,
                };
                self.placing(line.time_ns, placing, outcome);
            }
            Record::Paging(tick) => self.paging(line.time_ns, tick),
            Record::Notice(notice) => self.notices.push(Said {
                time_ns: line.time_ns,
                text: notice.text.clone(),
            }),
            Record::End(summary) => self.end = Some(summary),
            Record::Control(controlled) => self.asked(line.time_ns, controlled),
            // An outcome is read with its placing; a reader passes over what is unknown.
            Record::Outcome(_) | Record::Unknown => {}
        }
    }

    fn asked(&mut self, time_ns: u64, controlled: &Controlled) {
        if let Some(now) = &mut self.now {
            now.follow(controlled);
        }
        self.asked.push(Asked {
            record: self.record,
            time_ns,
            refused: controlled.refused.is_some(),
            text: controlled::sentence(controlled),
        });
    }

    fn snapshot(&mut self, snapshot: &'l Snapshot) {
        self.totals.saw(snapshot, self.snapshot);
        self.snapshot = Some(snapshot);
        let mut accesses = Accesses::default();
        for thread in &snapshot.threads {
            let counts = thread.counts.as_ref();
            if let Some((local, remote)) = counts.and_then(|c| c.local.zip(c.remote)) {
                add(&mut accesses.local, local);
                add(&mut accesses.all, local.saturating_add(remote));
            }
            let track = self.threads.entry(thread.id).or_default();
            track.saw(thread, snapshot.time_ns, snapshot.interval_ns);
        }
        self.accesses.push(accesses);
        let topology = self.topology();
        for process in &snapshot.processes {
            let track = self.processes.entry(process.id).or_default();
            track.name.clone_from(&process.name);
            track.group.clone_from(&process.group);
            if let Some(guest) = Guest::of(process, snapshot, topology) {
                track.guest = Some(guest);
            }
            if let Some(residency) = &process.residency {
                let history = self.residencies.entry(process.id).or_default();
                history.push((snapshot.time_ns, residency));
                let residency = || residency.clone();
                match &mut track.pages {
                    Some(pages) => pages.last = residency(),
                    None => {
                        track.pages = Some(Moved {
                            first: residency(),
                            last: residency(),
                        });
                    }
                }
            }
        }
        for gap in &snapshot.gaps {
            let place = *self.gap_at.entry(gap).or_insert(self.gaps.len());
            match self.gaps.get_mut(place) {
                Some(known) => known.intervals += 1,
                None => self.gaps.push(Gap {
                    intervals: 1,
                    text: gap.clone(),
                }),
            }
        }
    }

    fn placing(&mut self, time_ns: u64, placing: &'l Placing, outcome: Option<&'l Outcome>) {
        let snapshot = self.snapshot.filter(|s| s.sequence == placing.snapshot);
        let plan = &placing.plan.placements;
        let is_chosen = self.choice.takes(self.record, time_ns);
        let layout = snapshot
            .zip(self.topology())
            .filter(|_| is_chosen && plan.iter().any(|entry| entry.from != entry.to))
            .map(|(snapshot, topology)| Layout::of(topology, snapshot, plan.iter()));
        for refusal in &placing.refusals {
            self.totals.refused(refusal.guard);
            if let Some(placement) = refusal.entry.and_then(|entry| plan.get(entry)) {
                let decision = Decision {
                    governor: refused(refusal),
                    ..self.wanted(time_ns, placement, snapshot, layout.as_ref())
                };
                self.decided(refusal.thread, None, decision, false);
            }
            let release = refusal.entry.and_then(|entry| {
                let releases = &placing.plan.releases;
                releases.get(entry.checked_sub(plan.len())?)
            });
            if let Some(release) = release {
                let decision = Decision {
                    governor: refused(refusal),
                    ..self.released(time_ns, release)
                };
                self.decided(refusal.thread, None, decision, false);
            }
        }
        let entry_refused: BTreeSet<usize> =
            placing.refusals.iter().filter_map(|r| r.entry).collect();
        let asked: BTreeMap<ThreadId, &Placement> = plan
            .iter()
            .enumerate()
            .filter(|(entry, _)| !entry_refused.contains(entry))
            .map(|(_, placement)| (placement.thread, placement))
            .collect();
        for (at, order) in placing.affinities.iter().enumerate() {
            let result = outcome.and_then(|outcome| outcome.affinities.get(at));
            let result = result.filter(|result| result.thread == order.thread);
            let happened = match result {
                _ if !placing.carried_out => Happened::DryRun,
                None => Happened::NotRecorded,
                Some(result) => affinity(&result.result),
            };
            let placement = asked.get(&order.thread).copied();
            let wanted = placement.map(|p| self.wanted(time_ns, p, snapshot, layout.as_ref()));
            self.order(time_ns, placing, order, wanted.zip(placement), happened);
        }
    }

    /// A thread's new mask: one that the plan wanted, one that undoes a move, one on an idle node, or one
    /// given back.
    fn order(
        &mut self,
        time_ns: u64,
        placing: &'l Placing,
        order: &'l AffinityOrder,
        wanted: Option<(Decision, &'l Placement)>,
        happened: Happened,
    ) {
        let snapshot = self.snapshot.filter(|s| s.sequence == placing.snapshot);
        let seen = snapshot.and_then(|snapshot| snapshot.thread(order.thread));
        let undone = placing.undone.iter().find(|u| u.thread == order.thread);
        let stolen = placing.stolen.iter().find(|s| s.thread == order.thread);
        // Where it was seen, or else, when that is not recorded, where the decision says it was.
        let decided_from = wanted
            .as_ref()
            .map(|(_, placement)| placement.from)
            .or(stolen.map(|stolen| stolen.from))
            .or(undone.map(|undone| undone.from));
        let was_on = match seen {
            Some(thread) => Some(thread.cpu),
            None => decided_from.filter(|_| snapshot.is_none()),
        };
        let leaves = was_on.is_some_and(|cpu| !order.cpus.contains(cpu));
        let governor = Verdict::Ordered {
            cpus: Some((*order.cpus).clone()),
        };
        let mut decision = match (undone, stolen, wanted) {
            (None, Some(stolen), _) => Decision {
                wanted: Wanted::Steal {
                    from: stolen.from,
                    from_node: self.node_of(stolen.from),
                    to: stolen.to,
                    to_node: self.node_of(stolen.to),
                },
                rule: Some(CitedRule {
                    name: "governor: suspended steal".to_owned(),
                    source: Some("BRM 4.4"),
                    what: Some(
                        "A held thread that waits is given to an idle node, when the kernel can \
                         take nobody there",
                    ),
                }),
                why: Some(stolen.why.clone()),
                seen: self.seen(seen, snapshot),
                ..self.plain(time_ns)
            },
            (Some(undone), ..) => Decision {
                wanted: Wanted::Undo {
                    from: undone.from,
                    to: undone.to,
                },
                why: Some(undone.why.clone()),
                seen: self.seen(seen, snapshot),
                ..self.plain(time_ns)
            },
            (None, None, Some((decision, _))) if leaves => decision,
            (None, None, Some((decision, placement))) => Decision {
                wanted: self.hold(placement.to),
                alternative: None,
                ..decision
            },
            (None, None, None) => {
                let releases = &placing.plan.releases;
                match releases.iter().find(|r| r.thread == order.thread) {
                    Some(release) => self.released(time_ns, release),
                    None => self.plain(time_ns),
                }
            }
        };
        decision.governor = governor;
        decision.happened = Some(happened);
        let given_back = decision.wanted == Wanted::GiveBack;
        let took = decision.is_done();
        let moved = took && leaves && !given_back;
        if moved {
            self.moved.push((time_ns, order.thread));
        }
        self.totals.thread_moves += u64::from(moved);
        self.totals.undone += u64::from(took && undone.is_some());
        self.totals.stolen += u64::from(took && stolen.is_some());
        self.totals.planned_thread_moves += u64::from(leaves && !given_back);
        self.decided(order.thread, seen.map(|t| t.process), decision, moved);
    }

    fn paging(&mut self, time_ns: u64, tick: &'l PagingTick) {
        add(&mut self.totals.planned_pages, tick.ordered_pages);
        let mut outcomes: Vec<&PageOutcome> = tick.outcomes.iter().collect();
        let mut refusals: BTreeMap<usize, &Refusal> = BTreeMap::new();
        for refusal in &tick.refusals {
            self.totals.refused(refusal.guard);
            match refusal.entry {
                Some(entry) => {
                    refusals.insert(entry, refusal);
                }
                None => self.waiter_refused(time_ns, refusal),
            }
        }
        for (entry, order) in tick.plan.iter().enumerate() {
            let mut decision = self.wanted_pages(time_ns, Some(order), order.thread);
            decision.sampled = (tick.samples > 0).then_some(Sampled {
                accesses: tick.samples,
                remote: tick.remote,
            });
            if let Some(refusal) = refusals.get(&entry) {
                decision.governor = refused(refusal);
            } else if tick.waiting.contains(&entry) {
                decision.governor = Verdict::Waiting;
                self.waiting.insert((order.process, order.thread), order);
            } else {
                let place = outcomes.iter().position(|outcome| is_of(outcome, order));
                decision.happened = Some(match place {
                    Some(place) => self.pages(outcomes.remove(place)),
                    None if tick.carried_out => Happened::NotRecorded,
                    None => Happened::DryRun,
                });
            }
            self.decided(order.thread, Some(order.process), decision, false);
        }
        // What is left are orders that had waited.
        for outcome in outcomes {
            let order = self.waiting.remove(&(outcome.process, outcome.thread));
            let mut decision = self.wanted_pages(time_ns, order, outcome.thread);
            decision.wanted = Wanted::Pages {
                to: Some(outcome.to),
                all: outcome.pages == Pages::All,
            };
            decision.happened = Some(self.pages(outcome));
            self.decided(outcome.thread, Some(outcome.process), decision, false);
        }
    }

    /// An order that had waited is refused after all.
    fn waiter_refused(&mut self, time_ns: u64, refusal: &Refusal) {
        // A thread is of one process, so that its number is enough to find what waited for it.
        let mut keys = self.waiting.keys().copied();
        let key = keys.find(|&(_, thread)| thread == refusal.thread);
        let order = key.and_then(|key| self.waiting.remove(&key));
        let decision = Decision {
            governor: refused(refusal),
            ..self.wanted_pages(time_ns, order, refusal.thread)
        };
        let process = key.map(|(process, _)| process);
        self.decided(refusal.thread, process, decision, false);
    }

    fn pages(&mut self, outcome: &PageOutcome) -> Happened {
        self.totals.paged(outcome);
        Happened::Pages(PagesMoved {
            moved: outcome.moved,
            already_there: outcome.already_there,
            failed: outcome.failed.clone(),
            not_tried: outcome.not_tried,
            took_ns: outcome.took_ns,
            longest_batch_ns: outcome.longest_batch_ns,
            error: outcome.error.clone(),
        })
    }

    fn decided(
        &mut self,
        thread: ThreadId,
        process: Option<ProcessId>,
        decision: Decision,
        moved: bool,
    ) {
        let is_chosen = self.choice.takes(self.record, decision.first_ns);
        let track = self.threads.entry(thread).or_default();
        track.process = track.process.or(process);
        track.decided(decision, moved, is_chosen);
    }

    fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.topology()?.node_of(cpu)
    }

    fn topology(&self) -> Option<&'l Topology> {
        self.start.map(|start| &start.topology)
    }

    fn hold(&self, cpu: CpuId) -> Wanted {
        Wanted::Hold {
            cpu,
            node: self.node_of(cpu),
        }
    }

    /// What a plan wanted of a thread; the governor has not spoken yet.
    fn wanted(
        &self,
        time_ns: u64,
        placement: &Placement,
        snapshot: Option<&'l Snapshot>,
        layout: Option<&Layout<'l>>,
    ) -> Decision {
        let (from, to) = (placement.from, placement.to);
        let thread = snapshot.and_then(|snapshot| snapshot.thread(placement.thread));
        let wanted = if from == to {
            self.hold(to)
        } else {
            Wanted::Move {
                from,
                from_node: self.node_of(from),
                to,
                to_node: self.node_of(to),
            }
        };
        Decision {
            wanted,
            rule: Some(cited(&placement.rule)),
            seen: self.seen(thread, snapshot),
            why: Some(placement.why.clone()),
            instead_of: Some(placement.instead_of.clone()).filter(|text| !text.is_empty()),
            alternative: layout
                .filter(|_| from != to)
                .and_then(|layout| layout.of_move(placement)),
            ..self.plain(time_ns)
        }
    }

    /// What a plan wanted of pages; the governor let it through unless said otherwise.
    fn wanted_pages(
        &mut self,
        time_ns: u64,
        order: Option<&PageOrder>,
        thread: ThreadId,
    ) -> Decision {
        let wanted_pages = order.and_then(|order| match order.pages {
            Pages::All => None,
            Pages::Window { count, .. } => Some(count),
        });
        let is_chosen = self.choice.takes(self.record, time_ns);
        let alternative = order
            .filter(|_| is_chosen)
            .zip(self.page_layout())
            .and_then(|(order, layout)| layout.of_pages(thread, order.to, wanted_pages));
        let thread = self.snapshot.and_then(|snapshot| snapshot.thread(thread));
        Decision {
            wanted: Wanted::Pages {
                to: order.map(|order| order.to),
                all: order.is_none_or(|order| order.pages == Pages::All),
            },
            wanted_pages,
            alternative,
            rule: order.map(|order| cited(&order.rule)),
            seen: self.seen(thread, self.snapshot),
            why: order.map(|order| order.why.clone()),
            governor: Verdict::Ordered { cpus: None },
            ..self.plain(time_ns)
        }
    }

    /// What ran where in the latest snapshot.
    fn page_layout(&mut self) -> Option<&Layout<'l>> {
        let snapshot = self.snapshot?;
        let sequence = snapshot.sequence;
        if self.layout.as_ref().is_none_or(|(of, _)| *of != sequence) {
            let layout = Layout::of(self.topology()?, snapshot, std::iter::empty());
            self.layout = Some((sequence, layout));
        }
        self.layout.as_ref().map(|(_, layout)| layout)
    }

    /// A decision of which nothing is known but its time; a giving back as it stands.
    fn plain(&self, time_ns: u64) -> Decision {
        Decision {
            first_record: self.record,
            last_record: self.record,
            first_ns: time_ns,
            last_ns: time_ns,
            times: 1,
            wanted: Wanted::GiveBack,
            wanted_pages: None,
            rule: None,
            seen: None,
            sampled: None,
            why: None,
            instead_of: None,
            alternative: None,
            governor: Verdict::Waiting,
            happened: None,
            followed: None,
        }
    }

    /// A thread that the policy gives back.
    fn released(&self, time_ns: u64, release: &Release) -> Decision {
        Decision {
            rule: Some(cited(&release.rule)),
            why: Some(release.why.clone()),
            ..self.plain(time_ns)
        }
    }

    fn seen(&self, thread: Option<&Thread>, snapshot: Option<&Snapshot>) -> Option<Seen> {
        let thread = thread?;
        let process = snapshot.and_then(|snapshot| snapshot.process(thread.process));
        let residency = process.and_then(|process| process.residency.as_ref());
        let counts = thread.counts.as_ref();
        Some(Seen {
            miss_rate: counts.and_then(|counts| counts.miss_rate()),
            local_access_ratio: counts.and_then(|counts| counts.local_access_ratio()),
            uncore_penalty: counts.and_then(|counts| counts.uncore_penalty()),
            cpu_share: thread.cpu_share,
            home: residency.and_then(Residency::home),
        })
    }
}

fn refused(refusal: &Refusal) -> Verdict {
    Verdict::Refused {
        guard: refusal.guard,
        why: refusal.why.clone(),
        meaning: meaning(refusal.guard),
        settings: settings(refusal.guard),
    }
}

fn affinity(result: &AffinityResult) -> Happened {
    match result {
        AffinityResult::Done => Happened::Done,
        AffinityResult::Gone => Happened::Gone,
        AffinityResult::Narrowed { now } => Happened::Narrowed { now: now.clone() },
        AffinityResult::Failed { error } => Happened::Failed {
            error: error.clone(),
        },
    }
}

fn is_of(outcome: &PageOutcome, order: &PageOrder) -> bool {
    (outcome.process, outcome.thread, outcome.pages, outcome.to)
        == (order.process, order.thread, order.pages, order.to)
}

/// A rule by its name, with its source where this program knows it.
pub(crate) fn cited(name: &str) -> CitedRule {
    let placements = PLACEMENTS.iter().flat_map(|half| half.rules);
    let pagings = PAGINGS.iter().flat_map(|half| half.rules);
    let known = placements.chain(pagings).find(|rule| rule.name == name);
    CitedRule {
        name: name.to_owned(),
        source: known.map(|rule| rule.source),
        what: known.map(|rule| rule.what),
    }
}
