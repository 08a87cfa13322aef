//! The recorded threads: what each does now, what it does next, and what it has done.

use std::sync::Arc;

use numaherd_hardware as hardware;
use numaherd_topology::CpuSet;
use numaherd_world::{ProcessId, ThreadId};

use crate::{Error, Event, FrameReader, Kind};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has made it yet.
    Unborn,
    /// It runs, or waits for its core.
    Ready,
    /// It has waited for a wake since that time, in picoseconds.
    Asleep(u64),
    /// It has no more events.
    Ended,
}

/// What a thread did since it was last observed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) instructions: u64,
    pub(super) busy_ps: u64,
    pub(super) local: u64,
    pub(super) remote: u64,
    /// Requests that its core's own caches did not answer.
    pub(super) requests: u64,
    /// Time with at least one of them outstanding.
    pub(super) requested_ps: u64,
    /// Time for which it could have run but another thread had its core; counted when it gets the core.
    pub(super) waited_ps: u64,
}

pub(super) struct Thread {
    pub(super) id: ThreadId,
    pub(super) name: String,
    /// The index of its process.
    pub(super) process: u32,
    pub(super) state: State,
    /// The core that it is on.
    pub(super) core: usize,
    /// The core given to it by order.
    pub(super) assigned: Option<usize>,
    pub(super) affinity: Arc<CpuSet>,
    /// Wakes that came before it slept. Below 0, that many future wakes end no sleep, because the sleeps that they
    /// ended are left out.
    pub(super) wakes: i64,
    /// When the last of them came, which may be ahead of the thread's own core.
    pub(super) woken_ps: u64,
    /// When it can run again, in picoseconds.
    pub(super) ready_ps: u64,
    /// The cost of moves, which it pays when it next runs.
    pub(super) owes_ps: u64,
    /// Accesses or misses until its next memory sample.
    pub(super) until_sample: u64,
    pub(super) done: Done,
    /// Instructions in all.
    pub(super) executed: u64,
    /// The threads that woke it in the first loop, in the order of their first wakes, each with the number of wakes. If
    /// it began asleep, the wake that made it counts.
    pub(super) woken_by: Vec<(usize, u64)>,
    /// The threads that it woke in the first loop, each with the number of wakes.
    woke: Vec<(usize, u64)>,
    /// Where it continued when its maker last woke it.
    pub(super) release: Option<Release>,
    /// The turn in which its maker woke it before it slept: the release is at its next sleep.
    awaits_release: Option<u64>,
    /// Instructions before anyone was last released.
    pub(super) executed_before_release: u64,
    /// Sleeps in the first loop.
    pub(super) sleeps: u64,
    /// When it last ended.
    pub(super) ended_ps: u64,
    /// Whether it has been born in any loop.
    pub(super) was_born: bool,
    /// Its identity in the IPM unit.
    pub(super) unit: Option<hardware::Thread>,
    reader: FrameReader,
    /// The events of the present frame, of which `at` have happened.
    events: Vec<Event>,
    at: usize,
}

/// Where a thread continued when its maker last woke it, or last woke others that the maker had made: in fork-join
/// programs, at the end of set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// When that was, in picoseconds.
    pub(super) time_ps: u64,
    /// Frames of its events that were read, including the present one.
    frames: usize,
    /// Events of that frame that had happened.
    at: usize,
    /// The threads that it had woken by then, each with the number of wakes.
    woke: Vec<(usize, u64)>,
    /// How often it had slept by then.
    sleeps: u64,
    /// How often its maker had slept: threads that the maker wakes without sleeping in between are released together.
    pub(super) turn: u64,
}

impl Release {
    /// Whole frames of its events before that, and events of the next.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.frames - 1, self.at)
    }

    /// How often the thread had woken another by then.
    pub(super) fn woke(&self, other: usize) -> u64 {
        let of_other = self.woke.iter().find(|(woken, _)| *woken == other);
        of_other.map_or(0, |(_, times)| *times)
    }
}

pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) name: String,
}

impl Thread {
    pub(super) fn new(
        id: ThreadId,
        name: String,
        process: u32,
        affinity: Arc<CpuSet>,
        reader: FrameReader,
    ) -> Self {
        Self {
            id,
            name,
            process,
            state: State::Unborn,
            core: 0,
            assigned: None,
            affinity,
            wakes: 0,
            woken_ps: 0,
            ready_ps: 0,
            owes_ps: 0,
            until_sample: 0,
            done: Done::default(),
            executed: 0,
            woken_by: Vec::new(),
            woke: Vec::new(),
            release: None,
            awaits_release: None,
            executed_before_release: 0,
            sleeps: 0,
            ended_ps: 0,
            was_born: false,
            unit: None,
            reader,
            events: Vec::new(),
            at: 0,
        }
    }

    /// Events in memory that have not happened yet.
    #[inline]
    pub(super) fn next(&self) -> &[Event] {
        &self.events[self.at..]
    }

    /// Notes that the next `events` of them have happened.
    #[inline]
    pub(super) fn happened(&mut self, events: usize) {
        self.at += events;
    }

    /// Reads more events if none are in memory. Returns false if there are no more.
    ///
    /// # Errors
    /// When the events cannot be read; then there are no more.
    pub(super) fn fetch(&mut self) -> Result<bool, Error> {
        while self.at >= self.events.len() {
            self.at = 0;
            if self.reader.next_frame(&mut self.events)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins again, with the first event.
    pub(super) fn rewind(&mut self) {
        self.reader.rewind();
        self.events.clear();
        (self.at, self.wakes) = (0, 0);
        self.state = State::Unborn;
    }

    /// Begins again where it was released. Returns false if nothing follows.
    ///
    /// # Errors
    /// As [`Thread::fetch`].
    pub(super) fn rewind_to(&mut self, release: &Release) -> Result<bool, Error> {
        self.rewind();
        let (frames, at) = release.place();
        self.reader.skip(frames);
        self.fetch()?;
        self.at = at;
        self.fetch()
    }

    /// Sets the wakes with which it begins a further loop. `woken` is how often threads that are played again woke it
    /// in the parts that they leave out. Idle threads are not played again, and their wakes come at once. Each sleep
    /// takes one wake, so the sleeps that it leaves out itself are subtracted.
    pub(super) fn goes_round(
        &mut self,
        from: Option<&Release>,
        woken: u64,
        now_ps: u64,
        is_idle: impl Fn(usize) -> bool,
    ) {
        let slept = match from {
            Some(release) => release.sleeps,
            None if self.begins_asleep() => {
                // It exists already.
                self.happened(1);
                1
            }
            None => 0,
        };
        let by_idle = self.woken_by.iter().filter(|(by, _)| is_idle(*by));
        let by_idle: u64 = by_idle.map(|(_, times)| times).sum();
        (self.wakes, self.woken_ps) = (
            (by_idle + woken).cast_signed() - slept.cast_signed(),
            now_ps,
        );
    }

    /// Notes, in the first loop, that it wakes another.
    pub(super) fn has_woken(&mut self, other: usize) {
        once_more(&mut self.woke, other);
    }

    /// Notes, in the first loop, that a thread wakes it, and returns how often that thread has done so.
    pub(super) fn is_woken(&mut self, waker: usize) -> u64 {
        once_more(&mut self.woken_by, waker)
    }

    /// Notes, in the first loop, that its maker, which has slept `turn` times, wakes it again.
    pub(super) fn is_woken_again(&mut self, turn: u64, time_ps: u64) {
        match self.state {
            State::Ready => self.awaits_release = Some(turn),
            _ => self.is_released(turn, time_ps),
        }
    }

    /// Notes, in the first loop, that its maker has woken others again. If this thread was not released with them, it
    /// continued without a wake, and that counts as its release too. If it sleeps again by now, the sleep comes after
    /// its release.
    pub(super) fn sees_release(&mut self, turn: u64, time_ps: u64) {
        let is_released = self.release.as_ref().is_some_and(|one| one.turn == turn);
        if is_released || self.awaits_release == Some(turn) {
            return;
        }
        match self.state {
            State::Ready => self.is_released(turn, time_ps),
            State::Asleep(_) => {
                self.is_released(turn, time_ps);
                if let Some(release) = &mut self.release {
                    release.at -= 1;
                    release.sleeps -= 1;
                }
            }
            State::Unborn | State::Ended => {}
        }
    }

    /// Notes, in the first loop, that it sleeps, or continues at once because a wake has ended that sleep already.
    pub(super) fn comes_to_sleep(&mut self, time_ps: u64) {
        self.sleeps += 1;
        if let Some(turn) = self.awaits_release.take() {
            self.is_released(turn, time_ps);
        }
    }

    fn is_released(&mut self, turn: u64, time_ps: u64) {
        self.release = Some(Release {
            time_ps,
            frames: self.reader.frames_read(),
            at: self.at,
            woke: self.woke.clone(),
            sleeps: self.sleeps,
            turn,
        });
    }

    /// Whether it waits for its maker in its own first event, so that it may be there from the start.
    pub(super) fn begins_asleep(&self) -> bool {
        self.next()
            .first()
            .is_some_and(|event| event.kind == Kind::Sleep)
    }

    /// Whether it exists for observers: it runs or sleeps, or will again in the next loop.
    pub(super) fn is_there(&self, goes_round: bool) -> bool {
        match self.state {
            State::Ready | State::Asleep(_) => true,
            State::Unborn => self.was_born,
            State::Ended => goes_round,
        }
    }
}

/// Counts one more wake for this thread, and returns its number of wakes.
fn once_more(wakes: &mut Vec<(usize, u64)>, thread: usize) -> u64 {
    if let Some((_, times)) = wakes.iter_mut().find(|(known, _)| *known == thread) {
        *times += 1;
        return *times;
    }
    wakes.push((thread, 1));
    1
}
