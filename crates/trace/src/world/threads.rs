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
    /// Wakes that came before it slept.
    pub(super) wakes: u64,
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
    /// Who woke it how often in the first loop, in the order of their first wakes; being made not among
    /// them.
    pub(super) woken_by: Vec<(usize, u64)>,
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

    /// Begins again.
    pub(super) fn rewind(&mut self) {
        self.reader.rewind();
        self.events.clear();
        (self.at, self.wakes) = (0, 0);
        self.state = State::Unborn;
    }

    /// Whether it waits for its maker in its own first event, so that it may be there from the start.
    pub(super) fn begins_asleep(&self) -> bool {
        self.next()
            .first()
            .is_some_and(|event| event.kind == Kind::Sleep)
    }

    /// Whether it is to be seen: it runs or sleeps, or will again in the next loop.
    pub(super) fn is_there(&self, loops_left: u32) -> bool {
        match self.state {
            State::Ready | State::Asleep(_) => true,
            State::Unborn => self.was_born,
            State::Ended => loops_left > 0,
        }
    }
}
