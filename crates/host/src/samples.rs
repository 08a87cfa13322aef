//! Memory samples: single accesses with address, latency and source, from the PMU's ring buffers.
//!
//! What samples: the lab's PMU, Intel's load latency (PEBS), AMD's instruction sampling (IBS). Where
//! the program may watch whole CPUs, one ring per CPU takes the samples of every thread, and those
//! outside the selection are dropped; otherwise one ring per watched thread, as many as the kernel
//! lets us map, in turns when there are more.
//!
//! Order: every ring is in its own order only. What was sampled after a collection began is kept
//! for the next one, so that each collection is complete up to its beginning and collections follow
//! each other in time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{MemorySource, ProcessId, Sample, ThreadId};

use crate::files::Root;
use crate::kernel::{Attribute, Errno, Kernel, flag};
use crate::latest::Latest;
use crate::memory_blocks::MemoryBlocks;
use crate::options::SampleOptions;
use crate::perf_errors::{Reasons, Refusal};
use crate::pmu::Pmu;
use crate::records::{Layout, RawSample, Record, records};
use crate::sys::ring::Ring;

/// Collections for which a thread keeps its ring when there are more threads than rings.
const TURN: u64 = 50;

/// The watched threads, as the scan last saw them: number to identity.
pub(crate) type Roster = Latest<HashMap<u32, (ThreadId, ProcessId)>>;

/// How this machine samples.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// By what, for people.
    pub(crate) source: String,
    pub(crate) caveat: Option<String>,
    /// An event that must lead the group (Sapphire Rapids), if any.
    leader: Option<Attribute>,
    attribute: Attribute,
    layout: Layout,
    per_cpu: bool,
}

/// Finds how this machine samples, and tries it.
///
/// # Errors
/// Why it cannot.
pub(crate) fn choose(
    kernel: &dyn Kernel,
    root: &Root,
    options: &SampleOptions,
    reasons: &Reasons,
    a_cpu: CpuId,
) -> Result<Recipe, Refusal> {
    if !options.enabled {
        return Err(Refusal::new("sampling is switched off", "switch it on"));
    }
    let recipe = describe(root, options)?;
    let mut last = Errno::NOENT;
    for per_cpu in [true, false] {
        for physical in [true, false] {
            for weight_parts in [true, false] {
                let recipe = Recipe {
                    per_cpu,
                    layout: Layout {
                        weight_parts,
                        physical,
                    },
                    ..recipe.clone()
                };
                let (tid, cpu) = if per_cpu {
                    (None, Some(a_cpu.0))
                } else {
                    (Some(0), None)
                };
                match open(kernel, &recipe, tid, cpu) {
                    Ok(_) => return Ok(recipe.explained()),
                    Err(errno) => last = errno,
                }
            }
        }
    }
    Err(reasons.counters(&recipe.source, last))
}

/// What the PMUs of this machine offer.
fn describe(root: &Root, options: &SampleOptions) -> Result<Recipe, Refusal> {
    let lab = Pmu::find(root, "lab").and_then(|pmu| pmu.event("llc_miss"));
    if let Some(attribute) = lab {
        return Ok(recipe("lab/llc_miss/", None, attribute, options));
    }
    for name in ["cpu", "cpu_core"] {
        let Some(pmu) = Pmu::find(root, name) else {
            continue;
        };
        if let Some(mut attribute) = pmu.event("mem-loads") {
            pmu.set(&mut attribute, "ldlat", options.least_latency);
            attribute.flags |= flag::PRECISE_2 | flag::EXCLUDE_GUEST;
            let label = format!("{name}/mem-loads,ldlat={}/", options.least_latency);
            let caveat = "loads only: no stores";
            let mut recipe = recipe(&label, Some(caveat), attribute, options);
            recipe.leader = pmu.event("mem-loads-aux");
            return Ok(recipe);
        }
    }
    if let Some(pmu) = Pmu::find(root, "ibs_op") {
        let mut attribute = Attribute {
            kind: pmu.kind,
            ..Attribute::default()
        };
        // Count operations, not cycles, so that samples follow the work; and only those that missed
        // the last-level cache where the processor can filter (Zen 4).
        pmu.set(&mut attribute, "cnt_ctl", 1);
        let only_misses = pmu.set(&mut attribute, "l3missonly", 1).is_some();
        let label = if only_misses {
            "ibs_op/cnt_ctl,l3missonly/"
        } else {
            "ibs_op/cnt_ctl/"
        };
        let mut recipe = recipe(label, None, attribute, options);
        // The hardware counts in steps of 16.
        recipe.attribute.sample_period = options.period.next_multiple_of(16);
        return Ok(recipe);
    }
    let names = Pmu::names(root);
    if names.iter().any(|name| name.starts_with("arm_spe")) {
        return Err(Refusal::new(
            "this processor samples with Arm SPE, which this version does not decode",
            "use kernel hint faults (a policy that needs no samples), or another machine",
        ));
    }
    Err(Refusal::new(
        format!(
            "none of the machine's PMUs can sample memory accesses ({})",
            if names.is_empty() {
                "it has none".to_owned()
            } else {
                names.join(", ")
            }
        ),
        "needs Intel PEBS (mem-loads) or AMD IBS, which virtual machines seldom have; or the lab",
    ))
}

fn recipe(
    source: &str,
    caveat: Option<&str>,
    attribute: Attribute,
    options: &SampleOptions,
) -> Recipe {
    Recipe {
        source: source.to_owned(),
        caveat: caveat.map(str::to_owned),
        leader: None,
        attribute: Attribute {
            sample_period: options.period,
            ..attribute
        },
        layout: Layout {
            weight_parts: true,
            physical: true,
        },
        per_cpu: true,
    }
}

impl Recipe {
    /// The attribute with everything in it.
    fn complete(&self) -> Attribute {
        const CLOCK_MONOTONIC: i32 = 1;
        Attribute {
            sample_type: self.layout.sample_type(),
            clock_id: CLOCK_MONOTONIC,
            flags: self.attribute.flags | flag::USE_CLOCK_ID,
            ..self.attribute
        }
    }

    /// With what this machine's permissions take away said in the caveat.
    fn explained(mut self) -> Self {
        let mut caveats: Vec<String> = self.caveat.take().into_iter().collect();
        if !self.per_cpu {
            caveats.push(
                "one ring per thread, because sampling whole CPUs is not permitted (CAP_PERFMON); \
                 with many threads, the rings take turns"
                    .to_owned(),
            );
        }
        if !self.layout.physical {
            caveats
                .push("without physical addresses, so the page's node is seldom known".to_owned());
        }
        self.caveat = (!caveats.is_empty()).then(|| caveats.join("; "));
        self
    }
}

/// Opens the event, with its leader if it needs one.
fn open(
    kernel: &dyn Kernel,
    recipe: &Recipe,
    tid: Option<u32>,
    cpu: Option<u32>,
) -> Result<(Option<OwnedFd>, OwnedFd), Errno> {
    let leader = match &recipe.leader {
        Some(attribute) => Some(kernel.open(attribute, tid, cpu, None)?),
        None => None,
    };
    let event = kernel.open(
        &recipe.complete(),
        tid,
        cpu,
        leader.as_ref().map(AsFd::as_fd),
    )?;
    Ok((leader, event))
}

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

/// Collects samples.
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
    /// Threads without a ring, who is next first.
    waiting: VecDeque<ThreadId>,
    /// Threads with a ring, who had it longest first.
    served: VecDeque<ThreadId>,
    /// Most rings that the kernel let us have; unlimited until it refused.
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

    /// Everything sampled since the last collection. `now_ns` is on the monotonic clock.
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
        // What lies after the beginning of this collection may still be missing from another ring.
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

    /// A sample of a watched thread with an address, in the words of the world.
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
        let by_address = match raw.physical {
            0 => None,
            physical => self.blocks.node_of(physical),
        };
        let by_source = || match source {
            MemorySource::LocalMemory => self.topology.node_of(cpu),
            _ => None,
        };
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
                Ok(tap) => {
                    self.cpus.insert(cpu, tap);
                }
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

    /// Opens and maps one ring; smaller where the kernel's limits ask for it.
    fn tap(&mut self, tid: Option<u32>, cpu: Option<u32>) -> Result<Tap, Errno> {
        let (leader, mut event) = open(&*self.kernel, &self.recipe, tid, cpu)?;
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
mod tests {
    use super::*;
    use crate::fake;
    use crate::records::tests::{record, sample};
    use numaherd_topology::{CpuPart, Node, NodeId, Parts};
    use std::collections::HashSet;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    const LOCAL: u64 = 0x2 | 0x80 << 5;
    const REMOTE: u64 = 0x2 | 0x100 << 5;

    /// Two nodes of one CPU each.
    fn topology() -> Arc<Topology> {
        let cpu = |id| CpuPart {
            id: CpuId(id),
            online: true,
            package: None,
            siblings: CpuSet::new(),
            capacity: None,
        };
        let node = |id| Node {
            id: NodeId(id),
            online: true,
            cpus: [CpuId(id)].into_iter().collect(),
            memory_bytes: 1 << 30,
        };
        let parts = Parts {
            name: "two".into(),
            nodes: vec![node(0), node(1)],
            cpus: vec![cpu(0), cpu(1)],
            ..Parts::default()
        };
        Arc::new(Topology::new(parts).unwrap())
    }

    fn recipe_of(per_cpu: bool) -> Recipe {
        let mut recipe = recipe(
            "test",
            None,
            Attribute::default(),
            &SampleOptions::default(),
        );
        recipe.layout = crate::records::tests::PLAIN;
        recipe.per_cpu = per_cpu;
        recipe
    }

    fn roster(threads: &[u32]) -> Roster {
        let entry = |&tid: &u32| {
            let (thread, process) = (ThreadId { tid, born: 1 }, ProcessId { pid: tid, born: 1 });
            (tid, (thread, process))
        };
        Latest::new(threads.iter().map(entry).collect())
    }

    type Files = Arc<Mutex<BTreeMap<u32, std::fs::File>>>;

    /// Counters whose events are files that look like empty rings, found by CPU or thread.
    fn ring_files(files: &Files, refuse: HashSet<u32>) -> Arc<dyn Kernel> {
        let files = files.clone();
        Arc::new(fake::Counters(
            move |_: &Attribute, tid: Option<u32>, cpu: Option<u32>| {
                let which = tid.or(cpu).unwrap();
                if refuse.contains(&which) {
                    return Err(Errno::MFILE);
                }
                let file = tempfile::tempfile().unwrap();
                file.set_len(17 * rustix::param::page_size() as u64)
                    .unwrap();
                files
                    .lock()
                    .unwrap()
                    .insert(which, file.try_clone().unwrap());
                Ok(file.into())
            },
        ))
    }

    /// The kernel writes records into a ring.
    fn write(files: &Files, which: u32, records: &[Vec<u8>]) {
        let files = files.lock().unwrap();
        let file = &files[&which];
        let mut head = [0; 8];
        file.read_exact_at(&mut head, 1024).unwrap();
        let mut head = u64::from_ne_bytes(head);
        for record in records {
            let at = rustix::param::page_size() as u64 + head;
            file.write_all_at(record, at).unwrap();
            head += record.len() as u64;
        }
        file.write_all_at(&head.to_ne_bytes(), 1024).unwrap();
    }

    fn sampler(kernel: Arc<dyn Kernel>, per_cpu: bool, roster: Roster) -> Sampler {
        Sampler::new(
            kernel,
            recipe_of(per_cpu),
            topology(),
            MemoryBlocks::default(),
            roster,
            &SampleOptions::default(),
            1000,
        )
    }

    fn online() -> CpuSet {
        "0-1".parse().unwrap()
    }

    #[test]
    fn samples_of_all_cpus_in_time_order_and_only_of_watched_threads() {
        let files = Files::default();
        let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7, 8]));
        assert!(sampler.collect(&online(), 1000).samples.is_empty());
        let (a, b) = (
            sample(7, 1300, 0xa000, 0, LOCAL),
            sample(7, 1500, 0xb000, 0, REMOTE),
        );
        write(&files, 0, &[a, b]);
        let (c, d) = (
            sample(8, 1400, 0xc000, 1, LOCAL),
            sample(99, 1450, 0xd000, 1, LOCAL),
        );
        write(&files, 1, &[c, d]);
        let collected = sampler.collect(&online(), 2000);
        let found: Vec<_> = collected
            .samples
            .iter()
            .map(|s| (s.time_ns, s.thread.tid, s.address, s.source, s.node))
            .collect();
        assert_eq!(
            found,
            [
                (300, 7, 0xa000, MemorySource::LocalMemory, Some(NodeId(0))),
                (400, 8, 0xc000, MemorySource::LocalMemory, Some(NodeId(1))),
                (500, 7, 0xb000, MemorySource::RemoteMemory, None),
            ]
        );
        assert!(collected.gaps.is_empty(), "{:?}", collected.gaps);
    }

    #[test]
    fn what_may_be_incomplete_waits_for_the_next_collection() {
        let files = Files::default();
        let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7]));
        sampler.collect(&online(), 1000);
        write(
            &files,
            0,
            &[
                sample(7, 1900, 1 << 12, 0, LOCAL),
                sample(7, 2100, 2 << 12, 0, LOCAL),
            ],
        );
        let first = sampler.collect(&online(), 2000).samples;
        write(&files, 1, &[sample(7, 2050, 3 << 12, 1, LOCAL)]);
        let second = sampler.collect(&online(), 3000).samples;
        let times = |samples: &[Sample]| samples.iter().map(|s| s.time_ns).collect::<Vec<_>>();
        assert_eq!(
            (times(&first), times(&second)),
            (vec![900], vec![1050, 1100])
        );
    }

    #[test]
    fn losses_are_gaps() {
        let files = Files::default();
        let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7]));
        sampler.collect(&online(), 1000);
        write(
            &files,
            0,
            &[record(2, &[1, 40]), record(5, &[0, 0, 0]), record(13, &[2])],
        );
        let gaps = sampler.collect(&online(), 2000).gaps;
        assert!(
            gaps[0].starts_with("42 memory samples were lost"),
            "{gaps:?}"
        );
        assert!(gaps[1].contains("throttled sampling 1 times"), "{gaps:?}");
    }

    #[test]
    fn a_cpu_that_refuses_is_a_gap_and_is_tried_again() {
        let files = Files::default();
        let kernel = ring_files(&files, HashSet::from([1]));
        let mut sampler = sampler(kernel, true, roster(&[7]));
        for _ in 0..2 {
            let gaps = sampler.collect(&online(), 1000).gaps;
            assert!(gaps[0].starts_with("1 CPUs are not sampled"), "{gaps:?}");
        }
        assert_eq!(sampler.cpus.len(), 1);
    }

    #[test]
    fn more_threads_than_rings_take_turns() {
        let files = Files::default();
        let open = Arc::new(Mutex::new(0));
        let limit = {
            let (files, open) = (ring_files(&files, HashSet::new()), open.clone());
            fake::Counters(move |a: &Attribute, tid, cpu| {
                let mut open = open.lock().unwrap();
                if *open >= 2 {
                    return Err(Errno::MFILE);
                }
                *open += 1;
                files.open(a, tid, cpu, None)
            })
        };
        let mut sampler = sampler(Arc::new(limit), false, roster(&[1, 2, 3, 4]));
        let gaps = sampler.collect(&online(), 1000).gaps;
        assert!(gaps[0].starts_with("2 threads are not sampled"), "{gaps:?}");
        let first: HashSet<u32> = sampler.threads.keys().map(|t| t.tid).collect();
        assert_eq!(first, HashSet::from([1, 2]));
        *open.lock().unwrap() = 0;
        for _ in 0..TURN {
            sampler.collect(&online(), 1000);
        }
        let second: HashSet<u32> = sampler.threads.keys().map(|t| t.tid).collect();
        assert_eq!(second, HashSet::from([3, 4]));
    }

    #[test]
    fn a_machine_that_cannot_sample_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let reasons = Reasons::new(&root, &crate::proc::cpuinfo::Processor::default());
        let kernel = fake::Counters(|_: &Attribute, _, _| Err(Errno::NOENT));
        let options = SampleOptions::default();
        let why = |root| {
            choose(&kernel, root, &options, &reasons, CpuId(0))
                .unwrap_err()
                .reason
        };
        assert!(why(&root).contains("none of the machine's PMUs"));
        let spe = folder.path().join("sys/bus/event_source/devices/arm_spe_0");
        std::fs::create_dir_all(spe).unwrap();
        assert!(why(&root).contains("Arm SPE"));
    }

    #[test]
    fn what_the_kernel_does_not_allow_is_left_out_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let pmu = folder.path().join("sys/bus/event_source/devices/ibs_op");
        std::fs::create_dir_all(pmu.join("format")).unwrap();
        std::fs::write(pmu.join("type"), "11").unwrap();
        std::fs::write(pmu.join("format/cnt_ctl"), "config:19").unwrap();
        let reasons = Reasons::new(&root, &crate::proc::cpuinfo::Processor::default());
        // Threads only, and no physical addresses.
        let kernel = fake::Counters(|a: &Attribute, tid: Option<u32>, _| {
            assert_eq!((a.kind, a.config, a.sample_period % 16), (11, 1 << 19, 0));
            match tid {
                Some(_) if a.sample_type & (1 << 19) == 0 => {
                    Ok(tempfile::tempfile().unwrap().into())
                }
                _ => Err(Errno::ACCESS),
            }
        });
        let options = SampleOptions::default();
        let recipe = choose(&kernel, &root, &options, &reasons, CpuId(0)).unwrap();
        let caveat = recipe.caveat.unwrap();
        assert!(
            caveat.contains("take turns") && caveat.contains("physical"),
            "{caveat}"
        );
    }
}
