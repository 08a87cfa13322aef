//! Threads back beside the memory that they read.
//!
//! Problem: the kernel moves threads away from pages that they touched first. Often two threads swap places, by way of a
//! core that was idle for a moment. Moving threads back costs less than moving their memory after them, and needs no
//! samples of which memory that is. Rule: each thread that is away from the node that most of its lines come from goes
//! there, the one that suffers most first: to a free core, or in exchange for a thread that is away as well. This repeats
//! until no thread finds a place.

use std::collections::BTreeMap;

use numaherd_topology::CpuId;

use super::SUFFERS;
use super::search::{ROOM, freest, may_have};
use crate::busy::LEAST_CPU_SHARE;
use crate::estimate::Picture;
use crate::stage::Stage;

/// How many threads may go back at once: those that suffer most. This bounds the time of a look (chosen here). The others
/// follow at the next looks.
const MOST_AT_ONCE: usize = 256;
/// More than this share of a thread's lines comes from the node where it is at home.
const MOST: f64 = 0.5;

/// The layout `cpus` with threads back where their memory is; `None` where none goes back.
pub(super) fn layout(stage: &Stage<'_>, picture: &Picture, cpus: &[CpuId]) -> Option<Vec<CpuId>> {
    let away = (0..cpus.len()).filter_map(|at| Some((at, home_of_stray(picture, cpus, at)?)));
    let mut away: Vec<(usize, usize)> = away.collect();
    let suffers = |at: usize| picture.suffers(at);
    away.sort_by(|a, b| suffers(b.0).total_cmp(&suffers(a.0)));
    away.truncate(MOST_AT_ONCE);
    let mut homing = Homing::new(stage, picture, cpus, &away);
    while away
        .iter()
        .fold(false, |any, &(at, home)| homing.brings(at, home) || any)
    {}
    (homing.cpus != cpus).then_some(homing.cpus)
}

/// The home node (place) of a thread that suffers elsewhere and may be moved.
fn home_of_stray(picture: &Picture, cpus: &[CpuId], at: usize) -> Option<usize> {
    let load = &picture.threads[at];
    let (home, _) = *load.memory.iter().find(|(_, share)| *share > MOST)?;
    let here = picture.seat(cpus[at])?.node;
    let strays = here != home && load.is_free && load.wanted >= LEAST_CPU_SHARE;
    (strays && picture.suffers(at) >= SUFFERS).then_some(home)
}

/// A layout while threads go back.
struct Homing<'a> {
    stage: &'a Stage<'a>,
    picture: &'a Picture,
    cpus: Vec<CpuId>,
    /// CPUs that threads want in each domain at their busiest.
    peaks: Vec<f64>,
    /// The domains of each node (place).
    domains: BTreeMap<usize, Vec<usize>>,
    /// Threads that are away, by the domain in which they are and the node that they want.
    away: BTreeMap<(usize, usize), Vec<usize>>,
}

impl<'a> Homing<'a> {
    fn new(
        stage: &'a Stage<'a>,
        picture: &'a Picture,
        cpus: &[CpuId],
        away: &[(usize, usize)],
    ) -> Self {
        let mut domains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, domain) in stage.topology.domains().iter().enumerate() {
            if let Some(seat) = domain.cpus.first().and_then(|cpu| picture.seat(cpu)) {
                domains.entry(seat.node).or_default().push(number);
            }
        }
        let mut homing = Self {
            stage,
            picture,
            cpus: cpus.to_vec(),
            peaks: picture.peaks_in(cpus),
            domains,
            away: BTreeMap::new(),
        };
        for &(at, home) in away {
            homing.waits(at, home);
        }
        homing
    }

    fn domain(&self, at: usize) -> Option<usize> {
        self.picture.seat(self.cpus[at]).map(|seat| seat.domain)
    }

    /// Notes that a thread is away where it is now.
    fn waits(&mut self, at: usize, home: usize) {
        if let Some(domain) = self.domain(at) {
            self.away.entry((domain, home)).or_default().push(at);
        }
    }

    /// Brings a thread home, if it is away and there is a place for it.
    fn brings(&mut self, at: usize, home: usize) -> bool {
        let Some(from) = self.domain(at) else {
            return false;
        };
        let waits = self.away.get(&(from, home));
        if waits.is_none_or(|waits| !waits.contains(&at)) {
            return false;
        }
        let there = self.domains.get(&home).cloned().unwrap_or_default();
        let is_home = there
            .into_iter()
            .any(|to| self.moves(at, to) || self.changes(at, home, to));
        if is_home {
            self.leaves(at, (from, home));
        }
        is_home
    }

    /// Notes that a thread is no longer away.
    fn leaves(&mut self, at: usize, waits: (usize, usize)) {
        if let Some(waits) = self.away.get_mut(&waits) {
            waits.retain(|&one| one != at);
        }
    }

    /// Moves a thread to a core that is free in a domain.
    fn moves(&mut self, at: usize, to: usize) -> bool {
        let load = &self.picture.threads[at];
        if self.peaks[to] + load.peak > self.picture.cores.cores()[to] + ROOM {
            return false;
        }
        let Some(cpu) = freest(self.stage, self.picture, &self.cpus, at, to) else {
            return false;
        };
        if let Some(from) = self.domain(at) {
            self.peaks[from] -= load.peak;
        }
        self.peaks[to] += load.peak;
        self.cpus[at] = cpu;
        true
    }

    /// Changes places with a thread of the domain `to` that is away as well, preferably one that is at home where this one
    /// is.
    fn changes(&mut self, at: usize, home: usize, to: usize) -> bool {
        let picture = self.picture;
        let Some(here) = picture.seat(self.cpus[at]) else {
            return false;
        };
        let waits = (self.away.range((to, 0)..=(to, usize::MAX)))
            .filter(|((_, wants), _)| *wants != home)
            .flat_map(|(&(_, wants), waits)| waits.iter().map(move |&one| (one, wants)));
        let may_change = |&(one, _): &(usize, usize)| {
            let (mine, other) = (picture.threads[at].at, picture.threads[one].at);
            may_have(self.stage, mine, self.cpus[one]) && may_have(self.stage, other, self.cpus[at])
        };
        let found = (waits.filter(may_change)).min_by_key(|&(_, wants)| wants != here.node);
        let Some((one, wants)) = found else {
            return false;
        };
        let apart = picture.threads[at].peak - picture.threads[one].peak;
        self.peaks[to] += apart;
        self.peaks[here.domain] -= apart;
        self.cpus.swap(at, one);
        self.leaves(one, (to, wants));
        if wants != here.node {
            self.waits(one, wants);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{program, scene};
    use super::*;
    use crate::estimate::Estimator;

    /// Eight threads on as many CPUs, each at home at first; then they are on these, and all lines of those that have moved
    /// are remote.
    fn moved(cpus: [u32; 8]) -> Option<Vec<u32>> {
        let mut scene = scene();
        for number in 0..8 {
            program(&mut scene, number + 1, number, 50.0, 400);
        }
        let mut estimator = Estimator::default();
        estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        for (thread, (was, cpu)) in (scene.snapshot.threads.iter_mut()).zip((0..).zip(cpus)) {
            thread.cpu = CpuId(cpu);
            let counts = thread.counts.as_mut().unwrap();
            if was / 2 != cpu / 2 {
                (counts.local, counts.remote) = (Some(0), Some(counts.lines));
            }
        }
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let picture = estimator.observe(&stage);
        let back = layout(&stage, &picture, &picture.now())?;
        Some(back.into_iter().map(|cpu| cpu.0 / 2).collect())
    }

    #[test]
    fn threads_that_went_past_each_other_go_back() {
        let home = Some(vec![0, 0, 1, 1, 2, 2, 3, 3]);
        // Two, and three in a ring.
        assert_eq!(moved([6, 1, 2, 3, 4, 5, 0, 7]), home);
        assert_eq!(moved([2, 1, 6, 3, 4, 5, 0, 7]), home);
        // One went to a core that another left.
        assert_eq!(moved([6, 1, 2, 3, 4, 5, 6, 7]), home);
    }

    #[test]
    fn threads_that_are_at_home_stay() {
        assert_eq!(moved([0, 1, 2, 3, 4, 5, 6, 7]), None);
    }
}
