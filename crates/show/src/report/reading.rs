//! Reads a run line by line, and keeps of it what a page draws.
//!
//! How records belong together is told at the head of `explain`'s reading: a placing follows the
//! snapshot that it is drawn from, and what became of its orders is in the outcome right after it.
//! Here nothing is kept of a line but sums and columns, so that memory does not grow with the run.

use std::collections::BTreeMap;

use numaherd_herd::ledger::{Header, PagingTick, Placing, Start};
use numaherd_herd::{HerdError, Line, Record, Summary};
use numaherd_topology::Topology;
use numaherd_world::{Outcome, Placement, ProcessId, Snapshot, ThreadId};

use super::Run;
use super::acts::{Acts, Did, Move, RuleTally, Sentences, short};
use super::columns::{Amount, Clock, Columns, Spread};
use super::nodes::Nodes;
use super::tracks::{ProcessTrack, ThreadTrack};
use super::work::Work;
use crate::deeds::{Deed, deeds};
use crate::explain::Source;
use crate::totals::{Totals, add, sum};

/// A run while its ledger is read.
#[derive(Debug)]
pub struct Reading {
    name: String,
    source: Source,
    lines: u64,
    start: Option<Box<Start>>,
    end: Option<Box<Summary>>,
    /// A placing whose outcome may be the next line.
    pending: Option<(u64, Placing)>,
    page_bytes: u64,
    /// Of the latest snapshot.
    sequence: Option<u64>,
    seen: Option<Seen>,
    threads: BTreeMap<ThreadId, ThreadTrack>,
    processes: BTreeMap<ProcessId, ProcessTrack>,
    acts: Acts,
    totals: Totals,
    notices: Sentences,
    gaps: Sentences,
}

/// What is known once there was a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) clock: Clock,
    pub(super) nodes: Nodes,
    pub(super) local: Columns<Spread>,
    pub(super) misses: Columns<Spread>,
    pub(super) penalty: Columns<Spread>,
    pub(super) moves: Columns<Amount>,
    pub(super) undone: Columns<Amount>,
    pub(super) refused: Columns<Amount>,
    pub(super) pages: Columns<Amount>,
    pub(super) all: Work,
}

impl Seen {
    fn new(clock: Clock, topology: &Topology) -> Self {
        Self {
            clock,
            nodes: Nodes::new(topology, &clock),
            local: Columns::new(&clock),
            misses: Columns::new(&clock),
            penalty: Columns::new(&clock),
            moves: Columns::new(&clock),
            undone: Columns::new(&clock),
            refused: Columns::new(&clock),
            pages: Columns::new(&clock),
            all: Work::default(),
        }
    }

    fn coarsen(&mut self) {
        let shift = self.clock.shift;
        self.nodes.coarsen(shift);
        for spread in [&mut self.local, &mut self.misses, &mut self.penalty] {
            spread.coarsen(shift);
        }
        let amounts = [
            &mut self.moves,
            &mut self.undone,
            &mut self.refused,
            &mut self.pages,
        ];
        for amount in amounts {
            amount.coarsen(shift);
        }
    }
}

impl Reading {
    /// A ledger of which the first line was read; `name` is what people are shown it by.
    pub fn new(name: &str, header: &Header) -> Self {
        Self {
            name: short(name).to_owned(),
            source: Source {
                program: header.program.clone(),
                begun_unix_ms: header.begun_unix_ms,
                later_part: false,
                unknown_records: 0,
                damage: None,
            },
            lines: 0,
            start: None,
            end: None,
            pending: None,
            page_bytes: numaherd_world::USUAL_PAGE_BYTES,
            sequence: None,
            seen: None,
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            acts: Acts::default(),
            totals: Totals::default(),
            notices: Sentences::default(),
            gaps: Sentences::default(),
        }
    }

    /// Takes in the next line.
    pub fn line(&mut self, line: &Line) {
        if self.lines == 0 {
            // A file that was begun when the one before had grown too large goes on counting.
            self.source.later_part = line.sequence > 0;
        }
        self.lines += 1;
        if let Some((time_ns, placing)) = self.pending.take() {
            let outcome = match &line.record {
                Record::Outcome(outcome) => Some(outcome),
                _ => None,
            };
            self.placing(time_ns, &placing, outcome);
        }
        match &line.record {
            Record::Start(start) => self.start = Some(Box::new(start.clone())),
            Record::Snapshot(snapshot) => self.snapshot(snapshot),
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.pending = Some((line.time_ns, placing.clone()));
            }
            Record::Placing(placing) => self.placing(line.time_ns, placing, None),
            Record::Paging(tick) => self.paging(line.time_ns, tick),
            Record::Notice(notice) => self.notices.add(&notice.text, line.time_ns),
            Record::End(summary) => self.end = Some(Box::new(summary.clone())),
            Record::Outcome(_) | Record::Control(_) | Record::Unknown => {}
        }
    }

    /// Ends the reading: how many records of unknown kind were passed over, and what stopped it, if
    /// not the end of the file.
    pub fn finish(mut self, skipped: u64, damage: Option<&HerdError>) -> Run {
        if let Some((time_ns, placing)) = self.pending.take() {
            self.placing(time_ns, &placing, None);
        }
        self.source.unknown_records = skipped;
        self.source.damage = damage.map(ToString::to_string);
        if let Some(seen) = &mut self.seen {
            seen.coarsen();
            coarsen(&mut self.threads, &mut self.processes, seen.clock.shift);
        }
        let counted = self.totals;
        Run {
            name: self.name,
            source: self.source,
            totals: self.end.as_deref().map_or(counted, Totals::from),
            start: self.start,
            end: self.end,
            page_bytes: self.page_bytes,
            seen: self.seen,
            threads: self.threads,
            processes: self.processes,
            acts: self.acts,
            notices: self.notices,
            gaps: self.gaps,
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        // Without a start the machine is not known, and nothing can be drawn.
        let Some(start) = &self.start else {
            return;
        };
        // One that stands for several intervals counts as these.
        let passed = self
            .sequence
            .map(|before| snapshot.sequence.saturating_sub(before));
        self.totals.saw(snapshot, None);
        add(
            &mut self.totals.intervals,
            passed.unwrap_or(1).saturating_sub(1),
        );
        self.sequence = Some(snapshot.sequence);
        self.page_bytes = snapshot.page_bytes;
        let begin_ns = snapshot.time_ns.saturating_sub(snapshot.interval_ns);
        let span = (begin_ns, snapshot.time_ns);
        let topology = &start.topology;
        let seen = self
            .seen
            .get_or_insert_with(|| Seen::new(Clock::starting(begin_ns), topology));
        if seen.clock.saw(snapshot.time_ns) {
            seen.coarsen();
            coarsen(&mut self.threads, &mut self.processes, seen.clock.shift);
        }
        let clock = seen.clock;
        for process in &snapshot.processes {
            let track = self.processes.entry(process.id);
            track
                .or_insert_with(|| ProcessTrack::new(&clock, span))
                .saw(process);
        }
        let mut whole = Work::default();
        for thread in &snapshot.threads {
            let work = Work::of(
                thread.counts.as_ref(),
                thread.cpu_share,
                snapshot.interval_ns,
            );
            whole.add(&work);
            let node = topology.node_of(thread.cpu);
            let place = node.and_then(|node| seen.nodes.place(node));
            if let Some(place) = place {
                let process = snapshot.process(thread.process);
                let pages = process.and_then(|process| process.residency.as_ref());
                seen.nodes.worked(place, thread, pages);
            }
            let processes = &mut self.processes;
            let process = processes
                .entry(thread.process)
                .or_insert_with(|| ProcessTrack::new(&clock, span));
            process.worked(&work);
            let track = self.threads.entry(thread.id).or_insert_with(|| {
                process.threads += 1;
                ThreadTrack::new(thread, &clock)
            });
            track.cpu_seconds += work.cpu_seconds;
            let place = place.and_then(|place| u16::try_from(place).ok());
            track.saw(&clock, thread, place, span);
        }
        for process in &snapshot.processes {
            if let Some(track) = self.processes.get_mut(&process.id) {
                track.interval(&clock, span);
            }
        }
        seen.nodes.interval(&clock, snapshot, span);
        let put = |columns: &mut Columns<Spread>, figure: Option<f64>| {
            if let Some(figure) = figure {
                columns.put(&clock, span.0, span.1, |ns| Spread::of(figure, ns));
            }
        };
        put(&mut seen.local, whole.local_access_ratio());
        put(&mut seen.misses, whole.miss_rate());
        put(&mut seen.penalty, whole.uncore_penalty());
        seen.all.add(&whole);
        for gap in &snapshot.gaps {
            self.gaps.add(gap, snapshot.time_ns);
        }
    }

    fn placing(&mut self, time_ns: u64, placing: &Placing, outcome: Option<&Outcome>) {
        let plan = &placing.plan.placements;
        for placement in plan {
            let tally = tallied(&mut self.acts, placement);
            tally.wanted += 1;
        }
        for refusal in &placing.refusals {
            self.refused(time_ns, refusal.guard, &refusal.why);
            if let Some(placement) = refusal.entry.and_then(|entry| plan.get(entry)) {
                tallied(&mut self.acts, placement).refused += 1;
            }
        }
        let threads = &self.threads;
        let cpu_of = |thread| threads.get(&thread).map(|track: &ThreadTrack| track.cpu);
        for deed in deeds(placing, outcome, cpu_of) {
            self.totals.ordered(&deed);
            self.done(time_ns, &deed);
        }
    }

    /// Takes in what an order came to.
    fn done(&mut self, time_ns: u64, deed: &Deed<'_>) {
        let Some(did) = deed.did else {
            return;
        };
        if deed.is_move()
            && let Some(track) = self.threads.get_mut(&deed.thread)
        {
            track.moves += 1;
            if let Some(process) = self.processes.get_mut(&track.process) {
                process.thread_moves += 1;
            }
        }
        match did {
            Did::Undone => self.count(time_ns, 1, |seen| &mut seen.undone),
            Did::Moved | Did::Stolen | Did::Planned => {
                self.count(time_ns, 1, |seen| &mut seen.moves);
            }
            Did::Failed => {}
        }
        if let Some(placement) = deed.placement.filter(|_| did == Did::Moved) {
            tallied(&mut self.acts, placement).moved += 1;
        }
        let said = |text: Option<&str>| short(text.unwrap_or_default()).to_owned();
        let by_plan = deed.by_plan();
        self.acts.moves.add(Move {
            time_ns,
            thread: deed.thread,
            from: deed.from,
            to: deed.to,
            did,
            rule: said(by_plan.map(|placement| placement.rule.as_ref())),
            why: said(Some(deed.why)),
            instead_of: said(by_plan.map(|placement| placement.instead_of.as_str())),
        });
    }

    fn paging(&mut self, time_ns: u64, tick: &PagingTick) {
        add(&mut self.totals.planned_pages, tick.ordered_pages);
        for order in &tick.plan {
            let tally = Acts::rule(&mut self.acts.pages, &order.rule);
            tally.wanted += 1;
            if tally.why.is_empty() {
                short(&order.why).clone_into(&mut tally.why);
            }
        }
        for refusal in &tick.refusals {
            self.refused(time_ns, refusal.guard, &refusal.why);
            if let Some(order) = refusal.entry.and_then(|entry| tick.plan.get(entry)) {
                Acts::rule(&mut self.acts.pages, &order.rule).refused += 1;
            }
        }
        for outcome in &tick.outcomes {
            self.totals.paged(outcome);
            if let Some(process) = self.processes.get_mut(&outcome.process) {
                add(&mut process.pages_moved, outcome.moved);
            }
            if let Some(error) = &outcome.error {
                self.acts.page_errors.add(error, time_ns);
            }
        }
        let moved = sum(tick.outcomes.iter().map(|outcome| outcome.moved));
        if moved > 0 {
            self.count(time_ns, moved, |seen| &mut seen.pages);
        }
    }

    fn refused(&mut self, time_ns: u64, guard: numaherd_herd::Guard, why: &str) {
        self.totals.refused(guard);
        self.acts.refused(guard, why);
        self.count(time_ns, 1, |seen| &mut seen.refused);
    }

    /// Counts what happened at a point in time, which may be later than the latest snapshot.
    fn count(
        &mut self,
        time_ns: u64,
        amount: u64,
        of: impl FnOnce(&mut Seen) -> &mut Columns<Amount>,
    ) {
        let Some(seen) = &mut self.seen else {
            return;
        };
        if seen.clock.saw(time_ns) {
            seen.coarsen();
            coarsen(&mut self.threads, &mut self.processes, seen.clock.shift);
        }
        let clock = seen.clock;
        of(seen).add(&clock, time_ns, &Amount(amount));
    }
}

/// Makes the columns of threads and processes wider, all at once, so that memory stays bounded for
/// those that have ended, too.
fn coarsen(
    threads: &mut BTreeMap<ThreadId, ThreadTrack>,
    processes: &mut BTreeMap<ProcessId, ProcessTrack>,
    shift: u32,
) {
    for thread in threads.values_mut() {
        thread.stays.coarsen(shift);
    }
    for process in processes.values_mut() {
        process.local.coarsen(shift);
    }
}

fn tallied<'a>(acts: &'a mut Acts, placement: &Placement) -> &'a mut RuleTally {
    let tally = Acts::rule(&mut acts.threads, &placement.rule);
    if tally.why.is_empty() {
        short(&placement.why).clone_into(&mut tally.why);
    }
    tally
}
