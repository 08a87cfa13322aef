//! N-MASS: threads at home, unless the caches there are pressed too hard.
//!
//! Problem: a thread that runs on the node of its memory is fastest when it is alone. Threads that
//! all have their memory on one node contend there for the cache and the controller, while other
//! caches are idle; threads spread over the caches pay for remote memory.
//!
//! Rule (Majo and Gross, "Memory Management in NUMA Multicore Systems: Trapped between Cache
//! Contention and Interconnect Overhead", ISMM 2011, §3.3), once an epoch in which something changed
//! ([`crate::changes`]; §3.4):
//! 1. *Sort* the processes of each home by their NUMA penalty, the highest first (Algorithm 1).
//! 2. *Maximum-local* ([`maximum_local`], Algorithm 2): each gets a core of its home, those of high
//!    penalty first; where home is full, of another node. The policy `maximum-local` ends here.
//! 3. *Refine* ([`refine`], Algorithm 3): while the pressures differ, the process of lowest penalty
//!    leaves the processor of high pressure, as long as less than half the difference goes with it,
//!    and the other processor stays below a threshold (60) when what is remote counts times its
//!    penalty.
//!
//! Terms: a *processor* is a memory domain: "the cores that share a cache" (§2, last paragraph). A
//! process's *home* is the node that holds most of its pages ([`numaherd_world::Residency::home`]),
//! and all domains of that node. *Pressure* of a domain is the sum of the miss rates of what runs
//! there. The *NUMA penalty* is [`crate::penalty`]'s; `n-mass-regression` takes the regression's for
//! all (§4.5).
//!
//! Source: as under Rule, with its Algorithms 1 to 3 and the regression of §4.5.
//!
//! Any number of processors: Algorithm 2 merges one list for each home, takes of a home's domains
//! the one of least pressure, and for a process whose home is full the nearest node's. Algorithm 3
//! takes from the processor of the highest pressure that has something to give, and gives to that of
//! the lowest that can take it. With two processors of a node each both are exactly the paper's, in
//! the reading that [`refine`] gives of it; tests hold them against the pseudo-code.
//!
//! What the paper leaves open: each *thread* of a process is placed by its own miss rate and its
//! process's home (the paper has one thread each, and says in §5 that it does not treat sharing).
//! Cores, SMT and more threads than CPUs ([`processors`]), cpusets ([`crate::pools`]), threads that
//! sleep ([`crate::busy`]) are dealt with as for DINO; threads that cannot be placed count towards
//! the pressure where they are. A thread without counts keeps its last miss rate, and a process whose
//! pages could not be found its last home; a thread that never had either is left to the kernel,
//! since nobody can say where it would be local. A home without CPUs that may be had makes its threads
//! remote everywhere. Within its domain a thread keeps its CPU where it can ([`super::arrange`]).
//!
//! A weakness of the rule itself: a miss rate is measured under the contention that the last mapping
//! made, so that separating threads lowers the rates that had them separated. The paper's figures
//! were taken with miss rates recorded beforehand (§3.4); `[penalty] miss_rates` gives such.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more than its
//! slots; after step 2 no thread is remote while a core of its home is free; step 3 never makes the
//! highest pressure higher nor the lowest lower; a thread that it makes remote never lifts a
//! pressure to the threshold; without a change there is no plan; equal input gives equal output.
//! Cost: the sort, and domains times threads.

pub mod maximum_local;
pub mod processors;
pub mod refine;

use std::borrow::Cow;

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Placement, Signal, Snapshot};

use crate::busy::Busy;
use crate::changes::{LastPlaced, Mark, Situation};
use crate::classes::{Classed, Classes, Tenths};
use crate::memory::PerThread;
use crate::penalty::{Estimate, PenaltySettings};
use crate::placement::arrange::seat;
use crate::placement::slots::{At, Ground};
use crate::policy::{Place, Random};
use crate::pools::{Pool, Taken, pools};
use crate::rules::Rule;
use crate::settings::{NMassSettings, Settings};
use maximum_local::Mapping;
use processors::{Item, Processors};
use refine::Move;

/// The rules that plans of `maximum-local` name.
pub const MAXIMUM_LOCAL_RULES: &[Rule] = &[LOCAL_HOME, LOCAL_FULL];
/// The rules that plans of `n-mass` name.
pub const N_MASS_RULES: &[Rule] = &[HOME, FULL, REFINE];
const LOCAL_HOME: Rule = Rule {
    name: "maximum-local: home",
    ..HOME
};
const LOCAL_FULL: Rule = Rule {
    name: "maximum-local: home is full",
    ..FULL
};
const HOME: Rule = Rule {
    name: "n-mass: home",
    source: "N-MASS 3.3, Algorithm 2",
    what: "The thread gets a core of the node that holds most of its process's pages.",
};
const FULL: Rule = Rule {
    name: "n-mass: home is full",
    source: "N-MASS 3.3, Algorithm 2 (get_next_available_core)",
    what: "Threads of a higher NUMA penalty have all cores of the thread's home: it gets one of \
           the nearest node that has any.",
};
const REFINE: Rule = Rule {
    name: "n-mass: refine",
    source: "N-MASS 3.1, 3.3, Algorithm 3",
    what: "The processor that the thread was mapped to is under higher pressure than another: the \
           thread, whose NUMA penalty is the lowest there, is moved to the other, since the \
           pressures end nearer to each other with the penalty counted.",
};

/// How far the algorithm goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// Steps 1 and 2.
    MaximumLocal,
    /// All three.
    All,
}

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct NMass {
    steps: Steps,
    settings: NMassSettings,
    penalties: PenaltySettings,
    // N-MASS has no classes, but remembers miss rates as they do.
    classes: Classes,
    busy: Busy,
    homes: PerThread<Option<NodeId>>,
    last: LastPlaced,
}

impl NMass {
    /// Steps 1 and 2 alone: the policy `maximum-local`.
    pub fn maximum_local(settings: &Settings) -> Self {
        Self::new(settings, Steps::MaximumLocal)
    }

    /// All of N-MASS.
    pub fn whole(settings: &Settings) -> Self {
        Self::new(settings, Steps::All)
    }

    /// All of N-MASS, with the regression's NUMA penalty for all programs (§4.5).
    pub fn with_regression(settings: &Settings) -> Self {
        let mut policy = Self::whole(settings);
        policy.penalties.estimate = Estimate::Regression;
        policy
    }

    fn new(settings: &Settings, steps: Steps) -> Self {
        Self {
            steps,
            settings: settings.n_mass,
            penalties: settings.penalty.clone(),
            classes: Classes::new(settings.classes.rule()),
            busy: Busy::new(settings.placement.least_cpu_share),
            homes: PerThread::default(),
            last: LastPlaced::new(settings.n_mass.changed_by),
        }
    }
}

impl Place for NMass {
    fn needs(&self) -> &[Signal] {
        &[Signal::CpuUse, Signal::MissRate, Signal::Residency]
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<Placement> {
        let homes = self.homes.line_up(&snapshot.threads);
        remember_homes(homes, snapshot);
        let classed = self.classes.observe(&snapshot.threads);
        let mut pools = pools(snapshot, topology);
        let hands_off = self.busy.keep_busy(snapshot, &mut pools);
        for pool in &mut pools {
            let known = |&index: &usize| homes[index].is_some() && classed[index].class().is_some();
            pool.threads.retain(known);
        }
        pools.retain(|pool| !pool.threads.is_empty());
        let seen = Seen {
            snapshot,
            classed,
            homes,
            penalties: &self.penalties,
        };
        let situation = Situation::new(snapshot, &pools, &hands_off, |index| seen.mark(index));
        if !self.last.is_outdated(&situation) {
            return self.last.still_wanted(snapshot);
        }

        let mut taken = Taken::default();
        let mut pressures = vec![0.0; topology.domains().len()];
        for index in hands_off {
            let cpu = snapshot.threads[index].place();
            taken.hold(cpu, classed[index].class());
            if let Some(domain) = topology.domain_of(cpu) {
                let weight = seen.weight(index, domain.node);
                pressures[domain.id.index()] += weight;
            }
        }
        let mut placements = Vec::new();
        for pool in &pools {
            let ground = Ground::new(snapshot, topology, pool, &taken);
            let domain = |at: usize| ground.domains[at].domain.index();
            let outside: Vec<f64> = (0..ground.domains.len())
                .map(|at| pressures[domain(at)])
                .collect();
            let items = seen.items(pool);
            let processors = Processors::new(&ground, topology, items.len(), &outside);
            let refined = match self.steps {
                Steps::MaximumLocal => None,
                Steps::All => Some(&self.settings),
            };
            let decision = Decision::new(&ground, &items, processors, refined);
            for (at, processor) in decision.processors.all.iter().enumerate() {
                pressures[domain(at)] = processor.pressure;
            }
            let told = Told {
                snapshot,
                pool,
                ground: &ground,
                items: &items,
                decision: &decision,
                ranks: decision.ranks(),
                steps: self.steps,
            };
            for (at, &index) in pool.threads.iter().enumerate() {
                taken.hold(ground.cpu(decision.seats[at]), classed[index].class());
                placements.extend(told.placement(at));
            }
        }
        placements.sort_unstable_by_key(|placement| placement.thread);
        self.last.place(situation, placements)
    }
}

/// Takes down where the threads' processes have their pages now.
pub(crate) fn remember_homes(homes: &mut [Option<NodeId>], snapshot: &Snapshot) {
    for (home, thread) in homes.iter_mut().zip(&snapshot.threads) {
        let process = snapshot.process(thread.process);
        let now = process.and_then(|process| process.residency.as_ref()?.home());
        *home = now.or(*home);
    }
}

/// A snapshot with what is remembered of its threads.
struct Seen<'a> {
    snapshot: &'a Snapshot,
    classed: &'a [Classed],
    homes: &'a [Option<NodeId>],
    penalties: &'a PenaltySettings,
}

impl Seen<'_> {
    /// The miss rate that was recorded of the program, else the one that was measured.
    fn miss_rate(&self, index: usize) -> f64 {
        let recorded = self.penalties.recorded(self.name(index));
        recorded
            .or(self.classed[index].miss_rate())
            .unwrap_or_default()
    }

    /// The process's name.
    fn name(&self, index: usize) -> &str {
        let thread = &self.snapshot.threads[index];
        let process = self.snapshot.process(thread.process);
        process.map_or(&thread.name, |process| &process.name)
    }

    fn mark(&self, index: usize) -> Mark {
        Mark {
            thread: self.snapshot.threads[index].id,
            miss_rate: self.miss_rate(index),
            home: self.homes[index],
        }
    }

    fn penalty(&self, index: usize) -> f64 {
        self.penalties.of(self.name(index), self.miss_rate(index))
    }

    /// The threads of a pool as N-MASS sees them.
    fn items(&self, pool: &Pool) -> Vec<Item> {
        let item = |&index: &usize| {
            Some(Item {
                home: self.homes[index]?,
                miss_rate: self.miss_rate(index),
                penalty: self.penalty(index),
            })
        };
        pool.threads.iter().filter_map(item).collect()
    }

    /// What a thread that is not placed adds to the pressure of the node it is on.
    fn weight(&self, index: usize, on: NodeId) -> f64 {
        let remote = self.homes[index].is_some_and(|home| home != on);
        let penalty = if remote { self.penalty(index) } else { 1.0 };
        self.miss_rate(index) * penalty
    }
}

/// Where N-MASS would seat the threads of an otherwise empty ground; without settings for the third
/// step, maximum-local.
pub(crate) fn lay_out(
    ground: &Ground,
    topology: &Topology,
    items: &[Item],
    refined: Option<&NMassSettings>,
) -> Vec<At> {
    let nothing = vec![0.0; ground.domains.len()];
    let processors = Processors::new(ground, topology, items.len(), &nothing);
    Decision::new(ground, items, processors, refined).seats
}

/// What N-MASS decides for one pool.
#[derive(Clone, Debug, PartialEq)]
struct Decision {
    /// The processors with all threads on them.
    processors: Processors,
    /// Where Algorithm 2 mapped the threads.
    local: Mapping,
    /// What Algorithm 3 moved.
    moves: Vec<Option<Move>>,
    /// The processor of each thread in the end.
    processor: Vec<usize>,
    /// Where every thread of the pool is to be.
    seats: Vec<At>,
}

impl Decision {
    /// With `refined` there is a third step.
    fn new(
        ground: &Ground,
        items: &[Item],
        mut processors: Processors,
        refined: Option<&NMassSettings>,
    ) -> Self {
        let local = maximum_local::map(items, &mut processors);
        let mut mapping = local.clone();
        let moves = match refined {
            Some(settings) => refine::refine(items, &mut mapping, &mut processors, settings),
            None => vec![None; items.len()],
        };
        let loads = processors.loads(ground);
        Self {
            seats: seat(ground, &mapping.processor, loads, &mapping.order),
            processor: mapping.processor,
            processors,
            local,
            moves,
        }
    }

    /// Each thread's rank in the order of mapping, from 1.
    fn ranks(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.local.order.len()];
        for (rank, &thread) in self.local.order.iter().enumerate() {
            ranks[thread] = rank + 1;
        }
        ranks
    }
}

/// Puts a decision into words.
struct Told<'a> {
    snapshot: &'a Snapshot,
    pool: &'a Pool,
    ground: &'a Ground,
    items: &'a [Item],
    decision: &'a Decision,
    ranks: Vec<usize>,
    steps: Steps,
}

impl Told<'_> {
    /// What a plan says of one thread of the pool; `None` where nothing is to be done.
    fn placement(&self, at: usize) -> Option<Placement> {
        let thread = &self.snapshot.threads[self.pool.threads[at]];
        let cpu = self.ground.cpu(self.decision.seats[at]);
        if thread.assigned == Some(cpu) {
            return None;
        }
        let local = self.decision.processor[at] == self.decision.local.processor[at];
        let home = self.ground.domains[self.decision.processor[at]].node == self.items[at].home;
        let rule = match self.steps {
            _ if !local => REFINE,
            Steps::All if home => HOME,
            Steps::All => FULL,
            Steps::MaximumLocal if home => LOCAL_HOME,
            Steps::MaximumLocal => LOCAL_FULL,
        };
        Some(Placement {
            thread: thread.id,
            from: thread.place(),
            to: cpu,
            rule: Cow::Borrowed(rule.name),
            why: self.why(at),
            instead_of: self.instead_of(at),
        })
    }

    fn why(&self, at: usize) -> String {
        let item = &self.items[at];
        let to = &self.ground.domains[self.decision.processor[at]];
        let penalty = format!(
            "NUMA penalty {:.2} at {} lines per 1000 instructions",
            item.penalty,
            Tenths(item.miss_rate)
        );
        let rank = format!("{} of {}", self.ranks[at], self.items.len());
        let Some(moved) = &self.decision.moves[at] else {
            let how = if to.node == item.home {
                "is its home"
            } else {
                "is the nearest with a core left"
            };
            return format!(
                "{penalty} is rank {rank}; its pages are on node {}; domain {} on node {} {how}",
                item.home, to.domain, to.node
            );
        };
        let exchanged = match moved.exchanged {
            Some(other) => format!(
                ", changing places with {}",
                self.snapshot.threads[self.pool.threads[other]].id
            ),
            None => String::new(),
        };
        format!(
            "{penalty} is the lowest left in domain {}; the pressures there and in domain {} on \
             node {} go from {} and {} to {} and {}{exchanged}",
            self.ground.domains[moved.from].domain,
            to.domain,
            to.node,
            Tenths(moved.before.0),
            Tenths(moved.before.1),
            Tenths(moved.after.0),
            Tenths(moved.after.1),
        )
    }

    /// Why the thread does not stay where it is, or is not at home.
    fn instead_of(&self, at: usize) -> String {
        let from = self.snapshot.threads[self.pool.threads[at]].place();
        let item = &self.items[at];
        let to = self.decision.seats[at];
        match self.ground.sits[at] {
            None => format!("CPU {from}: offline, or not allowed to the thread"),
            Some(sits) if sits == to => String::new(),
            Some(sits) if sits.domain == to.domain => {
                format!("CPU {from}: it has no slot left, another of the domain has")
            }
            Some(sits) if self.ground.domains[sits.domain].node != item.home => format!(
                "CPU {from}: its pages on node {} would be remote",
                item.home
            ),
            Some(_) => match (
                &self.decision.moves[at],
                self.ground.domains[to.domain].node,
            ) {
                (Some(_), _) => format!("CPU {from}: the pressure of its domain"),
                (None, node) if node == item.home => {
                    format!("CPU {from}: its domain had no core left, or more pressure")
                }
                (None, _) => format!(
                    "CPU {from}: threads of a higher NUMA penalty have all cores of node {}",
                    item.home
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests;
