//! The events of this machine's set, each tried: does it open, does it count, and is its count
//! possible?
//!
//! Nothing refuses a wrong code: the kernel accepts it, and the processor counts something else, or
//! nothing. So the events count a walk that fetches a known number of lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::Topology;
use serde::{Deserialize, Serialize};

use super::walk::Walk;
use super::{Finding, Verdict};
use crate::counters;
use crate::event_choice::{Choice, Group, attribute, sets_of};
use crate::events::{AppliesTo, CounterSet, Event, EventTable, Maker, Role};
use crate::files::Root;
use crate::kernel::{Errno, Kernel};
use crate::perf_errors::Reasons;
use crate::proc::cpuinfo::Processor;

/// What would help against a code that counts something else.
const OTHER_EVENTS: &str = "describe other events in a file of your own (--events FILE; \
                            data/events \
    holds examples), and report this with the output of numaherd doctor";

/// The events of the set that fits this machine best, tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCheck {
    /// The set.
    pub set: String,
    /// Why it is the one.
    pub because: String,
    /// The source of its codes.
    pub source: String,
    /// What came of each event, and of the uncore penalty that two of them make.
    pub findings: Vec<Finding>,
}

/// What is examined.
pub(super) struct Machinery<'m> {
    pub(super) root: &'m Root,
    pub(super) kernel: &'m dyn Kernel,
    pub(super) processor: &'m Processor,
    pub(super) reasons: &'m Reasons,
    /// The events that the program uses; `None` if it can count none.
    pub(super) choice: Option<&'m Choice>,
}

/// Walks over prepared memory, and returns the number of lines that it fetched.
pub(super) type Load = Box<dyn Fn() -> u64>;
/// Prepares a load.
pub(super) type MakeLoad<'l> = &'l dyn Fn() -> Load;

/// Tries the events of the set that fits best; without a load, they cannot be tried.
pub(super) fn check(
    machine: &Machinery<'_>,
    table: &EventTable,
    load: Option<MakeLoad<'_>>,
) -> Option<EventCheck> {
    let set = sets_of(table, machine.root, machine.processor).next()?;
    let findings = match load {
        Some(load) => machine.findings(set, load),
        None => {
            let found = "not tried: a captured tree has no counters".to_owned();
            vec![Finding::new("events", Verdict::Weak, found, None)]
        }
    };
    Some(EventCheck {
        set: set.name.clone(),
        because: because(set, machine.processor),
        source: set.source.clone(),
        findings,
    })
}

/// The walk as a load.
pub(super) fn walk(topology: &Topology) -> Load {
    let walk = Walk::new(topology);
    Box::new(move || walk.run())
}

fn because(set: &CounterSet, processor: &Processor) -> String {
    let Processor {
        vendor,
        family,
        model,
        part,
        ..
    } = processor;
    match &set.machine {
        AppliesTo::Pmu(name) => format!("the machine has a PMU {name:?}"),
        AppliesTo::Models { maker, .. } => match maker {
            Maker::X86 { vendor, .. } => format!("{vendor} family {family:#x}, model {model:#x}"),
            Maker::Arm { implementer } => {
                format!("Arm implementer {implementer:#x}, part {part:#x}")
            }
        },
        AppliesTo::Any if vendor.is_empty() => "the processor is not known".to_owned(),
        AppliesTo::Any => format!("no set is for {vendor} family {family:#x}, model {model:#x}"),
    }
}

/// How one event fared.
#[derive(Clone, Copy)]
enum Fate {
    Refused(Errno),
    /// It opened alone, and was not counted with.
    Opened,
    /// Its group had no turn.
    NoTurn,
    Counted(u64),
}

impl Machinery<'_> {
    fn findings(&self, set: &Arc<CounterSet>, load: MakeLoad<'_>) -> Vec<Finding> {
        let mut trial = Trial {
            set,
            fates: set
                .events
                .iter()
                .map(|(_, event)| self.alone(event))
                .collect(),
            walked: 0,
            taken: false,
        };
        let taken = self.choice.filter(|choice| Arc::ptr_eq(&choice.set, set));
        if let Some(choice) = taken {
            trial.taken = true;
            let load = load();
            trial.walked = self.count(&choice.main, &mut trial.fates, &load);
            if let Ok(penalty) = &choice.uncore {
                // Cycles too, if there is a counter for them, to hold the busy ones against.
                let mut with_cycles = penalty.clone();
                with_cycles.add_from(&choice.main, Role::Cycles);
                let fits = counters::Group::open(self.kernel, &with_cycles.attributes, 0).is_ok();
                let group = if fits { &with_cycles } else { penalty };
                self.count(group, &mut trial.fates, &load);
            }
        }
        let mut findings = self.refusals(&trial);
        let mut is_penalty_right = true;
        for (at, (role, _)) in set.events.iter().enumerate() {
            if let Some(judged) = trial.judge(at) {
                is_penalty_right &= !role.is_of_uncore() || judged.verdict == Verdict::Good;
                findings.push(judged);
            }
        }
        findings.extend(trial.penalty().filter(|_| is_penalty_right));
        if let (Some(choice), None) = (self.choice, taken) {
            let found = format!("{} are taken instead", choice.set.name);
            findings.push(Finding::new("set", Verdict::Weak, found, None));
        }
        findings
    }

    /// Opens an event by itself on the calling thread.
    fn alone(&self, event: &Event) -> Fate {
        let open = |user_only| {
            let attribute = attribute(self.root, event, user_only)?;
            self.kernel.open(&attribute, Some(0), None, None)
        };
        let opened = match open(false) {
            Err(Errno::ACCESS | Errno::PERM) => open(true),
            opened => opened,
        };
        opened.map_or_else(Fate::Refused, |_| Fate::Opened)
    }

    /// Counts a load with a group, and records what each of its events counted; returns the lines
    /// that the load fetched.
    fn count(&self, group: &Group, fates: &mut [Fate], load: &Load) -> u64 {
        let mut buffer = Vec::new();
        let mut walked = 0;
        let mut counted = || {
            let mut open = counters::Group::open(self.kernel, &group.attributes, 0).ok()?;
            open.read(&mut buffer)?;
            walked = load();
            let (before, now) = open.read(&mut buffer)?;
            now.turn_since(&before, group.places.len())?;
            let counts = (0..group.places.len()).map(|at| now.counted_since(&before, at));
            Some(counts.collect::<Vec<u64>>())
        };
        let counted = counted();
        for (at, &place) in group.places.iter().enumerate() {
            fates[place] = match &counted {
                Some(counts) => Fate::Counted(counts[at]),
                None => Fate::NoTurn,
            };
        }
        walked
    }

    /// The refusals, combined where they have the same reason.
    fn refusals(&self, trial: &Trial<'_>) -> Vec<Finding> {
        let mut refused: BTreeMap<i32, (Errno, Vec<String>)> = BTreeMap::new();
        for ((_, event), fate) in std::iter::zip(&trial.set.events, &trial.fates) {
            if let &Fate::Refused(errno) = fate {
                let of_reason = refused.entry(errno.raw_os_error());
                let (_, labels) = of_reason.or_insert((errno, Vec::new()));
                if !labels.contains(&event.label()) {
                    labels.push(event.label());
                }
            }
        }
        let finding_of = |(errno, labels): (Errno, Vec<String>)| {
            let pronoun = if labels.len() == 1 { "it" } else { "them" };
            let refusal = self.reasons.counters(pronoun, errno);
            Finding::bad(&labels.join(", "), refusal.reason, &refusal.remedy)
        };
        refused.into_values().map(finding_of).collect()
    }
}

/// How the events of a set fared.
struct Trial<'s> {
    set: &'s CounterSet,
    /// One for each event.
    fates: Vec<Fate>,
    /// Lines that the load fetched from memory, or from a cache in between.
    walked: u64,
    /// Whether the program counts with this set.
    taken: bool,
}

impl Trial<'_> {
    /// The fates of the events with a role.
    fn of(&self, role: Role) -> impl Iterator<Item = Fate> + '_ {
        let fates = std::iter::zip(&self.set.events, &self.fates);
        fates
            .filter(move |((of, _), _)| *of == role)
            .map(|(_, fate)| *fate)
    }

    /// The sum of what the events with a role counted; `None` if none counted.
    fn count(&self, role: Role) -> Option<u64> {
        let counts = self.of(role).filter_map(|fate| match fate {
            Fate::Counted(count) => Some(count),
            _ => None,
        });
        counts.reduce(|sum, count| sum + count)
    }

    /// What to say of an event that could be opened.
    fn judge(&self, at: usize) -> Option<Finding> {
        let (role, event) = &self.set.events[at];
        let label = event.label();
        let count = match self.fates[at] {
            Fate::Refused(_) => return None,
            Fate::Opened if !self.taken => return Some(Finding::good(&label, "can be opened")),
            Fate::Opened if self.lacks_counterpart(*role) => {
                let found = "can be opened, but is of no use without its counterpart".to_owned();
                return Some(Finding::new(&label, Verdict::Weak, found, None));
            }
            Fate::Opened => {
                let mut found = "opens alone, but not together with the others".to_owned();
                if let [first, rest @ ..] = event.counters() {
                    let others = rest.iter().map(|counter| format!(" or {counter}"));
                    let others: String = others.collect();
                    found += &format!(": only counter {first}{others} can count it");
                }
                let remedy = "stop other users of the counters (sysctl kernel.nmi_watchdog=0)";
                return Some(Finding::weak(&label, found, remedy));
            }
            Fate::NoTurn => {
                let found = "had no turn: others use the counters too";
                let remedy = "stop the other profiler, or the NMI watchdog (sysctl \
                              kernel.nmi_watchdog=0)";
                return Some(Finding::weak(&label, found, remedy));
            }
            Fate::Counted(count) => count,
        };
        let walked = self.walked;
        let what = match role.to_string() {
            what if what == label => String::new(),
            what => what + ": ",
        };
        let plainly = format!("{what}{count} in a walk over {walked} lines");
        let good = || Finding::good(&label, plainly.clone());
        let bad =
            |what: &str| Finding::bad(&label, format!("counts {what}: {plainly}"), OTHER_EVENTS);
        let cannot_be = "what cannot be";
        let is_of_lines = matches!(role, Role::Lines | Role::Requests | Role::Both);
        Some(match role {
            // A random walk on its memory's node need show neither of these.
            Role::Prefetches => good(),
            Role::Local | Role::Remote if self.came_from() > 0 => good(),
            Role::Local | Role::Remote => bad("nothing, as does its counterpart"),
            _ if count == 0 => bad("nothing"),
            Role::Instructions if count < walked => bad(cannot_be),
            Role::Cycles if count < walked / 4 => bad(cannot_be),
            _ if is_of_lines && count > walked.saturating_mul(16) => bad(cannot_be),
            _ if is_of_lines && count < walked / 4 => Finding::weak(
                &label,
                format!("counts few: {plainly}"),
                "does the machine have a cache that the kernel does not report? Otherwise the event \
                 counts something else",
            ),
            Role::BusyCycles if self.is_beyond_cycles(count) => {
                let cycles = self.count(Role::Cycles).unwrap_or(0);
                let found = format!("counts what cannot be: {role}: {count} of {cycles} cycles");
                Finding::bad(&label, found, OTHER_EVENTS)
            }
            _ => good(),
        })
    }

    /// Whether an event that this one is useless without was refused.
    fn lacks_counterpart(&self, role: Role) -> bool {
        let group: &[Role] = match role {
            Role::Local | Role::Remote | Role::Both => &[Role::Local, Role::Remote, Role::Both],
            Role::BusyCycles | Role::Requests => &[Role::BusyCycles, Role::Requests],
            _ => &[],
        };
        let mut fates = group.iter().flat_map(|role| self.of(*role));
        fates.any(|fate| matches!(fate, Fate::Refused(_)))
    }

    /// Lines whose origin was told.
    fn came_from(&self) -> u64 {
        let roles = [Role::Local, Role::Remote, Role::Both];
        roles.iter().filter_map(|role| self.count(*role)).sum()
    }

    /// Whether cycles with an outstanding request exceed all cycles by more than two walks differ.
    fn is_beyond_cycles(&self, busy: u64) -> bool {
        let cycles = self.count(Role::Cycles);
        cycles.is_some_and(|cycles| busy > cycles.saturating_add(cycles / 50))
    }

    fn penalty(&self) -> Option<Finding> {
        let busy = self.count(Role::BusyCycles)?;
        let requests = self
            .count(Role::Requests)
            .filter(|requests| *requests > 0)?;
        let penalty = busy as f64 / requests as f64;
        let found = format!("{penalty:.1} cycles a request in that walk, eight reads at a time");
        Some(Finding::good("uncore penalty", found))
    }
}

#[cfg(test)]
mod tests;
