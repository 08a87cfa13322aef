//! A run over time: its moments, and the state at any of them.
//!
//! A moment is a snapshot with everything that follows it up to the next. To go back, the timeline folds lines again
//! from the checkpoint before: a copy of the state, kept at intervals of [`Timeline::stride`] snapshots. The lines come
//! from a file, through a callback of its holder ([`Again`]), or, for a stream that cannot be read again, from the
//! latest lines, which are kept here. Checkpoints are thinned out as the run grows, so that their number is bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use numaherd_herd::{Line, Record};

use crate::run::RunModel;

/// Most checkpoints.
const CHECKPOINTS: usize = 64;

/// Snapshots from one checkpoint to the next, at first.
const STRIDE: u64 = 8;

/// Most threads in the snapshots that are kept here: some tens of MB.
const KEPT_THREADS: u64 = 200_000;

/// Most lines that are kept here: paging writes a hundred lines a second.
const KEPT_LINES: usize = 100_000;

/// Reads a line again, by its place among all lines, from 0; `None` if it is no longer available.
pub type Again<'a> = &'a mut dyn FnMut(u64) -> Option<Arc<Line>>;

/// A snapshot and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the snapshot, in ns since the world began.
    pub time_ns: u64,
    /// The place of its line among all lines.
    line: u64,
    /// Decisions in it.
    pub decisions: u32,
}

/// A run over time.
#[derive(Debug, Default)]
pub struct Timeline {
    newest: RunModel,
    /// Lines that came.
    lines: u64,
    moments: VecDeque<Moment>,
    /// States, each with how many lines were folded into it; ascending.
    checkpoints: VecDeque<(u64, RunModel)>,
    /// Snapshots from one checkpoint to the next.
    stride: u64,
    since_checkpoint: u64,
    /// The place of the next checkpoint to remove, while they are thinned out; otherwise 0.
    thinning: usize,
    /// The lines from the oldest checkpoint on, where they are kept here.
    kept: Option<Kept>,
    /// The moment that is shown, counted from the run's first, and its state; `None` for the newest.
    shown: Option<(u64, u64, RunModel)>,
    /// Moments that were dropped at the front.
    dropped: u64,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<Arc<Line>>,
    threads: u64,
    first: u64,
}

impl Timeline {
    /// A timeline whose lines can be read again elsewhere.
    pub fn new() -> Self {
        Self {
            stride: STRIDE,
            checkpoints: VecDeque::from([(0, RunModel::new())]),
            ..Self::default()
        }
    }

    /// A timeline whose lines cannot be read again: the latest are kept here.
    pub fn keeping() -> Self {
        Self {
            kept: Some(Kept::default()),
            ..Self::new()
        }
    }

    /// Takes in the next line.
    pub fn take(&mut self, line: &Arc<Line>) {
        let is_snapshot = matches!(line.record, Record::Snapshot(_));
        if is_snapshot {
            self.since_checkpoint += 1;
            if self.since_checkpoint > self.stride {
                self.checkpoint();
            }
            self.moments.push_back(Moment {
                time_ns: line.time_ns,
                line: self.lines,
                decisions: 0,
            });
        }
        let before = self.newest.log.number();
        self.newest.take(line);
        let now = self.newest.log.number();
        if let Some(moment) = self.moments.back_mut() {
            let more = u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
            moment.decisions = moment.decisions.saturating_add(more);
        }
        self.lines += 1;
        if let Some(kept) = &mut self.kept {
            kept.lines.push_back(line.clone());
            kept.threads += threads_in(line);
            self.let_go();
        }
    }

    fn checkpoint(&mut self) {
        self.since_checkpoint = 1;
        self.checkpoints
            .push_back((self.lines, self.newest.clone()));
        if self.kept.is_some() {
            return;
        }
        if self.checkpoints.len() > CHECKPOINTS && self.thinning == 0 {
            self.thinning = 1;
            self.stride *= 2;
        }
        // Every other checkpoint is removed, one with each new one, so that a frame does not wait for all.
        if self.thinning > 0 {
            self.checkpoints.remove(self.thinning);
            self.thinning += 1;
            if self.thinning > CHECKPOINTS / 2 {
                self.thinning = 0;
            }
        }
    }

    /// Drops the oldest kept lines, up to a checkpoint, if there are too many.
    fn let_go(&mut self) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        while (kept.threads > KEPT_THREADS || kept.lines.len() > KEPT_LINES)
            && self.checkpoints.len() > 1
        {
            self.checkpoints.pop_front();
            let first = self.checkpoints[0].0;
            while kept.first < first {
                if let Some(line) = kept.lines.pop_front() {
                    kept.threads -= threads_in(&line);
                }
                kept.first += 1;
            }
            while self.moments.front().is_some_and(|m| m.line < first) {
                self.moments.pop_front();
                self.dropped += 1;
            }
        }
    }

    /// The state that is shown.
    pub fn state(&self) -> &RunModel {
        self.shown
            .as_ref()
            .map_or(&self.newest, |(_, _, state)| state)
    }

    /// The state after all lines.
    pub fn newest(&self) -> &RunModel {
        &self.newest
    }

    /// The moments that can be shown.
    pub fn moments(&self) -> impl DoubleEndedIterator<Item = &Moment> + ExactSizeIterator + Clone {
        self.moments.iter()
    }

    /// The place of the moment that is shown among [`Timeline::moments`]; 0 while there is none.
    pub fn at(&self) -> usize {
        let newest = self.moments.len().saturating_sub(1);
        self.shown.as_ref().map_or(newest, |&(moment, _, _)| {
            usize::try_from(moment.saturating_sub(self.dropped)).map_or(newest, |at| at.min(newest))
        })
    }

    /// Whether the newest moment is shown, now and when more come.
    pub fn is_newest(&self) -> bool {
        self.shown.is_none()
    }

    /// The last moment that is not after a time in ns.
    pub fn moment_at(&self, time_ns: u64) -> usize {
        let after = self.moments.partition_point(|m| m.time_ns <= time_ns);
        after.saturating_sub(1)
    }

    /// The nearest moment after the one shown in which something was decided.
    pub fn next_decided(&self) -> Option<usize> {
        (self.at() + 1..self.moments.len()).find(|&place| self.is_decided(place))
    }

    /// The nearest moment before the one shown in which something was decided.
    pub fn last_decided(&self) -> Option<usize> {
        let before = 0..self.at().min(self.moments.len());
        before.rev().find(|&place| self.is_decided(place))
    }

    fn is_decided(&self, place: usize) -> bool {
        self.moments[place].decisions > 0
    }

    /// Shows the newest moment, now and when more come.
    pub fn follow(&mut self) {
        self.shown = None;
    }

    /// Stays at the moment that is shown, even when more come.
    pub fn hold(&mut self) {
        if self.shown.is_none() && !self.moments.is_empty() {
            let moment = self.dropped + self.moments.len() as u64 - 1;
            self.shown = Some((moment, self.lines, self.newest.clone()));
        }
    }

    /// Shows a moment, and stays there. If its lines are no longer available, the moment that is shown stays. Returns
    /// whether the moment could be shown.
    pub fn show(&mut self, moment: usize, again: Again<'_>) -> bool {
        let Some(last) = self.moments.len().checked_sub(1) else {
            return false;
        };
        let moment = moment.min(last);
        let next = self.moments.get(moment + 1);
        let until = next.map_or(self.lines, |next| next.line);
        let number = self.dropped + moment as u64;
        if until == self.lines {
            self.shown = Some((number, self.lines, self.newest.clone()));
            return true;
        }
        let mut before = self.checkpoints.iter().rev();
        let Some((folded, state)) = before.find(|&&(lines, _)| lines <= until) else {
            return false;
        };
        // The state that is shown may be nearer than the checkpoint.
        let span = *folded..=until;
        let (folded, mut state) = match self.shown.take_if(|(_, lines, _)| span.contains(lines)) {
            Some((_, lines, state)) => (lines, state),
            None => (*folded, state.clone()),
        };
        for place in folded..until {
            let line = match &self.kept {
                Some(kept) => kept.line(place),
                None => again(place),
            };
            let Some(line) = line else {
                self.shown.get_or_insert((number, place, state));
                return false;
            };
            state.take(&line);
        }
        self.shown = Some((number, until, state));
        true
    }
}

impl Kept {
    fn line(&self, place: u64) -> Option<Arc<Line>> {
        let at = place.checked_sub(self.first)?;
        self.lines.get(usize::try_from(at).ok()?).cloned()
    }
}

fn threads_in(line: &Line) -> u64 {
    match &line.record {
        Record::Snapshot(snapshot) => snapshot.threads.len() as u64,
        _ => 1,
    }
}
