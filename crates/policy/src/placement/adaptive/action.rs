//! What was done, until it is judged.

use std::collections::BTreeMap;

use numaherd_topology::CpuId;
use numaherd_world::{ProcessId, ThreadId};

use super::search::Candidate;
use super::{JUDGED_AFTER, PAGE_NS, SETTLES_AFTER};
use crate::estimate::{Load, Picture};
use crate::stage::Stage;

/// What was done, and how fast threads were before and have been since.
pub(super) struct Action {
    /// The threads as they were before.
    pub(super) before: Box<Picture>,
    /// How they were laid out.
    pub(super) layout: Candidate,
    /// Threads that moved, with the CPU that they came from.
    pub(super) moved: Vec<(ThreadId, CpuId)>,
    /// Threads that were held where they were, and had not been before.
    pub(super) held: Vec<ThreadId>,
    /// Memory that follows.
    pub(super) followed: Vec<Follow>,
    /// What each process was charged, in ns.
    pub(super) charged: Vec<(ProcessId, f64)>,
    /// When it is carried out and caches are filled. Intervals that began before are passed over.
    settled_ns: u64,
    /// Pages that were yet to follow at the last look.
    left: u64,
    /// Of each thread, instructions and ns on a CPU since it settled.
    since: BTreeMap<ThreadId, (f64, f64)>,
}

/// Memory that follows.
pub(super) struct Follow {
    pub(super) process: ProcessId,
    /// The node (place) that most of it was on.
    pub(super) from: usize,
    /// Where it goes.
    pub(super) to: usize,
}

impl Follow {
    /// Pages that are not there yet, as far as is known.
    fn left(&self, picture: &Picture) -> u64 {
        let owner = (picture.processes.iter()).find(|owner| owner.id == self.process);
        owner.map_or(0, |owner| {
            owner.pages.iter().sum::<u64>() - owner.pages[self.to]
        })
    }
}

impl Action {
    /// A layout that is to be carried out now.
    pub(super) fn new(
        before: &Picture,
        layout: &Candidate,
        charged: Vec<(ProcessId, f64)>,
    ) -> Self {
        Self {
            before: Box::new(before.clone()),
            layout: layout.clone(),
            moved: Vec::new(),
            held: Vec::new(),
            followed: Vec::new(),
            charged,
            settled_ns: 0,
            left: 0,
            since: BTreeMap::new(),
        }
    }

    /// For how many ns it is carried out, from `now_ns` on: one thread moves all pages, one after the other.
    pub(super) fn begin(&mut self, now_ns: u64) -> u64 {
        self.left = self.left(&self.before);
        let takes_ns = SETTLES_AFTER + (self.left as f64 * PAGE_NS) as u64;
        self.settled_ns = now_ns.saturating_add(takes_ns);
        takes_ns
    }

    fn left(&self, picture: &Picture) -> u64 {
        let followed = self.followed.iter();
        followed.map(|follow| follow.left(picture)).sum()
    }

    /// Takes in an interval. Whether it can be judged then.
    pub(super) fn watch(&mut self, stage: &Stage<'_>, picture: &Picture) -> bool {
        let now_ns = stage.snapshot.time_ns;
        let left = self.left(picture);
        if std::mem::replace(&mut self.left, left) > left {
            // Pages still move: longer than was reckoned with, but they do.
            self.settled_ns = self.settled_ns.max(now_ns);
        }
        if now_ns.saturating_sub(stage.snapshot.interval_ns) < self.settled_ns {
            return false;
        }
        for load in &picture.threads {
            let thread = stage.thread(load.at);
            let (instructions, ns) = self.since.entry(load.id).or_default();
            *instructions += thread.counts.map_or(0.0, |c| c.instructions as f64);
            *ns += thread.cpu_share * stage.snapshot.interval_ns as f64;
        }
        now_ns >= self.settled_ns.saturating_add(JUDGED_AFTER)
    }

    /// Instructions per ns on a CPU since it settled, of each thread as in [`Self::before`]; 0 where none were counted.
    pub(super) fn speeds(&self) -> Vec<f64> {
        let speed = |load: &Load| match self.since.get(&load.id) {
            Some(&(instructions, ns)) if ns > 0.0 => instructions / ns,
            _ => 0.0,
        };
        self.before.threads.iter().map(speed).collect()
    }

    /// How fast threads were by these speeds, as a share of their speed before, on average over the CPU that they
    /// wanted; `None` where nothing was counted.
    pub(super) fn gained(&self, speeds: &[f64]) -> Option<f64> {
        let threads = self.before.threads.iter().zip(speeds);
        let known = threads.filter(|(load, speed)| load.speed > 0.0 && **speed > 0.0);
        let (gained, all) = known.fold((0.0, 0.0), |(gained, all), (load, speed)| {
            (gained + load.wanted * speed / load.speed, all + load.wanted)
        });
        (all > 0.0).then(|| gained / all)
    }
}
