//! What is in a trace, in figures.
//!
//! * *pages*: those of the trace's page size that were accessed; pages of different processes are
//!   different pages.
//! * *working set* (Denning, 1968): the pages that a thread accesses in a window of [`WINDOW_INSTRUCTIONS`] of its own
//!   instructions. Windows follow each other; the last, shorter one counts only where it is the only one.
//! * *sharing*: how many pages were accessed by one thread, by two, and so on.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Damage, Error};
use crate::event::{Event, Kind, ThreadInfo};
use crate::file::Trace;
use crate::pages::PageNumbers;

/// Instructions of a window in which a thread's working set is counted.
pub const WINDOW_INSTRUCTIONS: u64 = 1_000_000;

/// What is in a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// The recorder's description.
    pub about: Map<String, Value>,
    /// Size of pages, in bytes.
    pub page_bytes: u64,
    /// Processes that the threads belong to.
    pub processes: usize,
    /// All threads together.
    pub total: Counts,
    /// Pages accessed by any thread.
    pub pages: u64,
    /// Number of pages by the number of threads that accessed them.
    pub pages_by_threads: BTreeMap<u64, u64>,
    /// The working set over all windows of all threads; `None` without accesses.
    pub working_set: Option<WorkingSet>,
    /// Each thread alone, by number.
    pub threads: Vec<OfThread>,
    /// Frames of events.
    pub frames: u64,
    /// From the start of the recording to its last frame, in nanoseconds of the recorder's clock.
    pub recorded_ns: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes per event of the frames of events, headers included; `None` without events.
    pub bytes_per_event: Option<f64>,
    /// Where the trace is damaged, and how. The figures cover what lies before it.
    pub damage: Option<Damage>,
}

/// Events, counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Instructions.
    pub instructions: u64,
    /// Times that a thread gave up its CPU to wait.
    pub sleeps: u64,
    /// Times that a thread woke another.
    pub wakes: u64,
}

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfThread {
    /// Its number in the trace.
    pub thread: usize,
    /// The thread's entry in the trace's table.
    #[serde(flatten)]
    pub info: ThreadInfo,
    /// Its events.
    #[serde(flatten)]
    pub counts: Counts,
    /// Pages that it accessed.
    pub pages: u64,
    /// Its working set; `None` if it made no accesses.
    pub working_set: Option<WorkingSet>,
}

/// Pages accessed in windows of [`WINDOW_INSTRUCTIONS`] instructions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Number of windows.
    pub windows: u64,
    /// Pages in a window, on average.
    pub mean_pages: f64,
    /// Pages in the window with the most.
    pub most_pages: u64,
}

impl Counts {
    /// Loads and stores.
    pub const fn accesses(&self) -> u64 {
        self.loads + self.stores
    }

    fn add(&mut self, other: &Self) {
        self.loads += other.loads;
        self.stores += other.stores;
        self.instructions += other.instructions;
        self.sleeps += other.sleeps;
        self.wakes += other.wakes;
    }
}

/// Counts what one thread does.
struct Counter {
    counts: Counts,
    page_bytes: u64,
    pages: PageNumbers,
    /// By page number, the window in which each page was last accessed, counted from 1.
    last_window: Vec<u64>,
    windows: Windows,
    /// Window that the thread is in.
    window: u64,
    pages_in_window: u64,
}

/// Sums over windows.
#[derive(Clone, Copy, Default)]
struct Windows {
    count: u64,
    pages: u64,
    most: u64,
}

impl Windows {
    fn add(&mut self, pages: u64) {
        self.count += 1;
        self.pages += pages;
        self.most = self.most.max(pages);
    }

    fn working_set(self) -> Option<WorkingSet> {
        (self.most > 0).then(|| WorkingSet {
            windows: self.count,
            mean_pages: self.pages as f64 / self.count as f64,
            most_pages: self.most,
        })
    }
}

impl Counter {
    fn new(page_bytes: u64) -> Self {
        Self {
            counts: Counts::default(),
            page_bytes,
            pages: PageNumbers::new(),
            last_window: Vec::new(),
            windows: Windows::default(),
            window: 1,
            pages_in_window: 0,
        }
    }

    fn count(&mut self, events: &[Event]) {
        for event in events {
            self.counts.instructions += u64::from(event.gap);
            if self.counts.instructions >= self.window * WINDOW_INSTRUCTIONS {
                self.end_window();
            }
            match event.kind {
                Kind::Load if event.bytes > 0 => self.counts.loads += 1,
                Kind::Store if event.bytes > 0 => self.counts.stores += 1,
                Kind::Load | Kind::Store => {}
                Kind::Sleep => self.counts.sleeps += 1,
                Kind::Wake => self.counts.wakes += 1,
            }
            if event.is_access() {
                let first = event.address / self.page_bytes;
                let end = event.address.saturating_add(u64::from(event.bytes) - 1);
                self.touch(first);
                if end / self.page_bytes != first {
                    self.touch(end / self.page_bytes);
                }
            }
        }
    }

    #[inline]
    fn touch(&mut self, page: u64) {
        let number = self.pages.number(page);
        match self.last_window.get_mut(number) {
            Some(last) if *last == self.window => return,
            Some(last) => *last = self.window,
            None => self.last_window.push(self.window),
        }
        self.pages_in_window += 1;
    }

    /// Ends the window, and the following windows that have no event.
    fn end_window(&mut self) {
        let now = self.counts.instructions / WINDOW_INSTRUCTIONS + 1;
        self.windows.add(std::mem::take(&mut self.pages_in_window));
        self.windows.count += now - self.window - 1;
        self.window = now;
    }

    fn windows(&self) -> Windows {
        let mut windows = self.windows;
        if windows.count == 0 {
            windows.add(self.pages_in_window);
        }
        windows
    }
}

/// Reads a trace up to its end or its damage, and reports what is in it.
///
/// # Errors
/// When the file cannot be read.
pub fn info(trace: &Trace) -> Result<Info, Error> {
    // No recorder writes 0, but a file that does is read nevertheless.
    let page_bytes = trace.page_bytes().max(1);
    let mut counters: Vec<_> = trace
        .threads()
        .iter()
        .map(|_| Counter::new(page_bytes))
        .collect();
    let mut damage = trace.damage().cloned();
    let (mut frames, mut frame_bytes, mut events_read, mut recorded_ns) = (0, 0, 0, 0);
    let mut recorded = trace.recorded();
    let mut events = Vec::new();
    loop {
        match recorded.next_frame(&mut events) {
            Ok(Some(frame)) => {
                counters[frame.thread as usize].count(&events);
                frames += 1;
                frame_bytes += frame.bytes;
                events_read += events.len() as u64;
                recorded_ns = frame.time_ns.max(recorded_ns);
            }
            Ok(None) => break,
            Err(Error::Damaged(found)) => {
                damage = Some(found);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let mut total = Counts::default();
    let mut windows = Windows::default();
    for counter in &counters {
        total.add(&counter.counts);
        let own = counter.windows();
        if own.most > 0 {
            windows.count += own.count;
            windows.pages += own.pages;
            windows.most = windows.most.max(own.most);
        }
    }
    let pages_by_threads = sharing(trace.threads(), &counters);
    let processes: std::collections::BTreeSet<_> = trace
        .threads()
        .iter()
        .map(|thread| thread.process)
        .collect();
    let of_thread = |(thread, counter): (usize, &Counter)| OfThread {
        thread,
        info: trace.threads()[thread].clone(),
        counts: counter.counts,
        pages: counter.pages.pages().len() as u64,
        working_set: counter.windows().working_set(),
    };
    Ok(Info {
        about: trace.about().clone(),
        page_bytes,
        processes: processes.len(),
        total,
        pages: pages_by_threads.values().sum(),
        pages_by_threads,
        working_set: windows.working_set(),
        threads: counters.iter().enumerate().map(of_thread).collect(),
        frames,
        recorded_ns,
        bytes: trace.bytes(),
        bytes_per_event: (events_read > 0).then(|| frame_bytes as f64 / events_read as f64),
        damage,
    })
}

/// Number of pages by number of threads that accessed them.
fn sharing(threads: &[ThreadInfo], counters: &[Counter]) -> BTreeMap<u64, u64> {
    let mut of_process: HashMap<u32, Vec<&Counter>> = HashMap::new();
    for (thread, counter) in threads.iter().zip(counters) {
        of_process.entry(thread.process).or_default().push(counter);
    }
    let mut pages_by_threads = BTreeMap::new();
    for counters in of_process.values() {
        let mut sharers: HashMap<u64, u64, FixedState> = HashMap::default();
        for counter in counters {
            for &page in counter.pages.pages() {
                *sharers.entry(page).or_default() += 1;
            }
        }
        for threads in sharers.into_values() {
            *pages_by_threads.entry(threads).or_default() += 1;
        }
    }
    pages_by_threads
}
