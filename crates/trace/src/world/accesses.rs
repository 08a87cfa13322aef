//! What an access does: finds (or makes) its page, translates the address, and fetches the line.
//!
//! Nearly all of a run's time goes into this path. Rare cases are out of line.

use numaherd_hardware::{Access, Config, Detail, Fetch, Fill, Machine, Notification};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{MemorySource, NewPages, Notice, ProcessId, Sample, ThreadId};
use rand::Rng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cores::{CoreState, Slot};
use super::machine::Hardware;
use super::options::Options;
use super::pages::PageTable;
use super::threads::Process;
use super::unit::Unit;
use crate::{Event, Kind};

/// Which accesses become samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sampled {
    #[default]
    Memory,
    TlbMisses,
    HintFaults,
}

/// The thread that makes an access, and where.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) thread: ThreadId,
    pub(super) process: ProcessId,
    /// The index of its process.
    pub(super) place: u32,
    pub(super) core: usize,
    pub(super) cpu: CpuId,
}

/// Why no further event was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// All of them were played, or the last one fetched a line; for a whole thread: it has no more events.
    Over,
    /// The thread sleeps.
    Sleep,
    /// The thread wakes the thread of this number.
    Wake(u64),
}

/// The result of playing events.
pub(super) struct Played {
    pub(super) events: usize,
    pub(super) stop: Stop,
    /// The fetch that the last of them caused.
    pub(super) fetched: Option<Fetch>,
}

/// The machine's memory and everything that watches it.
pub(super) struct Memory {
    pub(super) machine: Machine,
    pub(super) pages: PageTable,
    pub(super) unit: Option<Unit>,
    pub(super) options: Options,
    pub(super) new_pages: NewPages,
    /// For each node, the indices of the nodes that have memory, the nearest first.
    pub(super) nearest: Vec<Vec<usize>>,
    pub(super) nodes: Vec<NodeId>,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) processes: Vec<Process>,
    /// Whether samples and notices are wanted now.
    pub(super) listening: bool,
    pub(super) sampled: Sampled,
    pub(super) samples: Vec<Sample>,
    pub(super) notices: Vec<Notice>,
    pub(super) hint_faults: u64,
    /// Accesses to pages that no node had room for.
    pub(super) without_memory: u64,
    page_shift: u32,
    line_shift: u32,
}

impl Memory {
    /// The memory of a machine, with nothing in it.
    pub(super) fn new(
        machine: Machine,
        pages: PageTable,
        unit: Option<Unit>,
        options: &Options,
        hardware: &Hardware,
        random: Xoshiro256PlusPlus,
        processes: Vec<Process>,
    ) -> Self {
        let nodes = hardware.topology.nodes();
        let latency_ns = &hardware.config.latency_ns;
        let nearest = latency_ns.iter().map(|row| {
            let mut order: Vec<usize> = (0..nodes.len())
                .filter(|&node| nodes[node].has_memory())
                .collect();
            order.sort_by(|&one, &other| row[one].total_cmp(&row[other]));
            order
        });
        Self {
            line_shift: hardware.config.line_bytes.trailing_zeros(),
            page_shift: hardware.page_bytes().trailing_zeros(),
            new_pages: options.new_pages,
            nearest: nearest.collect(),
            nodes: nodes.iter().map(|node| node.id).collect(),
            options: options.clone(),
            machine,
            pages,
            unit,
            random,
            processes,
            listening: false,
            sampled: Sampled::default(),
            samples: Vec::new(),
            notices: Vec::new(),
            hint_faults: 0,
            without_memory: 0,
        }
    }

    pub(super) fn config(&self) -> &Config {
        self.machine.config()
    }

    /// Plays events of a thread on its core, up to the first sleep or wake, or the first access that needs a line from
    /// beyond the last-level cache: that takes so long that it may be another core's turn.
    pub(super) fn play(&mut self, core: &mut CoreState, who: &Who, events: &[Event]) -> Played {
        let mut played = Played {
            events: events.len(),
            stop: Stop::Over,
            fetched: None,
        };
        for (at, event) in events.iter().enumerate() {
            core.executed += u64::from(event.gap);
            if event.bytes == 0 {
                let stop = match event.kind {
                    Kind::Load | Kind::Store => continue,
                    Kind::Sleep => Stop::Sleep,
                    Kind::Wake => Stop::Wake(event.address),
                };
                (played.events, played.stop) = (at + 1, stop);
                break;
            }
            let is_store = event.kind == Kind::Store;
            let mut fetched = self.access(core, who, event.address, is_store);
            let last = event.address.wrapping_add(u64::from(event.bytes) - 1);
            if (event.address ^ last) >> self.line_shift != 0 {
                // An access that crosses into a second line is an access to each.
                let start = last >> self.line_shift << self.line_shift;
                fetched = self.access(core, who, start, is_store).or(fetched);
            }
            if fetched.is_some() {
                (played.events, played.fetched) = (at + 1, fetched);
                break;
            }
        }
        played
    }

    #[inline]
    fn access(
        &mut self,
        core: &mut CoreState,
        who: &Who,
        address: u64,
        store: bool,
    ) -> Option<Fetch> {
        let number = address >> self.page_shift;
        if core.slot(number).number != number && !self.remember(core, who, number, address, store) {
            return None;
        }
        let slot = core.slot(number);
        slot.accesses += 1;
        let tlb = slot.tlb;
        let physical_address = slot.frame + (address & ((1 << self.page_shift) - 1));
        let instructions = core.executed;
        let translation = core
            .core
            .translate(&self.machine, tlb, address, || instructions);
        if let Some(translation) = translation
            && let Some(fill) = translation.fill
        {
            self.tlb_miss(core, who, fill, translation.now_ps, address, store);
        }
        let access = Access {
            virtual_address: address,
            physical_address,
            store,
        };
        let detail = || Detail {
            instructions,
            value: None,
        };
        core.core.access(&self.machine, access, detail)?.fetch
    }

    /// Makes a core remember a page. A page that is touched for the first time is made; a marked page faults. Returns
    /// false when there is no memory for the page.
    #[cold]
    #[inline(never)]
    fn remember(
        &mut self,
        core: &mut CoreState,
        who: &Who,
        number: u64,
        address: u64,
        store: bool,
    ) -> bool {
        let place = match self.pages.find(who.place, number) {
            Some(place) => place,
            None => match self.touch(core, who, number) {
                Some(place) => place,
                None => {
                    self.without_memory += 1;
                    return false;
                }
            },
        };
        let page = *self.pages.get(place);
        if page.is_marked {
            self.pages.unmark(place);
            self.hint_faults += 1;
            core.hold(self.options.modelled_ps(self.options.hint_fault_ns));
            if self.listening && self.sampled == Sampled::HintFaults {
                self.sample(who, (address, store), core.time_ps, place);
            }
        }
        let slot = Slot {
            number,
            tlb: self.pages.tlb_page(place),
            frame: page.frame,
            accesses: 0,
        };
        core.remember(&mut self.pages, slot);
        true
    }

    /// Places a new page on the node that is given for it, or by the rule of new pages; if that node is full, on the
    /// nearest with room.
    fn touch(&mut self, core: &mut CoreState, who: &Who, number: u64) -> Option<usize> {
        let given = &self.options.start.nodes;
        let given = (!given.is_empty())
            .then(|| given.get(&(who.process.pid, number)))
            .flatten()
            .and_then(|node| self.nodes.iter().position(|own| own == node));
        // The same list for every core.
        let with_memory = &self.nearest[0];
        let node = given.unwrap_or_else(|| match self.new_pages {
            NewPages::FirstTouch => core.node,
            NewPages::Interleave => with_memory[(number % with_memory.len() as u64) as usize],
            NewPages::Random => with_memory[self.random.random_range(0..with_memory.len())],
        });
        let now_ps = core.tell_time();
        let wanted = self.nearest[node].iter().copied();
        self.pages.touch(who.place, number, wanted, now_ps)
    }

    #[cold]
    #[inline(never)]
    fn tlb_miss(
        &mut self,
        core: &mut CoreState,
        who: &Who,
        fill: Fill,
        now_ps: u64,
        address: u64,
        store: bool,
    ) {
        if self.listening && self.sampled == Sampled::TlbMisses {
            self.sample(
                who,
                (address, store),
                now_ps,
                PageTable::place_of(fill.page),
            );
        }
        let Some(unit) = &mut self.unit else {
            return;
        };
        let tsc = self.machine.config().cycles(now_ps);
        let (notification, held_ps) = unit.miss(who.core, fill, tsc, &self.pages);
        if held_ps > 0 {
            core.core.hold(core.executed, held_ps);
        }
        if let Some(notification) = notification {
            self.notice(who.thread, now_ps, &notification);
        }
    }

    /// Makes the unit's pass over infrequently evicted pages. The unit does not say whose translations they are; a
    /// notice names the thread that `thread_on` gives for the node.
    pub(super) fn pass(&mut self, now_ps: u64, thread_on: impl Fn(usize) -> Option<ThreadId>) {
        let Some(unit) = &mut self.unit else {
            return;
        };
        let mut found = Vec::new();
        unit.pass(self.machine.config(), now_ps, &self.pages, |notification| {
            found.push(notification);
        });
        for notification in found {
            if let Some(thread) = thread_on(notification.to) {
                self.notice(thread, now_ps, &notification);
            }
        }
    }

    fn notice(&mut self, thread: ThreadId, now_ps: u64, notification: &Notification) {
        if !self.listening {
            return;
        }
        let page = self.pages.get(PageTable::place_of(notification.page));
        self.notices.push(Notice {
            time_ns: self.options.loop_ns(now_ps),
            thread,
            process: self.processes[page.process as usize].id,
            page: page.number,
            from: self.nodes[notification.from],
            to: self.nodes[notification.to],
        });
    }

    /// Records a memory sample of an access that a thread has just made, if those are wanted now.
    pub(super) fn memory_sample(
        &mut self,
        core: &CoreState,
        who: &Who,
        event: &Event,
        fetch: Option<Fetch>,
    ) {
        if !self.listening || self.sampled != Sampled::Memory || !event.is_access() {
            return;
        }
        let Some(place) = self.pages.find(who.place, event.address >> self.page_shift) else {
            return;
        };
        let source = match fetch {
            None => MemorySource::Cache,
            Some(fetch) if fetch.dirty_transfer => MemorySource::RemoteCache,
            Some(fetch) if fetch.node == core.node => MemorySource::LocalMemory,
            Some(_) => MemorySource::RemoteMemory,
        };
        let latency = fetch.map(|fetch| self.config().cycles(fetch.latency_ps));
        let access = (event.address, event.kind == Kind::Store);
        let sample = self.sample(who, access, core.time_ps, place);
        (sample.source, sample.latency) = (source, latency);
    }

    /// Records a sample of an access (its address, whether it stores) with unknown source and latency.
    fn sample(
        &mut self,
        who: &Who,
        (address, store): (u64, bool),
        time_ps: u64,
        place: usize,
    ) -> &mut Sample {
        self.pages.note_sample(place);
        self.samples.push_mut(Sample {
            time_ns: self.options.loop_ns(time_ps),
            thread: who.thread,
            process: who.process,
            address,
            cpu: who.cpu,
            latency: None,
            source: MemorySource::Unknown,
            node: Some(self.nodes[self.pages.get(place).node as usize]),
            store,
        })
    }
}
