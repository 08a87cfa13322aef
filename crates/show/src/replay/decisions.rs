//! Decisions side by side: for one thread in one interval, what each policy wanted of it and why.
//!
//! A wish that is repeated from one interval to the next is listed once, when it first arises: in a dry run, or after a
//! refusal, a policy repeats it.

use std::collections::BTreeMap;

use numaherd_herd::governor::Refusal;
use numaherd_topology::CpuId;
use numaherd_world::{Placement, Snapshot, ThreadId};
use serde::Serialize;

/// One thread for which at least one policy decided something new.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// End of the interval, in ns since the world began.
    pub at_ns: u64,
    /// The thread's number.
    pub tid: u32,
    /// Its process's number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// What each policy wanted, the recorded one first; `None` if the thread was to stay.
    pub sides: Vec<Option<Side>>,
}

/// What one policy wanted of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The CPU it was on, as that policy saw it.
    pub from: CpuId,
    /// The CPU it was to have.
    pub to: CpuId,
    /// The rule that decided.
    pub rule: String,
    /// Why, with the figures that counted.
    pub why: String,
    /// What else was considered; may be empty.
    pub instead_of: String,
    /// What its governor said, where it refused.
    pub refused: Option<String>,
}

/// What one policy wanted in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) placements: &'a [Placement],
    pub(super) refusals: &'a [Refusal],
}

/// Collects [`Choice`]s.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// What each policy wanted of a thread in the interval before.
    before: Vec<BTreeMap<ThreadId, CpuId>>,
    found: Vec<Choice>,
}

impl Choices {
    /// Takes in one more interval: what each policy wanted, the recorded one first.
    pub(super) fn interval(&mut self, snapshot: &Snapshot, wanted: &[Wanted<'_>]) {
        self.before.resize_with(wanted.len(), BTreeMap::new);
        let by_thread = |wanted: &Wanted<'_>| {
            let placements = wanted.placements.iter().enumerate();
            placements
                .map(|(at, placement)| (placement.thread, at))
                .collect()
        };
        let now: Vec<BTreeMap<ThreadId, usize>> = wanted.iter().map(by_thread).collect();
        for thread in &snapshot.threads {
            let is_new = |(side, at): (usize, &BTreeMap<ThreadId, usize>)| {
                at.get(&thread.id).is_some_and(|&at| {
                    let to = wanted[side].placements[at].to;
                    self.before[side].get(&thread.id) != Some(&to)
                })
            };
            if !now.iter().enumerate().any(is_new) {
                continue;
            }
            let sides = now.iter().zip(wanted);
            self.found.push(Choice {
                at_ns: snapshot.time_ns,
                tid: thread.id.tid,
                pid: thread.process.pid,
                name: thread.name.clone(),
                sides: sides
                    .map(|(at, wanted)| Some(side(wanted, *at.get(&thread.id)?)))
                    .collect(),
            });
        }
        for (side, at) in now.into_iter().enumerate() {
            let to = |(thread, at): (ThreadId, usize)| (thread, wanted[side].placements[at].to);
            self.before[side] = at.into_iter().map(to).collect();
        }
    }

    /// All choices, by time and thread.
    pub(super) fn finish(self) -> Vec<Choice> {
        self.found
    }
}

fn side(wanted: &Wanted<'_>, at: usize) -> Side {
    let placement = &wanted.placements[at];
    let refused = wanted.refusals.iter().find(|r| r.entry == Some(at));
    Side {
        from: placement.from,
        to: placement.to,
        rule: placement.rule.to_string(),
        why: placement.why.clone(),
        instead_of: placement.instead_of.clone(),
        refused: refused.map(|refusal| format!("{}: {}", refusal.guard, refusal.why)),
    }
}
