//! Whose affinity a thread has: the kernel's, ours, or someone else's.
//!
//! Rules, in order:
//! * A mask that covers every online CPU of the thread's cpuset is nobody's: the kernel places the thread.
//! * The mask that we last set is ours, even when the kernel has narrowed it to a smaller cpuset.
//! * For the first thread of a process, any mask that we set in the process is ours: a thread that starts another
//!   program takes the first one's place, its number and its birth, and keeps its own mask (execve(2)).
//! * A thread that is new since the last snapshot and has a mask that we set in the same process was started by a
//!   thread that we had placed, and inherited the mask: it is ours, and is given back at the end. Until an order gives
//!   it a mask, any mask that we set counts as its own: masks look alike where the cpuset has none of their CPUs, and
//!   only a wider cpuset shows which one it is.
//! * An heir in another process is likewise ours (`heirs`).
//! * Any other mask is someone else's: a user's `taskset`, `numactl`, an OpenMP runtime. A thread that was there before
//!   cannot have inherited its mask, even if it equals one of ours. While cpusets change, a new thread is believed to
//!   have a foreign mask only once they have rested ([`RESTED_NS`]).
//!
//! Where hints carry out placements, no mask is ever ours: a held thread keeps the mask with which it was found, no
//! thread inherits anything, and a change of mask is its user's doing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_topology::{CpuSet, Topology};
use numaherd_world::{Enforcement, Kinship, ProcessId, Snapshot, Thread, ThreadId};

/// How long all cpusets must have been unchanged before a new thread counts as having no mask of ours (chosen here): a
/// snapshot may show a mask that does not belong to the cpuset beside it.
pub const RESTED_NS: u64 = 10_000_000_000;

/// Whose affinity a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's: it may run on all of its cpuset.
    Kernel,
    /// Ours, by order or inherited from a thread that we placed.
    Ours,
    /// Someone else's.
    Other,
}

/// What we know of the mask of a thread that we placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its process.
    pub process: ProcessId,
    /// Its name.
    pub name: String,
    /// Its mask as it was found.
    pub found: Arc<CpuSet>,
    /// The mask that gives it back: `found`, or all CPUs of the machine if the kernel placed the thread, so that it
    /// follows its cpuset when that grows.
    pub back: Arc<CpuSet>,
    /// The mask that we last set; with hints, the one it was found with.
    pub mask: Arc<CpuSet>,
    /// What its process descends from.
    pub kin: Arc<Kinship>,
    /// Threads born before this have not inherited the mask (on the clock of [`World::births_now`]).
    ///
    /// [`World::births_now`]: numaherd_world::World::births_now
    pub since: u64,
}

impl Held {
    /// Whether the thread was born with the mask and no order has given it one.
    pub(crate) fn is_inherited(&self, thread: ThreadId) -> bool {
        self.since != 0 && self.since == thread.born
    }
}

/// Threads that the last heir search judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Whether it was complete: no heir was left out.
    pub is_complete: bool,
    /// Threads born before this are no heirs.
    pub since: u64,
    /// The threads found with masks of ours, heirs and others.
    pub found: BTreeSet<ThreadId>,
}

impl Judged {
    fn has(&self, thread: ThreadId) -> bool {
        self.is_complete && (thread.born < self.since || self.found.contains(&thread))
    }
}

impl Default for Judged {
    /// Before the first search, there are no heirs.
    fn default() -> Self {
        Self {
            is_complete: true,
            since: u64::MAX,
            found: BTreeSet::new(),
        }
    }
}

/// The masks that we have set.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    enforcement: Enforcement,
    threads: BTreeMap<ThreadId, Held>,
    // Every mask set in a process so far, each once, with what its first holder had before.
    masks: BTreeMap<ProcessId, Vec<Held>>,
    // The threads of the last snapshot, ascending, except those that may still turn out to be heirs.
    seen: Vec<ThreadId>,
    // The exceptions, ascending, that were new with their whole cpuset, where the kernel leaves just that of a mask of
    // ours: only a thorough search can tell whether they are heirs.
    doubted: Vec<ThreadId>,
    // The threads that were not in `seen` before the last snapshot, ascending, and its time.
    fresh: Vec<ThreadId>,
    fresh_ns: u64,
    // The cpusets in the last snapshot, and when they last changed.
    cpusets: BTreeSet<Vec<u64>>,
    changed_ns: Option<u64>,
}

impl Holdings {
    /// None yet, with placements carried out in this way.
    pub fn new(enforcement: Enforcement) -> Self {
        Self {
            enforcement,
            ..Self::default()
        }
    }

    /// Whether held threads have masks of ours.
    pub fn are_masks(&self) -> bool {
        self.enforcement == Enforcement::Affinity
    }

    /// What is known of a held thread.
    pub fn get(&self, thread: ThreadId) -> Option<&Held> {
        self.threads.get(&thread)
    }

    /// The held threads, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, &Held)> {
        self.threads.iter().map(|(&thread, held)| (thread, held))
    }

    /// Whose affinity the thread has.
    pub fn owner(&self, thread: &Thread, online: &CpuSet) -> Owner {
        if is_whole(thread, online) {
            return Owner::Kernel;
        }
        let ours = match self.threads.get(&thread.id) {
            Some(held) => self.is_ours(thread.id, held, |mask| is_mask(thread, mask, online)),
            None => false,
        };
        if ours { Owner::Ours } else { Owner::Other }
    }

    /// Whether the thread is held, and no one else has changed its mask since.
    pub fn holds(&self, thread: &Thread, online: &CpuSet) -> bool {
        match self.owner(thread, online) {
            Owner::Ours => true,
            Owner::Kernel => !self.are_masks() && self.threads.contains_key(&thread.id),
            Owner::Other => false,
        }
    }

    /// Whether the mask of a thread with this holding `is` one of ours.
    pub fn is_ours(&self, thread: ThreadId, held: &Held, is: impl Fn(&CpuSet) -> bool) -> bool {
        let set_in_process = || self.masks.get(&held.process).into_iter().flatten();
        let set = || self.masks.values().flatten();
        is(&held.mask)
            || is_first(thread, held.process) && set_in_process().any(|set| is(&set.mask))
            || held.is_inherited(thread) && set().any(|set| is(&set.mask))
    }

    /// What will be held of a thread once it is given `mask`.
    pub fn to_be_held(
        &self,
        thread: &Thread,
        mask: Arc<CpuSet>,
        machine: &MachineCpus<'_>,
    ) -> Held {
        let (found, back) = match self.threads.get(&thread.id) {
            Some(held) => (held.found.clone(), held.back.clone()),
            None if is_whole(thread, machine.online) => {
                (thread.affinity.clone(), machine.all.clone())
            }
            None => (thread.affinity.clone(), thread.affinity.clone()),
        };
        let mask = match self.enforcement {
            Enforcement::Affinity => mask,
            Enforcement::Scx => thread.affinity.clone(),
        };
        Held {
            process: thread.process,
            name: thread.name.clone(),
            found,
            back,
            mask,
            kin: Arc::default(),
            since: 0,
        }
    }

    /// Notes that a thread now has a mask or hint of ours.
    pub fn hold(&mut self, thread: ThreadId, held: Held) {
        self.was_set(&held);
        self.threads.insert(thread, held);
    }

    /// Notes that a thread has, or had, a mask of ours; its heirs may have it.
    pub fn was_set(&mut self, held: &Held) {
        if !self.are_masks() {
            return;
        }
        let masks = self.masks.entry(held.process).or_default();
        if !masks.iter().any(|known| known.mask == held.mask) {
            masks.push(held.clone());
        }
    }

    /// Forgets a thread.
    pub fn drop_thread(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
    }

    /// What was set in each process, each mask once: heirs may have it.
    pub fn donors(&self) -> Vec<Held> {
        self.masks.values().flatten().cloned().collect()
    }

    /// Whether a thread was in the last snapshot: it was not born with its present mask.
    pub fn has_seen(&self, thread: ThreadId) -> bool {
        self.seen.binary_search(&thread).is_ok()
    }

    /// Forgets the masks of processes that have ended and have no thread to give back.
    pub fn keep_processes(&mut self, snapshot: &Snapshot) {
        let held: BTreeSet<ProcessId> = self.threads.values().map(|held| held.process).collect();
        self.masks
            .retain(|process, _| snapshot.process(*process).is_some() || held.contains(process));
    }

    /// Adds the threads that were started with a mask of ours since the last call, and those that took another thread's
    /// place with their mask; returns what was added. Whether other threads with such a mask are heirs is clear only
    /// where the last `search` has judged them: it looks later than the snapshot, when the kernel may show another of
    /// their masks.
    pub fn adopt(&mut self, snapshot: &Snapshot, search: &Judged) -> Vec<(ThreadId, Held)> {
        let mut heirs = self.heirs(snapshot);
        heirs.extend(self.successors(snapshot));
        for (thread, held) in &heirs {
            self.hold(*thread, held.clone());
        }
        let have_rested = self.cpusets_have_rested(snapshot);
        let is_later = snapshot.time_ns > self.fresh_ns;
        let has_mask = |thread: &Thread| {
            let mut set = self.masks.values().flatten();
            set.any(|held| is_mask(thread, &held.mask, &snapshot.online))
        };
        let is_doubted = |thread: &&Thread| {
            let was = self.doubted.binary_search(&thread.id).is_ok();
            was || is_whole(thread, &snapshot.online) && has_mask(thread)
        };
        let is_settled = |thread: &Thread| {
            // No part of a mask or of a cpuset covers the whole machine.
            self.masks.is_empty()
                || snapshot.online.is_subset(&thread.affinity)
                || have_rested && is_later && self.fresh.binary_search(&thread.id).is_ok()
        };
        let is_clear = |thread: &&Thread| {
            self.has_seen(thread.id)
                || !is_doubted(thread)
                    && match has_mask(thread) {
                        true => have_rested && search.has(thread.id),
                        false => is_settled(thread),
                    }
        };
        let id = |thread: &Thread| thread.id;
        let unseen = |thread: &&Thread| !self.has_seen(thread.id);
        let threads = || snapshot.threads.iter();
        let doubted = threads()
            .filter(unseen)
            .filter(is_doubted)
            .map(id)
            .collect();
        let fresh = threads().filter(unseen).map(id).collect();
        self.seen = threads().filter(is_clear).map(id).collect();
        self.doubted = doubted;
        (self.fresh, self.fresh_ns) = (fresh, snapshot.time_ns);
        heirs
    }

    /// Notes the cpusets of a snapshot. Returns whether none has been seen to change for [`RESTED_NS`].
    fn cpusets_have_rested(&mut self, snapshot: &Snapshot) -> bool {
        if self.masks.is_empty() {
            return true;
        }
        let mut cpusets: BTreeSet<&[u64]> = BTreeSet::new();
        let mut last = None;
        for thread in &snapshot.threads {
            // Most threads share their cpuset.
            if !last.is_some_and(|last| Arc::ptr_eq(last, &thread.cpuset)) {
                cpusets.insert(thread.cpuset.as_words());
                last = Some(&thread.cpuset);
            }
        }
        let are_same = || {
            cpusets
                .iter()
                .copied()
                .eq(self.cpusets.iter().map(Vec::as_slice))
        };
        if !self.cpusets.is_empty() && !are_same() {
            self.changed_ns = Some(snapshot.time_ns);
        }
        self.cpusets = cpusets.into_iter().map(<[u64]>::to_vec).collect();
        self.changed_ns
            .is_none_or(|changed| snapshot.time_ns.saturating_sub(changed) >= RESTED_NS)
    }

    fn heirs(&self, snapshot: &Snapshot) -> Vec<(ThreadId, Held)> {
        if self.masks.is_empty() {
            return Vec::new();
        }
        let new = |thread: &&Thread| !self.has_seen(thread.id);
        let heirs = snapshot
            .threads
            .iter()
            .filter(new)
            .filter(|thread| !self.threads.contains_key(&thread.id))
            .filter(|thread| !is_whole(thread, &snapshot.online))
            .filter_map(|thread| {
                let donor = self.donor(thread, &snapshot.online)?;
                let name = thread.name.clone();
                let mask = thread.affinity.clone();
                let held = Held {
                    process: thread.process,
                    name,
                    mask,
                    since: thread.id.born,
                    ..donor.clone()
                };
                Some((thread.id, held))
            });
        heirs.collect()
    }

    /// Held threads that have another mask of ours because they started another program.
    fn successors(&self, snapshot: &Snapshot) -> Vec<(ThreadId, Held)> {
        let successor = |(&id, held): (&ThreadId, &Held)| {
            let thread = snapshot.thread(id)?;
            let is = |mask: &CpuSet| is_mask(thread, mask, &snapshot.online);
            let mask = thread.affinity.clone();
            (!is(&held.mask) && self.is_ours(id, held, is)).then(|| {
                let held = held.clone();
                (id, Held { mask, ..held })
            })
        };
        self.threads.iter().filter_map(successor).collect()
    }

    fn donor(&self, thread: &Thread, online: &CpuSet) -> Option<&Held> {
        let set_in_process = self.masks.get(&thread.process)?;
        let is_its =
            |held: &&Held| thread.id.born >= held.since && is_mask(thread, &held.mask, online);
        set_in_process.iter().find(is_its)
    }
}

/// Whether this is the process's first thread, whose place another may take.
pub(crate) fn is_first(thread: ThreadId, process: ProcessId) -> bool {
    thread.tid == process.pid
}

/// What ownership depends on in the machine.
#[derive(Clone, Debug)]
pub struct MachineCpus<'a> {
    /// The CPUs that are online now.
    pub online: &'a CpuSet,
    /// All CPUs, offline ones included.
    pub all: Arc<CpuSet>,
}

/// All CPUs of a machine, offline ones included.
pub fn all_cpus(topology: &Topology) -> Arc<CpuSet> {
    Arc::new(topology.cpus().iter().map(|cpu| cpu.id).collect())
}

/// The CPUs of the thread's cpuset that are online.
fn cpus(thread: &Thread, online: &CpuSet) -> CpuSet {
    thread.cpuset.intersection(online)
}

/// Whether the thread may run on every online CPU of its cpuset.
fn is_whole(thread: &Thread, online: &CpuSet) -> bool {
    numaherd_world::is_whole(&thread.affinity, &cpus(thread, online))
}

/// Whether the thread's mask is `mask`, or what the kernel has left of it.
fn is_mask(thread: &Thread, mask: &CpuSet, online: &CpuSet) -> bool {
    numaherd_world::is_mask(&thread.affinity, mask, &cpus(thread, online))
}
