//! N-MASS: threads run at home, unless the caches there are under too much pressure.
//!
//! Problem: a thread that runs alone on the node of its memory is fastest. Threads that all have their memory
//! on one node contend for its cache and controller while other caches are idle; threads that are spread over
//! the caches pay for remote memory.
//!
//! Rule (Majo and Gross, "Memory Management in NUMA Multicore Systems: Trapped between Cache
//! Contention and Interconnect Overhead", ISMM 2011, §3.3), once per epoch in which something changed
//! ([`crate::changes`]; §3.4):
//! 1. *Sort* the processes of each home by their NUMA penalty, the highest first (Algorithm 1).
//! 2. *Maximum-local* ([`maximum_local`], Algorithm 2): each process gets a core of its home, those with a
//!    high penalty first; if its home is full, it gets a core of another node. The policy `maximum-local`
//!    ends here.
//! 3. *Refine* ([`refine`], Algorithm 3): while the pressures differ, the process with the lowest penalty
//!    leaves the processor under high pressure. It moves only if it takes less than half the difference with
//!    it, and if the pressure of the other processor, with remote processes weighted by their penalty, stays
//!    below a threshold (60).
//!
//! Terms: a *processor* is a memory domain: "the cores that share a cache" (§2, last paragraph). A
//! process's *home* is the node that holds most of its pages ([`numaherd_world::Residency::home`]), with all
//! domains of that node. The *pressure* of a domain is the sum of the miss rates of the threads that run
//! there. The *NUMA penalty* is defined in [`crate::penalty`]; `n-mass-regression` uses the regression for
//! all processes (§4.5).
//!
//! Source: as under Rule, with its Algorithms 1 to 3 and the regression of §4.5.
//!
//! Any number of processors: Algorithm 2 merges one list per home, chooses the domain of the home with the
//! least pressure, and, for a process whose home is full, the nearest node. Algorithm 3 takes from the
//! processor with the highest pressure that can give a thread, and gives to the one with the lowest pressure
//! that can take it. With two processors of one node each, both algorithms are exactly the paper's, as
//! [`refine`] reads it; tests compare them with the pseudo-code.
//!
//! What the paper leaves open: each *thread* of a process is placed by its own miss rate and its process's
//! home (in the paper each process has one thread; §5 says that it does not treat sharing). Cores, SMT, more
//! threads than CPUs ([`processors`]), cpusets ([`crate::pools`]) and idle threads ([`crate::busy`]) are
//! treated as for DINO. Threads that may not be placed count towards the pressure of the domain that they
//! are in. A thread without counts keeps its last miss rate, and a process whose pages could not be found
//! keeps its last home; a thread that never had either is left to the kernel, because its home is unknown. If
//! no CPU of a home is available, the threads of that home are remote everywhere. Within its domain a thread
//! keeps its CPU if possible ([`super::arrange`]).
//!
//! The rule has a weakness: a miss rate is measured under the contention of the last mapping, so separating
//! threads lowers the very rates that separated them. The paper's figures were obtained with miss rates
//! recorded beforehand (§3.4); `[penalty] miss_rates` accepts such rates.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more threads than slots;
//! after step 2 no thread is remote while a core of its home is free; step 3 never raises the highest
//! pressure and never lowers the lowest; a thread that step 3 makes remote never raises a pressure to the
//! threshold; without a change there is no plan; equal input gives equal output. Cost: the sort, and domains
//! times threads.

pub mod maximum_local;
pub mod processors;
pub mod refine;

use numaherd_files::{choices, settings};
use numaherd_topology::Topology;
use numaherd_world::Signal;

use crate::changes::LastSeats;
use crate::penalty::{Estimate, PenaltySettings};
use crate::placement::arrange::seat;
use crate::placement::slots::{At, PoolSlots, ranks};
use crate::policy::{Needs, Random};
use crate::pools::Pool;
use crate::reason::{Figure, Reason, Words};
use crate::rules::Rule;
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
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
    what: "Threads with a higher NUMA penalty use all cores of the thread's home: it gets a free core \
           of the nearest node that has one.",
};
const REFINE: Rule = Rule {
    name: "n-mass: refine",
    source: "N-MASS 3.1, 3.3, Algorithm 3",
    what: "The processor that the thread was mapped to is under higher pressure than another: the \
           thread, whose NUMA penalty is the lowest there, is moved to the other, since the \
           pressures end nearer to each other with the penalty counted.",
};

choices! {
    /// How much may leave a home: three readings of N-MASS 3.1 and of Algorithm 3.
    pub enum MostMoved {
        /// Threads that each take less than half the difference of the pressures with them, as the text says.
        #[default]
        Half = "half",
        /// Threads that leave both pressures between where they began, so that the difference falls.
        Difference = "difference",
        /// One such thread each time threads are placed, as line 28 is printed.
        One = "one",
    }
}

settings! {
    /// When threads leave their home (`n-mass`; `maximum-local` uses `changed_by` alone).
    #[derive(Copy)]
    pub struct NMassSettings {
        /// Pressure that a processor must stay below when it gets a thread whose home is elsewhere: where
        /// the link between the paper's processors saturates.
        threshold: f64 = 60.0, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX, source: "N-MASS 3.4";
        /// Threads are placed anew when a miss rate changes by more than this.
        changed_by: f64 = 0.2, unit: "share of a miss rate", range: 0.0..=f64::MAX, source: "N-MASS 3.4";
        /// What may leave a home.
        most_moved: MostMoved, source: "N-MASS 3.1, Algorithm 3";
        /// Whether threads may change places when no core is free. The algorithm as printed does not.
        exchange: bool = false, source: "chosen here";
    }
}

/// How far the algorithm goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Steps 1 and 2: the policy `maximum-local`.
    MaximumLocal,
    /// All three: N-MASS.
    All,
}

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct NMass {
    steps: Steps,
    settings: NMassSettings,
    penalties: PenaltySettings,
    last: LastSeats,
}

impl NMass {
    /// All of N-MASS, with the regression's NUMA penalty for all programs (§4.5).
    pub fn with_regression(settings: &Settings) -> Self {
        let mut policy = Self::new(settings, Steps::All);
        policy.penalties.estimate = Estimate::Regression;
        policy
    }

    /// The algorithm as far as `steps`; nothing seen yet.
    pub fn new(settings: &Settings, steps: Steps) -> Self {
        Self {
            steps,
            settings: settings.n_mass,
            penalties: settings.penalty.clone(),
            last: LastSeats::new(settings.n_mass.changed_by),
        }
    }
}

impl PlacementRule for NMass {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate, Signal::Residency])
    }

    fn seat(&mut self, stage: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        let stage = &stage.narrowed(|thread| stage.home(thread).is_some());
        let seen = Seen {
            stage,
            penalties: &self.penalties,
        };
        let steps = self.steps;
        let refined = (steps == Steps::All).then_some(&self.settings);
        let anew = || {
            let mut pressures = seen.pressures_of_unmanaged();
            stage.pool_by_pool(|pool, slots| {
                let domains: Vec<usize> = (slots.domains.iter())
                    .map(|domain| domain.domain.index())
                    .collect();
                let outside: Vec<f64> = domains.iter().map(|&at| pressures[at]).collect();
                let items = seen.items(pool);
                let processors = Processors::new(&slots, stage.topology, items.len(), &outside);
                let decision = Decision::new(&slots, &items, processors, refined);
                for (at, processor) in domains.iter().zip(&decision.processors.all) {
                    pressures[*at] = processor.pressure;
                }
                let cpus = slots.cpus(&decision.seats);
                let decided = Decided {
                    stage,
                    pool,
                    slots,
                    items,
                    ranks: ranks(&decision.local.order),
                    decision,
                    steps,
                };
                Some((cpus, move |at| decided.because(at)))
            })
        };
        let miss_rate = |thread| seen.miss_rate(thread);
        self.last.seats(stage, miss_rate, anew)
    }
}

/// A stage with what N-MASS knows of its threads.
#[derive(Clone, Copy)]
struct Seen<'a> {
    stage: &'a Stage<'a>,
    penalties: &'a PenaltySettings,
}

impl Seen<'_> {
    /// The miss rate that was recorded of the program, else the one that was measured.
    fn miss_rate(&self, thread: usize) -> f64 {
        let recorded = self.penalties.recorded(self.stage.process_name(thread));
        recorded.unwrap_or_else(|| self.stage.miss_rate(thread))
    }

    fn penalty(&self, thread: usize) -> f64 {
        let name = self.stage.process_name(thread);
        self.penalties.of(name, self.miss_rate(thread))
    }

    /// The threads of a pool as N-MASS sees them.
    fn items(&self, pool: &Pool) -> Vec<Item> {
        let item = |&thread: &usize| {
            Some(Item {
                home: self.stage.home(thread)?,
                miss_rate: self.miss_rate(thread),
                penalty: self.penalty(thread),
            })
        };
        pool.busy.iter().filter_map(item).collect()
    }

    /// What threads that may not be placed add to the pressure of each domain.
    fn pressures_of_unmanaged(&self) -> Vec<f64> {
        let mut pressures = vec![0.0; self.stage.topology.domains().len()];
        for &thread in &self.stage.unmanaged {
            let cpu = self.stage.thread(thread).place();
            if let Some(domain) = self.stage.topology.domain_of(cpu) {
                let home = self.stage.home(thread);
                let remote = home.is_some_and(|home| home != domain.node);
                let penalty = if remote { self.penalty(thread) } else { 1.0 };
                pressures[domain.id.index()] += self.miss_rate(thread) * penalty;
            }
        }
        pressures
    }
}

/// Where N-MASS would seat the threads of otherwise empty slots; without settings for the third
/// step, maximum-local.
pub(crate) fn lay_out(
    slots: &PoolSlots,
    topology: &Topology,
    items: &[Item],
    refined: Option<&NMassSettings>,
) -> Vec<At> {
    let nothing = vec![0.0; slots.domains.len()];
    let processors = Processors::new(slots, topology, items.len(), &nothing);
    Decision::new(slots, items, processors, refined).seats
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
        slots: &PoolSlots,
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
        let loads = processors.loads(slots);
        Self {
            seats: seat(slots, &mapping.processor, loads, &mapping.order),
            processor: mapping.processor,
            processors,
            local,
            moves,
        }
    }
}

/// What was decided for a pool, and from what.
struct Decided<'a> {
    stage: &'a Stage<'a>,
    pool: &'a Pool,
    slots: PoolSlots,
    items: Vec<Item>,
    decision: Decision,
    ranks: Vec<usize>,
    steps: Steps,
}

impl Decided<'_> {
    /// Why a thread of the pool gets its seat.
    fn because(&self, at: usize) -> Reason {
        let processor = self.decision.processor[at];
        let local = processor == self.decision.local.processor[at];
        let home = self.slots.domains[processor].node == self.items[at].home;
        let rule = match self.steps {
            _ if !local => REFINE,
            Steps::All if home => HOME,
            Steps::All => FULL,
            Steps::MaximumLocal if home => LOCAL_HOME,
            Steps::MaximumLocal => LOCAL_FULL,
        };
        rule.because(self.why(at)).instead_of(self.instead_of(at))
    }

    fn why(&self, at: usize) -> Words {
        let item = &self.items[at];
        let to = &self.slots.domains[self.decision.processor[at]];
        let penalty = words!(
            "NUMA penalty {penalty} at {rate} lines per 1000 instructions is ",
            penalty = Figure::Measured(item.penalty, 2),
            rate = item.miss_rate,
        );
        let Some(moved) = &self.decision.moves[at] else {
            let mapped = words!(
                "rank {rank} of {threads}; its pages are on node {home}; domain {domain} on node {node} is ",
                rank = self.ranks[at],
                threads = self.items.len(),
                home = item.home,
                domain = to.domain,
                node = to.node,
            );
            return penalty.and(mapped).and(match to.node == item.home {
                true => words!("its home"),
                false => words!("the nearest with a core left"),
            });
        };
        let why = penalty.and(words!(
            "the lowest left in domain {from}; the pressures there and in domain {to} on node {node} go \
             from {high} and {low} to {high_after} and {low_after}",
            from = self.slots.domains[moved.from].domain,
            to = to.domain,
            node = to.node,
            high = moved.before.0,
            low = moved.before.1,
            high_after = moved.after.0,
            low_after = moved.after.1,
        ));
        match moved.exchanged {
            Some(other) => why.and(words!(
                ", changing places with {other}",
                other = self.stage.thread(self.pool.busy[other]).id,
            )),
            None => why,
        }
    }

    /// Why the thread does not stay where it is, or is not at home.
    fn instead_of(&self, at: usize) -> Option<Words> {
        let sits = self.slots.sits[at]?;
        let from = self.slots.cpu(sits);
        let home = self.items[at].home;
        let to = &self.slots.domains[self.decision.seats[at].domain];
        let was = &self.slots.domains[sits.domain];
        Some(if was.domain == to.domain {
            self.slots.no_slot_left(sits)
        } else if was.node != home {
            words!(
                "CPU {from}: its pages on node {home} would be remote",
                from,
                home
            )
        } else if self.decision.moves[at].is_some() {
            words!("CPU {from}: the pressure of its domain", from)
        } else if to.node == home {
            words!(
                "CPU {from}: its domain had no core left, or more pressure",
                from
            )
        } else {
            words!(
                "CPU {from}: threads of a higher NUMA penalty have all cores of node {home}",
                from,
                home
            )
        })
    }
}

#[cfg(test)]
mod tests;
