//! Lines that threads of a process take from each other's caches.
//!
//! Problem: threads that write what others read fetch these lines out of caches. No counter of lines from memory shows
//! that, and from another node it takes as long as memory there. Rule: a thread's requests that memory does not answer are
//! answered by its last-level cache or by another. Some of them come from caches of other domains if two things hold: they
//! take on average more than [`FAR`] of the latency of local memory, even if there was only one at a time, and more time
//! together than lines from memory. There are as many as make up for the time. They are assumed to come from those of its
//! process's threads for which the same holds, equally from each.
//!
//! Once these threads are together, their sharing no longer shows. What was known is kept as long as a thread does the
//! same, so that they are not parted again. Together they hold one copy of what they read: each counts with its part of the
//! cache.
//!
//! Terms: *sharers* are these threads; a thread's *shared* requests are those for lines that other sharers have, in its
//! own domain or not. Source: designed here; the penalty that shows them is BRM's (§3.1).
//!
//! Properties: a process with fewer than two threads that wait so shares nothing; a sharer's shared requests are at most
//! those that memory does not answer.

use std::collections::BTreeMap;

use numaherd_contention::{Curve, Figures, Seat, Transfers};
use numaherd_topology::CpuId;

use super::Picture;
use super::known::Known;
use super::threads::{Load, Owner, QUIET, Seats, are_one_phase};

/// Requests that memory does not answer come from other domains' caches if they take more than this share of the latency
/// of local memory: a hit takes half of that or less (FACTS 7.1; chosen here).
const FAR: f64 = 0.4;

/// The other sharers of a thread's process, by domain; the thread's own domain is not among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart {
    /// The place of each domain and the share of the other sharers that is there.
    domains: Vec<(Seat, f64)>,
}

impl Apart {
    /// Those of a sharer at `own`; `sharers` is the distribution of all, the sharer included.
    fn of(own: Seat, sharers: &[(Seat, f64)]) -> Self {
        let others = sharers.iter().map(|&(_, count)| count).sum::<f64>() - 1.0;
        let domains = (sharers.iter())
            .filter(|(seat, _)| seat.domain != own.domain && others > 0.0)
            .map(|&(seat, count)| (seat, count / others));
        Self {
            domains: domains.collect(),
        }
    }

    /// The share of the other sharers that is in other domains.
    pub(super) fn share(&self) -> f64 {
        self.domains.iter().map(|&(_, share)| share).sum()
    }

    /// The mean latency of a line of theirs beyond that of a hit, in ns; 0 where none are in other domains.
    fn beyond_a_hit_ns(&self, figures: &Figures, own: Seat) -> f64 {
        let each = self.domains.iter();
        let all: f64 = each
            .map(|(seat, share)| share * figures.latency_ns(own.node, seat.node))
            .sum();
        match self.share() {
            0.0 => 0.0,
            share => (all / share - figures.llc_ns).max(0.0),
        }
    }

    /// The lines that a sharer takes from them, of so many shared requests.
    fn transfers(&self, figures: &Figures, own: Seat, shared: f64) -> Vec<Transfers> {
        let domains = self.domains.iter().filter(|_| shared > 0.0);
        let each = domains.map(|&(seat, share)| Transfers {
            node: seat.node,
            lines: shared * share,
            idle_ns: figures.latency_ns(own.node, seat.node),
            in_base_ns: figures.llc_ns,
        });
        each.collect()
    }
}

/// Adds a sharer to those of its process: each domain, and how many are there.
fn distribute(seat: Seat, sharers: &mut Vec<(Seat, f64)>) {
    match sharers
        .iter_mut()
        .find(|(known, _)| known.domain == seat.domain)
    {
        Some((_, count)) => *count += 1.0,
        None => sharers.push((seat, 1.0)),
    }
}

/// Where these sharers of a process are.
fn distributed(sharers: &[(usize, Seat)]) -> Vec<(Seat, f64)> {
    let mut all = Vec::new();
    for &(_, seat) in sharers {
        distribute(seat, &mut all);
    }
    all
}

/// The sharers of each process in a layout.
pub(super) struct Sharers {
    /// Where the sharers of each process (place) that has any are.
    of: BTreeMap<usize, Vec<(Seat, f64)>>,
    /// For each kind of sharer and each number of its process's sharers in one domain, if more than one: the lines of each
    /// against its part of the cache that they hold together.
    together: BTreeMap<(usize, u64), Curve>,
}

impl Picture {
    /// The sharers in a layout, by a draw.
    pub(super) fn sharers(&self, draw: usize, cpus: &[CpuId]) -> Sharers {
        let all = self.threads.iter().zip(cpus).enumerate();
        let all = all.filter_map(|(at, (load, &cpu))| {
            let seat = self.seat(cpu).filter(|_| load.shared > 0.0)?;
            Some((at, load.process, seat))
        });
        let all: Vec<(usize, usize, Seat)> = all.collect();
        let mut sharers = Sharers {
            of: BTreeMap::new(),
            together: BTreeMap::new(),
        };
        for &(_, process, seat) in &all {
            distribute(seat, sharers.of.entry(process).or_default());
        }
        for (at, process, seat) in all {
            let kind = self.kinds.of[at];
            let here = sharers.here(process, seat);
            // A sharer that is alone there holds all that it reads.
            if here > 1 {
                let curve = &self.demands[draw][kind].curve;
                (sharers.together.entry((kind, here)))
                    .or_insert_with(|| curve.held_together(here as f64));
            }
        }
        sharers
    }
}

impl Sharers {
    /// How many sharers of a process are in a domain.
    fn here(&self, process: usize, seat: Seat) -> u64 {
        let of = self.of.get(&process).into_iter().flatten();
        let here = of.filter(|(there, _)| there.domain == seat.domain);
        // A cast from float saturates.
        here.map(|&(_, count)| count as u64).sum()
    }

    /// The lines that a thread takes out of other domains' caches, of so many shared requests.
    pub(super) fn transfers(
        &self,
        load: &Load,
        seat: Seat,
        shared: f64,
        figures: &Figures,
    ) -> Vec<Transfers> {
        let of = self.of.get(&load.process).filter(|_| load.shared > 0.0);
        of.map_or_else(Vec::new, |of| {
            Apart::of(seat, of).transfers(figures, seat, shared)
        })
    }

    /// The lines of a sharer against its part of the cache that it holds with others; `None` where there are no others.
    pub(super) fn curve(&self, load: &Load, kind: usize, seat: Seat) -> Option<&Curve> {
        let here = (load.shared > 0.0).then(|| self.here(load.process, seat))?;
        self.together.get(&(kind, here))
    }
}

/// A thread's requests that memory does not answer, if they are counted.
fn hits(load: &Load) -> Option<f64> {
    Some((load.requests? - load.lines).max(0.0))
}

/// For a sharer with others in other domains: its shared requests, and how much longer those answered there take than hits
/// would, in ns per 1000 instructions. Lines from memory take `latency_ns`, and there is one request at a time.
pub(super) fn shared(
    load: &Load,
    figures: &Figures,
    own: Seat,
    latency_ns: f64,
) -> Option<(f64, f64)> {
    let share = load.apart.share();
    let beyond_ns = load.apart.beyond_a_hit_ns(figures, own);
    if share == 0.0 || beyond_ns == 0.0 {
        return None;
    }
    let hits = hits(load)?;
    let unexplained_ns = load.busy_ns? - load.lines * latency_ns - hits * figures.llc_ns;
    let shared = (unexplained_ns.max(0.0) / beyond_ns / share).min(hits);
    Some((shared, shared * share * beyond_ns))
}

/// The mean latency of a thread's lines from memory without waits.
fn memory_ns(load: &Load, figures: &Figures, own: Seat) -> f64 {
    let parts = load.memory.iter();
    parts
        .map(|&(home, share)| share * figures.latency_ns(own.node, home))
        .sum()
}

/// Whether a thread waits for lines of other domains' caches.
fn waits(load: &Load, figures: &Figures, own: Seat) -> bool {
    let (Some(hits), Some(busy_ns)) = (hits(load), load.busy_ns) else {
        return false;
    };
    let for_memory_ns = load.lines * memory_ns(load, figures, own);
    let for_hits_ns = busy_ns - for_memory_ns;
    let far_ns = FAR * figures.latency_ns(own.node, own.node);
    hits >= QUIET && for_hits_ns > hits * far_ns && for_hits_ns > for_memory_ns
}

/// Finds the sharers of each process, and what they share.
pub(super) fn find(
    threads: &mut [Load],
    processes: &[Owner],
    known: &mut [Known],
    seats: &Seats,
    figures: &Figures,
) {
    for owner in processes.iter().filter(|owner| owner.threads.len() > 1) {
        let members = owner.threads.iter();
        let mut sharers: Vec<(usize, Seat)> = members
            .filter_map(|&at| Some((at, seats.get(threads[at].cpu)?.0)))
            .filter(|&(at, own)| {
                let load = &threads[at];
                let is_known = known[load.at].shares_as(load).is_some();
                load.is_counted() && (is_known || waits(load, figures, own))
            })
            .collect();
        let all = distributed(&sharers);
        sharers.retain(|&(at, own)| {
            let load = &mut threads[at];
            load.apart = Apart::of(own, &all);
            let shares = known[load.at].still_shares(load, figures, own);
            if !shares {
                (load.apart, known[load.at].shared) = (Apart::default(), None);
            }
            shares
        });
        let all = distributed(&sharers);
        for &(at, own) in &sharers {
            let load = &mut threads[at];
            let known = &mut known[load.at];
            load.apart = Apart::of(own, &all);
            let now = shared(load, figures, own, memory_ns(load, figures, own));
            let now = now.map(|(shared, _)| shared);
            // An interval in which it changed its domain belongs to no one place: it counts only while nothing else is
            // known.
            let before = known.cpu.and_then(|cpu| seats.get(cpu));
            let stayed = before.is_some_and(|(seat, _)| seat.domain == own.domain);
            if let (Some(shared), Some(requests)) = (now, load.requests)
                && (stayed || known.shared.is_none())
            {
                known.shared = Some((shared, requests));
            }
            load.shared = known.shares_as(load).or(now).unwrap_or(0.0);
            if load.shared == 0.0 {
                load.apart = Apart::default();
                continue;
            }
            // Sharers in one domain hold one copy together.
            let here = all.iter().filter(|(seat, _)| seat.domain == own.domain);
            load.held *= here.map(|&(_, count)| count).sum::<f64>();
        }
    }
}

impl Known {
    /// The requests per 1000 instructions that a thread was last seen to share, while it did what it does now.
    fn shares_as(&self, load: &Load) -> Option<f64> {
        let (shared, requests) = self.shared?;
        are_one_phase(Some(requests), load.requests).then_some(shared)
    }

    /// Whether a thread that shared, or seems to share, does so now: if others are in other domains, it waits for their
    /// lines, or for at least half as many as before.
    fn still_shares(&self, load: &Load, figures: &Figures, own: Seat) -> bool {
        let before = self.shares_as(load).unwrap_or(f64::INFINITY);
        let now = shared(load, figures, own, memory_ns(load, figures, own));
        now.is_none_or(|(now, _)| now >= before / 2.0) || waits(load, figures, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Estimator, Memory};
    use crate::placement::adaptive::tests::{scene, sharing::share};
    use crate::stage::Stage;
    use numaherd_testing::Scene;

    fn lost(picture: &Picture, cpus: &[u32]) -> f64 {
        let cpus: Vec<CpuId> = cpus.iter().map(|&cpu| CpuId(cpu)).collect();
        let stays = vec![Memory::default(); picture.processes.len()];
        let lost = picture.lost(&cpus, &stays);
        assert!(lost.iter().all(|lost| *lost >= 0.0), "{lost:?}");
        lost.iter().sum::<f64>() / lost.len() as f64
    }

    fn see(estimator: &mut Estimator, scene: &mut Scene) -> Picture {
        scene.snapshot.time_ns += scene.snapshot.interval_ns;
        estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology))
    }

    /// Two sharers on one node, whose lines are hits then.
    fn bring_together(estimator: &mut Estimator, scene: &mut Scene) -> Picture {
        scene.snapshot.threads.clear();
        scene.snapshot.processes.clear();
        share(scene, 1, &[0, 1], 14.0);
        see(estimator, scene)
    }

    #[test]
    fn threads_that_wait_for_each_others_lines_lose_what_they_wait_until_they_are_together() {
        let mut estimator = Estimator::default();
        let mut scene = scene();
        share(&mut scene, 1, &[0, 2], 100.0);
        see(&mut estimator, &mut scene);
        let apart = see(&mut estimator, &mut scene);
        // 20 requests of 100 ns, of which hits would take 14, in 3000 ns.
        let now = apart.lost_now().iter().sum::<f64>() / 4.0;
        assert!((now - 2.0 * 20.0 * 86.0 / 3000.0).abs() < 0.05, "{now}");
        let then = lost(&apart, &[0, 1]);
        assert!(then < 0.01, "{then}");
        // Nothing shows it any more, and yet they are not to be parted.
        let together = bring_together(&mut estimator, &mut scene);
        assert!(lost(&together, &[0, 1]) < 0.01);
        assert!(lost(&together, &[0, 2]) > 0.5);
    }

    #[test]
    fn what_was_seen_in_one_interval_is_known_once_they_are_together() {
        let mut estimator = Estimator::default();
        let mut scene = scene();
        share(&mut scene, 1, &[0, 2], 100.0);
        see(&mut estimator, &mut scene);
        let together = bring_together(&mut estimator, &mut scene);
        assert!(lost(&together, &[0, 2]) > 0.5);
    }

    #[test]
    fn hits_memory_and_single_threads_are_not_taken_for_lines_of_others() {
        for (cpus, each_ns) in [(&[0, 2][..], 25.0), (&[0], 100.0), (&[0, 1], 100.0)] {
            let mut scene = scene();
            share(&mut scene, 1, cpus, each_ns);
            let picture = see(&mut Estimator::default(), &mut scene);
            let apart: Vec<u32> = [0, 2][..cpus.len()].to_vec();
            assert!(lost(&picture, &apart) < 0.01, "{cpus:?} {each_ns}");
        }
    }
}
