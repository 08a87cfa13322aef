//! DINO: separate the threads that press on memory, and move no thread without need.
//!
//! Problem: threads that often miss the last-level cache slow each other down when they share a memory
//! domain. DI ([`super::di`]) spreads them by their exact miss rates, so every small change of a rate moves
//! threads, and on a NUMA machine their memory has to follow.
//!
//! Rule (Blagodurov et al., "A Case for NUMA-aware Contention Management on Multicore Systems",
//! USENIX ATC 2011, §3.3.3), once an interval:
//! 1. *Classes* ([`crate::classes`]): turtle, devil or super-devil, by votes of the last intervals.
//! 2. *Sorted tuples* ([`layout::sorted`]): the most aggressive class first.
//! 3. *Layout* ([`layout::layout`]): deal class instances to the domains in a snake, `T` at a time if there
//!    are more threads than cores. [`super::arrange`] assigns the hands of a domain to its cores so that the
//!    most threads can stay.
//! 4. *Keep core* ([`fill::keep`]): a thread stays if the layout wants its class on its core.
//! 5. *Fill slots* ([`fill::fill`]): the other threads take the open slots of their class.
//! 6. *Group process* ([`group::group`]): swap threads of equal class to bring the threads of each process
//!    together.
//!
//! The paper leaves some cases open. They are settled in: [`super::slots`] (slots, SMT, uneven domains, cores
//! that other threads hold), [`crate::pools`] (cpusets), [`crate::busy`] (idle threads), [`group`] (the rest
//! of the final pass). A thread that has not been counted yet has no class and is left to the kernel. The
//! capacity of cores counts only within a domain.
//!
//! A thread that stays on a CPU which it was never given is named once, from and to that CPU. This holds it
//! there, so that its pages can follow, and is not a move.
//!
//! Terms: *turtle*, *devil* and *super-devil* are the classes of miss rates; a *layout* states how many
//! threads of each class each core is to have; `T` is threads per core, rounded up; a *slot* is room for one
//! thread on a core. Source: as under Rule; figures of the authors' scheduler where the paper gives none.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more threads than slots;
//! applied to its own result, DINO moves nothing; a thread moves only if its CPU is no longer available, if
//! its CPU has more threads of its class than the layout wants there, or if the final pass swaps it for the
//! sake of its process or another; equal input gives equal output. Cost: linear in threads, plus the sorting
//! of each process's threads.

pub mod fill;
pub mod group;
pub mod layout;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use numaherd_world::Signal;

use crate::classes::Class;
use crate::placement::arrange::{Hand, arrange};
use crate::placement::slots::{At, PoolSlots};
use crate::policy::{Needs, Random};
use crate::pools::Pool;
use crate::reason::Reason;
use crate::rules::Rule;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
use layout::Tuple;

/// The rules that plans name.
pub const RULES: &[Rule] = &[KEEP_CORE, FILL_SLOTS, GROUP_PROCESS];
const KEEP_CORE: Rule = Rule {
    name: "dino: keep core",
    source: "DINO 3.3.3 (old core = new core and old class = new class)",
    what: "The layout wants the thread's class on the core it is on: it is held there.",
};
const FILL_SLOTS: Rule = Rule {
    name: "dino: fill slots",
    source: "DINO 3.3.3 (unused cores are filled by class)",
    what: "The layout does not want the thread's class on its core: it takes an open slot of its \
           class, in its own domain if there is one, else on its node, else anywhere.",
};
const GROUP_PROCESS: Rule = Rule {
    name: "dino: group process",
    source: "DINO 3.3.3 (final pass)",
    what: "Two threads of one class changed places to bring the threads of a process together.",
};

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dino;

impl PlacementRule for Dino {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate])
    }

    fn seat(&mut self, stage: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        let seats = stage.pool_by_pool(|pool, slots| {
            let decision = Decision::new(&slots, &tuples(stage, pool), |at| {
                stage.thread(pool.busy[at]).assigned.is_some()
            });
            let cpus = slots.cpus(&decision.solution);
            let wanted = decision.wanted_of_domains();
            let why = move |at| because(stage, pool, &slots, &decision, &wanted, at);
            Some((cpus, why))
        });
        seats.unwrap_or_default()
    }
}

/// The tuples of a pool, by thread.
fn tuples(stage: &Stage<'_>, pool: &Pool) -> Vec<Tuple> {
    let mut numbers = HashMap::new();
    let tuple = |(thread, &index): (usize, &usize)| {
        let next = numbers.len();
        Tuple {
            class: stage.class(index).unwrap_or(Class::Turtle),
            process: *numbers.entry(stage.thread(index).process).or_insert(next),
            thread,
        }
    };
    pool.busy.iter().enumerate().map(tuple).collect()
}

/// What DINO decides for one pool, stage by stage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    /// What each CPU of each domain is to run.
    layout: Vec<Vec<Hand>>,
    /// The threads that keep their core.
    kept: Vec<Option<At>>,
    /// The threads that were swapped in the final pass, and for which process: its first thread.
    grouped: Vec<Option<usize>>,
    /// Where every thread of the pool is to be.
    solution: Vec<At>,
}

impl Decision {
    /// `tuples` by thread; `given` tells whether a thread was given the CPU it is on.
    fn new(slots: &PoolSlots, tuples: &[Tuple], given: impl Fn(usize) -> bool) -> Self {
        let sorted = layout::sorted(tuples);
        let mut layout = layout::layout(slots, &sorted);
        let mut running: Vec<Vec<Hand>> = layout
            .iter()
            .map(|domain| vec![[0; 3]; domain.len()])
            .collect();
        for tuple in tuples {
            if let Some(at) = slots.sits[tuple.thread] {
                running[at.domain][at.cpu][tuple.class.index()] += 1;
            }
        }
        for (domain, slots) in slots.domains.iter().enumerate() {
            arrange(slots, &mut layout[domain], &running[domain]);
        }
        let mut open = layout.clone();
        let kept = fill::keep(slots, tuples, given, &mut open);
        let mut filled = kept.clone();
        fill::fill(slots, &sorted, &mut open, &mut filled);
        let mut solution: Vec<At> = filled
            .into_iter()
            .map(|at| at.expect("the layout has a slot for every class instance"))
            .collect();
        let grouped = group::group(tuples, slots.domains.len(), &mut solution);
        Self {
            layout,
            kept,
            grouped,
            solution,
        }
    }

    /// What each domain of the pool is to run, in words.
    fn wanted_of_domains(&self) -> Vec<Arc<str>> {
        let of_domain = |hands: &Vec<Hand>| {
            let sum = |class: usize| hands.iter().map(|hand| hand[class]).sum();
            Worded([sum(0), sum(1), sum(2)]).to_string().into()
        };
        self.layout.iter().map(of_domain).collect()
    }
}

/// Why a thread of a pool gets its seat.
fn because(
    stage: &Stage<'_>,
    pool: &Pool,
    slots: &PoolSlots,
    decision: &Decision,
    wanted: &[Arc<str>],
    at: usize,
) -> Reason {
    let thread = pool.busy[at];
    let from = stage.thread(thread).place();
    let to = decision.solution[at];
    let domain = &slots.domains[to.domain];
    let class = stage.class(thread).unwrap_or(Class::Turtle);
    let why = words!(
        "{class} ({rate} lines per 1000 instructions); domain {domain} on node {node} is to run \
         {wanted}",
        class,
        rate = stage.miss_rate(thread),
        domain = domain.domain,
        node = domain.node,
        wanted = Arc::clone(&wanted[to.domain]),
    );
    let (rule, why) = match decision.grouped[at] {
        _ if slots.cpu(to) == from => (KEEP_CORE, why),
        None => (FILL_SLOTS, why),
        Some(first) => {
            let process = stage.thread(pool.busy[first]).process;
            let swapped = words!(
                "; two {class}s changed places for {process}",
                class,
                process
            );
            (GROUP_PROCESS, why.and(swapped))
        }
    };
    let instead_of = slots.sits[at].map(|sits| match decision.kept[at] {
        Some(_) => words!(
            "CPU {from}: its class fits there, but the process is grouped",
            from
        ),
        None => words!(
            "CPU {from}: it is to run {hand}",
            from,
            hand = Worded(decision.layout[sits.domain][sits.cpu]).to_string(),
        ),
    });
    rule.because(why).instead_of(instead_of)
}

/// A hand in words: `1 super-devil, 2 turtles`.
struct Worded(Hand);

impl fmt::Display for Worded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for class in Class::DEALT {
            let count = self.0[class.index()];
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{comma}{count} {class}{plural}")?;
                comma = ", ";
            }
        }
        if comma.is_empty() {
            f.write_str("nothing")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
