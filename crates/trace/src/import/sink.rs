//! The sink of the text readers: gathers the events of threads into frames.

use std::collections::HashMap;
use std::io::Write;

use crate::error::Error;
use crate::event::{Event, ThreadInfo};
use crate::file::{Encoder, FRAME_EVENTS, Writer};

/// The most events of all threads that may wait for their frames to fill; more would take too much memory.
const MOST_WAITING: usize = 1 << 22;

#[derive(Debug)]
pub(super) struct Sink<'a, W: Write> {
    writer: &'a mut Writer<W>,
    encoder: Encoder,
    numbers: HashMap<(u32, u32), u32>,
    threads: Vec<Waiting>,
    waiting: usize,
    events: u64,
}

/// A thread and its events that are not in a frame yet.
#[derive(Debug)]
struct Waiting {
    info: ThreadInfo,
    time_ns: u64,
    events: Vec<Event>,
}

impl<'a, W: Write> Sink<'a, W> {
    pub(super) fn new(writer: &'a mut Writer<W>) -> Self {
        Self {
            writer,
            encoder: Encoder::new(),
            numbers: HashMap::new(),
            threads: Vec::new(),
            waiting: 0,
            events: 0,
        }
    }

    /// The number of a thread, which is added if it is new. A thread that has changed its name gets the new one.
    pub(super) fn thread(&mut self, process: u32, tid: u32, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(&(process, tid)) {
            let known = &mut self.threads[number as usize].info;
            if known.name != name {
                name.clone_into(&mut known.name);
                self.writer.describe(number, known);
            }
            return number;
        }
        let info = ThreadInfo {
            process,
            tid,
            name: name.to_owned(),
        };
        let number = self.writer.thread(&info);
        self.numbers.insert((process, tid), number);
        self.threads.push(Waiting {
            info,
            time_ns: 0,
            events: Vec::new(),
        });
        number
    }

    /// Adds an event of a thread that [`Sink::thread`] has named, `instructions` after the thread's last event.
    ///
    /// # Errors
    /// When a full frame cannot be written.
    pub(super) fn push(
        &mut self,
        thread: u32,
        time_ns: u64,
        instructions: u64,
        event: Event,
    ) -> Result<(), Error> {
        let waiting = &mut self.threads[thread as usize];
        let before = waiting.events.len();
        event.push_after(instructions, &mut waiting.events);
        waiting.time_ns = time_ns;
        self.waiting += waiting.events.len() - before;
        self.events += 1;
        if self.threads[thread as usize].events.len() >= FRAME_EVENTS {
            self.write(thread)?;
        } else if self.waiting >= MOST_WAITING {
            self.write_all()?;
        }
        Ok(())
    }

    /// Writes the remaining events, and returns the number of all events.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.write_all()?;
        Ok(self.events)
    }

    fn write_all(&mut self) -> Result<(), Error> {
        (0..self.threads.len() as u32).try_for_each(|thread| self.write(thread))
    }

    fn write(&mut self, thread: u32) -> Result<(), Error> {
        let waiting = &mut self.threads[thread as usize];
        for events in waiting.events.chunks(FRAME_EVENTS) {
            let frame = self.encoder.encode(thread, waiting.time_ns, events)?;
            self.writer.append(frame)?;
        }
        self.waiting -= waiting.events.len();
        waiting.events.clear();
        Ok(())
    }
}
