//! What the cores share: last-level caches, directory, controllers, links, and the messages that
//! keep private caches coherent.
//!
//! # Coherence
//!
//! A directory says for each line who may hold it ([`Holder`]). The last-level cache keeps a copy,
//! so a hit of a core alone with its data does not depend on the directory.
//!
//! * A load of a line that another core holds makes it shared: the other core may no longer write
//!   it without asking. If another domain's cache has it dirty, the line comes from there, at the
//!   latency of that domain's node, and is written back to its home.
//! * A store to a line that others may hold drops their copies. A storing core that has the data
//!   already waits for its last-level cache if the others are in its own domain, else as long as an
//!   access to the line's home takes.
//! * Private caches belong to the host thread that runs their core. Others change them by messages,
//!   which a core reads before its next access.
//!
//! Known limits. Two changes to one line at the very same moment on two host threads may leave a
//! copy that should have been dropped; only counts can be affected, by one line. A line that a
//! private cache keeps writing while the last-level cache has dropped it is written back once. A
//! domain that misses a line which other domains hold clean fetches it from memory.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use crate::HardwareError;
use crate::cache::{Caches, State};
use crate::config::{Config, picoseconds};
use crate::directory::{Directory, Holder};
use crate::error::check;
use crate::llc::Llc;
use crate::memory::Memory;
use crate::network::Network;
use crate::smt::{Doing, Siblings};

/// The shared part of a machine. Every core may use it at once.
pub struct Machine {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) network: Network,
    pub(crate) line_shift: u32,
    pub(crate) llc_ps: u64,
    directory: Directory,
    llcs: Vec<Llc>,
    /// Shared by a core's SMT siblings, by the number of the physical core that they are threads
    /// of. Without SMT, every core is a physical core.
    inboxes: Vec<Arc<Inbox>>,
    shared_caches: Vec<Arc<Mutex<Caches>>>,
    domain_of_physical: Vec<usize>,
    cores_of_domain: Vec<Vec<usize>>,
    /// The activity that each core, or SMT thread, reports to its siblings.
    doing: Vec<Arc<Doing>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Where a line was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// In the domain's own last-level cache.
    Llc,
    /// In memory.
    Memory,
    /// Dirty in the last-level cache of a domain on this node.
    DirtyOn(usize),
}

/// Answer to a request of a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) source: Source,
    /// How the core may keep the line.
    pub(crate) state: State,
    /// Number of cores told to drop the line.
    pub(crate) dropped: u64,
    /// Whether others outside the domain had to be asked.
    pub(crate) asked_outside: bool,
    /// A line that fell out of the last-level cache and must be written back.
    pub(crate) victim: Option<u64>,
    /// Whether the line itself is written back to its home on the way.
    pub(crate) cleaned: bool,
}

impl Reply {
    fn new(source: Source, state: State, victim: Option<u64>) -> Self {
        Self {
            source,
            state,
            dropped: 0,
            asked_outside: false,
            victim,
            cleaned: false,
        }
    }
}

/// What a core asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    /// A line, to read it.
    ToRead,
    /// A line, to write it.
    ToWrite,
    /// The right to write a line whose data the core has.
    RightToWrite,
}

/// What a core must do with a line in its private caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Share(u64),
    Drop(u64),
}

/// Messages to a core. Its owner checks it at every access, so it shares no line of the host's caches with other data.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Inbox {
    /// Whether the core has ever got a line; if not, it needs no message to drop one.
    has_lines: AtomicBool,
    pending: AtomicBool,
    messages: Mutex<Messages>,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub(crate) list: Vec<Message>,
    /// Too many messages came in; the core must drop everything.
    pub(crate) drop_all: bool,
}

/// Above this number of messages, dropping a whole private cache is less work.
const MOST_MESSAGES: usize = 4096;

impl Inbox {
    fn send(&self, message: Message) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.list.len() >= MOST_MESSAGES {
            messages.list.clear();
            messages.drop_all = true;
        }
        if !messages.drop_all {
            messages.list.push(message);
        }
        self.pending.store(true, Release);
    }

    /// Notes that the core gets a line.
    #[inline]
    pub(crate) fn gets_line(&self) {
        if !self.has_lines.load(Relaxed) {
            self.has_lines.store(true, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Acquire)
    }

    pub(crate) fn read(&self) -> Messages {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Release);
        std::mem::take(&mut *messages)
    }
}

impl Machine {
    /// Builds a machine of this shape over this memory.
    ///
    /// # Errors
    /// When the configuration is wrong or the memory map does not fit it.
    pub fn new(config: Config, memory: Memory) -> Result<Self, HardwareError> {
        config.validate()?;
        let (needed, nodes) = (memory.nodes(), config.nodes());
        let must = format!("at most {nodes}, as the machine has nodes");
        check(
            "the number of nodes of the memory map",
            needed as f64,
            needed <= nodes,
            must,
        )?;
        let mut domain_of_physical = vec![0; config.physical_cores()];
        for (core, &domain) in config.domain_of_core.iter().enumerate() {
            domain_of_physical[config.physical_core(core)] = domain;
        }
        let mut cores_of_domain = vec![Vec::new(); config.domains()];
        for (core, &domain) in domain_of_physical.iter().enumerate() {
            cores_of_domain[domain].push(core);
        }
        let (has_siblings, cores) = (config.smt.is_some(), domain_of_physical.len());
        Ok(Self {
            network: Network::new(&config)?,
            line_shift: config.line_bytes.trailing_zeros(),
            llc_ps: picoseconds(config.llc.hit_ns),
            directory: Directory::new(
                memory.end().div_ceil(config.line_bytes),
                cores,
                config.domains(),
            ),
            llcs: (0..config.domains())
                .map(|_| Llc::new(&config.llc, config.line_bytes))
                .collect(),
            inboxes: (0..cores).map(|_| Arc::default()).collect(),
            shared_caches: (0..if has_siblings { cores } else { 0 })
                .map(|_| Arc::new(Mutex::new(Caches::new(&config))))
                .collect(),
            domain_of_physical,
            cores_of_domain,
            doing: (0..config.cores()).map(|_| Arc::default()).collect(),
            memory,
            config,
        })
    }

    /// The shape it was built with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The memory it was built with.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Lines carried so far between each pair of nodes, from a node to itself included, to readers
    /// and back to memory. Entry `from * nodes + to`.
    pub fn lines_carried(&self) -> Vec<u64> {
        self.network.carried()
    }

    pub(crate) fn inbox(&self, core: usize) -> Arc<Inbox> {
        Arc::clone(&self.inboxes[core])
    }

    /// The caches that SMT siblings share; None without SMT.
    pub(crate) fn shared_caches(&self, core: usize) -> Option<Arc<Mutex<Caches>>> {
        self.shared_caches.get(core).map(Arc::clone)
    }

    /// The SMT siblings of a core's thread.
    pub(crate) fn siblings(&self, thread: usize) -> Option<Siblings> {
        let smt = self.config.smt.as_ref()?;
        let core = smt.core_of_thread[thread];
        let is_sibling = |&other: &usize| other != thread && smt.core_of_thread[other] == core;
        let others = (0..self.doing.len()).filter(is_sibling);
        let others = others.map(|other| Arc::clone(&self.doing[other])).collect();
        Some(Siblings::new(
            smt.throughput,
            Arc::clone(&self.doing[thread]),
            others,
        ))
    }

    /// Reads what [`Machine::request`] will read of the line. So the host's waits for it and for other data, such as
    /// the program's, overlap. Later they would not: no read overtakes a lock.
    #[inline]
    pub(crate) fn will_request(&self, line: u64) {
        black_box(self.directory.holder(line));
    }

    /// Host addresses of what [`Machine::request`] will read.
    #[inline]
    pub(crate) fn host_addresses(&self, domain: usize, line: u64) -> impl Iterator<Item = usize> {
        let entry = self.directory.host_address(line).into_iter();
        entry.chain(self.llcs[domain].host_addresses(line))
    }

    /// Gets a line that is not in the core's private caches.
    #[inline(always)]
    pub(crate) fn request(&self, core: usize, domain: usize, line: u64, store: bool) -> Reply {
        match self.try_alone(core, domain, line, store) {
            Some(reply) => reply,
            None if store => self.settle(core, domain, line, Wanted::ToWrite),
            None => self.settle(core, domain, line, Wanted::ToRead),
        }
    }

    /// Gets a line for the core's prefetcher, unless another domain has it dirty. Lines that others have only read are
    /// fetched: the directory never forgets a holder, so a thread that moved to another CPU could otherwise prefetch
    /// none of its lines.
    #[inline(always)]
    pub(crate) fn prefetch(&self, core: usize, domain: usize, line: u64) -> Option<Reply> {
        self.try_alone(core, domain, line, false).or_else(|| {
            let clean = !self.is_dirty_elsewhere(domain, line);
            clean.then(|| self.settle(core, domain, line, Wanted::ToRead))
        })
    }

    /// Whether the last-level cache of another domain has the line dirty.
    #[cold]
    fn is_dirty_elsewhere(&self, domain: usize, line: u64) -> bool {
        let concerned = match self.directory.holder(line) {
            Holder::Core(other) => self.domain_of_physical[other],
            Holder::Domain(other) => other,
            Holder::None | Holder::Several => return false,
        };
        let is_dirty =
            |llc: &Llc| llc.look(line, |found| found.is_ok_and(|entry| entry.is_dirty()));
        concerned != domain && is_dirty(&self.llcs[concerned])
    }

    /// Asks for the right to write a line that the core holds shared.
    pub(crate) fn upgrade(&self, core: usize, domain: usize, line: u64) -> Reply {
        self.settle(core, domain, line, Wanted::RightToWrite)
    }

    /// Notes the first write to a line that the core holds alone. Returns a line that fell out of
    /// the last-level cache and must be written back, if this one had to be put back in.
    pub(crate) fn first_write(&self, core: usize, domain: usize, line: u64) -> Option<u64> {
        self.llcs[domain].look(line, |found| match found {
            Ok(mut entry) => {
                entry.set_dirty(true);
                None
            }
            Err(vacancy) => vacancy.insert(Holder::Core(core), true),
        })
    }

    /// The common case: no other core is concerned. If one is, returns None and changes only the
    /// order of use.
    ///
    /// Always inlined, so that its long answer stays in registers.
    #[inline(always)]
    fn try_alone(&self, core: usize, domain: usize, line: u64, store: bool) -> Option<Reply> {
        let allowed = |holder| match holder {
            Holder::Core(holder) if holder == core => Some(if store {
                State::Modified
            } else {
                State::Exclusive
            }),
            Holder::Domain(holder) if holder == domain && !store => Some(State::Shared),
            _ => None,
        };
        let holder = || self.directory.holder(line);
        self.llcs[domain].look_with(line, holder, |found, seen| match found {
            Ok(mut entry) => {
                let state = match entry.holder() {
                    Holder::Several if !store => State::Shared,
                    holder => allowed(holder)?,
                };
                if store {
                    entry.set_dirty(true);
                }
                Some(Reply::new(Source::Llc, state, None))
            }
            Err(vacancy) => {
                let holder = self.directory.claim(line, core, seen);
                let state = allowed(holder)?;
                let victim = vacancy.insert(holder, store);
                Some(Reply::new(Source::Memory, state, victim))
            }
        })
    }

    /// Settles a request that concerns other cores.
    #[cold]
    fn settle(&self, core: usize, domain: usize, line: u64, wanted: Wanted) -> Reply {
        let store = wanted != Wanted::ToRead;
        let _others_wait = self.directory.lock(line);
        let holder = self.directory.holder(line);
        let others = self.settle_others(core, domain, line, store, holder);
        let holder = match holder {
            _ if store => Holder::Core(core),
            Holder::None => Holder::Core(core),
            Holder::Core(other) if other == core => Holder::Core(core),
            Holder::Core(other) if self.domain_of_physical[other] == domain => {
                Holder::Domain(domain)
            }
            Holder::Domain(other) if other == domain => Holder::Domain(domain),
            _ => Holder::Several,
        };
        self.directory.set(line, holder);
        let state = match holder {
            Holder::Core(_) if store => State::Modified,
            Holder::Core(_) => State::Exclusive,
            _ => State::Shared,
        };
        let (found, victim) = self.llcs[domain].look(line, |found| match found {
            Ok(mut entry) => {
                entry.set_holder(holder);
                if store {
                    entry.set_dirty(true);
                }
                (true, None)
            }
            Err(vacancy) => (false, vacancy.insert(holder, store)),
        });
        let source = match others.dirty_on {
            _ if found || wanted == Wanted::RightToWrite => Source::Llc,
            Some(node) => Source::DirtyOn(node),
            None => Source::Memory,
        };
        Reply {
            source,
            state,
            dropped: others.dropped,
            asked_outside: others.outside,
            victim,
            cleaned: others.dirty_on.is_some() && !store,
        }
    }

    /// Tells all other holders of a line to share it or, for a store, to drop it.
    fn settle_others(
        &self,
        core: usize,
        domain: usize,
        line: u64,
        store: bool,
        holder: Holder,
    ) -> Others {
        let mut others = Others::default();
        let in_domain = |concerned: usize, others: &mut Others| {
            if concerned == domain {
                return;
            }
            others.outside = true;
            self.llcs[concerned].look(line, |found| {
                let Ok(mut entry) = found else { return };
                if entry.is_dirty() {
                    others.dirty_on = Some(self.config.node_of_domain[concerned]);
                }
                if store {
                    entry.remove();
                } else {
                    entry.set_dirty(false);
                    entry.set_holder(Holder::Several);
                }
            });
        };
        let drop_from = |cores: &[usize], others: &mut Others| {
            for &other in cores.iter().filter(|&&other| other != core) {
                if !self.inboxes[other].has_lines.load(Relaxed) {
                    continue;
                }
                self.inboxes[other].send(Message::Drop(line));
                others.dropped += 1;
            }
        };
        match holder {
            Holder::Core(other) if other != core => {
                if store {
                    drop_from(&[other], &mut others);
                } else {
                    self.inboxes[other].send(Message::Share(line));
                }
                in_domain(self.domain_of_physical[other], &mut others);
            }
            Holder::Domain(concerned) => {
                if store {
                    drop_from(&self.cores_of_domain[concerned], &mut others);
                }
                in_domain(concerned, &mut others);
            }
            Holder::Several if store => {
                for concerned in 0..self.llcs.len() {
                    drop_from(&self.cores_of_domain[concerned], &mut others);
                    in_domain(concerned, &mut others);
                }
            }
            Holder::None | Holder::Core(_) | Holder::Several => {}
        }
        others
    }
}

#[derive(Default)]
struct Others {
    dropped: u64,
    outside: bool,
    dirty_on: Option<usize>,
}
