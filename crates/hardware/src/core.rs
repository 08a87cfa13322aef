//! A core: its TLBs, its private caches, its prefetcher, its time and its counts.
//!
//! A core belongs to one host thread at a time and takes no locks on a hit. The exception is
//! private caches that SMT siblings share: they are behind a lock.

mod counts;

use std::sync::{Arc, Mutex, PoisonError};

pub use self::counts::Counts;
use crate::TlbManagement;
use crate::cache::{Caches, State};
use crate::config::picoseconds;
use crate::front::Front;
use crate::machine::{Inbox, Machine, Message, Reply, Source};
use crate::mmu::{Fill, Lookup, Mmu};
use crate::page::Page;
use crate::prefetch::Prefetcher;
use crate::time::Clock;

/// One data access of at most a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// Virtual address, for telling which load an access depends on.
    pub virtual_address: u64,
    /// Physical address, by which caches know the line.
    pub physical_address: u64,
    /// Whether it writes.
    pub store: bool,
}

/// What the caller is asked for only when an access goes beyond the first-level cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Detail {
    /// Instructions that the core has executed so far.
    pub instructions: u64,
    /// What a load returned, if known and if it may be an address.
    pub value: Option<u64>,
}

/// An access that the first-level cache alone did not satisfy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Miss {
    /// Time by which the core was held up, for this access or by earlier ones, in picoseconds.
    pub stalled_ps: u64,
    /// Set when the line came, or was still to come, from beyond the domain's last-level cache.
    pub fetch: Option<Fetch>,
}

/// A line that an access waits for, from memory or from a cache of another domain: fetched on demand, or asked for by
/// the prefetcher and still on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetch {
    /// Node the line came from.
    pub node: usize,
    /// When the request of the access went out, in picoseconds of the core's time.
    pub issued_ps: u64,
    /// From `issued_ps` until the data arrived, in picoseconds, queueing included.
    pub latency_ps: u64,
    /// Whether `node` is another node than the core's.
    pub remote: bool,
    /// Whether the line came dirty out of another domain's cache.
    pub dirty_transfer: bool,
    /// Whether the prefetcher had asked for it.
    pub prefetched: bool,
}

/// A translation that the first level of the TLB did not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Translation {
    /// The entry filled from the page table; None when the second level had the translation.
    pub fill: Option<Fill>,
    /// The core's time at the access, in picoseconds; it never goes back from one to the next.
    pub now_ps: u64,
    /// Time by which the core was held up, for this translation or by earlier accesses, in
    /// picoseconds.
    pub stalled_ps: u64,
}

/// One core of a [`Machine`]; with SMT, one thread of a core.
#[derive(Debug)]
pub struct Core {
    private: Private,
    thread: Thread,
}

/// The owner of the private caches.
#[derive(Debug)]
enum Private {
    /// This core alone.
    Own(Caches),
    /// It and its siblings.
    Shared(Arc<Mutex<Caches>>),
}

/// A core without its private caches.
#[derive(Debug)]
struct Thread {
    core: usize,
    domain: usize,
    node: usize,
    line_shift: u32,
    inbox: Arc<Inbox>,
    mmu: Option<Mmu>,
    l2_ps: u64,
    prefetcher: Option<Prefetcher>,
    /// Set by [`Core::know_hits`].
    front: Option<Front>,
    clock: Clock,
    counts: Counts,
}

impl Core {
    /// Core number `core` of the machine, with empty caches and TLBs, at time 0.
    ///
    /// Make only one of each number: the first one that reads a message takes it from the others.
    ///
    /// # Panics
    /// When the machine has no such core.
    pub fn new(machine: &Machine, core: usize) -> Self {
        let config = &machine.config;
        let thread = Thread {
            core: config.physical_core(core),
            domain: config.domain_of_core[core],
            node: config.node_of_core(core),
            line_shift: machine.line_shift,
            inbox: machine.inbox(config.physical_core(core)),
            mmu: config.tlb.as_ref().map(Mmu::new),
            l2_ps: config.l2.map_or(0, |l2| picoseconds(l2.hit_ns)),
            prefetcher: config
                .prefetch
                .map(|shape| Prefetcher::new(shape, config.line_bytes)),
            front: None,
            clock: Clock::new(config, machine.siblings(core)),
            counts: Counts {
                fetches_from: vec![0; config.nodes()],
                ..Counts::default()
            },
        };
        let private = match machine.shared_caches(thread.core) {
            Some(caches) => Private::Shared(caches),
            None => Private::Own(Caches::new(config)),
        };
        Self { private, thread }
    }

    /// Lets [`Core::hits`] recognise hits by their virtual addresses from here on. Does nothing on a machine with TLBs,
    /// whose order of use changes with each translation, or with SMT, where siblings change the private caches.
    pub fn know_hits(&mut self) {
        if let (Private::Own(caches), None) = (&self.private, &self.thread.mmu) {
            let line_bytes = 1 << self.thread.line_shift;
            self.thread.front = Front::new(caches.l1.sets(), line_bytes);
        }
    }

    /// Makes a data access of `bytes` bytes, at least one, if its virtual address alone shows that it hits and changes
    /// only the counts. Otherwise does nothing and returns false: call [`Core::access`].
    #[inline]
    pub fn hits(&mut self, virtual_address: u64, bytes: u64, store: bool) -> bool {
        let thread = &mut self.thread;
        let hits = match &thread.front {
            Some(front) => front.holds(virtual_address, bytes, store) && !thread.inbox.is_pending(),
            None => false,
        };
        thread.counts.accesses += u64::from(hits);
        thread.counts.stores += u64::from(hits & store);
        hits
    }

    /// To be called when virtual addresses may have changed their meaning: another process runs, or pages were moved.
    pub fn forget_addresses(&mut self) {
        if let Some(front) = &mut self.thread.front {
            front.forget();
        }
    }

    /// Host addresses of the data needed to model an access to this physical address, for prefetches.
    #[inline]
    pub fn host_addresses(
        &self,
        machine: &Machine,
        physical_address: u64,
    ) -> impl Iterator<Item = usize> {
        machine.host_addresses(self.thread.domain, physical_address >> machine.line_shift)
    }

    /// Makes a data access. `detail` is asked for only beyond the first-level cache; None means
    /// that the first-level cache had the data.
    #[inline]
    pub fn access(
        &mut self,
        machine: &Machine,
        access: Access,
        detail: impl FnOnce() -> Detail,
    ) -> Option<Miss> {
        let thread = &mut self.thread;
        match &mut self.private {
            Private::Own(caches) => thread.access(caches, machine, access, detail),
            Private::Shared(caches) => {
                let mut caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
                thread.access(&mut caches, machine, access, detail)
            }
        }
    }

    /// Translates the page of an access that is about to be made with [`Core::access`].
    /// `instructions`, executed so far, is asked for only beyond the first level; None means that
    /// the first level had the translation, or that the machine has no TLBs.
    ///
    /// What the translation costs: see rule 6 in `time`.
    #[inline]
    pub fn translate(
        &mut self,
        machine: &Machine,
        page: Page,
        virtual_address: u64,
        instructions: impl FnOnce() -> u64,
    ) -> Option<Translation> {
        let fill = match self.thread.mmu.as_mut()?.look_up(page) {
            Lookup::First => return None,
            Lookup::Second => None,
            Lookup::Miss(fill) => Some(fill),
        };
        Some(
            self.thread
                .wait(machine, fill, virtual_address, instructions()),
        )
    }

    /// Keeps the core from its program for `ps` picoseconds, as an interrupt or a handler in
    /// software does. Requests in flight continue.
    pub fn hold(&mut self, instructions: u64, ps: u64) {
        self.thread.clock.hold(instructions, ps);
    }

    /// Its TLBs, if the machine has any.
    pub fn mmu(&self) -> Option<&Mmu> {
        self.thread.mmu.as_ref()
    }

    /// Its TLBs, to invalidate translations.
    pub fn mmu_mut(&mut self) -> Option<&mut Mmu> {
        self.thread.mmu.as_mut()
    }

    /// The core's time after this many instructions, in picoseconds, waits included.
    pub fn now_ps(&mut self, instructions: u64) -> u64 {
        self.thread.clock.now(instructions)
    }

    /// Lets the core's time pass idly until `time_ps`, if it is not there yet.
    pub fn idle_until(&mut self, instructions: u64, time_ps: u64) {
        self.thread.clock.idle_until(instructions, time_ps);
    }

    /// Time for which its accesses held the core up, in picoseconds, as of the last call of
    /// [`Core::now_ps`].
    pub fn stalled_ps(&self) -> u64 {
        self.thread.clock.stalled_ps()
    }

    /// Additional time of instructions because SMT siblings executed theirs, in picoseconds, as of the last call of
    /// [`Core::now_ps`].
    pub fn yielded_ps(&self) -> u64 {
        self.thread.clock.yielded_ps()
    }

    /// Says that the core has nothing to do until [`Core::idle_until`], so that SMT siblings have
    /// it to themselves. To be called after [`Core::now_ps`].
    pub fn rests(&mut self) {
        self.thread.clock.rests();
    }

    /// Time with at least one of [`Counts::uncore_requests`] outstanding, in picoseconds (BRM §3.1: t').
    pub fn outstanding_ps(&self) -> u64 {
        self.thread.clock.busy_ps()
    }

    /// Whether messages of other cores wait for its next access.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.thread.inbox.is_pending()
    }

    /// What it has done.
    pub fn counts(&self) -> &Counts {
        &self.thread.counts
    }
}

impl Thread {
    #[inline]
    fn access(
        &mut self,
        caches: &mut Caches,
        machine: &Machine,
        access: Access,
        detail: impl FnOnce() -> Detail,
    ) -> Option<Miss> {
        if self.inbox.is_pending() {
            self.read_messages(caches);
            if let Some(front) = &mut self.front {
                front.forget();
            }
        }
        self.counts.accesses += 1;
        self.counts.stores += u64::from(access.store);
        let line = access.physical_address >> machine.line_shift;
        let miss = match caches.l1.find(line) {
            Some(State::Modified) => None,
            Some(_) if !access.store => None,
            state => self.beyond_first_level(caches, machine, access, line, state, detail()),
        };
        if let Some(front) = &mut self.front {
            front.note(access.virtual_address, caches.l1.most_recent(line));
        }
        miss
    }

    /// Makes an access whose line the first-level cache does not have, or has in an insufficient state.
    fn beyond_first_level(
        &mut self,
        caches: &mut Caches,
        machine: &Machine,
        access: Access,
        line: u64,
        state: Option<State>,
        detail: Detail,
    ) -> Option<Miss> {
        let stalled = self.clock.stalled_ps();
        let fetch = match state {
            Some(state) => {
                self.write(caches, machine, access, line, state, detail);
                None
            }
            None => {
                let Some(home) = machine.memory.node_of(access.physical_address) else {
                    self.counts.outside_memory += 1;
                    return None;
                };
                self.miss(caches, machine, access, line, home, detail)
            }
        };
        Some(Miss {
            stalled_ps: self.clock.stalled_ps() - stalled,
            fetch,
        })
    }

    /// Charges a translation beyond the first level.
    fn wait(
        &mut self,
        machine: &Machine,
        fill: Option<Fill>,
        virtual_address: u64,
        instructions: u64,
    ) -> Translation {
        let stalled = self.clock.stalled_ps();
        if let Some(tlb) = &machine.config.tlb {
            let hit_ns = tlb.l2.map_or(0.0, |l2| l2.hit_ns);
            let latency = picoseconds(if fill.is_some() { tlb.miss_ns } else { hit_ns });
            if fill.is_some() && tlb.managed_by == TlbManagement::Software {
                self.clock.hold(instructions, latency);
            } else if latency > 0 {
                let issue = self.clock.issue(instructions, virtual_address);
                let value = Some(virtual_address);
                self.clock.fly(instructions, issue + latency, false, value);
            }
        }
        let now_ps = self.clock.now(instructions);
        Translation {
            fill,
            now_ps,
            stalled_ps: self.clock.stalled_ps() - stalled,
        }
    }

    /// First store to a line that a private cache holds, but not yet for writing.
    fn write(
        &mut self,
        caches: &mut Caches,
        machine: &Machine,
        access: Access,
        line: u64,
        state: State,
        detail: Detail,
    ) {
        caches.l1.set_state(line, State::Modified);
        if let Some(l2) = &mut caches.l2 {
            l2.set_state(line, State::Modified);
        }
        if state == State::Exclusive {
            let victim = machine.first_write(self.core, self.domain, line);
            if let Some(victim) = victim {
                let now = self.clock.now(detail.instructions);
                self.write_back(machine, victim, now);
            }
            return;
        }
        self.counts.upgrade += 1;
        let reply = machine.upgrade(self.core, self.domain, line);
        let issue = self.issue(access, detail);
        self.settle_reply(machine, &reply, line, issue);
        let home = machine.memory.node_of(access.physical_address);
        let wait = match reply.asked_outside {
            true => machine.network.ask(self.node, home.unwrap_or(self.node)),
            false => machine.llc_ps,
        };
        self.clock
            .fly(detail.instructions, issue + wait, true, None);
        self.clock.outstanding(issue, issue + wait);
    }

    /// When the request of an access goes out.
    fn issue(&mut self, access: Access, detail: Detail) -> u64 {
        self.clock
            .issue(detail.instructions, access.virtual_address)
    }

    fn miss(
        &mut self,
        caches: &mut Caches,
        machine: &Machine,
        access: Access,
        line: u64,
        home: usize,
        detail: Detail,
    ) -> Option<Fetch> {
        self.counts.l1_miss += 1;
        let issue = self.issue(access, detail);
        let state = caches.l2.as_mut().and_then(|l2| l2.find(line));
        let (latency, fetch) = match state {
            Some(state) => {
                caches.l1.insert(line, state);
                if access.store && state != State::Modified {
                    self.write(caches, machine, access, line, state, detail);
                    return None;
                }
                (self.l2_ps, None)
            }
            None => {
                let (latency, fetch) =
                    self.beyond(caches, machine, line, home, access.store, issue);
                self.clock.outstanding(issue, issue + latency);
                (latency, fetch)
            }
        };
        let (instructions, value) = (detail.instructions, detail.value);
        self.clock
            .fly(instructions, issue + latency, access.store, value);
        fetch
    }

    /// Gets a line from the last-level cache or beyond. Returns its latency in picoseconds, and the
    /// fetch if it came from beyond.
    fn beyond(
        &mut self,
        caches: &mut Caches,
        machine: &Machine,
        line: u64,
        home: usize,
        store: bool,
        issue: u64,
    ) -> (u64, Option<Fetch>) {
        self.counts.llc_access += 1;
        machine.will_request(line);
        self.inbox.gets_line();
        let prefetched = self
            .prefetcher
            .as_mut()
            .and_then(|prefetcher| prefetcher.take(line));
        let reply = machine.request(self.core, self.domain, line, store);
        self.settle_reply(machine, &reply, line, issue);
        caches.l1.insert(line, reply.state);
        if let Some(l2) = &mut caches.l2 {
            l2.insert(line, reply.state);
        }
        let (latency_ps, node) = match reply.source {
            Source::Llc => {
                let latency_ps = prefetched.map_or(machine.llc_ps, |at| at.saturating_sub(issue));
                self.run_ahead(machine, line, issue);
                let late = (latency_ps > machine.llc_ps).then_some(Fetch {
                    node: home,
                    issued_ps: issue,
                    latency_ps,
                    remote: home != self.node,
                    dirty_transfer: false,
                    prefetched: true,
                });
                return (latency_ps, late);
            }
            Source::Memory => {
                self.counts.llc_miss += 1;
                (self.fetch(machine, home, issue), home)
            }
            Source::DirtyOn(node) => {
                self.counts.dirty_transfer += 1;
                (machine.network.transfer(self.node, node, issue), node)
            }
        };
        self.run_ahead(machine, line, issue);
        let fetch = Fetch {
            node,
            issued_ps: issue,
            latency_ps,
            remote: node != self.node,
            dirty_transfer: reply.source != Source::Memory,
            prefetched: false,
        };
        (latency_ps, Some(fetch))
    }

    /// Reads a line from memory; returns its latency.
    fn fetch(&mut self, machine: &Machine, home: usize, issue: u64) -> u64 {
        self.counts.fetches_from[home] += 1;
        if home == self.node {
            self.counts.dram_local += 1;
        } else {
            self.counts.dram_remote += 1;
        }
        machine.network.read(self.node, home, issue)
    }

    /// Lets the prefetcher follow a miss.
    #[inline]
    fn run_ahead(&mut self, machine: &Machine, line: u64, now: u64) {
        let Some(prefetcher) = &mut self.prefetcher else {
            return;
        };
        for ahead in prefetcher.observe(line) {
            self.prefetch(machine, ahead, now);
        }
    }

    fn prefetch(&mut self, machine: &Machine, line: u64, now: u64) {
        let Some(home) = machine.memory.node_of(line << machine.line_shift) else {
            return;
        };
        let Some(reply) = machine.prefetch(self.core, self.domain, line) else {
            return;
        };
        self.settle_reply(machine, &reply, line, now);
        let latency = if reply.source == Source::Llc {
            machine.llc_ps
        } else {
            self.counts.prefetch += 1;
            self.fetch(machine, home, now)
        };
        if let Some(prefetcher) = &mut self.prefetcher {
            prefetcher.keep(line, now + latency);
        }
    }

    /// Counts and charges the side effects of a request.
    #[inline]
    fn settle_reply(&mut self, machine: &Machine, reply: &Reply, line: u64, now: u64) {
        self.counts.invalidation += reply.dropped;
        if let Some(victim) = reply.victim {
            self.write_back(machine, victim, now);
        }
        if reply.cleaned {
            self.write_back(machine, line, now);
        }
    }

    fn write_back(&mut self, machine: &Machine, line: u64, now: u64) {
        let Some(home) = machine.memory.node_of(line << machine.line_shift) else {
            return;
        };
        self.counts.writeback += 1;
        machine.network.write_back(self.node, home, now);
    }

    #[cold]
    fn read_messages(&self, caches: &mut Caches) {
        let messages = self.inbox.read();
        let Caches { l1, l2 } = caches;
        for cache in [Some(l1), l2.as_mut()].into_iter().flatten() {
            if messages.drop_all {
                cache.clear();
            }
            for &message in &messages.list {
                match message {
                    Message::Share(line) => cache.set_state(line, State::Shared),
                    Message::Drop(line) => cache.remove(line),
                }
            }
        }
    }
}
