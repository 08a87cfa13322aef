// SPDX-License-Identifier: GPL-2.0-or-later
//! Records every load and store of user code, of the threads that descend from one command, into a
//! trace file ([`numaherd_trace`]).
//!
//! **Threads.** The module reports when threads are created, call exec and end
//! ([`crate::layout::Nop`]). Recording begins with the awaited thread's next exec, at the first
//! instruction of its new program, and covers all threads that it creates.
//!
//! **Order.** Each thread's events are collected in a stream that moves with it from vCPU to vCPU.
//! The stream becomes a frame when it is full, when the thread stops running with enough events,
//! and at the end. So a thread's frames are in program order, whichever vCPUs it ran on.
//!
//! **Gaps** are the user instructions since the thread's last event, the event's own included.
//! Translated code counts a block's instructions when it enters the block; those behind an access
//! in its block are known at translation and subtracted. If a page fault interrupts a block, the
//! block counts whole, and its rest counts again after the fault.
//!
//! **Sleep and Wake.** When a recorded thread wakes another, its stream gets a Wake at that place.
//! The woken thread's stream gets one Sleep for each such wake when it runs next: it has executed
//! nothing in between. So there are as many sleeps as wakes, a replay in that order never
//! deadlocks, and every wait that a recorded thread ended is included. A wait that something else
//! ended (a timer, a device, an unrecorded process) leaves no event. A new thread waits for its
//! creator in the same way.
//!
//! Locks: `threads` before `file`, neither while events are encoded.

#![allow(unsafe_code, reason = "a word that translated code counts in")]

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Writer};
use serde_json::{Map, Value};

use crate::file_error::{FileError, Problem};
use crate::sync::lock;

/// Least number of events for which a thread that stops running writes a frame: fewer compress
/// badly, more stay unwritten for long.
const WORTH_A_FRAME: usize = FRAME_EVENTS / 8;

/// Room kept in a frame for one event and the fillers before it, which stand for 2^32 instructions each.
const FILLERS: usize = 16;

/// Bytes of a guest's page.
const PAGE_BYTES: u64 = 4096;

/// A thread as the module reports it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Running {
    /// Its thread id in the guest.
    pub tid: u32,
    /// Its process id in the guest.
    pub tgid: u32,
    /// Its name, NUL-padded.
    pub name: [u8; 16],
}

impl Running {
    fn info(&self) -> ThreadInfo {
        let end = self.name.iter().position(|&byte| byte == 0);
        let name = &self.name[..end.unwrap_or(self.name.len())];
        ThreadInfo {
            process: self.tgid,
            tid: self.tid,
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// A thread's events that are in no frame yet.
#[derive(Debug, Default)]
struct Stream {
    events: Vec<Event>,
    /// Instructions since the last event.
    since: u64,
}

/// A thread that is recorded.
#[derive(Debug)]
struct Thread {
    /// Its number in the trace.
    number: u32,
    info: ThreadInfo,
    /// Number of wakes by recorded threads since it last began to run.
    wakes: u32,
    /// Its stream while no vCPU runs it.
    stream: Stream,
}

#[derive(Debug, Default)]
struct Threads {
    /// Threads whose next exec begins the recording.
    awaited: HashSet<u32>,
    recorded: HashMap<u32, Thread>,
}

/// The trace being recorded.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    /// None once the trace is finished or a write has failed.
    file: Mutex<Option<Writer<File>>>,
    threads: Mutex<Threads>,
}

/// The thread that a vCPU runs, if it is recorded.
#[derive(Debug)]
struct Current {
    tid: u32,
    number: u32,
    /// It ends: its events are written even if they are few, and its buffer is freed.
    ends: bool,
}

/// A vCPU's part of the recording: the stream of the thread that it runs. Belongs to the vCPU's host thread.
#[derive(Debug)]
pub struct Recorder {
    /// The word in which translated code counts the vCPU's user instructions, in whole blocks.
    word: *const u64,
    current: Option<Current>,
    events: Vec<Event>,
    /// Instructions of the vCPU at the last event.
    last: u64,
    encoder: Encoder,
}

impl Recorder {
    /// A recorder without a thread.
    ///
    /// # Safety
    /// `word` must be valid as long as this is; translated code of the vCPU alone may write it.
    pub unsafe fn new(word: *const u64) -> Self {
        Self {
            word,
            current: None,
            events: Vec::new(),
            last: 0,
            encoder: Encoder::new(),
        }
    }

    /// Whether the running thread is recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.current.is_some()
    }

    /// User instructions that the vCPU has executed, including all of the current block.
    #[inline]
    pub fn instructions(&self) -> u64 {
        // SAFETY: `new` was promised a valid word, and this is the thread that runs the vCPU, or none does.
        unsafe { self.word.read_volatile() }
    }

    /// Notes an event at this count of the vCPU's user instructions, which never decreases. Returns
    /// whether the stream is full and must be written.
    #[inline]
    pub fn push(&mut self, instructions: u64, event: Event) -> bool {
        let gap = instructions.wrapping_sub(self.last);
        self.last = instructions;
        if let Ok(gap) = u32::try_from(gap) {
            self.events.push(Event { gap, ..event });
        } else {
            event.push_after(gap, &mut self.events);
        }
        self.events.len() >= FRAME_EVENTS - FILLERS
    }

    fn take(&mut self, instructions: u64) -> Stream {
        Stream {
            since: instructions.wrapping_sub(self.last),
            events: std::mem::take(&mut self.events),
        }
    }

    fn resume(&mut self, stream: Stream, instructions: u64) {
        self.last = instructions.wrapping_sub(stream.since);
        self.events = stream.events;
    }
}

impl Recording {
    /// Creates the file. `about` names a file with the recording's description, a JSON object.
    ///
    /// # Errors
    /// When the trace cannot be written, or the description cannot be read.
    pub fn create(path: &Path, about: Option<&Path>) -> Result<Self, FileError> {
        let about = match about {
            None => Map::new(),
            Some(path) => read_object(path).map_err(FileError::of("description", path))?,
        };
        let file = File::create(path).map_err(FileError::of("trace", path))?;
        let writer = Writer::new(file, PAGE_BYTES, &about).map_err(FileError::of("trace", path))?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(Some(writer)),
            threads: Mutex::default(),
        })
    }

    /// Whether the trace is finished or a write has failed.
    pub fn is_over(&self) -> bool {
        self.file().is_none()
    }

    fn file(&self) -> MutexGuard<'_, Option<Writer<File>>> {
        lock(&self.file)
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        lock(&self.threads)
    }

    /// Makes a thread's next exec begin the recording.
    pub fn await_exec(&self, tid: u32) {
        self.threads().awaited.insert(tid);
    }

    /// Writes the stream of the thread that a vCPU runs.
    #[cold]
    pub fn flush(&self, recorder: &mut Recorder, time_ns: u64) {
        let Some(current) = &recorder.current else {
            return;
        };
        self.append(
            &mut recorder.encoder,
            current.number,
            time_ns,
            &recorder.events,
        );
        recorder.events.clear();
    }

    fn append(&self, encoder: &mut Encoder, thread: u32, time_ns: u64, events: &[Event]) {
        if events.is_empty() || self.is_over() {
            return;
        }
        let encoded = encoder.encode(thread, time_ns, events);
        let mut file = self.file();
        let Some(writer) = file.as_mut() else {
            return;
        };
        if let Err(error) = encoded.and_then(|frame| writer.append(frame)) {
            self.fail(&error);
            *file = None;
        }
    }

    fn fail(&self, error: &numaherd_trace::Error) {
        eprintln!("{FAILED}{}: {error}", self.path.display());
    }

    /// Notes that a vCPU runs another thread from here on.
    pub fn switch(&self, recorder: &mut Recorder, to: Running, time_ns: u64) {
        let instructions = recorder.instructions();
        if let Some(current) = &recorder.current
            && (current.ends || recorder.events.len() >= WORTH_A_FRAME)
        {
            self.flush(recorder, time_ns);
        }
        let mut threads = self.threads();
        if let Some(current) = recorder.current.take() {
            let mut stream = recorder.take(instructions);
            if current.ends {
                stream.events.shrink_to_fit();
            }
            if let Some(thread) = threads.recorded.get_mut(&current.tid) {
                thread.stream = stream;
            }
        }
        if let Some(thread) = threads.recorded.get_mut(&to.tid) {
            self.begin(recorder, thread, &to);
        }
    }

    /// Attaches a recorded thread to the vCPU that begins to run it.
    fn begin(&self, recorder: &mut Recorder, thread: &mut Thread, running: &Running) {
        let instructions = recorder.instructions();
        self.rename(thread, running);
        recorder.resume(std::mem::take(&mut thread.stream), instructions);
        recorder.current = Some(Current {
            tid: running.tid,
            number: thread.number,
            ends: false,
        });
        for _ in 0..std::mem::take(&mut thread.wakes) {
            // This can exceed a full stream only by the number of wakes that end one wait.
            recorder.push(instructions, Event::sleep(0));
        }
    }

    fn rename(&self, thread: &mut Thread, running: &Running) {
        let info = running.info();
        if info != thread.info {
            if let Some(writer) = self.file().as_mut() {
                writer.describe(thread.number, &info);
            }
            thread.info = info;
        }
    }

    fn add(&self, threads: &mut Threads, info: ThreadInfo, wakes: u32) -> Option<u32> {
        let number = self.file().as_mut()?.thread(&info);
        let thread = Thread {
            number,
            wakes,
            stream: Stream::default(),
            info,
        };
        threads.recorded.insert(thread.info.tid, thread);
        Some(number)
    }

    /// Notes that the thread that a vCPU runs created another.
    pub fn fork(&self, recorder: &mut Recorder, child: Running, time_ns: u64) {
        if !recorder.is_on() {
            return;
        }
        let mut threads = self.threads();
        self.bury(&mut threads, &mut recorder.encoder, child.tid, time_ns);
        let number = self.add(&mut threads, child.info(), 1);
        drop(threads);
        if let Some(number) = number {
            self.push(recorder, Event::wake(number, 0), time_ns);
        }
    }

    /// Writes the remaining events of an ended thread whose thread id is reused.
    fn bury(&self, threads: &mut Threads, encoder: &mut Encoder, tid: u32, time_ns: u64) {
        if let Some(dead) = threads.recorded.remove(&tid) {
            self.append(encoder, dead.number, time_ns, &dead.stream.events);
        }
    }

    /// Notes that the thread that a vCPU runs, with the id `before` until now, has called exec.
    pub fn exec(&self, recorder: &mut Recorder, before: u32, now: Running, time_ns: u64) {
        let mut threads = self.threads();
        if before != now.tid
            && let Some(thread) = threads.recorded.remove(&before)
        {
            self.bury(&mut threads, &mut recorder.encoder, now.tid, time_ns);
            threads.recorded.insert(now.tid, thread);
            if let Some(current) = &mut recorder.current {
                current.tid = now.tid;
            }
        }
        let awaited = threads.awaited.remove(&before);
        if awaited && !threads.recorded.contains_key(&now.tid) {
            self.add(&mut threads, now.info(), 0);
            if let Some(thread) = threads.recorded.get_mut(&now.tid) {
                self.begin(recorder, thread, &now);
            }
        } else if let Some(thread) = threads.recorded.get_mut(&now.tid) {
            self.rename(thread, &now);
        }
    }

    /// Notes that the thread that a vCPU runs ends.
    pub fn exit(&self, recorder: &mut Recorder, running: &Running) {
        if let Some(current) = &mut recorder.current {
            current.ends = true;
            if let Some(thread) = self.threads().recorded.get_mut(&current.tid) {
                self.rename(thread, running);
            }
        }
    }

    /// Notes that the thread that a vCPU runs wakes another.
    pub fn wake(&self, recorder: &mut Recorder, woken: u32, time_ns: u64) {
        if !recorder.is_on() {
            return;
        }
        let mut threads = self.threads();
        let Some(thread) = threads.recorded.get_mut(&woken) else {
            return;
        };
        thread.wakes += 1;
        let number = thread.number;
        drop(threads);
        self.push(recorder, Event::wake(number, 0), time_ns);
    }

    fn push(&self, recorder: &mut Recorder, event: Event, time_ns: u64) {
        if recorder.push(recorder.instructions(), event) {
            self.flush(recorder, time_ns);
        }
    }

    /// Ends the recording. [`Recording::switch`] must have detached every vCPU's thread before.
    pub fn finish(&self, time_ns: u64) {
        let mut encoder = Encoder::new();
        for (_, thread) in std::mem::take(&mut self.threads().recorded) {
            self.append(&mut encoder, thread.number, time_ns, &thread.stream.events);
        }
        let Some(mut writer) = self.file().take() else {
            return;
        };
        let ended = Map::from_iter([("recorded_ns".to_owned(), Value::from(time_ns))]);
        let finished = writer.note(&ended).and_then(|()| writer.finish());
        if let Err(error) = finished {
            self.fail(&error);
        }
    }
}

/// Beginning of the message that the trace could not be written; the launcher looks for it.
const FAILED: &str = "numaherd-lab-plugin: trace ";

fn read_object(path: &Path) -> Result<Map<String, Value>, Problem> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests;
