//! Hardware counters of each thread: one group per thread, read with one call per tick, and another one for the uncore
//! penalty if a policy needs it.
//!
//! All events of a group count together or not at all, so that their ratios hold even while the kernel shares the
//! counters in turns (multiplexing). Counts are then scaled by the interval's enabled / running time, and the share
//! says how much was really counted. Groups are not inherited: the scan finds a new thread, which gets its own.
//!
//! The penalty's events are a separate group because all together would be more than the four counters that a thread of
//! an Intel core with SMT has, and a group that does not fit never counts. Cycles with a request outstanding and
//! requests are in one group, so their quotient covers the same moments; the groups take turns where both do not fit.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use numaherd_world::{Counts, Thread, ThreadId, Unmanaged};

use crate::event_choice::{self, Choice};
use crate::kernel::{Attribute, Errno, Kernel};

/// What reading a group gives: times in ns and a value per event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) enabled: u64,
    pub(crate) running: u64,
    pub(crate) values: Vec<u64>,
}

impl Reading {
    /// The share of the time since an earlier reading in which a group of this many events counted; `None` if it was
    /// none.
    pub(crate) fn turn_since(&self, before: &Self, events: usize) -> Option<f64> {
        let enabled = self.enabled.checked_sub(before.enabled)?;
        let running = self.running.checked_sub(before.running)?;
        let share = (running as f64 / enabled.max(1) as f64).min(1.0);
        (running > 0 && self.values.len() == events).then_some(share)
    }

    /// What an event of the group counted since a reading before, scaled to all of the time.
    pub(crate) fn counted_since(&self, before: &Self, at: usize) -> u64 {
        let counted = self.values[at].saturating_sub(before.values.get(at).copied().unwrap_or(0));
        scale(
            counted,
            self.enabled - before.enabled,
            self.running - before.running,
        )
    }
}

/// Scales a count over part of the time to all of it.
fn scale(counted: u64, enabled: u64, running: u64) -> u64 {
    if running >= enabled {
        return counted;
    }
    let scaled = u128::from(counted) * u128::from(enabled) / u128::from(running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Parses what `read` returned (`struct read_format` of a group); `None` if it is cut short.
pub(crate) fn parse_group(bytes: &[u8]) -> Option<Reading> {
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

/// A group of counters of one thread; the first is the leader that is read.
#[derive(Debug)]
pub(crate) struct Group {
    events: Vec<OwnedFd>,
    last: Reading,
}

impl Group {
    /// Opens a group on a thread; 0 is the calling one.
    pub(crate) fn open(
        kernel: &dyn Kernel,
        attributes: &[Attribute],
        tid: u32,
    ) -> Result<Self, Errno> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            let leader = events.first().map(AsFd::as_fd);
            let event = kernel.open(attribute, Some(tid), None, leader)?;
            events.push(event);
        }
        Ok(Self {
            events,
            last: Reading::default(),
        })
    }

    /// Reads it; returns the previous reading and this one.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>) -> Option<(Reading, &Reading)> {
        // The number of events, two times, and a value for each event.
        buffer.resize((3 + self.events.len()) * 8, 0);
        let length = rustix::io::read(&self.events[0], buffer.as_mut_slice()).ok()?;
        let now = parse_group(buffer.get(..length)?)?;
        let before = std::mem::replace(&mut self.last, now);
        Some((before, &self.last))
    }
}

/// The groups of one thread.
#[derive(Debug)]
struct Groups {
    main: Group,
    /// If a policy needs it.
    uncore: Option<Group>,
}

/// The counters of all watched threads.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) choice: Choice,
    /// Whether the uncore penalty is counted.
    with_uncore: bool,
    groups: HashMap<ThreadId, Groups>,
    /// An event of this thread, open for as long as threads may be counted. Without any, the kernel stops counting
    /// threads, and the next one waits for that to begin again: 20 ms where HZ is 250 (6.12).
    _own: Option<OwnedFd>,
    buffer: Vec<u8>,
    /// Threads that got no counters in this tick, by error.
    refused: HashMap<Errno, usize>,
    /// Threads that ran in this tick while their counters had no turn.
    without_turn: usize,
}

impl Counters {
    pub(crate) fn new(kernel: &dyn Kernel, choice: Choice) -> Self {
        let own = choice.main.attributes.first();
        Self {
            _own: own.and_then(|event| kernel.open(event, Some(0), None, None).ok()),
            choice,
            with_uncore: false,
            groups: HashMap::new(),
            buffer: Vec::new(),
            refused: HashMap::new(),
            without_turn: 0,
        }
    }

    /// Counts the uncore penalty from now on, or no longer. Sleeping threads are not read, but may be busy in the next
    /// interval: they get its counters now.
    pub(crate) fn count_uncore(&mut self, kernel: &dyn Kernel, wanted: bool) {
        self.with_uncore = wanted && self.choice.uncore.is_ok();
        let uncore = self.choice.uncore.as_ref().ok();
        let uncore = uncore.filter(|_| self.with_uncore);
        for (thread, groups) in &mut self.groups {
            groups.uncore = match (groups.uncore.take(), uncore) {
                (Some(open), Some(_)) => Some(open),
                // A refused group is tried again when the thread is read.
                (None, Some(group)) => Group::open(kernel, &group.attributes, thread.tid).ok(),
                (_, None) => None,
            };
        }
    }

    /// Whether to read a thread: it has run, or has no counters yet and may run at any time, which most of the kernel's
    /// own threads never do.
    pub(crate) fn wants(&self, thread: &Thread) -> bool {
        let is_kernels = thread.unmanaged == Some(Unmanaged::KernelThread);
        thread.cpu_share > 0.0 || !is_kernels && !self.groups.contains_key(&thread.id)
    }

    /// The counts of a thread since the last call for it; `None` at first sight, or when it did not
    /// run or had no turn.
    pub(crate) fn read(&mut self, kernel: &dyn Kernel, thread: ThreadId) -> Option<Counts> {
        // A refused group is tried again in the next tick.
        let mut open = |group: &event_choice::Group| {
            Group::open(kernel, &group.attributes, thread.tid)
                .inspect_err(|&errno| *self.refused.entry(errno).or_default() += 1)
                .ok()
        };
        let uncore = self.choice.uncore.as_ref().ok();
        let uncore = uncore.filter(|_| self.with_uncore);
        let Some(groups) = self.groups.get_mut(&thread) else {
            let main = open(&self.choice.main)?;
            let uncore = uncore.and_then(open);
            self.groups.insert(thread, Groups { main, uncore });
            return None;
        };
        let (before, now) = groups.main.read(&mut self.buffer)?;
        let counts = self.choice.counts(&before, now);
        let mut had_turn = counts.is_some();
        let mut penalty = None;
        if let Some(group) = &mut groups.uncore {
            let read = group.read(&mut self.buffer);
            penalty = read.and_then(|(before, now)| self.choice.uncore_counts(&before, now));
            had_turn &= penalty.is_some();
        } else {
            groups.uncore = uncore.and_then(open);
        }
        if now.enabled > before.enabled && !had_turn {
            self.without_turn += 1;
        }
        counts.map(|counts| Counts {
            uncore_busy_cycles: penalty.map(|(busy, _)| busy),
            uncore_requests: penalty.map(|(_, requests)| requests),
            ..counts
        })
    }

    /// Forgets threads that have ended, and returns what went wrong in this tick.
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
                format!("{threads} threads lack counters: {errno}; {help}")
            })
            .collect();
        match std::mem::take(&mut self.without_turn) {
            0 => {}
            threads => gaps.push(format!(
                "the counters of {threads} threads had no turn: others use them too (the NMI \
                 watchdog, another profiler)"
            )),
        }
        gaps.sort();
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventTable;
    use crate::fake;
    use crate::files::Root;
    use crate::perf_errors::Reasons;
    use numaherd_world::ProcessId;
    use proptest::prelude::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn chosen(kernel: &dyn Kernel, root: &Root) -> Choice {
        let processor = fake::skylake();
        let reasons = Reasons::new(root, &processor);
        event_choice::choose(kernel, root, EventTable::built_in(), &processor, &reasons).unwrap()
    }

    /// A group file as the kernel would return it.
    fn group(enabled: u64, running: u64, values: &[u64]) -> Vec<u8> {
        [values.len() as u64, enabled, running]
            .iter()
            .chain(values)
            .flat_map(|number| number.to_ne_bytes())
            .collect()
    }

    #[test]
    fn counts_of_the_interval_scaled_to_all_of_it() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|_: &Attribute, _, _| Ok(fake::anything()));
        let choice = chosen(&kernel, &root);
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
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|_: &Attribute, _, _| {
            // Every event is a file that holds a group; only the leader's is read, from its place on.
            Ok(answers(&[
                group(10, 10, &[100, 1, 1, 0, 200]),
                group(20, 20, &[200, 3, 1, 2, 400]),
            ]))
        });
        let choice = chosen(&kernel, &root);
        let mut counters = Counters::new(&kernel, choice);
        let thread = ThreadId { tid: 4, born: 40 };
        assert_eq!(counters.read(&kernel, thread), None);
        assert_eq!(counters.read(&kernel, thread).unwrap().instructions, 100);
        let second = counters.read(&kernel, thread).unwrap();
        assert_eq!(
            (second.instructions, second.lines, second.remote),
            (100, 2, Some(2))
        );
        assert!(counters.end_tick(|_| false).is_empty());
        assert!(counters.groups.is_empty());
    }

    #[test]
    fn a_thread_that_sleeps_is_given_counters_and_one_of_the_kernel_s_once_it_runs() {
        let (_folder, root) = fake::root();
        let opened = Arc::new(AtomicU64::new(0));
        let of_all = opened.clone();
        let kernel = fake::Counters(move |_: &Attribute, _, _| {
            of_all.fetch_add(1, Ordering::Relaxed);
            Ok(fake::anything())
        });
        let choice = chosen(&kernel, &root);
        let before = opened.load(Ordering::Relaxed);
        let mut counters = Counters::new(&kernel, choice);
        assert_eq!(opened.load(Ordering::Relaxed), before + 1, "its own");
        let mut thread = fake::thread(ProcessId { pid: 4, born: 40 }, 4);
        thread.unmanaged = Some(Unmanaged::KernelThread);
        assert!(!counters.wants(&thread));
        thread.cpu_share = 0.1;
        assert!(counters.wants(&thread), "it has run");
        (thread.cpu_share, thread.unmanaged) = (0.0, None);
        assert!(counters.wants(&thread));
        counters.read(&kernel, thread.id);
        assert!(!counters.wants(&thread), "it has counters, and has not run");
    }

    /// A file that holds a group leader's answers, one after the other.
    fn answers(groups: &[Vec<u8>]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&groups.concat()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file.into()
    }

    const BUSY: u64 = 0x0100_0760;

    #[test]
    fn the_uncore_penalty_is_counted_when_asked_for_in_a_group_of_its_own() {
        let (_folder, root) = fake::root();
        let opened = Arc::new(AtomicU64::new(0));
        let busy = opened.clone();
        let kernel = fake::Counters(move |a: &Attribute, tid: Option<u32>, _| {
            if a.config != BUSY {
                let main = (1..6).map(|i| group(i * 10, i * 10, &[i * 100, i, i, 0, i * 200]));
                return Ok(answers(&main.collect::<Vec<_>>()));
            }
            if tid != Some(0) {
                busy.fetch_add(1, Ordering::Relaxed);
            }
            // It had its turn in half of the time, then in all of it, then never.
            Ok(answers(&[
                group(10, 5, &[300, 4]),
                group(20, 15, &[900, 10]),
                group(30, 15, &[900, 10]),
            ]))
        });
        let mut counters = Counters::new(&kernel, chosen(&kernel, &root));
        let thread = ThreadId { tid: 4, born: 40 };
        let read = |counters: &mut Counters| {
            let counts = counters.read(&kernel, thread)?;
            Some((
                counts.instructions,
                counts.uncore_busy_cycles,
                counts.uncore_requests,
            ))
        };
        assert_eq!(read(&mut counters), None);
        assert_eq!(read(&mut counters), Some((100, None, None)));
        assert_eq!(opened.load(Ordering::Relaxed), 0, "nobody asked for it");
        counters.count_uncore(&kernel, true);
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        assert_eq!(read(&mut counters), Some((100, Some(600), Some(8))));
        assert_eq!(read(&mut counters), Some((100, Some(600), Some(6))));
        assert!(counters.end_tick(|_| true).is_empty());
        counters.count_uncore(&kernel, false);
        assert!(
            counters
                .groups
                .values()
                .all(|groups| groups.uncore.is_none())
        );
    }

    #[test]
    fn without_its_turn_the_uncore_penalty_is_not_known_and_the_rest_is() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|a: &Attribute, _, _| {
            Ok(if a.config == BUSY {
                answers(&[group(10, 0, &[0, 0])])
            } else {
                answers(&[group(10, 10, &[100, 1, 1, 0, 200])])
            })
        });
        let mut counters = Counters::new(&kernel, chosen(&kernel, &root));
        counters.count_uncore(&kernel, true);
        let thread = ThreadId { tid: 4, born: 40 };
        assert_eq!(counters.read(&kernel, thread), None);
        let counts = counters.read(&kernel, thread).unwrap();
        assert_eq!((counts.instructions, counts.uncore_penalty()), (100, None));
        let gaps = counters.end_tick(|_| true);
        assert!(gaps[0].contains("had no turn"), "{gaps:?}");
    }

    #[test]
    fn threads_that_are_refused_the_uncore_penalty_alone_are_a_gap_and_tried_again() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|a: &Attribute, tid, _| match tid {
            Some(4) if a.config == BUSY => Err(Errno::MFILE),
            _ => Ok(answers(&[
                group(10, 10, &[100, 1, 1, 0, 200]),
                group(20, 20, &[200, 1, 1, 0, 400]),
            ])),
        });
        let mut counters = Counters::new(&kernel, chosen(&kernel, &root));
        counters.count_uncore(&kernel, true);
        let thread = ThreadId { tid: 4, born: 40 };
        for tick in 0..3 {
            assert_eq!(counters.read(&kernel, thread).is_some(), tick > 0);
            let gaps = counters.end_tick(|_| true);
            assert!(gaps[0].starts_with("1 threads lack counters"), "{gaps:?}");
        }
    }

    #[test]
    fn threads_without_counters_are_a_gap() {
        let (_folder, root) = fake::root();
        let kernel = fake::Counters(|_: &Attribute, tid, _| match tid {
            Some(0) => Ok(fake::anything()),
            Some(1) => Err(Errno::SRCH),
            _ => Err(Errno::MFILE),
        });
        let choice = chosen(&kernel, &root);
        let mut counters = Counters::new(&kernel, choice);
        for tid in 1..4 {
            assert_eq!(counters.read(&kernel, ThreadId { tid, born: 1 }), None);
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
