//! What a page shows of the past: figures over time as columns, the first and last moves, and each thread and process
//! that was ever observed. It does not grow with the length of the run, except by a few bytes for each pair of a trial.

use std::collections::{BTreeMap, VecDeque};

use numaherd_herd::{Line, Record};
use numaherd_policy::losses::{Estimate, Losses};
use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Snapshot, ThreadId};

use super::columns::{Amount, Clock, Columns, Spread};
use super::tracks::{ProcessTrack, ThreadTrack};
use crate::run::decision::{PageDecision, ThreadDecision};
use crate::run::traffic::{Traffic, imbalance};
use crate::run::{Decision, DecisionOutcome, History, RunModel, Work, sum};
use crate::trial::Trial;
use crate::words::cut;

/// The most moves that are shown one by one at the beginning, and again at the end.
pub(super) const SHOWN: usize = 50;

/// The most different sentences that are kept.
const MOST_SENTENCES: usize = 200;

/// What a page shows of the past.
#[derive(Debug, Default)]
pub struct Charts {
    /// `None` before the first snapshot.
    pub(super) seen: Option<Seen>,
    pub(super) threads: BTreeMap<ThreadId, ThreadTrack>,
    pub(super) processes: BTreeMap<ProcessId, ProcessTrack>,
    pub(super) moves: Ends,
    pub(super) page_errors: Sentences,
    pub(super) notices: Sentences,
    pub(super) gaps: Sentences,
    /// The trial, if the run was one.
    pub(super) trial: Option<Trial>,
}

/// The whole machine over time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) clock: Clock,
    /// The nodes that are online, ascending.
    pub(super) nodes: Vec<NodeId>,
    /// The figures that were ever measured.
    figures: BTreeMap<Figure, Columns<Spread>>,
    /// The events that ever happened.
    events: BTreeMap<Event, Columns<Amount>>,
    pub(super) all: Work,
}

/// A figure over time, of all threads or of the node with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// Imbalance of the lines served by the controllers, in percent.
    Imbalance,
    /// Share of lines from the core's own node.
    Local,
    /// Lines fetched from memory per 1000 instructions.
    Misses,
    /// Uncore penalty, in cycles per request.
    Penalty,
    /// CPUs in use by threads that ran there.
    CpusOf(usize),
    /// Lines per second that its cores fetched.
    FetchedOf(usize),
    /// Lines per second that its controller served.
    ServedOf(usize),
    /// Uncore penalty of the threads there.
    PenaltyOf(usize),
    /// Cores lost to caches and memory.
    Lost,
    /// An upper bound of the cores lost, where no mean is known.
    LostAtMost,
    /// Of the cores lost, those that another placement would give back.
    Recoverable,
}

/// What is counted over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A thread had to leave its CPU by order.
    Moved,
    /// A move was undone.
    Undone,
    /// A decision was refused.
    Refused,
    /// A page was moved.
    PagesMoved,
}

/// The first and the last of many moves.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    pub(super) first: Vec<Decision>,
    pub(super) last: VecDeque<Decision>,
    /// Moves between these.
    pub(super) left_out: u64,
}

/// Sentences with how often each was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sentences {
    /// Each sentence with the time when it was first said, in ns, and how often.
    pub(super) said: Vec<(String, u64, u64)>,
    at: BTreeMap<String, usize>,
    /// Sentences that were not kept for want of room.
    pub(super) left_out: u64,
}

impl Ends {
    fn add(&mut self, one: Decision) {
        if self.first.len() < SHOWN {
            self.first.push(one);
            return;
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(one);
    }
}

impl Sentences {
    fn add(&mut self, text: &str, time_ns: u64) {
        let text = cut(text);
        if let Some(&place) = self.at.get(text) {
            self.said[place].2 += 1;
        } else if self.said.len() < MOST_SENTENCES {
            self.at.insert(text.to_owned(), self.said.len());
            self.said.push((text.to_owned(), time_ns, 1));
        } else {
            self.left_out += 1;
        }
    }
}

impl Seen {
    fn new(begin_ns: u64, run: &RunModel) -> Self {
        Self {
            clock: Clock::starting(begin_ns),
            nodes: run.nodes.iter().map(|node| node.id).collect(),
            figures: BTreeMap::new(),
            events: BTreeMap::new(),
            all: Work::default(),
        }
    }

    fn interval(&mut self, run: &RunModel, traffic: &Traffic, span: (u64, u64)) {
        let mut put = |figure, value| self.put(figure, value, span);
        for (place, (node, now)) in run.nodes.iter().zip(&traffic.now).enumerate() {
            put(Figure::CpusOf(place), Some(now.cpus));
            put(Figure::FetchedOf(place), node.fetched_per_s);
            put(Figure::ServedOf(place), node.served_per_s);
            let penalty = (now.requests > 0.0).then(|| now.busy_cycles / now.requests);
            put(Figure::PenaltyOf(place), penalty);
        }
        put(Figure::Imbalance, traffic.imbalance());
        put(Figure::Local, run.now.local_access_ratio);
        put(Figure::Misses, run.now.miss_rate);
        put(Figure::Penalty, run.now.uncore_penalty);
        self.all.add(&run.work);
    }

    /// Takes in a figure of a span of time, if it was measured.
    fn put(&mut self, figure: Figure, value: Option<f64>, span: (u64, u64)) {
        if let Some(value) = value {
            let columns = self.figures.entry(figure).or_default();
            columns.put(&self.clock, span, |ns| Spread::of(value, ns));
        }
    }

    /// A figure's columns.
    pub(super) fn figure(&self, figure: Figure) -> impl Iterator<Item = (u64, &Spread)> {
        let columns = self.figures.get(&figure);
        columns.into_iter().flat_map(Columns::iter)
    }

    /// How often something happened, in columns.
    pub(super) fn events(&self, event: Event) -> impl Iterator<Item = (u64, &Amount)> {
        self.events.get(&event).into_iter().flat_map(Columns::iter)
    }

    /// How often it happened in all.
    pub(super) fn total(&self, event: Event) -> u64 {
        sum(self.events(event).map(|(_, cell)| cell.0))
    }

    /// Makes all columns as wide as the last ones.
    fn finish(&mut self) {
        let shift = self.clock.shift;
        let (figures, events) = (self.figures.values_mut(), self.events.values_mut());
        figures.for_each(|columns| columns.coarsen(shift));
        events.for_each(|columns| columns.coarsen(shift));
    }
}

impl History for Charts {
    fn line(&mut self, line: &Line) {
        if let Record::Trial(record) = &line.record {
            Trial::take(&mut self.trial, record);
        }
    }

    fn interval(&mut self, run: &RunModel, snapshot: &Snapshot) {
        // Without a start record the machine is not known, and nothing can be drawn.
        let Some(traffic) = &run.traffic else {
            return;
        };
        let begin_ns = snapshot.time_ns.saturating_sub(snapshot.interval_ns);
        let span = (begin_ns, snapshot.time_ns);
        let seen = self.seen.get_or_insert_with(|| Seen::new(begin_ns, run));
        seen.clock.saw(snapshot.time_ns);
        let clock = seen.clock;
        seen.interval(run, traffic, span);
        for (process, now) in snapshot.processes.iter().zip(run.processes.iter()) {
            let track = self.processes.entry(process.id);
            let track = track.or_insert_with(|| ProcessTrack::new(span));
            track.saw(process);
            track.interval(&clock, &now.work, span);
        }
        for (thread, now) in snapshot.threads.iter().zip(run.threads.iter()) {
            let track = self.threads.entry(thread.id).or_insert_with(|| {
                if let Some(process) = self.processes.get_mut(&thread.process) {
                    process.threads += 1;
                }
                ThreadTrack::new(thread)
            });
            let place = now.node.and_then(|place| u16::try_from(place).ok());
            track.saw(&clock, thread, place, span);
        }
        for gap in &snapshot.gaps {
            self.gaps.add(gap, snapshot.time_ns);
        }
    }

    fn lost(&mut self, run: &RunModel, losses: &Losses) {
        let (Some(seen), Estimate::Known(known)) = (&mut self.seen, &losses.estimate) else {
            return;
        };
        let span = (run.time_ns.saturating_sub(run.interval_ns), run.time_ns);
        let lost = match known.lost.mean {
            Some(mean) => (Figure::Lost, Some(mean)),
            None => (Figure::LostAtMost, Some(known.lost.most)),
        };
        let recoverable = known.recoverable.as_ref().and_then(|range| range.mean);
        seen.put(lost.0, lost.1, span);
        seen.put(Figure::Recoverable, recoverable, span);
    }

    fn decided(&mut self, run: &RunModel, decision: &ThreadDecision<'_>) {
        let event = match decision.outcome() {
            None => return,
            Some(DecisionOutcome::Refused(_)) => Event::Refused,
            Some(DecisionOutcome::Undone) => Event::Undone,
            _ => Event::Moved,
        };
        if decision.is_move()
            && let Some(track) = self.threads.get_mut(&decision.thread)
        {
            track.moves += 1;
            if let Some(process) = self.processes.get_mut(&track.process) {
                process.thread_moves += 1;
            }
        }
        if decision.outcome() != Some(DecisionOutcome::Failed) {
            self.count(event, decision.time_ns, 1);
        }
        if decision.refusal.is_none()
            && let Some(logged) = run.decision(decision)
        {
            self.moves.add(logged);
        }
    }

    fn paged(&mut self, _: &RunModel, decision: &PageDecision<'_>) {
        if decision.refusal.is_some() {
            self.count(Event::Refused, decision.time_ns, 1);
        }
        let Some(outcome) = decision.outcome else {
            return;
        };
        if let Some(process) = self.processes.get_mut(&outcome.process) {
            process.pages_moved = process.pages_moved.saturating_add(outcome.moved);
        }
        if let Some(error) = &outcome.error {
            self.page_errors.add(error, decision.time_ns);
        }
        if outcome.moved > 0 {
            self.count(Event::PagesMoved, decision.time_ns, outcome.moved);
        }
    }

    fn noticed(&mut self, time_ns: u64, text: &str) {
        self.notices.add(text, time_ns);
    }
}

impl Charts {
    /// Counts an event at a point in time, which may be later than the latest snapshot.
    fn count(&mut self, event: Event, time_ns: u64, amount: u64) {
        if let Some(seen) = &mut self.seen {
            seen.clock.saw(time_ns);
            let columns = seen.events.entry(event).or_default();
            columns.add(&seen.clock, time_ns, &Amount(amount));
        }
    }

    /// Ends the reading: from now on all columns have one width.
    pub(super) fn finish(&mut self) {
        let Some(seen) = &mut self.seen else {
            return;
        };
        seen.finish();
        for thread in self.threads.values_mut() {
            thread.stays.coarsen(seen.clock.shift);
        }
        for process in self.processes.values_mut() {
            process.local.coarsen(seen.clock.shift);
        }
    }
}

/// The imbalance of the controllers over the whole run, in percent.
pub(super) fn whole_imbalance(run: &RunModel) -> Option<f64> {
    let traffic = run.traffic.as_ref().filter(|traffic| traffic.is_assigned)?;
    let places = traffic.with_memory.iter();
    imbalance(places.map(|&place| run.nodes[place].sums.served_lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Subject;
    use crate::words::MOST_TEXT;

    #[test]
    fn the_first_and_the_last_are_kept_and_the_rest_is_counted() {
        let mut ends = Ends::default();
        for time_ns in 0..1000 {
            ends.add(Decision {
                number: 0,
                time_ns,
                thread: ThreadId { tid: 1, born: 1 },
                thread_name: String::new(),
                process: None,
                process_name: String::new(),
                subject: Subject::Pages {
                    to: NodeId(0),
                    moved: 0,
                    left: 0,
                },
                outcome: DecisionOutcome::Moved,
                rule: String::new(),
                why: String::new(),
                instead_of: String::new(),
                answer: String::new(),
            });
        }
        assert_eq!(ends.first.len() + ends.last.len(), 2 * SHOWN);
        assert_eq!(ends.left_out, 1000 - 2 * SHOWN as u64);
        assert_eq!(ends.last.back().map(|one| one.time_ns), Some(999));
        assert_eq!(ends.first.last().map(|one| one.time_ns), Some(49));
    }

    #[test]
    fn what_is_kept_of_sentences_is_bounded() {
        let mut sentences = Sentences::default();
        for number in 0..1000 {
            sentences.add(&format!("{number} {}", "ä".repeat(1000)), number);
            sentences.add("again", number);
        }
        assert_eq!(sentences.said.len(), MOST_SENTENCES);
        assert_eq!(sentences.said[1], ("again".to_owned(), 0, 1000));
        assert_eq!(sentences.left_out, 1000 - (MOST_SENTENCES as u64 - 1));
        assert!(
            sentences
                .said
                .iter()
                .all(|(text, ..)| text.len() <= MOST_TEXT)
        );
    }
}
