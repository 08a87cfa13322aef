//! Memory samples: single accesses with address, latency and source, from the PMU's ring buffers.
//!
//! The source is the lab's PMU, Intel's load latency (PEBS), or AMD's instruction sampling (IBS).
//! If the program may watch whole CPUs, one ring per CPU takes the samples of all threads, and
//! those outside the selection are dropped. Otherwise there is one ring per watched thread; if the
//! kernel does not map so many, threads take turns.
//!
//! Order: each ring is ordered only in itself. Samples from after a collection's beginning are kept
//! for the next one: each collection is complete up to its beginning, and collections follow each
//! other in time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{MemorySource, ProcessId, Sample, ThreadId};

use crate::kernel::{Errno, Kernel};
use crate::latest::Latest;
use crate::memory_blocks::MemoryBlocks;
use crate::options::SampleOptions;
use crate::records::{RawSample, Record, records};
use crate::sys::ring::Ring;

mod recipe;

pub(crate) use recipe::{Recipe, choose};

/// Collections for which a thread keeps its ring if there are more threads than rings.
const TURN: u64 = 50;

/// The watched threads as of the last scan: number to identity.
pub(crate) type Roster = Latest<HashMap<u32, (ThreadId, ProcessId)>>;

/// A ring with the leader that must stay open.
#[derive(Debug)]
struct Tap {
    ring: Ring,
    _leader: Option<OwnedFd>,
}

/// What one collection gave.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// In time order.
    pub(crate) samples: Vec<Sample>,
    /// What was missed, a sentence each.
    pub(crate) gaps: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    kernel: Arc<dyn Kernel>,
    recipe: Recipe,
    topology: Arc<Topology>,
    blocks: MemoryBlocks,
    roster: Roster,
    ring_pages: usize,
    /// When the world began, on the monotonic clock.
    began_ns: u64,
    cpus: BTreeMap<CpuId, Tap>,
    threads: HashMap<ThreadId, Tap>,
    /// Threads without a ring, the next one first.
    waiting: VecDeque<ThreadId>,
    /// Threads with a ring, the one that had it longest first.
    served: VecDeque<ThreadId>,
    /// The most rings that the kernel allows; unlimited until it refuses.
    most_rings: usize,
    collections: u64,
    kept: Vec<RawSample>,
    bytes: Vec<u8>,
}

/// What the rings said besides samples.
#[derive(Debug, Default)]
struct Losses {
    lost: u64,
    throttled: u64,
    damaged: u64,
    without_ring: usize,
    refused: Option<Errno>,
}

impl Sampler {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        recipe: Recipe,
        topology: Arc<Topology>,
        blocks: MemoryBlocks,
        roster: Roster,
        options: &SampleOptions,
        began_ns: u64,
    ) -> Self {
        Self {
            kernel,
            recipe,
            topology,
            blocks,
            roster,
            ring_pages: options.ring_pages.max(1).next_power_of_two(),
            began_ns,
            cpus: BTreeMap::new(),
            threads: HashMap::new(),
            waiting: VecDeque::new(),
            served: VecDeque::new(),
            most_rings: usize::MAX,
            collections: 0,
            kept: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// All samples since the last collection. `now_ns` is on the monotonic clock.
    pub(crate) fn collect(&mut self, online: &CpuSet, now_ns: u64) -> Collected {
        self.collections += 1;
        let mut losses = Losses::default();
        if self.recipe.per_cpu {
            self.tap_cpus(online, &mut losses);
        } else {
            self.tap_threads(&mut losses);
        }
        let mut raw = std::mem::take(&mut self.kept);
        self.bytes.clear();
        for tap in self.cpus.values_mut().chain(self.threads.values_mut()) {
            tap.ring.drain(&mut self.bytes);
            for record in records(&self.bytes, self.recipe.layout) {
                match record {
                    Record::Sample(sample) => raw.push(sample),
                    Record::Lost(lost) => losses.lost += lost,
                    Record::Throttled => losses.throttled += 1,
                    Record::Damaged => losses.damaged += 1,
                    Record::Other => {}
                }
            }
            self.bytes.clear();
        }
        raw.sort_by_key(|sample| sample.time);
        // For times after this collection began, another ring may still lack samples.
        let complete = raw.partition_point(|sample| sample.time <= now_ns);
        self.kept = raw.split_off(complete);
        let roster = self.roster.now();
        let samples = raw
            .iter()
            .filter_map(|sample| self.understand(sample, &roster));
        Collected {
            samples: samples.collect(),
            gaps: self.gaps(&losses),
        }
    }

    /// Stops sampling until the next collection, and forgets the samples since the last.
    pub(crate) fn close(&mut self) {
        self.cpus.clear();
        self.threads.clear();
        self.waiting.extend(self.served.drain(..));
        self.kept.clear();
    }

    /// A watched thread's sample with an address, as the world's type.
    fn understand(
        &self,
        raw: &RawSample,
        roster: &HashMap<u32, (ThreadId, ProcessId)>,
    ) -> Option<Sample> {
        let &(thread, process) = roster.get(&raw.tid)?;
        // IBS also samples operations that touch no memory.
        if raw.address == 0 || (raw.source.0 != 0 && !raw.source.is_access()) {
            return None;
        }
        let cpu = CpuId(raw.cpu);
        let source = raw.source.memory_source();
        let physical = (raw.physical != 0).then_some(raw.physical);
        let by_address = physical.and_then(|physical| self.blocks.node_of(physical));
        let is_local = source == MemorySource::LocalMemory;
        let by_source = || self.topology.node_of(cpu).filter(|_| is_local);
        Some(Sample {
            time_ns: raw.time.saturating_sub(self.began_ns),
            thread,
            process,
            address: raw.address,
            cpu,
            latency: (raw.weight > 0).then_some(raw.weight),
            source,
            node: by_address.or_else(by_source),
            store: raw.source.is_store(),
        })
    }

    fn tap_cpus(&mut self, online: &CpuSet, losses: &mut Losses) {
        self.cpus.retain(|cpu, _| online.contains(*cpu));
        for cpu in online.iter() {
            if self.cpus.contains_key(&cpu) {
                continue;
            }
            match self.tap(None, Some(cpu.0)) {
                Ok(tap) => drop(self.cpus.insert(cpu, tap)),
                Err(errno) => {
                    losses.without_ring += 1;
                    losses.refused = Some(errno);
                }
            }
        }
    }

    fn tap_threads(&mut self, losses: &mut Losses) {
        let roster = self.roster.now();
        let known: HashSet<ThreadId> = roster.values().map(|&(thread, _)| thread).collect();
        self.threads.retain(|thread, _| known.contains(thread));
        self.served.retain(|thread| known.contains(thread));
        self.waiting.retain(|thread| known.contains(thread));
        let mut fresh: Vec<ThreadId> = known
            .into_iter()
            .filter(|thread| !self.threads.contains_key(thread))
            .filter(|thread| !self.waiting.contains(thread))
            .collect();
        fresh.sort_unstable();
        self.waiting.extend(fresh);
        let full = |sampler: &Self| sampler.threads.len() >= sampler.most_rings;
        if full(self) && !self.waiting.is_empty() && self.collections.is_multiple_of(TURN) {
            let ending = self.waiting.len().min(self.served.len());
            for thread in self.served.drain(..ending) {
                self.threads.remove(&thread);
                self.waiting.push_back(thread);
            }
        }
        while !full(self) {
            let Some(thread) = self.waiting.pop_front() else {
                break;
            };
            match self.tap(Some(thread.tid), None) {
                Ok(tap) => {
                    self.threads.insert(thread, tap);
                    self.served.push_back(thread);
                }
                // It has just ended.
                Err(Errno::SRCH) => {}
                Err(errno) => {
                    losses.refused = Some(errno);
                    self.most_rings = self.threads.len();
                    self.waiting.push_front(thread);
                }
            }
        }
        losses.without_ring = self.waiting.len();
    }

    /// Opens and maps one ring; smaller if the kernel's limits require it.
    fn tap(&mut self, tid: Option<u32>, cpu: Option<u32>) -> Result<Tap, Errno> {
        let (leader, mut event) = self.recipe.open(&*self.kernel, tid, cpu)?;
        loop {
            match Ring::map(event, self.ring_pages) {
                Ok(ring) => {
                    return Ok(Tap {
                        ring,
                        _leader: leader,
                    });
                }
                Err((back, Errno::PERM | Errno::NOMEM)) if self.ring_pages > 1 => {
                    event = back;
                    self.ring_pages /= 2;
                }
                Err((_, errno)) => return Err(errno),
            }
        }
    }

    fn gaps(&self, losses: &Losses) -> Vec<String> {
        let what = if self.recipe.per_cpu {
            "CPUs"
        } else {
            "threads"
        };
        let why = losses
            .refused
            .map_or_else(String::new, |errno| format!(" ({errno})"));
        let mut gaps = Vec::new();
        let mut say = |count: u64, text: String| {
            if count > 0 {
                gaps.push(text);
            }
        };
        let Losses {
            lost,
            throttled,
            damaged,
            without_ring,
            ..
        } = *losses;
        say(
            lost,
            format!(
                "{lost} memory samples were lost: the rings were full; sample less often, or raise \
                 sysctl kernel.perf_event_mlock_kb"
            ),
        );
        say(
            throttled,
            format!(
                "the kernel throttled sampling {throttled} times; sample less often, or raise sysctl \
                 kernel.perf_event_max_sample_rate"
            ),
        );
        say(
            damaged,
            format!(
                "{damaged} rings contained invalid records; the records after them were dropped"
            ),
        );
        say(
            without_ring as u64,
            format!(
                "{without_ring} {what} are not sampled for now{why}: raise the limit of locked memory \
                 (ulimit -l), sysctl kernel.perf_event_mlock_kb or the limit of open files (ulimit -n)"
            ),
        );
        gaps
    }
}

#[cfg(test)]
mod tests;
