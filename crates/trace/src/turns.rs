//! Plays all threads of a trace in turns, as they could have run at the same time.
//!
//! The thread that has executed the fewest instructions goes next, for a while. A thread that sleeps waits until it is
//! woken, and continues no earlier than the thread that woke it. If all remaining threads sleep (the trace was cut, or
//! something outside it would wake them), the one that is furthest behind continues as if woken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{Damage, Error};
use crate::event::{Event, Kind};
use crate::file::{FrameReader, Trace};

/// Instructions after which a turn ends.
const TURN: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct Turns {
    threads: Vec<Thread>,
    /// Threads that can continue, by their time; the earliest first.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// Threads that sleep.
    asleep: usize,
    damage: Option<Damage>,
}

#[derive(Debug)]
struct Thread {
    reader: FrameReader,
    events: Vec<Event>,
    next: usize,
    /// Instructions executed, or those of the thread that woke it, if more.
    time: u64,
    is_asleep: bool,
    /// Wakes that came before the sleep that they end.
    wakes: u64,
}

impl Turns {
    pub(crate) fn new(trace: &Trace) -> Self {
        let threads: Vec<_> = trace
            .all_threads()
            .into_iter()
            .map(|reader| Thread {
                reader,
                events: Vec::new(),
                next: 0,
                time: 0,
                is_asleep: false,
                wakes: 0,
            })
            .collect();
        Self {
            ready: (0..threads.len())
                .map(|thread| Reverse((0, thread)))
                .collect(),
            threads,
            asleep: 0,
            damage: None,
        }
    }

    /// Damage that ended a thread early.
    pub(crate) const fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// The next thread and its events in this turn; `None` after the last.
    ///
    /// # Errors
    /// When the trace cannot be read. Damage ends only the thread that it belongs to.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, &[Event])>, Error> {
        loop {
            let Some(number) = self.ready.pop().map(|Reverse((_, thread))| thread) else {
                if !self.wake_the_last_behind() {
                    return Ok(None);
                }
                continue;
            };
            let thread = &mut self.threads[number];
            if thread.next == thread.events.len() {
                thread.next = 0;
                match thread.reader.next_frame(&mut thread.events) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(Error::Damaged(damage)) => {
                        self.damage.get_or_insert(damage);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let start = thread.next;
            let end = self.go(number, start);
            self.threads[number].next = end;
            return Ok(Some((number, &self.threads[number].events[start..end])));
        }
    }

    /// Plays a thread from its event `start`; returns where its turn ends.
    fn go(&mut self, number: usize, start: usize) -> usize {
        let until = self.threads[number].time.saturating_add(TURN);
        let mut at = start;
        while let Some(&event) = self.threads[number].events.get(at) {
            at += 1;
            let thread = &mut self.threads[number];
            thread.time = thread.time.saturating_add(u64::from(event.gap));
            match event.kind {
                Kind::Sleep if thread.wakes > 0 => thread.wakes -= 1,
                Kind::Sleep => {
                    thread.is_asleep = true;
                    self.asleep += 1;
                    return at;
                }
                Kind::Wake => self.wake(event.address, self.threads[number].time),
                Kind::Load | Kind::Store => {}
            }
            if self.threads[number].time >= until {
                break;
            }
        }
        self.ready
            .push(Reverse((self.threads[number].time, number)));
        at
    }

    fn wake(&mut self, number: u64, time: u64) {
        let Some(thread) = usize::try_from(number)
            .ok()
            .and_then(|at| self.threads.get_mut(at))
        else {
            return;
        };
        if thread.is_asleep {
            thread.is_asleep = false;
            thread.time = thread.time.max(time);
            self.asleep -= 1;
            self.ready.push(Reverse((thread.time, number as usize)));
        } else {
            thread.wakes += 1;
        }
    }

    /// Wakes the sleeper that is furthest behind; false when nobody sleeps.
    fn wake_the_last_behind(&mut self) -> bool {
        if self.asleep == 0 {
            return false;
        }
        let sleepers = self
            .threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| thread.is_asleep);
        let Some((number, time)) = sleepers
            .map(|(number, thread)| (number, thread.time))
            .min_by_key(|&(_, time)| time)
        else {
            return false;
        };
        self.wake(number as u64, time);
        true
    }
}
