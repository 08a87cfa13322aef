//! Hardware counters of each thread: one group per thread, read with one call a tick.
//!
//! All events of a group count together or not at all, so their ratios hold even when the kernel
//! shares the counters out in turns (multiplexing); counts are then scaled by enabled / running
//! time of the interval, and the share says how much was really counted. Groups are not inherited:
//! a new thread is found by the scan and gets its own.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use numaherd_world::{Counts, Signal, SignalReport, SignalState, ThreadId};

use crate::events::{COUNTER_SETS, CounterSet, Event, Machine, Split};
use crate::files::Root;
use crate::kernel::{Attribute, Errno, Senses, flag};
use crate::pmu::Pmu;
use crate::proc::cpuinfo::Processor;
use crate::reasons::{Reasons, Refusal};

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 8;

/// The events chosen for this machine.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    set: &'static CounterSet,
    /// In the order of the group: instructions, lines…, then what could be had of prefetches, the
    /// split and cycles.
    attributes: Vec<Attribute>,
    lines: std::ops::Range<usize>,
    split: Option<usize>,
    cycles: Option<usize>,
    with_prefetches: bool,
    user_only: bool,
}

/// Finds the best set of events that this machine lets us count.
///
/// # Errors
/// Why none can be counted: what the most fitting set that was tried came to.
pub(crate) fn choose(
    senses: &dyn Senses,
    root: &Root,
    processor: &Processor,
    reasons: &Reasons,
) -> Result<Choice, Refusal> {
    let mut first_refusal = None;
    for set in COUNTER_SETS.iter().filter(|set| fits(set, root, processor)) {
        for user_only in [false, true] {
            match try_set(senses, root, set, user_only) {
                Ok(choice) => return Ok(choice),
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
    Err(first_refusal.expect("the last set fits every machine"))
}

fn fits(set: &CounterSet, root: &Root, processor: &Processor) -> bool {
    match &set.machine {
        Machine::Pmu(name) => Pmu::find(root, name).is_some(),
        Machine::Models {
            vendor,
            family,
            models,
        } => {
            processor.vendor == *vendor
                && processor.family == *family
                && models.iter().any(|range| range.contains(&processor.model))
        }
        Machine::Any => true,
    }
}

fn attribute(root: &Root, event: &Event, user_only: bool) -> Result<Attribute, Errno> {
    let mut attribute = match *event {
        Event::Coded {
            kind,
            config,
            config1,
            ..
        } => Attribute {
            kind,
            config,
            config1,
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

/// Opens the set on the calling thread, what is optional as far as it goes.
fn try_set(
    senses: &dyn Senses,
    root: &Root,
    set: &'static CounterSet,
    user_only: bool,
) -> Result<Choice, (String, Errno)> {
    let mut attributes = Vec::new();
    let mut open: Vec<OwnedFd> = Vec::new();
    let mut add = |event: &Event, attributes: &mut Vec<Attribute>| -> Result<(), (String, Errno)> {
        let named = |errno| (event.label(), errno);
        let attribute = attribute(root, event, user_only).map_err(named)?;
        let leader = open.first().map(AsFd::as_fd);
        let fd = senses
            .open(&attribute, Some(0), None, leader)
            .map_err(named)?;
        open.push(fd);
        attributes.push(attribute);
        Ok(())
    };
    add(&set.instructions, &mut attributes)?;
    for event in set.lines {
        add(event, &mut attributes)?;
    }
    let with_prefetches = set
        .prefetches
        .is_some_and(|event| add(&event, &mut attributes).is_ok());
    let lines = 1..attributes.len();
    let split = set.split.and_then(|split| {
        let at = attributes.len();
        let [first, second] = split.events();
        add(&first, &mut attributes).ok()?;
        if add(&second, &mut attributes).is_err() {
            attributes.pop();
            return None;
        }
        Some(at)
    });
    let cycles = {
        let at = attributes.len();
        add(&set.cycles, &mut attributes).ok().map(|()| at)
    };
    Ok(Choice {
        set,
        attributes,
        lines,
        split,
        cycles,
        with_prefetches,
        user_only,
    })
}

impl Choice {
    /// What can be said of the miss rate.
    pub(crate) fn miss_rate(&self) -> SignalReport {
        let mut events: Vec<String> = self.set.lines.iter().map(Event::label).collect();
        let mut caveats: Vec<&str> = self.set.caveat.into_iter().collect();
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
        let source = match &self.set.split? {
            Split::Each { local, remote } => format!("{} and {}", local.label(), remote.label()),
            Split::All { both, remote } => format!("{} less {}", both.label(), remote.label()),
        };
        let caveats: Vec<&str> = self.set.split_caveat.into_iter().collect();
        Some(self.report(Signal::LocalRemote, &source, &caveats))
    }

    fn report(&self, signal: Signal, source: &str, caveats: &[&str]) -> SignalReport {
        let mut caveats = caveats.to_vec();
        if self.user_only {
            caveats.push("what the kernel does for a thread is not counted (no permission)");
        }
        let state = SignalState::Measured {
            source: format!("{source} ({})", self.set.name),
            caveat: (!caveats.is_empty()).then(|| caveats.join("; ")),
        };
        SignalReport { signal, state }
    }

    /// Names the set.
    pub(crate) fn name(&self) -> &'static str {
        self.set.name
    }

    fn counts(&self, before: &Reading, now: &Reading) -> Option<Counts> {
        let enabled = now.enabled.checked_sub(before.enabled)?;
        let running = now.running.checked_sub(before.running)?;
        if running == 0 || now.values.len() != self.attributes.len() {
            return None;
        }
        let scaled = |at: usize| {
            let counted =
                now.values[at].saturating_sub(before.values.get(at).copied().unwrap_or(0));
            scale(counted, enabled, running)
        };
        let (local, remote) = match (self.split, self.set.split) {
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
}

fn scale(counted: u64, enabled: u64, running: u64) -> u64 {
    if running >= enabled {
        return counted;
    }
    let scaled = u128::from(counted) * u128::from(enabled) / u128::from(running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// What reading a group gives: times in ns and a value per event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    enabled: u64,
    running: u64,
    values: Vec<u64>,
}

/// Understands what `read` gave (`struct read_format` of a group); `None` when it is cut short.
fn parse_group(bytes: &[u8]) -> Option<Reading> {
    let mut numbers = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|chunk| u64::from_ne_bytes(*chunk));
    let events = usize::try_from(numbers.next()?).ok()?;
    let enabled = numbers.next()?;
    let running = numbers.next()?;
    let values: Vec<u64> = numbers.take(events).collect();
    (values.len() == events).then_some(Reading {
        enabled,
        running,
        values,
    })
}

/// The counters of one thread; the first is the leader that is read.
#[derive(Debug)]
struct Group {
    events: Vec<OwnedFd>,
    last: Reading,
}

/// The counters of all watched threads.
#[derive(Debug)]
pub(crate) struct Counters {
    choice: Choice,
    groups: HashMap<ThreadId, Group>,
    buffer: Vec<u8>,
    /// Threads that could not be given counters in this tick, by what the kernel said.
    refused: HashMap<Errno, usize>,
    /// Threads that ran in this tick while their counters had no turn.
    without_turn: usize,
}

impl Counters {
    pub(crate) fn new(choice: Choice) -> Self {
        let buffer = vec![0; (3 + choice.attributes.len()) * 8];
        Self {
            choice,
            groups: HashMap::new(),
            buffer,
            refused: HashMap::new(),
            without_turn: 0,
        }
    }

    /// The counts of a thread since the last call for it; `None` at first sight, or when it did not
    /// run or had no turn.
    pub(crate) fn read(&mut self, senses: &dyn Senses, thread: ThreadId) -> Option<Counts> {
        let Some(group) = self.groups.get_mut(&thread) else {
            match open_group(senses, &self.choice, thread.tid) {
                Ok(group) => {
                    self.groups.insert(thread, group);
                }
                Err(errno) => *self.refused.entry(errno).or_default() += 1,
            }
            return None;
        };
        let length = rustix::io::read(&group.events[0], &mut *self.buffer).ok()?;
        let now = parse_group(self.buffer.get(..length)?)?;
        let counts = self.choice.counts(&group.last, &now);
        if counts.is_none() && now.enabled > group.last.enabled {
            self.without_turn += 1;
        }
        group.last = now;
        counts
    }

    /// Forgets threads that are there no more, and says what went wrong in this tick.
    pub(crate) fn end_tick(&mut self, alive: impl Fn(ThreadId) -> bool) -> Vec<String> {
        self.groups.retain(|thread, _| alive(*thread));
        let mut gaps: Vec<String> = self
            .refused
            .drain()
            // A thread that ended between scan and opening is no gap.
            .filter(|(errno, _)| *errno != Errno::SRCH)
            .map(|(errno, threads)| {
                let help = match errno {
                    Errno::MFILE | Errno::NFILE => "raise the limit of open files (ulimit -n)",
                    Errno::ACCESS | Errno::PERM => "they belong to others: CAP_PERFMON is needed",
                    _ => "see perf_event_open(2)",
                };
                format!("{threads} threads have no counters: {errno}; {help}")
            })
            .collect();
        if self.without_turn > 0 {
            gaps.push(format!(
                "the counters of {} threads had no turn: others use them too (the NMI watchdog, \
                 another profiler)",
                self.without_turn
            ));
            self.without_turn = 0;
        }
        gaps.sort();
        gaps
    }
}

fn open_group(senses: &dyn Senses, choice: &Choice, tid: u32) -> Result<Group, Errno> {
    let mut events: Vec<OwnedFd> = Vec::with_capacity(choice.attributes.len());
    for attribute in &choice.attributes {
        let leader = events.first().map(AsFd::as_fd);
        let event = senses.open(attribute, Some(tid), None, leader)?;
        events.push(event);
    }
    Ok(Group {
        events,
        last: Reading::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;
    use proptest::prelude::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn anything() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    fn skylake() -> Processor {
        Processor {
            vendor: "GenuineIntel".into(),
            family: 6,
            model: 0x55,
            ..Processor::default()
        }
    }

    fn choose_with(
        senses: &dyn Senses,
        root: &Root,
        processor: &Processor,
    ) -> Result<Choice, Refusal> {
        choose(senses, root, processor, &Reasons::new(root, processor))
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
        let (_folder, root) = root();
        let senses = fake::Counters(|_: &Attribute, _, _| Ok(anything()));
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("longest_lat_cache.miss"));
        assert!(caveat(&choice.local_remote().unwrap()).contains("retired loads"));
    }

    #[test]
    fn an_unknown_one_gets_the_generic_events_with_what_it_can() {
        let (_folder, root) = root();
        // No prefetch and no node events.
        let senses = fake::Counters(|a: &Attribute, _, _| {
            if a.kind == 3 {
                Err(Errno::NOENT)
            } else {
                Ok(anything())
            }
        });
        let choice = choose_with(&senses, &root, &Processor::default()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("prefetches are not counted"));
        assert!(choice.local_remote().is_none());
    }

    #[test]
    fn the_labs_pmu_is_preferred() {
        let (folder, root) = root();
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
        ];
        for (number, name) in names.iter().enumerate() {
            std::fs::write(pmu.join("events").join(name), format!("event={number:#x}")).unwrap();
        }
        let senses = fake::Counters(|a: &Attribute, _, _| {
            assert_eq!(a.kind, 31);
            Ok(anything())
        });
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        let said = caveat(&choice.miss_rate());
        assert!(said.starts_with("lab/llc_miss/ + lab/prefetch/"), "{said}");
        let codes: Vec<u64> = choice.attributes.iter().map(|a| a.config).collect();
        assert_eq!(codes, [0, 2, 3, 4, 5, 1]);
    }

    #[test]
    fn without_permission_for_the_kernel_only_the_program_is_counted() {
        let (_folder, root) = root();
        let senses = fake::Counters(|a: &Attribute, _, _| {
            if a.flags & flag::EXCLUDE_KERNEL == 0 {
                Err(Errno::ACCESS)
            } else {
                Ok(anything())
            }
        });
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        assert!(caveat(&choice.miss_rate()).contains("no permission"));
    }

    #[test]
    fn permission_and_hardware_are_told_apart() {
        let (folder, root) = root();
        let sysctl = folder.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&sysctl).unwrap();
        std::fs::write(sysctl.join("perf_event_paranoid"), "3\n").unwrap();
        let refusal = |errno: Errno, hypervisor: bool| {
            let senses = fake::Counters(move |_: &Attribute, _, _| Err(errno));
            let processor = Processor {
                hypervisor,
                ..skylake()
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

    /// A group file as the kernel would answer it.
    fn group(enabled: u64, running: u64, values: &[u64]) -> Vec<u8> {
        [values.len() as u64, enabled, running]
            .iter()
            .chain(values)
            .flat_map(|number| number.to_ne_bytes())
            .collect()
    }

    #[test]
    fn counts_of_the_interval_scaled_to_all_of_it() {
        let (_folder, root) = root();
        let senses = fake::Counters(|_: &Attribute, _, _| Ok(anything()));
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        // Instructions, lines, local, remote, cycles.
        let before = parse_group(&group(100, 100, &[1000, 10, 5, 5, 2000])).unwrap();
        let now = parse_group(&group(300, 200, &[2000, 30, 15, 10, 4000])).unwrap();
        let counts = choice.counts(&before, &now).unwrap();
        assert_eq!(counts.instructions, 2000);
        assert_eq!(counts.lines, 40);
        assert_eq!((counts.local, counts.remote), (Some(20), Some(10)));
        assert_eq!(counts.cycles, Some(4000));
        assert!((counts.counted_share - 0.5).abs() < 1e-12);
        assert_eq!(
            choice.counts(&now, &now),
            None,
            "a thread that did not run has no counts"
        );
    }

    #[test]
    fn a_thread_is_counted_from_its_second_tick_and_closed_when_it_ends() {
        let (_folder, root) = root();
        let reads = AtomicU64::new(0);
        let senses = fake::Counters(move |_: &Attribute, _, _| {
            // Every event is a file that holds a group; only the leader's is read, from its place on.
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&group(10, 10, &[100, 1, 1, 0, 200]))
                .unwrap();
            file.write_all(&group(20, 20, &[200, 3, 1, 2, 400]))
                .unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(file.into())
        });
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        let mut counters = Counters::new(choice);
        let thread = ThreadId { tid: 4, born: 40 };
        assert_eq!(counters.read(&senses, thread), None);
        assert_eq!(counters.read(&senses, thread).unwrap().instructions, 100);
        let second = counters.read(&senses, thread).unwrap();
        assert_eq!(
            (second.instructions, second.lines, second.remote),
            (100, 2, Some(2))
        );
        assert!(counters.end_tick(|_| false).is_empty());
        assert!(counters.groups.is_empty());
    }

    #[test]
    fn threads_without_counters_are_a_gap() {
        let (_folder, root) = root();
        let senses = fake::Counters(|_: &Attribute, tid, _| match tid {
            Some(0) => Ok(anything()),
            Some(1) => Err(Errno::SRCH),
            _ => Err(Errno::MFILE),
        });
        let choice = choose_with(&senses, &root, &skylake()).unwrap();
        let mut counters = Counters::new(choice);
        for tid in 1..4 {
            assert_eq!(counters.read(&senses, ThreadId { tid, born: 1 }), None);
        }
        let gaps = counters.end_tick(|_| true);
        assert_eq!(gaps.len(), 1);
        assert!(
            gaps[0].starts_with("2 threads") && gaps[0].contains("ulimit"),
            "{gaps:?}"
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_group(&bytes);
        }

        #[test]
        fn scaling_never_shrinks(counted: u64, enabled: u64, running in 1u64..) {
            prop_assert!(scale(counted, enabled, running) >= counted);
        }
    }
}
