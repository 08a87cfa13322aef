//! Which events this machine lets us count: the first set of the table that is of this machine and
//! can be opened, and what can be said of the signals that come of it.
//!
//! Tried on the calling thread, each group as a whole: what opens alone may not fit the counters
//! together.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use numaherd_world::{Counts, Signal, SignalReport, SignalState};

use crate::counters::{Reading, scale};
use crate::events::{CounterSet, Event, EventTable, Machine, Role, Split, Uncore};
use crate::files::Root;
use crate::kernel::{Attribute, Errno, Senses, flag};
use crate::perf_errors::{Reasons, Refusal};
use crate::pmu::Pmu;
use crate::proc::cpuinfo::Processor;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 8;

/// The events chosen for this machine.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    set: Arc<CounterSet>,
    /// In the order of the group: instructions, lines…, then what could be had of prefetches, the
    /// split and cycles.
    attributes: Vec<Attribute>,
    lines: std::ops::Range<usize>,
    split: Option<usize>,
    cycles: Option<usize>,
    with_prefetches: bool,
    user_only: bool,
    /// The group of the uncore penalty: busy cycles, requests…; or why there is none.
    uncore: Result<Vec<Attribute>, Refusal>,
}

/// Finds the best set of events that this machine lets us count.
///
/// # Errors
/// Why none can be counted: what the most fitting set that was tried came to.
pub(crate) fn choose(
    senses: &dyn Senses,
    root: &Root,
    table: &EventTable,
    processor: &Processor,
    reasons: &Reasons,
) -> Result<Choice, Refusal> {
    let mut first_refusal = None;
    for set in sets_of(table, root, processor) {
        for user_only in [false, true] {
            match try_set(senses, root, set, user_only) {
                Ok(mut choice) => {
                    choice.uncore = try_uncore(senses, root, set, user_only, reasons);
                    return Ok(choice);
                }
                Err((event, errno)) => {
                    let refusal = reasons.counters(&event, errno);
                    first_refusal.get_or_insert(refusal);
                    // Only a lack of permission is helped by asking for less.
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

/// The sets that are of this machine, in the order in which they are tried.
pub(crate) fn sets_of<'t>(
    table: &'t EventTable,
    root: &Root,
    processor: &Processor,
) -> impl Iterator<Item = &'t Arc<CounterSet>> {
    table.sets().iter().filter(|set| match &set.machine {
        Machine::Pmu(name) => Pmu::find(root, name).is_some(),
        machine => machine.is(processor),
    })
}

/// What to ask the kernel for.
///
/// # Errors
/// `ENOENT` where the machine has no event of that name.
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

/// Opens events on the calling thread as one group, as far as they go.
struct Trial<'k> {
    senses: &'k dyn Senses,
    root: &'k Root,
    user_only: bool,
    open: Vec<OwnedFd>,
    attributes: Vec<Attribute>,
}

impl<'k> Trial<'k> {
    fn new(senses: &'k dyn Senses, root: &'k Root, user_only: bool) -> Self {
        Self {
            senses,
            root,
            user_only,
            open: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// Adds an event to the group.
    fn add(&mut self, event: &Event) -> Result<(), (String, Errno)> {
        let named = |errno| (event.label(), errno);
        let attribute = attribute(self.root, event, self.user_only).map_err(named)?;
        let leader = self.open.first().map(AsFd::as_fd);
        let opened = self.senses.open(&attribute, Some(0), None, leader);
        self.open.push(opened.map_err(named)?);
        self.attributes.push(attribute);
        Ok(())
    }

    /// Takes the last event out again.
    fn remove_last(&mut self) {
        self.open.pop();
        self.attributes.pop();
    }
}

/// Opens the set, what is optional as far as it goes; without the uncore penalty.
fn try_set(
    senses: &dyn Senses,
    root: &Root,
    set: &Arc<CounterSet>,
    user_only: bool,
) -> Result<Choice, (String, Errno)> {
    let mut trial = Trial::new(senses, root, user_only);
    trial.add(&set.instructions)?;
    for event in &set.lines {
        trial.add(event)?;
    }
    let prefetches = set.prefetches.as_ref();
    let with_prefetches = prefetches.is_some_and(|event| trial.add(event).is_ok());
    let lines = 1..trial.attributes.len();
    let split = set.split.as_ref().and_then(|split| {
        let at = trial.attributes.len();
        let [first, second] = split.events();
        trial.add(first).ok()?;
        if trial.add(second).is_err() {
            trial.remove_last();
            return None;
        }
        Some(at)
    });
    let cycles = {
        let at = trial.attributes.len();
        trial.add(&set.cycles).ok().map(|()| at)
    };
    Ok(Choice {
        set: set.clone(),
        attributes: trial.attributes,
        lines,
        split,
        cycles,
        with_prefetches,
        user_only,
        uncore: Ok(Vec::new()),
    })
}

/// Opens the group of the uncore penalty.
fn try_uncore(
    senses: &dyn Senses,
    root: &Root,
    set: &CounterSet,
    user_only: bool,
    reasons: &Reasons,
) -> Result<Vec<Attribute>, Refusal> {
    let (busy_cycles, requests) = match &set.uncore {
        Uncore::Counted {
            busy_cycles,
            requests,
            ..
        } => (busy_cycles, requests),
        Uncore::Missing { reason, remedy } => {
            return Err(Refusal::new(format!("{}: {reason}", set.name), remedy));
        }
    };
    let mut trial = Trial::new(senses, root, user_only);
    for event in std::iter::once(busy_cycles).chain(requests) {
        trial
            .add(event)
            .map_err(|(event, errno)| reasons.counters(&event, errno))?;
    }
    Ok(trial.attributes)
}

impl Choice {
    /// What can be said of the miss rate.
    pub(crate) fn miss_rate(&self) -> SignalReport {
        let mut events: Vec<String> = self.set.lines.iter().map(Event::label).collect();
        let mut caveats: Vec<&str> = self.set.caveat.as_deref().into_iter().collect();
        match &self.set.prefetches {
            Some(event) if self.with_prefetches => events.push(event.label()),
            Some(_) => {
                caveats.push("prefetches are not counted: the machine has no event for them");
            }
            None => {}
        }
        self.report(Signal::MissRate, &events.join(" + "), &caveats)
    }

    /// What can be said of local and remote lines; `None` where they are not told apart.
    pub(crate) fn local_remote(&self) -> Option<SignalReport> {
        self.split?;
        let source = match self.set.split.as_ref()? {
            Split::Each { local, remote } => format!("{} and {}", local.label(), remote.label()),
            Split::All { both, remote } => format!("{} less {}", both.label(), remote.label()),
        };
        let caveats: Vec<&str> = self.set.split_caveat.as_deref().into_iter().collect();
        Some(self.report(Signal::LocalRemote, &source, &caveats))
    }

    /// What can be said of the uncore penalty.
    pub(crate) fn uncore_penalty(&self) -> SignalReport {
        match (&self.uncore, &self.set.uncore) {
            (
                Ok(_),
                Uncore::Counted {
                    busy_cycles,
                    requests,
                    caveat,
                },
            ) => {
                let requests: Vec<String> = requests.iter().map(Event::label).collect();
                let requests = match requests.as_slice() {
                    [one] => one.clone(),
                    _ => format!("({})", requests.join(" + ")),
                };
                let source = format!("{} / {requests}", busy_cycles.label());
                let caveats: Vec<&str> = caveat.as_deref().into_iter().collect();
                self.report(Signal::UncorePenalty, &source, &caveats)
            }
            (Err(Refusal { reason, remedy }), _) | (Ok(_), Uncore::Missing { reason, remedy }) => {
                SignalReport {
                    signal: Signal::UncorePenalty,
                    state: SignalState::Missing {
                        reason: reason.clone(),
                        remedy: remedy.clone(),
                    },
                }
            }
        }
    }

    fn report(&self, signal: Signal, source: &str, caveats: &[&str]) -> SignalReport {
        let mut caveats = caveats.to_vec();
        if self.user_only {
            caveats.push("kernel activity on behalf of threads is not counted (no permission)");
        }
        let state = SignalState::Measured {
            source: format!("{source} ({})", self.set.name),
            caveat: (!caveats.is_empty()).then(|| caveats.join("; ")),
        };
        SignalReport { signal, state }
    }

    /// Names the set.
    pub(crate) fn name(&self) -> &str {
        &self.set.name
    }

    /// Whether these are the events of that set.
    pub(crate) fn is_of(&self, set: &Arc<CounterSet>) -> bool {
        Arc::ptr_eq(&self.set, set)
    }

    /// What the events of the group that every thread gets are for.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let is_taken = |role: &Role| match role {
            Role::Prefetches => self.with_prefetches,
            Role::Local | Role::Remote | Role::Both => self.split.is_some(),
            Role::Cycles => self.cycles.is_some(),
            Role::Instructions | Role::Lines => true,
            Role::BusyCycles | Role::Requests => false,
        };
        let roles = self.set.events().into_iter().map(|(role, _)| role);
        roles.filter(is_taken).collect()
    }

    /// What the events of the group of the uncore penalty are for; empty where there is none.
    pub(crate) fn uncore_roles(&self) -> Vec<Role> {
        let events = self.uncore_attributes().len();
        let roles = std::iter::once(Role::BusyCycles).chain(std::iter::repeat(Role::Requests));
        roles.take(events).collect()
    }

    /// The group that every thread gets, its leader first.
    pub(crate) fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The group of the uncore penalty; empty where there is none.
    pub(crate) fn uncore_attributes(&self) -> &[Attribute] {
        self.uncore.as_deref().unwrap_or_default()
    }

    /// What the group of every thread counted between two readings, without the uncore penalty;
    /// `None` where it had no turn in between.
    pub(crate) fn counts(&self, before: &Reading, now: &Reading) -> Option<Counts> {
        let (enabled, running) = turn(before, now, self.attributes.len())?;
        let scaled = |at: usize| counted(before, now, at, enabled, running);
        let (local, remote) = match (self.split, &self.set.split) {
            (Some(at), Some(Split::Each { .. })) => (Some(scaled(at)), Some(scaled(at + 1))),
            (Some(at), Some(Split::All { .. })) => {
                let remote = scaled(at + 1);
                (Some(scaled(at).saturating_sub(remote)), Some(remote))
            }
            _ => (None, None),
        };
        Some(Counts {
            instructions: scaled(0),
            cycles: self.cycles.map(scaled),
            lines: self.lines.clone().map(scaled).sum(),
            local,
            remote,
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share: (running as f64 / enabled.max(1) as f64).min(1.0),
        })
    }

    /// Cycles with a request outstanding, and requests, between two readings of the group of the
    /// uncore penalty; `None` where it had no turn in between.
    pub(crate) fn uncore_counts(&self, before: &Reading, now: &Reading) -> Option<(u64, u64)> {
        let events = self.uncore_attributes().len();
        let (enabled, running) = turn(before, now, events)?;
        let scaled = |at: usize| counted(before, now, at, enabled, running);
        Some((scaled(0), (1..events).map(scaled).sum()))
    }
}

/// What each event of a group counted between two readings; `None` where it had no turn.
pub(crate) fn difference(before: &Reading, now: &Reading, events: usize) -> Option<Vec<u64>> {
    let (enabled, running) = turn(before, now, events)?;
    let counted = |at| counted(before, now, at, enabled, running);
    Some((0..events).map(counted).collect())
}

/// Time in ns that a group was to count and did count between two readings.
fn turn(before: &Reading, now: &Reading, events: usize) -> Option<(u64, u64)> {
    let enabled = now.enabled.checked_sub(before.enabled)?;
    let running = now.running.checked_sub(before.running)?;
    (running > 0 && now.values.len() == events).then_some((enabled, running))
}

/// What one event of a group counted, scaled to all of the time.
fn counted(before: &Reading, now: &Reading, at: usize, enabled: u64, running: u64) -> u64 {
    let before = before.values.get(at).copied().unwrap_or(0);
    scale(now.values[at].saturating_sub(before), enabled, running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn choose_with(
        senses: &dyn Senses,
        root: &Root,
        processor: &Processor,
    ) -> Result<Choice, Refusal> {
        let reasons = Reasons::new(root, processor);
        choose(senses, root, EventTable::built_in(), processor, &reasons)
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
        let senses = fake::Counters(|_: &Attribute, _, _| Ok(fake::anything()));
        let choice = choose_with(&senses, &root, &fake::skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("longest_lat_cache.miss"));
        assert!(caveat(&choice.local_remote().unwrap()).contains("retired loads"));
    }

    #[test]
    fn an_unknown_one_gets_the_generic_events_with_what_it_can() {
        let (_folder, root) = fake::root();
        // No prefetch and no node events.
        let senses = fake::Counters(|a: &Attribute, _, _| {
            if a.kind == 3 {
                Err(Errno::NOENT)
            } else {
                Ok(fake::anything())
            }
        });
        let choice = choose_with(&senses, &root, &Processor::default()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("prefetches are not counted"));
        assert!(choice.local_remote().is_none());
    }

    #[test]
    fn the_uncore_penalty_is_two_events_or_why_not() {
        let (_folder, root) = fake::root();
        let report = |model: u32, refused: Option<u64>| {
            let senses = fake::Counters(move |a: &Attribute, _, _| {
                if refused == Some(a.config) {
                    return Err(Errno::INVAL);
                }
                Ok(fake::anything())
            });
            let processor = Processor {
                model,
                ..fake::skylake()
            };
            let choice = choose_with(&senses, &root, &processor).unwrap();
            assert!(choice.miss_rate().is_measured());
            assert_eq!(
                choice.uncore_attributes().is_empty(),
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
        let senses = fake::Counters(|a: &Attribute, _, _| {
            assert_eq!(a.kind, 31);
            Ok(fake::anything())
        });
        let choice = choose_with(&senses, &root, &fake::skylake()).unwrap();
        let said = caveat(&choice.miss_rate());
        assert!(said.starts_with("lab/llc_miss/ + lab/prefetch/"), "{said}");
        let codes: Vec<u64> = choice.attributes.iter().map(|a| a.config).collect();
        assert_eq!(codes, [0, 2, 3, 4, 5, 1]);
        let pair: Vec<u64> = choice
            .uncore_attributes()
            .iter()
            .map(|a| a.config)
            .collect();
        assert_eq!(pair, [7, 6]);
    }

    #[test]
    fn without_permission_for_the_kernel_only_the_program_is_counted() {
        let (_folder, root) = fake::root();
        let senses = fake::Counters(|a: &Attribute, _, _| {
            if a.flags & flag::EXCLUDE_KERNEL == 0 {
                Err(Errno::ACCESS)
            } else {
                Ok(fake::anything())
            }
        });
        let choice = choose_with(&senses, &root, &fake::skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("no permission"));
    }

    #[test]
    fn permission_and_hardware_are_told_apart() {
        let (folder, root) = fake::root();
        let sysctl = folder.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&sysctl).unwrap();
        std::fs::write(sysctl.join("perf_event_paranoid"), "3\n").unwrap();
        let refusal = |errno: Errno, hypervisor: bool| {
            let senses = fake::Counters(move |_: &Attribute, _, _| Err(errno));
            let processor = Processor {
                hypervisor,
                ..fake::skylake()
            };
            choose_with(&senses, &root, &processor).unwrap_err()
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
