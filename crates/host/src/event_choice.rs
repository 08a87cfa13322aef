//! Which events this machine lets us count: the first set of the table that applies to this machine
//! and can be opened, and what it says about the signals.
//!
//! Tried on the calling thread, each group as a whole: what opens alone may not fit the counters
//! together.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use numaherd_world::{Counts, Signal, SignalReport};

use crate::counters::Reading;
use crate::events::{AppliesTo, CounterSet, Event, EventTable, Role};
use crate::files::Root;
use crate::kernel::{Attribute, Errno, Kernel, flag};
use crate::perf_errors::{Reasons, Refusal};
use crate::pmu::Pmu;
use crate::proc::cpuinfo::Processor;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 8;

/// The events chosen for this machine.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) set: Arc<CounterSet>,
    /// The group that every thread gets: instructions, lines…, then what is available of prefetches,
    /// the split and cycles.
    pub(crate) main: Group,
    /// The group of the uncore penalty: busy cycles, requests…; or why there is none.
    pub(crate) uncore: Result<Group, Refusal>,
    user_only: bool,
}

/// Events that are counted together, the leader first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The index of each event in [`CounterSet::events`].
    pub(crate) places: Vec<usize>,
    /// The role of each.
    roles: Vec<Role>,
    /// What the kernel is asked for.
    pub(crate) attributes: Vec<Attribute>,
}

impl Group {
    /// Whether it has an event with this role.
    fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Adds another group's event with this role, if it has one.
    pub(crate) fn add_from(&mut self, other: &Self, role: Role) {
        if let Some(at) = other.roles.iter().position(|of| *of == role) {
            self.push(other.places[at], role, other.attributes[at]);
        }
    }

    fn push(&mut self, place: usize, role: Role, attribute: Attribute) {
        self.places.push(place);
        self.roles.push(role);
        self.attributes.push(attribute);
    }

    /// Removes the last event.
    pub(crate) fn pop(&mut self) {
        self.places.pop();
        self.roles.pop();
        self.attributes.pop();
    }

    /// The sum of what the events with a role counted between two readings; `None` if the group has
    /// no such event.
    fn counted(&self, role: Role, before: &Reading, now: &Reading) -> Option<u64> {
        let places = (0..self.roles.len()).filter(|&at| self.roles[at] == role);
        let counts = places.map(|at| now.counted_since(before, at));
        self.has(role).then(|| counts.sum())
    }
}

/// Finds the best set of events that this machine lets us count.
///
/// # Errors
/// Why none can be counted: the refusal of the best-fitting set that was tried.
pub(crate) fn choose(
    kernel: &dyn Kernel,
    root: &Root,
    table: &EventTable,
    processor: &Processor,
    reasons: &Reasons,
) -> Result<Choice, Refusal> {
    let mut first_refusal = None;
    for set in sets_of(table, root, processor) {
        for user_only in [false, true] {
            let mut trial = Trial {
                kernel,
                root,
                set,
                user_only,
                open: Vec::new(),
                group: Group::default(),
            };
            match trial.main() {
                Ok(main) => {
                    return Ok(Choice {
                        set: set.clone(),
                        main,
                        uncore: trial.uncore(reasons),
                        user_only,
                    });
                }
                Err((event, errno)) => {
                    let refusal = reasons.counters(&event, errno);
                    first_refusal.get_or_insert(refusal);
                    // Only a lack of permission is cured by asking for less.
                    if !matches!(errno, Errno::ACCESS | Errno::PERM) {
                        break;
                    }
                }
            }
        }
    }
    Err(first_refusal.unwrap_or_else(|| {
        Refusal::new(
            "no set of events is for this machine",
            "use the built-in ones, which have one for every machine",
        )
    }))
}

/// The sets that apply to this machine, in the order of trial.
pub(crate) fn sets_of<'t>(
    table: &'t EventTable,
    root: &Root,
    processor: &Processor,
) -> impl Iterator<Item = &'t Arc<CounterSet>> {
    table.sets().filter(|set| match &set.machine {
        AppliesTo::Pmu(name) => Pmu::find(root, name).is_some(),
        machine => machine.is(processor),
    })
}

/// What to ask the kernel for.
///
/// # Errors
/// `ENOENT` if the machine has no event of that name.
pub(crate) fn attribute(root: &Root, event: &Event, user_only: bool) -> Result<Attribute, Errno> {
    let mut attribute = match event {
        Event::Coded {
            kind,
            config,
            config1,
            ..
        } => Attribute {
            kind: *kind,
            config: *config,
            config1: *config1,
            ..Attribute::default()
        },
        Event::Named { pmu, event } => Pmu::find(root, pmu)
            .and_then(|pmu| pmu.event(event))
            .ok_or(Errno::NOENT)?,
    };
    attribute.read_format = READ_FORMAT;
    if user_only {
        attribute.flags |= flag::EXCLUDE_KERNEL | flag::EXCLUDE_HYPERVISOR;
    }
    Ok(attribute)
}

/// Opens events of a set on the calling thread as one group, as far as they go.
struct Trial<'k> {
    kernel: &'k dyn Kernel,
    root: &'k Root,
    set: &'k CounterSet,
    user_only: bool,
    open: Vec<OwnedFd>,
    group: Group,
}

impl Trial<'_> {
    /// Adds the event at a place of the set to the group; the error is its label and the reason.
    fn add(&mut self, place: usize) -> Result<(), (String, Errno)> {
        let (role, event) = &self.set.events[place];
        let named = |errno| (event.label(), errno);
        let attribute = attribute(self.root, event, self.user_only).map_err(named)?;
        let leader = self.open.first().map(AsFd::as_fd);
        let opened = self.kernel.open(&attribute, Some(0), None, leader);
        self.open.push(opened.map_err(named)?);
        self.group.push(place, *role, attribute);
        Ok(())
    }

    /// Opens the group of every thread, what is optional as far as it goes.
    fn main(&mut self) -> Result<Group, (String, Errno)> {
        for (place, (role, _)) in self.set.events.iter().enumerate() {
            match role {
                Role::Instructions | Role::Lines => self.add(place)?,
                Role::Prefetches | Role::Cycles | Role::Local | Role::Both => {
                    let _ = self.add(place);
                }
                // Each is useless without the other.
                Role::Remote if self.group.has(Role::Local) || self.group.has(Role::Both) => {
                    if self.add(place).is_err() {
                        self.open.pop();
                        self.group.pop();
                    }
                }
                Role::Remote | Role::BusyCycles | Role::Requests => {}
            }
        }
        self.open.clear();
        Ok(std::mem::take(&mut self.group))
    }

    /// Opens the group of the uncore penalty.
    fn uncore(mut self, reasons: &Reasons) -> Result<Group, Refusal> {
        if let Err(Refusal { reason, remedy }) = &self.set.uncore {
            return Err(Refusal::new(format!("{}: {reason}", self.set.name), remedy));
        }
        for (place, (role, _)) in self.set.events.iter().enumerate() {
            if role.is_of_uncore() {
                self.add(place)
                    .map_err(|(event, errno)| reasons.counters(&event, errno))?;
            }
        }
        Ok(self.group)
    }
}

impl Choice {
    /// What it says about the miss rate.
    pub(crate) fn miss_rate(&self) -> SignalReport {
        let mut events = self.set.labels(Role::Lines);
        let prefetches = self.set.labels(Role::Prefetches);
        let mut caveats: Vec<&str> = self.set.caveat.as_deref().into_iter().collect();
        if self.main.has(Role::Prefetches) {
            events.extend(prefetches);
        } else if !prefetches.is_empty() {
            caveats.push("prefetches are not counted: the machine has no event for them");
        }
        self.report(Signal::MissRate, &events.join(" + "), caveats)
    }

    /// What it says about local and remote lines.
    pub(crate) fn local_remote(&self) -> SignalReport {
        if !self.main.has(Role::Remote) {
            let name = &self.set.name;
            return SignalReport::missing(
                Signal::LocalRemote,
                format!("{name} do not distinguish local from remote lines on this machine"),
                "use hardware whose counters do, or the lab",
            );
        }
        let labels = |role| self.set.labels(role).concat();
        let remote = labels(Role::Remote);
        let source = match self.main.has(Role::Local) {
            true => format!("{} and {remote}", labels(Role::Local)),
            false => format!("{} less {remote}", labels(Role::Both)),
        };
        let caveats = self.set.split_caveat.as_deref().into_iter().collect();
        self.report(Signal::LocalRemote, &source, caveats)
    }

    /// What it says about the uncore penalty.
    pub(crate) fn uncore_penalty(&self) -> SignalReport {
        if let Err(refusal) = &self.uncore {
            return refusal.of(Signal::UncorePenalty);
        }
        let requests = match self.set.labels(Role::Requests).as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join(" + ")),
        };
        let busy = self.set.labels(Role::BusyCycles).concat();
        let caveat = self.set.uncore.as_ref().ok().and_then(Option::as_deref);
        let caveats = caveat.into_iter().collect();
        self.report(
            Signal::UncorePenalty,
            &format!("{busy} / {requests}"),
            caveats,
        )
    }

    fn report(&self, signal: Signal, source: &str, mut caveats: Vec<&str>) -> SignalReport {
        if self.user_only {
            caveats.push("kernel activity on behalf of threads is not counted (no permission)");
        }
        let caveat = (!caveats.is_empty()).then(|| caveats.join("; "));
        SignalReport::measured(signal, format!("{source} ({})", self.set.name), caveat)
    }

    /// What every thread's group counted between two readings, without the uncore penalty; `None` if
    /// it had no turn in between.
    pub(crate) fn counts(&self, before: &Reading, now: &Reading) -> Option<Counts> {
        let counted_share = now.turn_since(before, self.main.attributes.len())?;
        let counted = |role| self.main.counted(role, before, now);
        let remote = counted(Role::Remote);
        let both = || Some(counted(Role::Both)?.saturating_sub(remote?));
        Some(Counts {
            instructions: counted(Role::Instructions)?,
            cycles: counted(Role::Cycles),
            lines: counted(Role::Lines)? + counted(Role::Prefetches).unwrap_or(0),
            local: counted(Role::Local).or_else(both),
            remote,
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share,
        })
    }

    /// Cycles with a request outstanding, and requests, between two readings of the uncore penalty's
    /// group; `None` if it had no turn in between.
    pub(crate) fn uncore_counts(&self, before: &Reading, now: &Reading) -> Option<(u64, u64)> {
        let group = self.uncore.as_ref().ok()?;
        now.turn_since(before, group.attributes.len())?;
        let counted = |role| group.counted(role, before, now);
        Some((counted(Role::BusyCycles)?, counted(Role::Requests)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;
    use numaherd_world::SignalState;

    fn choose_with(
        kernel: &dyn Kernel,
        root: &Root,
        processor: &Processor,
    ) -> Result<Choice, Refusal> {
        let reasons = Reasons::new(root, processor);
        choose(kernel, root, EventTable::built_in(), processor, &reasons)
    }

    fn caveat(report: &SignalReport) -> String {
        match &report.state {
            SignalState::Measured { source, caveat } => {
                format!("{source} | {}", caveat.as_deref().unwrap_or(""))
            }
            SignalState::Missing { .. } => panic!("{report:?}"),
        }
    }

    #[test]
    fn a_known_processor_gets_its_own_events() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|_: &Attribute, _, _| Ok(fake::anything()));
        let choice = choose_with(&kernel, &root, &fake::skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("longest_lat_cache.miss"));
        assert!(caveat(&choice.local_remote()).contains("retired loads"));
    }

    #[test]
    fn an_unknown_one_gets_the_generic_events_with_what_it_can() {
        let (_folder, root) = fake::root();
        // No prefetch and no node events.
        let kernel = fake::Counters(|a: &Attribute, _, _| {
            if a.kind == 3 {
                Err(Errno::NOENT)
            } else {
                Ok(fake::anything())
            }
        });
        let choice = choose_with(&kernel, &root, &Processor::default()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("prefetches are not counted"));
        assert!(!choice.local_remote().is_measured());
    }

    #[test]
    fn the_uncore_penalty_is_two_events_or_why_not() {
        let (_folder, root) = fake::root();
        let report = |model: u32, refused: Option<u64>| {
            let kernel = fake::Counters(move |a: &Attribute, _, _| {
                if refused == Some(a.config) {
                    return Err(Errno::INVAL);
                }
                Ok(fake::anything())
            });
            let processor = Processor {
                model,
                ..fake::skylake()
            };
            let choice = choose_with(&kernel, &root, &processor).unwrap();
            assert!(choice.miss_rate().is_measured());
            assert_eq!(
                choice.uncore.is_err(),
                !choice.uncore_penalty().is_measured()
            );
            choice.uncore_penalty()
        };
        let skylake = caveat(&report(0x55, None));
        assert!(
            skylake.starts_with("offcore_requests_outstanding.demand:c1 / offcore_requests.demand"),
            "{skylake}"
        );
        let missing = |report: SignalReport| match report.state {
            SignalState::Missing { reason, remedy } => format!("{reason}; {remedy}"),
            SignalState::Measured { .. } => panic!("{report:?}"),
        };
        let nehalem = missing(report(0x1a, None));
        assert!(nehalem.contains("for a whole socket"), "{nehalem}");
        let no_room = missing(report(0x55, Some(0x7b0)));
        assert!(
            no_room.contains("not together with the others"),
            "{no_room}"
        );
        let unknown = missing(report(0xfff, None));
        assert!(unknown.contains("--events FILE"), "{unknown}");
    }

    #[test]
    fn the_labs_pmu_is_preferred() {
        let (folder, root) = fake::root();
        let pmu = folder.path().join("sys/bus/event_source/devices/lab");
        std::fs::create_dir_all(pmu.join("events")).unwrap();
        std::fs::create_dir_all(pmu.join("format")).unwrap();
        std::fs::write(pmu.join("type"), "31").unwrap();
        std::fs::write(pmu.join("format/event"), "config:0-7").unwrap();
        let names = [
            "instructions",
            "cycles",
            "llc_miss",
            "prefetch",
            "dram_local",
            "dram_remote",
            "offcore_requests",
            "offcore_busy_cycles",
        ];
        for (number, name) in names.iter().enumerate() {
            std::fs::write(pmu.join("events").join(name), format!("event={number:#x}")).unwrap();
        }
        let kernel = fake::Counters(|a: &Attribute, _, _| {
            assert_eq!(a.kind, 31);
            Ok(fake::anything())
        });
        let choice = choose_with(&kernel, &root, &fake::skylake()).unwrap();
        let said = caveat(&choice.miss_rate());
        assert!(said.starts_with("lab/llc_miss/ + lab/prefetch/"), "{said}");
        let codes: Vec<u64> = choice.main.attributes.iter().map(|a| a.config).collect();
        assert_eq!(codes, [0, 2, 3, 4, 5, 1]);
        let pair = choice.uncore.unwrap().attributes;
        let pair: Vec<u64> = pair.iter().map(|a| a.config).collect();
        assert_eq!(pair, [7, 6]);
    }

    #[test]
    fn without_permission_for_the_kernel_only_the_program_is_counted() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|a: &Attribute, _, _| {
            if a.flags & flag::EXCLUDE_KERNEL == 0 {
                Err(Errno::ACCESS)
            } else {
                Ok(fake::anything())
            }
        });
        let choice = choose_with(&kernel, &root, &fake::skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("no permission"));
    }

    #[test]
    fn permission_and_hardware_are_told_apart() {
        let (folder, root) = fake::root();
        let sysctl = folder.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&sysctl).unwrap();
        std::fs::write(sysctl.join("perf_event_paranoid"), "3\n").unwrap();
        let refusal = |errno: Errno, hypervisor: bool| {
            let kernel = fake::Counters(move |_: &Attribute, _, _| Err(errno));
            let processor = Processor {
                hypervisor,
                ..fake::skylake()
            };
            choose_with(&kernel, &root, &processor).unwrap_err()
        };
        let denied = refusal(Errno::ACCESS, false);
        assert!(
            denied.reason.contains("perf_event_paranoid is 3"),
            "{denied:?}"
        );
        assert!(denied.remedy.contains("CAP_PERFMON"), "{denied:?}");
        let virtual_machine = refusal(Errno::NOENT, true);
        assert!(
            virtual_machine.reason.contains("virtual machine"),
            "{virtual_machine:?}"
        );
        let hardware = refusal(Errno::NOENT, false);
        assert!(hardware.reason.contains("no such event"), "{hardware:?}");
        let filtered = refusal(Errno::NOSYS, false);
        assert!(filtered.reason.contains("filter"), "{filtered:?}");
        std::fs::remove_file(sysctl.join("perf_event_paranoid")).unwrap();
        let kernel = refusal(Errno::NOSYS, false);
        assert!(kernel.reason.contains("CONFIG_PERF_EVENTS"), "{kernel:?}");
    }
}
