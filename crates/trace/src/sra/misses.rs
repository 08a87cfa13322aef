//! The accesses of each thread that reach memory, page by page.

use std::collections::HashMap;

use numaherd_hardware::{Access, Config, Core, Detail, Machine, Memory, Span};

use super::Caches;
use super::pattern::Patterns;
use crate::error::{Damage, Error};
use crate::event::{Event, Kind};
use crate::file::Trace;
use crate::pages::PageNumbers;
use crate::turns::Turns;

/// Bytes of memory that a trace may touch: 4 TiB. The hardware model keeps some bytes for each part of the memory that
/// might exist.
const MOST_MEMORY: u64 = 1 << 42;
/// The most pages that one event touches: 255 bytes, where a page is as small as a line.
const MOST_PAGES_OF_EVENT: u64 = 6;

/// What reaches memory.
#[derive(Debug)]
pub(super) struct Misses {
    pub(super) page_bytes: u64,
    pub(super) accesses: u64,
    /// By thread number.
    pub(super) threads: Vec<OfThread>,
    /// By [`OfThread::process`].
    pub(super) processes: Vec<AddressSpace>,
    pub(super) damage: Option<Damage>,
}

/// One thread's accesses to memory.
#[derive(Debug)]
pub(super) struct OfThread {
    /// Index of its process.
    pub(super) process: usize,
    pub(super) count: u64,
    /// How many different pages they touch.
    pub(super) pages: u64,
    pub(super) runs: Vec<Run>,
}

/// Successive accesses of a thread to one page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Run {
    /// Place of the page in its [`AddressSpace`].
    pub(super) page: u32,
    pub(super) count: u32,
    /// Distance in pages between the thread's accesses when the run began; 0 if there was no pattern.
    pub(super) step: i32,
}

/// The pages that a process touches, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    pub(super) pages: Vec<u64>,
}

/// A process while the trace is read.
#[derive(Debug)]
struct Process {
    numbers: PageNumbers,
    /// Page frame of each page, by its number.
    frames: Vec<u64>,
}

/// Runs a trace through caches.
pub(super) fn misses(trace: &Trace, caches: &Caches) -> Result<Misses, Error> {
    let page_bytes = trace.page_bytes();
    if !page_bytes.is_power_of_two() || page_bytes < caches.line_bytes {
        return Err(Error::Pages {
            page_bytes,
            line_bytes: caches.line_bytes,
        });
    }
    let memory = (trace.events())
        .saturating_mul(MOST_PAGES_OF_EVENT)
        .saturating_mul(page_bytes);
    let memory = memory.clamp(page_bytes, MOST_MEMORY.max(page_bytes));
    let machine = machine(caches, trace.threads().len(), memory)?;
    let mut places = HashMap::new();
    let mut threads: Vec<_> = trace
        .threads()
        .iter()
        .enumerate()
        .map(|(number, info)| {
            let next = places.len();
            Thread {
                core: Core::new(&machine, number),
                instructions: 0,
                patterns: Patterns::default(),
                found: OfThread {
                    process: *places.entry(info.process).or_insert(next),
                    count: 0,
                    pages: 0,
                    runs: Vec::new(),
                },
            }
        })
        .collect();
    let mut processes: Vec<_> = places
        .iter()
        .map(|_| Process {
            numbers: PageNumbers::new(),
            frames: Vec::new(),
        })
        .collect();
    let mut shared = Shared {
        machine: &machine,
        page_bytes,
        line_bytes: caches.line_bytes,
        frames: 0,
        accesses: 0,
    };
    let mut turns = Turns::new(trace);
    while let Some((number, events)) = turns.next()? {
        let thread = &mut threads[number];
        let process = &mut processes[thread.found.process];
        for event in events {
            thread.instructions += u64::from(event.gap);
            if event.is_access() {
                shared.access(thread, process, event);
            }
        }
    }
    if shared.frames.saturating_mul(page_bytes) > memory {
        return Err(Error::Memory(memory));
    }
    let damage = trace.damage().or(turns.damage()).cloned();
    let found = threads.into_iter().map(|thread| thread.found);
    Ok(in_order_of_addresses(
        found.collect(),
        &processes,
        page_bytes,
        shared.accesses,
        damage,
    ))
}

/// Caches with a core for each thread, and one node of memory.
fn machine(caches: &Caches, threads: usize, memory: u64) -> Result<Machine, Error> {
    let cores = threads.max(1);
    let domains = cores.div_ceil(caches.cores_per_domain);
    let config = Config {
        line_bytes: caches.line_bytes,
        prefetch: None,
        l1: caches.l1,
        l2: caches.l2,
        llc: caches.llc,
        domain_of_core: (0..cores)
            .map(|core| core / caches.cores_per_domain)
            .collect(),
        node_of_domain: vec![0; domains],
        ..Config::of_equal_nodes(1, vec![vec![100.0]], 1000.0)
    };
    let all = Span {
        start: 0,
        end: memory,
        node: 0,
    };
    let memory = Memory::new([all]).expect("one span is a map");
    Machine::new(config, memory).map_err(Error::Caches)
}

struct Thread {
    core: Core,
    instructions: u64,
    patterns: Patterns,
    found: OfThread,
}

struct Shared<'a> {
    machine: &'a Machine,
    page_bytes: u64,
    line_bytes: u64,
    /// Page frames given out.
    frames: u64,
    accesses: u64,
}

impl Shared<'_> {
    /// Makes an access, line by line.
    #[inline]
    fn access(&mut self, thread: &mut Thread, process: &mut Process, event: &Event) {
        let mut at = event.address;
        let end = event.address.saturating_add(u64::from(event.bytes));
        while at < end {
            self.access_line(thread, process, at, event.kind == Kind::Store);
            at = match (at & !(self.line_bytes - 1)).checked_add(self.line_bytes) {
                Some(next) => next,
                None => return,
            };
        }
    }

    #[inline]
    fn access_line(&mut self, thread: &mut Thread, process: &mut Process, at: u64, store: bool) {
        self.accesses += 1;
        let page = at / self.page_bytes;
        let number = process.numbers.number(page);
        let frame = match process.frames.get(number) {
            Some(frame) => *frame,
            None => {
                process.frames.push(self.frames);
                self.frames += 1;
                self.frames - 1
            }
        };
        let access = Access {
            virtual_address: at,
            physical_address: frame * self.page_bytes + at % self.page_bytes,
            store,
        };
        let detail = || Detail {
            instructions: thread.instructions,
            value: None,
        };
        let miss = thread.core.access(self.machine, access, detail);
        let fetch = miss.and_then(|miss| miss.fetch);
        if fetch.is_some_and(|fetch| !fetch.dirty_transfer && !fetch.prefetched) {
            thread.found.miss(number as u32, page, &mut thread.patterns);
        }
    }
}

impl OfThread {
    fn miss(&mut self, number: u32, page: u64, patterns: &mut Patterns) {
        self.count += 1;
        match self.runs.last_mut() {
            Some(run) if run.page == number && run.count < u32::MAX => run.count += 1,
            _ => self.runs.push(Run {
                page: number,
                count: 1,
                step: patterns.see(page),
            }),
        }
    }
}

/// Replaces the numbers of pages by their places among the process's pages in ascending order.
fn in_order_of_addresses(
    mut threads: Vec<OfThread>,
    processes: &[Process],
    page_bytes: u64,
    accesses: u64,
    damage: Option<Damage>,
) -> Misses {
    let mut spaces = Vec::with_capacity(processes.len());
    let mut places = Vec::with_capacity(processes.len());
    for process in processes {
        let pages = process.numbers.pages();
        let mut order: Vec<u32> = (0..pages.len() as u32).collect();
        order.sort_unstable_by_key(|&number| pages[number as usize]);
        let mut place_of = vec![0; pages.len()];
        for (place, &number) in order.iter().enumerate() {
            place_of[number as usize] = place as u32;
        }
        places.push(place_of);
        spaces.push(AddressSpace {
            pages: order.iter().map(|&number| pages[number as usize]).collect(),
        });
    }
    for thread in &mut threads {
        let place_of = &places[thread.process];
        let mut seen = vec![false; place_of.len()];
        for run in &mut thread.runs {
            run.page = place_of[run.page as usize];
            let is_new = !std::mem::replace(&mut seen[run.page as usize], true);
            thread.pages += u64::from(is_new);
        }
    }
    Misses {
        page_bytes,
        accesses,
        threads,
        processes: spaces,
        damage,
    }
}
