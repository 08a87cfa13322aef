//! DINO: separate the threads that press on memory, and move none that need not move.
//!
//! Problem: threads that miss the last-level cache a lot slow each other down when they share a
//! memory domain. DI ([`super::di`]) spreads them by their exact miss rates, so every small change
//! of rates moves threads, and on a NUMA machine their memory has to follow.
//!
//! Rule (Blagodurov et al., "A Case for NUMA-aware Contention Management on Multicore Systems",
//! USENIX ATC 2011, §3.3.3), once an interval:
//! 1. *Classes* ([`crate::classes`]): turtle, devil, super-devil, by votes of the last intervals.
//! 2. *Sorted tuples* ([`layout::sorted`]): the most aggressive class first.
//! 3. *Layout* ([`layout::layout`]): class instances are dealt to the domains in a snake, `T` at a
//!    time where there are more threads than cores. Which core of its domain takes which hand is
//!    settled by [`super::arrange`]: where the most threads can stay.
//! 4. *Keep core* ([`fill::keep`]): a thread whose class the layout wants on its core stays.
//! 5. *Fill slots* ([`fill::fill`]): the others take the open slots of their class.
//! 6. *Group process* ([`group::group`]): threads of one process are brought together by swapping
//!    equals.
//!
//! What the paper leaves open and where it is settled: slots, SMT, uneven domains and cores that
//! others hold ([`super::slots`]), cpusets ([`crate::pools`]), threads that sleep
//! ([`crate::busy`]), the rest of the final pass ([`group`]). A thread that has not been counted
//! yet has no class and is left to the kernel. Capacity of cores counts only within a domain.
//!
//! A thread that stays on its CPU and was never given it is named once, from and to that CPU: so
//! it is held there, and its pages can follow it. That is no move.
//!
//! Terms: *turtle*, *devil* and *super-devil* are the classes of miss rates; a *layout* says how many
//! threads of each class every core is to have; `T` is threads per core, rounded up; a *slot* is room
//! for one thread on a core. Source: as under Rule; figures of the authors' scheduler where the paper
//! gives none.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more than its
//! slots; applied to its own result DINO moves nothing; a thread is moved only if its CPU cannot be
//! had any more, or more threads of its class are on its CPU than the layout wants there, or the
//! final pass swaps it for its process or another one's; equal input gives equal output; cost is
//! linear in threads.

pub mod fill;
pub mod group;
pub mod layout;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write};

use numaherd_topology::Topology;
use numaherd_world::{Placement, Signal, Snapshot};

use crate::busy::Busy;
use crate::classes::{Class, Classed, Classes, Tenths};
use crate::placement::arrange::{Hand, arrange};
use crate::placement::slots::{At, DomainSlots, Ground};
use crate::policy::{Place, Random};
use crate::pools::{Pool, Taken, pools};
use crate::rules::Rule;
use crate::settings::Settings;
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
#[derive(Clone, Debug)]
pub struct Dino {
    classes: Classes,
    busy: Busy,
}

impl Dino {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            classes: Classes::new(settings.classes.rule()),
            busy: Busy::new(settings.placement.least_cpu_share),
        }
    }
}

impl Place for Dino {
    fn needs(&self) -> &[Signal] {
        &[Signal::CpuUse, Signal::MissRate]
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<Placement> {
        let classed = self.classes.observe(&snapshot.threads);
        let class = |index: usize| classed[index].class();
        let mut pools = pools(snapshot, topology);
        let hands_off = self.busy.keep_busy(snapshot, &mut pools);
        let mut taken = Taken::default();
        for index in hands_off {
            taken.hold(snapshot.threads[index].place(), class(index));
        }
        let mut placements = Vec::new();
        for pool in &mut pools {
            pool.threads.retain(|&index| class(index).is_some());
            if pool.threads.is_empty() {
                continue;
            }
            let ground = Ground::new(snapshot, topology, pool, &taken);
            let decision = Decision::new(&ground, &tuples(snapshot, pool, classed), |at| {
                snapshot.threads[pool.threads[at]].assigned.is_some()
            });
            let told = Told {
                snapshot,
                pool,
                classed,
                ground: &ground,
                decision: &decision,
                domains: told_domains(&ground, &decision.layout),
            };
            for (at, &index) in pool.threads.iter().enumerate() {
                taken.hold(ground.cpu(decision.solution[at]), class(index));
                placements.extend(told.placement(at));
            }
        }
        placements.sort_unstable_by_key(|placement| placement.thread);
        placements
    }
}

/// The tuples of a pool, by thread.
fn tuples(snapshot: &Snapshot, pool: &Pool, classed: &[Classed]) -> Vec<Tuple> {
    let mut numbers = HashMap::new();
    let tuple = |(thread, &index): (usize, &usize)| {
        let next = numbers.len();
        Tuple {
            class: classed[index].class().unwrap_or(Class::Turtle),
            process: *numbers
                .entry(snapshot.threads[index].process)
                .or_insert(next),
            thread,
        }
    };
    pool.threads.iter().enumerate().map(tuple).collect()
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
    fn new(ground: &Ground, tuples: &[Tuple], given: impl Fn(usize) -> bool) -> Self {
        let sorted = layout::sorted(tuples);
        let mut layout = layout::layout(ground, &sorted);
        let mut running: Vec<Vec<Hand>> = layout
            .iter()
            .map(|domain| vec![[0; 3]; domain.len()])
            .collect();
        for tuple in tuples {
            if let Some(at) = ground.sits[tuple.thread] {
                running[at.domain][at.cpu][tuple.class.index()] += 1;
            }
        }
        for (domain, slots) in ground.domains.iter().enumerate() {
            arrange(slots, &mut layout[domain], &running[domain]);
        }
        let mut open = layout.clone();
        let kept = fill::keep(ground, tuples, given, &mut open);
        let mut filled = kept.clone();
        fill::fill(ground, &sorted, &mut open, &mut filled);
        let mut solution: Vec<At> = filled
            .into_iter()
            .map(|at| at.expect("the layout has a slot for every class instance"))
            .collect();
        let grouped = group::group(tuples, ground.domains.len(), &mut solution);
        Self {
            layout,
            kept,
            grouped,
            solution,
        }
    }
}

/// Puts a decision into words.
struct Told<'a> {
    snapshot: &'a Snapshot,
    pool: &'a Pool,
    classed: &'a [Classed],
    ground: &'a Ground,
    decision: &'a Decision,
    /// What each domain of the ground is to run, in words.
    domains: Vec<String>,
}

impl Told<'_> {
    /// What a plan says of one thread of the pool; `None` where nothing is to be done.
    fn placement(&self, at: usize) -> Option<Placement> {
        let index = self.pool.threads[at];
        let thread = &self.snapshot.threads[index];
        let to = self.decision.solution[at];
        let cpu = self.ground.cpu(to);
        if thread.assigned == Some(cpu) {
            return None;
        }
        let stays = thread.place() == cpu;
        let rule = match self.decision.grouped[at] {
            _ if stays => KEEP_CORE,
            Some(_) => GROUP_PROCESS,
            None => FILL_SLOTS,
        };
        let classed = &self.classed[index];
        let class = classed.class().unwrap_or(Class::Turtle);
        let rate = classed.miss_rate().unwrap_or_default();
        let mut why = String::with_capacity(160);
        // Writing to a String cannot fail.
        let _ = write!(
            why,
            "{class} ({} lines per 1000 instructions); {}",
            Tenths(rate),
            self.domains[to.domain]
        );
        if let Some(first) = self.decision.grouped[at].filter(|_| !stays) {
            let process = self.snapshot.threads[self.pool.threads[first]].process;
            let _ = write!(why, "; two {class}s changed places for {process}");
        }
        Some(Placement {
            thread: thread.id,
            from: thread.place(),
            to: cpu,
            rule: Cow::Borrowed(rule.name),
            why,
            instead_of: if stays {
                String::new()
            } else {
                self.instead_of(at)
            },
        })
    }

    /// Why the thread does not stay where it is.
    fn instead_of(&self, at: usize) -> String {
        let from = self.snapshot.threads[self.pool.threads[at]].place();
        match (self.ground.sits[at], self.decision.kept[at]) {
            (None, _) => format!("CPU {from}: offline, or not allowed to the thread"),
            (Some(_), Some(_)) => {
                format!("CPU {from}: its class fits there, but the process is grouped")
            }
            (Some(sits), None) => {
                let hand = self.decision.layout[sits.domain][sits.cpu];
                format!("CPU {from}: it is to run {}", ToldHand(hand))
            }
        }
    }
}

/// What each domain of the ground is to run, in words.
fn told_domains(ground: &Ground, layout: &[Vec<Hand>]) -> Vec<String> {
    let told = |(domain, hands): (&DomainSlots, &Vec<Hand>)| {
        let sum = |class: usize| hands.iter().map(|hand| hand[class]).sum();
        format!(
            "domain {} on node {} is to run {}",
            domain.domain,
            domain.node,
            ToldHand([sum(0), sum(1), sum(2)])
        )
    };
    ground.domains.iter().zip(layout).map(told).collect()
}

/// A hand in words: `1 super-devil, 2 turtles`.
struct ToldHand(Hand);

impl fmt::Display for ToldHand {
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
