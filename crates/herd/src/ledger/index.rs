//! Where each thread and process is spoken of in a ledger: what `explain` looks up.
//!
//! Being in a snapshot is not counted: every thread is in every one.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_world::{ProcessId, ThreadId};

use super::{Line, PagingTick, Placing, Record};

/// Which lines speak of which thread: plans, refusals, orders, outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    threads: BTreeMap<ThreadId, Vec<u64>>,
    process_of: BTreeMap<ThreadId, ProcessId>,
}

impl Index {
    /// An index of these lines.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Self {
        let mut index = Self::default();
        for line in lines {
            index.add(line);
        }
        index
    }

    /// Adds a line.
    pub fn add(&mut self, line: &Line) {
        if let Record::Snapshot(snapshot) = &line.record {
            let pairs = snapshot.threads.iter().map(|t| (t.id, t.process));
            self.process_of.extend(pairs);
        }
        for thread in spoken_of(&line.record) {
            self.threads.entry(thread).or_default().push(line.sequence);
        }
    }

    /// The sequence numbers of the lines that speak of a thread, ascending.
    pub fn of_thread(&self, thread: ThreadId) -> &[u64] {
        self.threads.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// The threads that had this number, one after the other.
    pub fn threads_numbered(&self, tid: u32) -> impl Iterator<Item = ThreadId> {
        self.process_of
            .keys()
            .copied()
            .filter(move |thread| thread.tid == tid)
    }

    /// The threads of the processes that had this number.
    pub fn threads_of_process(&self, pid: u32) -> impl Iterator<Item = ThreadId> {
        self.process_of
            .iter()
            .filter(move |(_, process)| process.pid == pid)
            .map(|(&thread, _)| thread)
    }
}

fn spoken_of(record: &Record) -> BTreeSet<ThreadId> {
    match record {
        Record::Placing(placing) => {
            let Placing {
                plan,
                affinities,
                refusals,
                undone,
                stolen,
                ..
            } = placing;
            let planned = plan.placements.iter().map(|p| p.thread);
            planned
                .chain(plan.pages.iter().map(|p| p.thread))
                .chain(affinities.iter().map(|a| a.thread))
                .chain(refusals.iter().map(|r| r.thread))
                .chain(undone.iter().map(|u| u.thread))
                .chain(stolen.iter().map(|s| s.thread))
                .collect()
        }
        Record::Outcome(outcome) => {
            let threads = outcome.affinities.iter().map(|a| a.thread);
            threads
                .chain(outcome.pages.iter().map(|p| p.thread))
                .collect()
        }
        Record::Paging(PagingTick {
            plan,
            refusals,
            outcomes,
            ..
        }) => {
            let planned = plan.iter().map(|p| p.thread);
            planned
                .chain(refusals.iter().map(|r| r.thread))
                .chain(outcomes.iter().map(|o| o.thread))
                .collect()
        }
        _ => BTreeSet::new(),
    }
}
