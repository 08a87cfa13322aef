//! The events of this machine's set, each tried: can it be opened, does it count, can what it counts
//! be.
//!
//! A wrong code is refused by nobody: the kernel takes it and the processor counts something else, or
//! nothing. So the events count a walk of which is known how many lines it fetches.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use numaherd_topology::Topology;
use serde::{Deserialize, Serialize};

use super::walk::Walk;
use super::{Finding, Verdict, finding};
use crate::counters::Group;
use crate::event_choice::{Choice, attribute, difference, sets_of};
use crate::events::{CounterSet, Event, EventTable, Machine, Role};
use crate::files::Root;
use crate::kernel::{Attribute, Errno, Senses};
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
    /// Where its codes are from.
    pub source: String,
    /// What came of each event, and of the uncore penalty that two of them make.
    pub findings: Vec<Finding>,
}

/// What is asked about.
pub(super) struct Machinery<'m> {
    pub(super) root: &'m Root,
    pub(super) senses: &'m dyn Senses,
    pub(super) processor: &'m Processor,
    pub(super) reasons: &'m Reasons,
    /// The events that the program takes; `None` where it can count none.
    pub(super) choice: Option<&'m Choice>,
}

/// Goes over memory that was made ready, and gives the number of lines that it fetched.
pub(super) type Load = Box<dyn Fn() -> u64>;
/// Makes a load ready.
pub(super) type MakeLoad<'l> = &'l dyn Fn() -> Load;

/// Tries the events of the set that fits best; without a load there is nothing to try them on.
pub(super) fn check(
    machine: &Machinery<'_>,
    table: &EventTable,
    load: Option<MakeLoad<'_>>,
) -> Option<EventCheck> {
    let set = sets_of(table, machine.root, machine.processor).next()?;
    let findings = match load {
        Some(load) => machine.findings(set, load),
        None => {
            let found = "not tried: a captured tree has no counters";
            vec![finding("events", Verdict::Weak, found, None)]
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
    match &set.machine {
        Machine::Pmu(name) => format!("the machine has a PMU {name:?}"),
        Machine::Models { vendor, .. } => {
            let Processor { family, model, .. } = processor;
            format!("{vendor} family {family:#x}, model {model:#x}")
        }
        Machine::Parts { implementer, .. } => {
            let part = processor.part;
            format!("Arm implementer {implementer:#x}, part {part:#x}")
        }
        Machine::Any if processor.vendor.is_empty() => "the processor is not known".to_owned(),
        Machine::Any => {
            let Processor {
                vendor,
                family,
                model,
                ..
            } = processor;
            format!("no set is for {vendor} family {family:#x}, model {model:#x}")
        }
    }
}

/// How one event fared.
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
        let events = set.events();
        let mut fates: Vec<Fate> = events.iter().map(|(_, event)| self.alone(event)).collect();
        let mut lines = 0;
        let taken = self.choice.filter(|choice| choice.is_of(set));
        if let Some(choice) = taken {
            let load = load();
            let (main, uncore) = (choice.roles(), choice.uncore_roles());
            lines = self.count(choice.attributes(), &main, &events, &mut fates, &load);
            let mut attributes = choice.uncore_attributes().to_vec();
            if !attributes.is_empty() {
                // Cycles too, if there is a counter for them, to hold the busy ones against.
                let mut roles = uncore.clone();
                if let Some(at) = main.iter().position(|role| *role == Role::Cycles) {
                    attributes.push(choice.attributes()[at]);
                    roles.push(Role::Cycles);
                }
                if Group::open(self.senses, &attributes, 0).is_err() {
                    attributes.truncate(uncore.len());
                    roles.truncate(uncore.len());
                }
                self.count(&attributes, &roles, &events, &mut fates, &load);
            }
        }
        let mut findings = self.refusals(&events, &fates);
        let counts = Counts::of(&events, &fates, lines, taken.is_some());
        let mut is_penalty_right = true;
        for ((role, event), fate) in std::iter::zip(&events, &fates) {
            let Some(judged) = counts.judge(*role, event, fate) else {
                continue;
            };
            let is_of_penalty = matches!(role, Role::BusyCycles | Role::Requests);
            is_penalty_right &= !is_of_penalty || judged.verdict == Verdict::Good;
            findings.push(judged);
        }
        findings.extend(counts.penalty().filter(|_| is_penalty_right));
        if let (Some(choice), None) = (self.choice, taken) {
            let found = format!("{} are taken instead", choice.name());
            findings.push(finding("set", Verdict::Weak, found, None));
        }
        findings
    }

    /// Opens an event by itself on the calling thread.
    fn alone(&self, event: &Event) -> Fate {
        let open = |user_only| {
            let attribute = attribute(self.root, event, user_only)?;
            self.senses.open(&attribute, Some(0), None, None)
        };
        let opened = match open(false) {
            Err(Errno::ACCESS | Errno::PERM) => open(true),
            opened => opened,
        };
        match opened {
            Ok(_) => Fate::Opened,
            Err(errno) => Fate::Refused(errno),
        }
    }

    /// Counts a load with a group, and writes down what each of its events counted; gives the lines
    /// that the load fetched.
    fn count(
        &self,
        attributes: &[Attribute],
        roles: &[Role],
        events: &[(Role, &Event)],
        fates: &mut [Fate],
        load: &Load,
    ) -> u64 {
        let mut buffer = vec![0; Group::bytes(attributes.len())];
        let mut lines = 0;
        let counted = Group::open(self.senses, attributes, 0)
            .ok()
            .and_then(|mut group| {
                group.read(&mut buffer)?;
                lines = load();
                let (before, now) = group.read(&mut buffer)?;
                Some(difference(&before, now, attributes.len()))
            });
        // Of a role that several events have, the group has all in their order.
        let mut from = HashMap::new();
        for (at, role) in roles.iter().enumerate() {
            let first = from.entry(*role).or_insert(0_usize);
            let mut of_role = events
                .iter()
                .enumerate()
                .filter(|(_, (other, _))| other == role);
            let Some((place, _)) = of_role.nth(*first) else {
                continue;
            };
            *first += 1;
            fates[place] = match &counted {
                Some(Some(counts)) => Fate::Counted(counts[at]),
                Some(None) | None => Fate::NoTurn,
            };
        }
        lines
    }

    /// What was refused, together where it is for the same reason.
    fn refusals(&self, events: &[(Role, &Event)], fates: &[Fate]) -> Vec<Finding> {
        let mut refused: BTreeMap<i32, (Errno, Vec<String>)> = BTreeMap::new();
        for ((_, event), fate) in std::iter::zip(events, fates) {
            if let Fate::Refused(errno) = fate {
                let of_reason = refused
                    .entry(errno.raw_os_error())
                    .or_insert((*errno, Vec::new()));
                if !of_reason.1.contains(&event.label()) {
                    of_reason.1.push(event.label());
                }
            }
        }
        let finding_of = |(errno, labels): (Errno, Vec<String>)| {
            let pronoun = if labels.len() == 1 { "it" } else { "them" };
            let refusal = self.reasons.counters(pronoun, errno);
            let remedy = Some(refusal.remedy.as_str());
            finding(&labels.join(", "), Verdict::Bad, refusal.reason, remedy)
        };
        refused.into_values().map(finding_of).collect()
    }
}

/// What was counted, by role.
struct Counts {
    by_role: HashMap<Role, u64>,
    refused: HashSet<Role>,
    /// Lines that the load fetched from memory, or from the caches that were left in its way.
    walked: u64,
    /// Whether the program counts with this set.
    taken: bool,
}

impl Counts {
    fn of(events: &[(Role, &Event)], fates: &[Fate], walked: u64, taken: bool) -> Self {
        let mut by_role = HashMap::new();
        let mut refused = HashSet::new();
        for ((role, _), fate) in std::iter::zip(events, fates) {
            match fate {
                Fate::Counted(count) => *by_role.entry(*role).or_insert(0) += count,
                Fate::Refused(_) => {
                    refused.insert(*role);
                }
                Fate::Opened | Fate::NoTurn => {}
            }
        }
        Self {
            by_role,
            refused,
            walked,
            taken,
        }
    }

    fn get(&self, role: Role) -> Option<u64> {
        self.by_role.get(&role).copied()
    }

    /// What to say of an event that could be opened.
    fn judge(&self, role: Role, event: &Event, fate: &Fate) -> Option<Finding> {
        let label = event.label();
        let with = |verdict, found: String, remedy| Some(finding(&label, verdict, found, remedy));
        let count = match fate {
            Fate::Refused(_) => return None,
            Fate::Opened if !self.taken => {
                return with(Verdict::Good, "can be opened".to_owned(), None);
            }
            Fate::Opened if self.lacks_counterpart(role) => {
                let found = "can be opened, but is of no use without its counterpart".to_owned();
                return with(Verdict::Weak, found, None);
            }
            Fate::Opened => {
                let mut found = "opens alone, but not together with the others".to_owned();
                if let [first, rest @ ..] = event.counters() {
                    let others = rest.iter().map(|counter| format!(" or {counter}"));
                    let others: String = others.collect();
                    found += &format!(": only counter {first}{others} can count it");
                }
                let remedy = "stop other users of the counters (sysctl kernel.nmi_watchdog=0)";
                return with(Verdict::Weak, found, Some(remedy));
            }
            Fate::NoTurn => {
                let found = "had no turn: others use the counters too".to_owned();
                let remedy = "stop the other profiler, or the NMI watchdog (sysctl \
                              kernel.nmi_watchdog=0)";
                return with(Verdict::Weak, found, Some(remedy));
            }
            Fate::Counted(count) => *count,
        };
        let walked = self.walked;
        let what = role.to_string();
        let what = if what == label {
            String::new()
        } else {
            what + ": "
        };
        let plainly = format!("{what}{count} in a walk over {walked} lines");
        let bad = |what: &str| {
            let found = format!("counts {what}: {plainly}");
            with(Verdict::Bad, found, Some(OTHER_EVENTS))
        };
        let cannot_be = "what cannot be";
        match role {
            // A walk at random, on the node of its memory, need show neither of these.
            Role::Prefetches => with(Verdict::Good, plainly, None),
            Role::Local | Role::Remote if self.came_from() > 0 => {
                with(Verdict::Good, plainly, None)
            }
            Role::Local | Role::Remote => bad("nothing, as does its counterpart"),
            _ if count == 0 => bad("nothing"),
            Role::Instructions if count < walked => bad(cannot_be),
            Role::Cycles if count < walked / 4 => bad(cannot_be),
            Role::Lines | Role::Requests | Role::Both if count > walked.saturating_mul(16) => {
                bad(cannot_be)
            }
            Role::Lines | Role::Requests | Role::Both if count < walked / 4 => {
                let found = format!("counts few: {plainly}");
                let remedy = "does the machine have a cache that the kernel does not report? \
                              Otherwise the event counts something else";
                with(Verdict::Weak, found, Some(remedy))
            }
            Role::BusyCycles if self.is_beyond_cycles(count) => {
                let cycles = self.get(Role::Cycles).unwrap_or(0);
                let found = format!("counts what cannot be: {role}: {count} of {cycles} cycles");
                with(Verdict::Bad, found, Some(OTHER_EVENTS))
            }
            _ => with(Verdict::Good, plainly, None),
        }
    }

    /// Whether it was refused what alone would give the event its sense.
    fn lacks_counterpart(&self, role: Role) -> bool {
        let group: &[Role] = match role {
            Role::Local | Role::Remote | Role::Both => &[Role::Local, Role::Remote, Role::Both],
            Role::BusyCycles | Role::Requests => &[Role::BusyCycles, Role::Requests],
            _ => &[],
        };
        group.iter().any(|other| self.refused.contains(other))
    }

    /// Lines whose origin was told.
    fn came_from(&self) -> u64 {
        let of = |role| self.get(role).unwrap_or(0);
        of(Role::Local) + of(Role::Remote) + of(Role::Both)
    }

    /// Whether more cycles had a request outstanding than there were, beyond what differs between two
    /// walks.
    fn is_beyond_cycles(&self, busy: u64) -> bool {
        let cycles = self.get(Role::Cycles);
        cycles.is_some_and(|cycles| busy > cycles.saturating_add(cycles / 50))
    }

    fn penalty(&self) -> Option<Finding> {
        let busy = self.get(Role::BusyCycles)?;
        let requests = self.get(Role::Requests).filter(|requests| *requests > 0)?;
        let penalty = busy as f64 / requests as f64;
        let found = format!("{penalty:.1} cycles a request in that walk, eight reads at a time");
        Some(finding("uncore penalty", Verdict::Good, found, None))
    }
}

#[cfg(test)]
mod tests;
