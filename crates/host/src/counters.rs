//! Hardware counters of each thread: one group per thread, read with one call a tick, and another one
//! for the uncore penalty where a policy needs it.
//!
//! All events of a group count together or not at all, so their ratios hold even when the kernel
//! shares the counters out in turns (multiplexing); counts are then scaled by enabled / running
//! time of the interval, and the share says how much was really counted. Groups are not inherited:
//! a new thread is found by the scan and gets its own.
//!
//! Why the penalty's events are a group of their own: with the others they would be more than the
//! four counters that a thread of an Intel core with SMT has, and a group that does not fit never
//! counts. Cycles with a request outstanding and requests are in one group, so their quotient is of
//! the same moments; the groups take turns where both do not fit.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use numaherd_world::{Counts, ThreadId};

use crate::event_choice::Choice;
use crate::kernel::{Attribute, Errno, Senses};

/// A count over a part of the time, scaled to all of it.
pub(crate) fn scale(counted: u64, enabled: u64, running: u64) -> u64 {
    if running >= enabled {
        return counted;
    }
    let scaled = u128::from(counted) * u128::from(enabled) / u128::from(running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// What reading a group gives: times in ns and a value per event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) enabled: u64,
    pub(crate) running: u64,
    pub(crate) values: Vec<u64>,
}

/// Understands what `read` gave (`struct read_format` of a group); `None` when it is cut short.
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
    /// Bytes that reading a group of so many events takes.
    pub(crate) const fn bytes(events: usize) -> usize {
        (3 + events) * 8
    }

    /// Opens a group on a thread, 0 for the calling one.
    pub(crate) fn open(
        senses: &dyn Senses,
        attributes: &[Attribute],
        tid: u32,
    ) -> Result<Self, Errno> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            let leader = events.first().map(AsFd::as_fd);
            let event = senses.open(attribute, Some(tid), None, leader)?;
            events.push(event);
        }
        Ok(Self {
            events,
            last: Reading::default(),
        })
    }

    /// Reads it: what it says now, and what it said before.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Option<(Reading, &Reading)> {
        let buffer = &mut buffer[..Self::bytes(self.events.len())];
        let length = rustix::io::read(&self.events[0], &mut *buffer).ok()?;
        let now = parse_group(buffer.get(..length)?)?;
        let before = std::mem::replace(&mut self.last, now);
        Some((before, &self.last))
    }
}

/// The groups of one thread.
#[derive(Debug)]
struct Groups {
    main: Group,
    /// Where a policy needs it.
    uncore: Option<Group>,
}

/// The counters of all watched threads.
#[derive(Debug)]
pub(crate) struct Counters {
    choice: Choice,
    /// Whether the uncore penalty is counted.
    with_uncore: bool,
    groups: HashMap<ThreadId, Groups>,
    buffer: Vec<u8>,
    /// Threads that could not be given counters in this tick, by what the kernel said.
    refused: HashMap<Errno, usize>,
    /// Threads that ran in this tick while their counters had no turn.
    without_turn: usize,
}

impl Counters {
    pub(crate) fn new(choice: Choice) -> Self {
        let most = choice
            .attributes()
            .len()
            .max(choice.uncore_attributes().len());
        Self {
            choice,
            with_uncore: false,
            groups: HashMap::new(),
            buffer: vec![0; Group::bytes(most)],
            refused: HashMap::new(),
            without_turn: 0,
        }
    }

    /// The events that are counted.
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Counts the uncore penalty from now on, or no longer.
    pub(crate) fn count_uncore(&mut self, wanted: bool) {
        self.with_uncore = wanted && !self.choice.uncore_attributes().is_empty();
        if !self.with_uncore {
            self.groups
                .values_mut()
                .for_each(|groups| groups.uncore = None);
        }
    }

    /// The counts of a thread since the last call for it; `None` at first sight, or when it did not
    /// run or had no turn.
    pub(crate) fn read(&mut self, senses: &dyn Senses, thread: ThreadId) -> Option<Counts> {
        let Some(groups) = self.groups.get_mut(&thread) else {
            match Group::open(senses, self.choice.attributes(), thread.tid) {
                Ok(main) => {
                    let uncore = self.open_uncore(senses, thread);
                    self.groups.insert(thread, Groups { main, uncore });
                }
                Err(errno) => *self.refused.entry(errno).or_default() += 1,
            }
            return None;
        };
        let (before, now) = groups.main.read(&mut self.buffer)?;
        let counts = self.choice.counts(&before, now);
        let ran = now.enabled > before.enabled;
        let has_uncore = groups.uncore.is_some();
        let uncore = groups.uncore.as_mut().and_then(|group| {
            let (before, now) = group.read(&mut self.buffer)?;
            self.choice.uncore_counts(&before, now)
        });
        if ran && (counts.is_none() || has_uncore && uncore.is_none()) {
            self.without_turn += 1;
        }
        if self.with_uncore && !has_uncore {
            let opened = self.open_uncore(senses, thread);
            if let Some(groups) = self.groups.get_mut(&thread) {
                groups.uncore = opened;
            }
        }
        counts.map(|counts| Counts {
            uncore_busy_cycles: uncore.map(|(busy, _)| busy),
            uncore_requests: uncore.map(|(_, requests)| requests),
            ..counts
        })
    }

    /// The group of the uncore penalty, where it is wanted; tried again in the next tick where it is
    /// refused.
    fn open_uncore(&mut self, senses: &dyn Senses, thread: ThreadId) -> Option<Group> {
        let attributes = self.choice.uncore_attributes();
        if !self.with_uncore {
            return None;
        }
        match Group::open(senses, attributes, thread.tid) {
            Ok(group) => Some(group),
            Err(errno) => {
                *self.refused.entry(errno).or_default() += 1;
                None
            }
        }
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
                format!("{threads} threads lack counters: {errno}; {help}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventTable;
    use crate::files::Root;
    use crate::perf_errors::Reasons;
    use crate::{event_choice, fake};
    use proptest::prelude::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn chosen(senses: &dyn Senses, root: &Root) -> Choice {
        let processor = fake::skylake();
        let reasons = Reasons::new(root, &processor);
        event_choice::choose(senses, root, EventTable::built_in(), &processor, &reasons).unwrap()
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
        let (_folder, root) = fake::root();
        let senses = fake::Counters(|_: &Attribute, _, _| Ok(fake::anything()));
        let choice = chosen(&senses, &root);
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
        let senses = fake::Counters(|_: &Attribute, _, _| {
            // Every event is a file that holds a group; only the leader's is read, from its place on.
            Ok(answers(&[
                group(10, 10, &[100, 1, 1, 0, 200]),
                group(20, 20, &[200, 3, 1, 2, 400]),
            ]))
        });
        let choice = chosen(&senses, &root);
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

    /// A file that holds what a group's leader would answer, one answer after the other.
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
        let senses = fake::Counters(move |a: &Attribute, tid: Option<u32>, _| {
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
        let mut counters = Counters::new(chosen(&senses, &root));
        let thread = ThreadId { tid: 4, born: 40 };
        let read = |counters: &mut Counters| {
            let counts = counters.read(&senses, thread)?;
            Some((
                counts.instructions,
                counts.uncore_busy_cycles,
                counts.uncore_requests,
            ))
        };
        assert_eq!(read(&mut counters), None);
        assert_eq!(read(&mut counters), Some((100, None, None)));
        assert_eq!(opened.load(Ordering::Relaxed), 0, "nobody asked for it");
        counters.count_uncore(true);
        assert_eq!(read(&mut counters), Some((100, None, None)));
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        assert_eq!(read(&mut counters), Some((100, Some(600), Some(8))));
        assert_eq!(read(&mut counters), Some((100, Some(600), Some(6))));
        assert!(counters.end_tick(|_| true).is_empty());
        counters.count_uncore(false);
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
        let senses = fake::Counters(|a: &Attribute, _, _| {
            Ok(if a.config == BUSY {
                answers(&[group(10, 0, &[0, 0])])
            } else {
                answers(&[group(10, 10, &[100, 1, 1, 0, 200])])
            })
        });
        let mut counters = Counters::new(chosen(&senses, &root));
        counters.count_uncore(true);
        let thread = ThreadId { tid: 4, born: 40 };
        assert_eq!(counters.read(&senses, thread), None);
        let counts = counters.read(&senses, thread).unwrap();
        assert_eq!((counts.instructions, counts.uncore_penalty()), (100, None));
        let gaps = counters.end_tick(|_| true);
        assert!(gaps[0].contains("had no turn"), "{gaps:?}");
    }

    #[test]
    fn threads_that_are_refused_the_uncore_penalty_alone_are_a_gap_and_tried_again() {
        let (_folder, root) = fake::root();
        let senses = fake::Counters(|a: &Attribute, tid, _| match tid {
            Some(4) if a.config == BUSY => Err(Errno::MFILE),
            _ => Ok(answers(&[
                group(10, 10, &[100, 1, 1, 0, 200]),
                group(20, 20, &[200, 1, 1, 0, 400]),
            ])),
        });
        let mut counters = Counters::new(chosen(&senses, &root));
        counters.count_uncore(true);
        let thread = ThreadId { tid: 4, born: 40 };
        for tick in 0..3 {
            assert_eq!(counters.read(&senses, thread).is_some(), tick > 0);
            let gaps = counters.end_tick(|_| true);
            assert!(gaps[0].starts_with("1 threads lack counters"), "{gaps:?}");
        }
    }

    #[test]
    fn threads_without_counters_are_a_gap() {
        let (_folder, root) = fake::root();
        let senses = fake::Counters(|_: &Attribute, tid, _| match tid {
            Some(0) => Ok(fake::anything()),
            Some(1) => Err(Errno::SRCH),
            _ => Err(Errno::MFILE),
        });
        let choice = chosen(&senses, &root);
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
