//! Where a world has the events of its threads from.

use std::sync::Arc;

use crate::{Error, Event, FrameReader, ThreadInfo, Trace};

/// Threads with their events, each thread's in its own order.
pub trait Source: Send {
    /// The threads; their places are their numbers.
    fn threads(&self) -> &[ThreadInfo];

    /// Replaces `events` by a thread's next ones, any number of them. False, and no events, after
    /// the last.
    ///
    /// # Errors
    /// When they cannot be read. The thread's events end there.
    fn fill(&mut self, thread: usize, events: &mut Vec<Event>) -> Result<bool, Error>;

    /// Begins again with every thread's first event.
    fn rewind(&mut self);
}

/// A trace, read as it is played.
#[derive(Debug)]
pub struct Recording {
    trace: Arc<Trace>,
    readers: Vec<FrameReader>,
}

impl Recording {
    /// All threads of a trace. Any number of them may read the same one at once.
    #[must_use]
    pub fn new(trace: Arc<Trace>) -> Self {
        Self {
            readers: trace.all_threads(),
            trace,
        }
    }
}

impl Source for Recording {
    fn threads(&self) -> &[ThreadInfo] {
        self.trace.threads()
    }

    fn fill(&mut self, thread: usize, events: &mut Vec<Event>) -> Result<bool, Error> {
        Ok(self.readers[thread].next_frame(events)?.is_some())
    }

    fn rewind(&mut self) {
        self.readers = self.trace.all_threads();
    }
}

/// Events that are in memory already.
#[derive(Clone, Debug)]
pub struct InMemory {
    threads: Vec<ThreadInfo>,
    events: Vec<Vec<Event>>,
    given: Vec<bool>,
}

impl InMemory {
    /// Threads with the events of each, in their order; a thread without any ends at once.
    #[must_use]
    pub fn new(threads: Vec<ThreadInfo>, mut events: Vec<Vec<Event>>) -> Self {
        events.resize(threads.len(), Vec::new());
        let given = vec![false; threads.len()];
        Self {
            threads,
            events,
            given,
        }
    }
}

impl Source for InMemory {
    fn threads(&self) -> &[ThreadInfo] {
        &self.threads
    }

    fn fill(&mut self, thread: usize, events: &mut Vec<Event>) -> Result<bool, Error> {
        events.clear();
        if std::mem::replace(&mut self.given[thread], true) {
            return Ok(false);
        }
        events.extend_from_slice(&self.events[thread]);
        Ok(!events.is_empty())
    }

    fn rewind(&mut self) {
        self.given.fill(false);
    }
}
