//! The suspended steal: never blocks what the ordinary load balancer must still do.
//!
//! Problem: the kernel cannot move a thread from the node to which it is held. Threads may wait for its
//! CPUs while others idle.
//!
//! Source: BRM §4.4. When a candidate "is selected by a stealing core, the stealing is temporarily
//! suspended", and only if that core finds no other thread to steal, the candidate is sent to it. In Xen
//! the stealing core asks. Here the kernel takes what it can by itself; once an interval, the rest is
//! found from what is observed of the threads:
//!
//! * a *place* is the CPUs that a thread may run on: a node, by default ([`StealWhen`]);
//! * its *demand* is the number of CPUs that its observed threads used or waited for;
//! * it is *idle* when at least one CPU (less a tenth: there is always a little of something) is free,
//!   that is: online, within the user's limits, and not in demand;
//! * it is *crowded* when at least [`Steal::least_wait`] CPUs' worth of its threads waited;
//!   both on average over the latest [`Steal::over_ms`] and in this interval.
//!
//! Rule: an idle place is given one thread when some place is crowded, and no thread waits anywhere that
//! the kernel could take there itself (because its mask, or the lack of one, reaches there). Candidates
//! are the held threads that wait in crowded places, can run in the idle place, and pass the other guards
//! (cpuset, limits, bounce, worse, rate); the longest waiting is given. Each idle place gets one per
//! interval; after that, and after any other move, both places are seen anew for [`Steal::over_ms`].
//!
//! Properties: a thread is given only away from waiting threads and to a place that has a CPU for it: the
//! total waiting of all threads never grows by it. It does not make its new place crowded: no thread goes
//! to and fro while demands stay the same. (Tests, with a machine whose CPUs are shared out evenly.)

use std::collections::{BTreeMap, BTreeSet};

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{Snapshot, Thread};

use super::guards::{affinity_is_not_foreign, allowed, may_be_touched, not_named_twice, reach};
use super::{Cause, Change, Governed, Pass, ThreadGovernor, group_of};
use crate::governor::{Guard, Objection, Stolen};
use crate::settings::{AffinityScope, Limits, Steal, StealWhen};

/// Free CPUs from which a place is idle: one, less a tenth.
const LEAST_FREE: f64 = 0.9;

/// A thread that waited for a smaller share of the time did not wait.
const LEAST_WAIT: f64 = 0.1;

/// A figure's mean over the latest while, since it last began anew.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    seen_ns: u64,
    value: f64,
}

impl Mean {
    /// Adds an interval's figure. Later ones weigh more; one `over_ns` old weighs a third.
    fn add(&mut self, figure: f64, interval_ns: u64, over_ns: u64) {
        self.seen_ns = self.seen_ns.saturating_add(interval_ns);
        let over = self.seen_ns.min(over_ns).max(1);
        let weight = (interval_ns as f64 / over as f64).min(1.0);
        self.value += (figure - self.value) * weight;
    }
}

/// CPUs that a thread may run on, and their state.
#[derive(Clone, Debug)]
struct Place {
    cpus: CpuSet,
    free: Mean,
    waiting: Mean,
}

/// What a place has in one interval, in CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    free: f64,
    waiting: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Places {
    rule: Steal,
    /// The affinity scope of the threads that are given to these places; no others are.
    scope: AffinityScope,
    places: Vec<Place>,
    of_cpu: BTreeMap<CpuId, usize>,
}

impl Places {
    /// The places of a machine, if threads are to be given to idle ones.
    pub(super) fn of(limits: &Limits, topology: &Topology) -> Option<Self> {
        let groups = limits.groups.keys().map(|group| Some(group.as_str()));
        let mut scopes = groups.chain([None]).map(|group| limits.scope_of(group));
        let (scope, wanted) = match limits.steal.when {
            StealWhen::Always => (limits.scope_of(None), true),
            StealWhen::Node => (
                AffinityScope::Node,
                scopes.any(|scope| scope == AffinityScope::Node),
            ),
            StealWhen::Never => return None,
        };
        let mut places: Vec<Place> = Vec::new();
        let mut of_cpu = BTreeMap::new();
        for cpu in topology.cpus() {
            if of_cpu.contains_key(&cpu.id) {
                continue;
            }
            let cpus = reach(topology, scope, cpu.id);
            of_cpu.extend(cpus.iter().map(|cpu| (cpu, places.len())));
            places.push(Place {
                cpus,
                free: Mean::default(),
                waiting: Mean::default(),
            });
        }
        wanted.then_some(Self {
            rule: limits.steal,
            scope,
            places,
            of_cpu,
        })
    }

    /// Notes that a thread was moved: what the two places had until now no longer tells anything.
    pub(super) fn went(&mut self, from: Option<CpuId>, to: CpuId) {
        let from = from.and_then(|from| self.of_cpu.get(&from));
        let to = self.of_cpu.get(&to);
        if from == to {
            return;
        }
        for &at in from.into_iter().chain(to).collect::<Vec<_>>() {
            self.places[at].free = Mean::default();
            self.places[at].waiting = Mean::default();
        }
    }

    fn over_ns(&self) -> u64 {
        self.rule.over_ms.saturating_mul(1_000_000)
    }

    /// What each place has in this interval.
    fn tally(&self, snapshot: &Snapshot, limits: &Limits) -> Vec<Tally> {
        let usable = |cpus: &CpuSet| {
            let online = cpus.intersection(&snapshot.online);
            match &limits.cpus {
                Some(limits) => online.intersection(limits).len(),
                None => online.len(),
            }
        };
        let mut tallies: Vec<Tally> = self
            .places
            .iter()
            .map(|place| Tally {
                free: usable(&place.cpus) as f64,
                waiting: 0.0,
            })
            .collect();
        for thread in &snapshot.threads {
            if let Some(&at) = self.of_cpu.get(&thread.place()) {
                tallies[at].free -= demand(thread);
                tallies[at].waiting += thread.wait_share;
            }
        }
        tallies
    }

    fn add(&mut self, tallies: &[Tally], interval_ns: u64) {
        let over_ns = self.over_ns();
        for (place, tally) in self.places.iter_mut().zip(tallies) {
            place.free.add(tally.free, interval_ns, over_ns);
            place.waiting.add(tally.waiting, interval_ns, over_ns);
        }
    }

    fn is_idle(&self, at: usize, now: &Tally) -> bool {
        let mean = &self.places[at].free;
        mean.seen_ns >= self.over_ns() && mean.value.min(now.free) >= LEAST_FREE
    }

    fn is_crowded(&self, at: usize, now: &Tally) -> bool {
        let mean = &self.places[at].waiting;
        let waiting = mean.value.min(now.waiting);
        mean.seen_ns >= self.over_ns() && waiting >= self.rule.least_wait && waiting > 0.0
    }

    /// Whether a thread waits that the kernel itself could take to this place.
    fn kernel_has_one_for(&self, at: usize, snapshot: &Snapshot) -> bool {
        let there = self.places[at].cpus.intersection(&snapshot.online);
        let could_go = |thread: &Thread| {
            waits(thread)
                && self.of_cpu.get(&thread.place()) != Some(&at)
                && thread.affinity.intersects(&there)
        };
        snapshot.threads.iter().any(could_go)
    }
}

fn demand(thread: &Thread) -> f64 {
    thread.cpu_share + thread.wait_share
}

fn waits(thread: &Thread) -> bool {
    thread.wait_share >= LEAST_WAIT
}

impl ThreadGovernor {
    /// Gives each idle place one thread that waits where it is held, if nothing else can go there.
    pub(super) fn steal(&mut self, pass: &mut Pass<'_>, governed: &mut Governed) {
        let Some(mut places) = self.places.take() else {
            return;
        };
        let snapshot = pass.snapshot;
        let mut tallies = places.tally(snapshot, &self.limits);
        places.add(&tallies, snapshot.interval_ns);
        // While a move is under way, what is seen is not what will be.
        let ordered = |change: &Change| [change.from, change.order.core];
        let moving: BTreeSet<usize> = governed
            .changes
            .iter()
            .flat_map(ordered)
            .filter_map(|cpu| places.of_cpu.get(&cpu?).copied())
            .collect();
        let crowded = |tallies: &[Tally]| -> BTreeSet<usize> {
            (0..tallies.len())
                .filter(|&at| !moving.contains(&at) && places.is_crowded(at, &tallies[at]))
                .collect()
        };
        if !crowded(&tallies).is_empty() {
            for to in 0..tallies.len() {
                let idle = !moving.contains(&to) && places.is_idle(to, &tallies[to]);
                if !idle || places.kernel_has_one_for(to, snapshot) {
                    continue;
                }
                let from = crowded(&tallies);
                if let Some((change, from)) = self.steal_for(pass, &places, to, &from) {
                    let id = change.order.thread;
                    let Some(thread) = snapshot.thread(id) else {
                        continue;
                    };
                    governed.stolen.push(Stolen {
                        thread: id,
                        from: thread.place(),
                        to: change.order.core.unwrap_or(thread.place()),
                        why: why(thread, &places, (from, &tallies[from]), (to, &tallies[to])),
                    });
                    governed.changes.push(change);
                    tallies[to].free -= demand(thread);
                    tallies[from].free += demand(thread);
                    tallies[from].waiting -= demand(thread);
                }
            }
        }
        self.places = Some(places);
    }

    /// The thread to give to an idle place, and the place it is taken from.
    fn steal_for(
        &mut self,
        pass: &mut Pass<'_>,
        places: &Places,
        to: usize,
        from: &BTreeSet<usize>,
    ) -> Option<(Change, usize)> {
        let snapshot = pass.snapshot;
        let place_of = |thread: &Thread| {
            let at = places.of_cpu.get(&thread.place());
            at.copied().filter(|at| from.contains(at))
        };
        let mut waiting: Vec<(&Thread, usize)> = snapshot
            .threads
            .iter()
            .filter(|thread| waits(thread) && self.holdings.get(thread.id).is_some())
            .filter(|thread| self.limits.scope_of(group_of(snapshot, thread)) == places.scope)
            .filter_map(|thread| Some((thread, place_of(thread)?)))
            .collect();
        // The longest waiting first; of equals, the one with the lowest id.
        waiting.sort_by(|(a, _), (b, _)| {
            let longest = b.wait_share.total_cmp(&a.wait_share);
            longest.then(a.id.cmp(&b.id))
        });
        waiting.into_iter().find_map(|(thread, from)| {
            let change = self.may_be_stolen(pass, places, thread, to).ok()?;
            Some((change, from))
        })
    }

    /// The guards, for a thread that might be given to an idle place.
    fn may_be_stolen(
        &mut self,
        pass: &mut Pass<'_>,
        places: &Places,
        thread: &Thread,
        to: usize,
    ) -> Result<Change, Objection> {
        let snapshot = pass.snapshot;
        not_named_twice(&pass.ordered, thread)?;
        may_be_touched(thread)?;
        let owner = self.holdings.owner(thread, &snapshot.online);
        affinity_is_not_foreign(thread, owner)?;
        let allowed = allowed(thread, &snapshot.online, self.limits.cpus.as_ref());
        let there = places.places[to].cpus.intersection(&allowed);
        let core = freest(snapshot, &there).ok_or_else(|| {
            let why = "it may not use any of the idle CPUs".to_owned();
            (Guard::Cpuset, why)
        })?;
        self.is_not_frozen(thread, snapshot.time_ns)?;
        let domain = |cpu: CpuId| self.topology.cpu(cpu).map(|cpu| cpu.domain);
        if let (Some(from), Some(to)) = (domain(thread.place()), domain(core))
            && from != to
        {
            self.does_not_bounce(snapshot, thread, from, to)?;
        }
        let mask = self.mask(snapshot, thread, core);
        self.moves.take(snapshot, thread)?;
        pass.ordered.insert(thread.id);
        Ok(self.change(snapshot, thread, Some(core), mask, Cause::Steal))
    }
}

/// The CPU in least demand, the lowest of equals, if one CPU's worth of all these is free.
fn freest(snapshot: &Snapshot, cpus: &CpuSet) -> Option<CpuId> {
    let mut demands: BTreeMap<CpuId, f64> = cpus.iter().map(|cpu| (cpu, 0.0)).collect();
    for thread in &snapshot.threads {
        if let Some(so_far) = demands.get_mut(&thread.place()) {
            *so_far += demand(thread);
        }
    }
    let free = demands.len() as f64 - demands.values().sum::<f64>();
    let least = demands.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(cpu, _)| cpu).filter(|_| free >= LEAST_FREE)
}

/// Why a thread is given to an idle place, with what its place and the idle one had.
fn why(thread: &Thread, places: &Places, from: (usize, &Tally), to: (usize, &Tally)) -> String {
    let cpus = |at: usize| &places.places[at].cpus;
    format!(
        "it waited {:.0} % of the time; threads wait for {:.1} more CPUs than {}, to which it is held, \
         have, while of {} {:.1} CPUs are free and no thread waits that the kernel could take there",
        thread.wait_share * 100.0,
        from.1.waiting,
        cpus(from.0),
        cpus(to.0),
        to.1.free,
    )
}
