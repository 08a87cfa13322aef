//! The recorded threads: what each does now, what comes next of it, and what it has done.

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
    /// It waits for a wake, since that time in picoseconds.
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
    /// Time with one of them outstanding at least.
    pub(super) requested_ps: u64,
    /// Time for which it could have run but another thread had its core, counted when it has it.
    pub(super) waited_ps: u64,
}

pub(super) struct Thread {
    pub(super) id: ThreadId,
    pub(super) name: String,
    /// Its process's place.
    pub(super) process: u32,
    pub(super) state: State,
    /// The core that it is on.
    pub(super) core: usize,
    /// The core given to it by order.
    pub(super) assigned: Option<usize>,
    pub(super) affinity: Arc<CpuSet>,
    /// Wakes that came before it slept; below 0, so many will come that end no sleep, since theirs are left out.
    pub(super) wakes: i64,
    /// When the last of them came, which may be ahead of the thread's own core.
    pub(super) woken_ps: u64,
    /// When it can go on, in picoseconds.
    pub(super) ready_ps: u64,
    /// What it owes when it next runs: the cost of having been moved.
    pub(super) owes_ps: u64,
    /// Accesses or misses until its next memory sample.
    pub(super) until_sample: u64,
    pub(super) done: Done,
    /// Instructions in all.
    pub(super) executed: u64,
    /// Who woke it how often in the first loop, in the order of their first wakes; being made is among them where
    /// it began asleep.
    pub(super) woken_by: Vec<(usize, u64)>,
    /// Whom it woke how often in the first loop.
    woke: Vec<(usize, u64)>,
    /// Where it went on when its maker last woke it.
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
    /// What the IPM unit knows it by.
    pub(super) unit: Option<hardware::Thread>,
    reader: FrameReader,
    /// Events that were read, and how many of them have happened.
    events: Vec<Event>,
    at: usize,
}

/// Where a thread went on when its maker last woke it, or others that it had made: in fork-join programs, at the end of
/// set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// When, in picoseconds.
    pub(super) time_ps: u64,
    /// Frames of its events that were read, the one that it was at among them.
    frames: usize,
    /// Events of that frame that had happened.
    at: usize,
    /// Whom it had woken how often by then.
    woke: Vec<(usize, u64)>,
    /// How often it had slept by then.
    sleeps: u64,
    /// How often its maker had slept: those that it wakes without sleeping in between are released together.
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

    /// Events at hand that have not happened yet.
    #[inline]
    pub(super) fn next(&self) -> &[Event] {
        &self.events[self.at..]
    }

    /// So many of them have happened.
    #[inline]
    pub(super) fn happened(&mut self, events: usize) {
        self.at += events;
    }

    /// Gets more events when there are none at hand. False when there are no more.
    ///
    /// # Errors
    /// When they cannot be read; then there are no more.
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

    /// Begins again where it was released. False when there is nothing after that.
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

    /// Goes on in a loop that it has begun again. Threads that are played again have `woken` it so often in what they leave
    /// out; the idle are not played again, and their wakes come at once. Each sleep takes one wake, so those of the sleeps
    /// that it leaves out itself are gone.
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
                // It is there already.
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

    /// Notes, in the first loop, that a thread wakes it, and gives how often that has been.
    pub(super) fn is_woken(&mut self, waker: usize) -> u64 {
        once_more(&mut self.woken_by, waker)
    }

    /// Notes, in the first loop, that its maker wakes it again, which has slept so often.
    pub(super) fn is_woken_again(&mut self, turn: u64, time_ps: u64) {
        match self.state {
            State::Ready => self.awaits_release = Some(turn),
            _ => self.is_released(turn, time_ps),
        }
    }

    /// Notes, in the first loop, that its maker has woken others again. That is a release of this thread as well, if it has
    /// not been released with them: it went on without a wake. If it sleeps again by now, the sleep comes after its release.
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

    /// Notes, in the first loop, that it sleeps, or goes on at once since a wake has ended that sleep already.
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

    /// Whether it is to be seen: it runs or sleeps, or will again in the next loop.
    pub(super) fn is_there(&self, goes_round: bool) -> bool {
        match self.state {
            State::Ready | State::Asleep(_) => true,
            State::Unborn => self.was_born,
            State::Ended => goes_round,
        }
    }
}

/// Counts a wake for this thread, and gives how many it has now.
fn once_more(wakes: &mut Vec<(usize, u64)>, thread: usize) -> u64 {
    if let Some((_, times)) = wakes.iter_mut().find(|(known, _)| *known == thread) {
        *times += 1;
        return *times;
    }
    wakes.push((thread, 1));
    1
}
