//! Sharing: threads that share pages run close together. IPM's thread mapping, and its variants for other evidence.
//!
//! Problem: threads that share pages run best if they share caches and a node (IPM §1). Which threads share
//! is seen only while they run, changes over time, and arrives as a stream of small amounts.
//!
//! Rule (IPM §4.4.4), each interval:
//! 1. The sharing known so far fades to `age` (0.75) of itself, and the sharing in the interval's snapshot
//!    ([`numaherd_world::Process::sharing`]) is added. Threads that ended are forgotten (§4.4.2, §4.4.3).
//! 2. If the pattern has changed ([`crate::mapping::Pattern`]; `changed_by`), or threads came or went, the
//!    threads are mapped again onto the tree of their CPUs, by EagerMap or another mapper.
//! 3. A thread that is not on the CPU it was mapped to is named until it is.
//!
//! The paper treats one program alone on a machine. Chosen here:
//! * *Which threads are mapped*: busy threads ([`crate::busy`]), and threads that share anything and ran in
//!   one of the last ten intervals. A thread that sleeps longer has nothing to gain and would take a place,
//!   although what it left in a TLB still counts as shared. If these are more threads than CPUs, those that
//!   are not busy are left out, the ones that use least CPU time first.
//! * *Pools* ([`crate::pools`]): the threads of each pool are mapped onto its CPUs, threads of several
//!   processes together; processes share nothing with each other. CPUs that threads outside the pool hold
//!   are left out while enough others remain.
//! * *Worth*: if a new mapping brings sharing closer by less than a twentieth, the threads are held where
//!   they are.
//! * *Few moves* ([`crate::mapping::with_few_moves`]): a mapping states which threads belong together; among
//!   like nodes, each group goes where most of its threads already are.
//!
//! `kmaf` maps as kMAF's source does: sharing does not fade, four threads or more are mapped in every interval by EagerMap, and
//! neither *Worth* nor *Few moves* applies.
//!
//! Terms: the *pattern* is the faded sharing matrix: how much each two threads touched the same pages; to
//! *map* is to give each thread a CPU so that the threads that share most are closest. Source: Cruz, Diener,
//! Pilla, Navaux, "Hardware-Assisted Thread and Data Mapping in
//! Hierarchical Multi-Core Architectures", TACO 2016 (IPM), §4.4; for `tlb-miss-history` its §5.2; for
//! `kmaf` Diener and others, PACT 2014.
//!
//! Properties: every CPU named is in the thread's cpuset and online; no thread is named twice; no thread is
//! named while the pattern stays the same and all threads are where they were put, or while nothing was ever
//! shared.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use numaherd_files::{choices, settings};
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{Signal, Snapshot, ThreadId};

use crate::mapping::{
    CHANGED_BY, Communication, Pattern, Tree, eager_map, exact_map, quality, refined_map,
    with_few_moves,
};
use crate::memory::PerThread;
use crate::policy::{Needs, Random};
use crate::pools::{Pool, Taken};
use crate::reason::{Figure, Reason};
use crate::rules::Rule;
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;

mod pairs;

use pairs::Pairs;

/// The rules that plans of `ipm` name.
pub const IPM_RULES: &[Rule] = &[BY_SHARING];
const BY_SHARING: Rule = Rule {
    name: "ipm: map by sharing",
    source: "IPM 4.4.4; EagerMap, PDP 2015",
    what: "Which threads share pages has changed: threads that share most go closest together.",
};

/// The rules that plans of `tlb-miss-history` name.
pub const MISS_RULES: &[Rule] = &[BY_MISSES];
const BY_MISSES: Rule = Rule {
    name: "tlb-miss-history: map by shared misses",
    source: "IPM 5.2, strategy ii",
    what: "Which threads miss on the same pages has changed: threads that share most go closest \
           together.",
};

/// The rules that plans of `kmaf` name.
pub const KMAF_RULES: &[Rule] = &[BY_FAULTS];
const BY_FAULTS: Rule = Rule {
    name: "kmaf: map by shared faults",
    source: "kMAF, PACT 2014",
    what: "Four threads or more fault: those that fault most on the same pages go closest together.",
};

choices! {
    /// What pages and threads are judged by.
    pub enum Evidence {
        /// How long translations stay in TLBs, as a unit at them measures it (IPM 3.2).
        #[default]
        Residency = "residency",
        /// Memory samples, for machines without such a unit: weaker, since samples are fewer than accesses.
        Samples = "samples",
    }
}

choices! {
    /// What maps threads to CPUs by the pages that they share.
    pub enum Mapper {
        /// EagerMap.
        #[default]
        Eager = "eager",
        /// Never worse than EagerMap.
        Refined = "refined",
        /// The best mapping for up to a dozen threads, and the refined one beyond.
        Exact = "exact",
    }
}

settings! {
    /// What `ipm` decides from, and how it maps threads. `tlb-miss-history` uses all but `evidence`.
    #[derive(Copy)]
    pub struct IpmSettings {
        /// How much of the sharing known so far remains after an interval.
        age: f64 = 0.75, unit: "share", range: 0.0..=1.0, source: "IPM 4.4.4";
        /// Threads are mapped anew when more than this share of all sharing is between other pairs. IPM
        /// 4.4.4 says "significantly".
        changed_by: f64 = CHANGED_BY, unit: "share", range: 0.0..=1.0, source: "chosen here";
        /// What maps threads to CPUs by the pages that they share.
        mapper: Mapper, source: "IPM 4.4.4";
        /// What pages and threads are judged by.
        evidence: Evidence, source: "IPM 3";
        /// CR_aging of events (misses, samples) that are credited in place of residency.
        cr_aging: u32 = 7, unit: "binary digits", range: 1.0..=15.0,
            because: " (a counter of 16 bits must hold what a page begins with)", source: "IPM 6.4";
        /// CR_mig of the same events; below `cr_aging`.
        cr_mig: u32 = 2, unit: "binary digits", source: "IPM 6.4";
    }
    where check = IpmSettings::can_move
}

impl IpmSettings {
    fn can_move(&self, wrong: &mut dyn FnMut(&str, String)) {
        let (aging, migration) = (self.cr_aging, self.cr_mig);
        if migration >= aging {
            let why = format!(
                "must be below `cr_aging` ({aging}), or no event could move a page, not {migration}"
            );
            wrong("cr_mig", why);
        }
    }
}

/// The share of a CPU from which on a thread counts as having run in an interval. Ours: one that only
/// wakes to see that it has nothing to do uses less.
const RAN: f64 = 0.01;

/// Intervals in which a thread that ran once still counts as running: as many as [`crate::busy`] looks back
/// on. One that waits for the others through an interval keeps its place.
const OF_LATE: u32 = 10;

/// The share of sharing times distance by which a mapping must be better than the present one. Ours: where all share alike,
/// every grouping is as good as any other, and differences are noise.
const LEAST_GAIN: f64 = 0.05;

/// Branches that the exact mapper may take before the refined one must do.
const MOST_BRANCHES: u64 = 1_000_000;

/// See the top of this file.
#[derive(Debug)]
pub struct BySharing {
    needs: Needs<'static>,
    rule: Rule,
    mapper: Mapper,
    /// What is left of a count after an interval, 0 to 1.
    kept: f64,
    /// The share of sharing that must have changed; `None`: mapped anew every time.
    changed_by: Option<f64>,
    /// Fewer threads are not mapped.
    least_threads: usize,
    few_moves: bool,
    pairs: Pairs,
    pools: Vec<Mapped>,
    /// Intervals for which a thread still counts as one that runs.
    still: PerThread<u32>,
    targets: PerThread<Option<CpuId>>,
}

/// What the threads of a pool were last mapped by.
#[derive(Debug)]
struct Mapped {
    cpus: CpuSet,
    threads: Vec<ThreadId>,
    pattern: Pattern,
}

impl BySharing {
    /// IPM's; nothing seen yet.
    pub fn ipm(settings: &Settings) -> Self {
        let needs = match settings.ipm.evidence {
            Evidence::Residency => Needs::of(&[Signal::TlbResidency]),
            Evidence::Samples => found_by_paging(&[Signal::MemorySamples]),
        };
        Self::with(settings, BY_SHARING, needs)
    }

    /// The same by shared TLB misses; nothing seen yet.
    pub fn tlb_miss_history(settings: &Settings) -> Self {
        Self::with(settings, BY_MISSES, found_by_paging(&[Signal::TlbMisses]))
    }

    /// kMAF's; nothing seen yet. At every call, it maps four threads or more with EagerMap, by all that they ever shared.
    pub fn kmaf(settings: &Settings) -> Self {
        Self {
            mapper: Mapper::Eager,
            kept: 1.0,
            changed_by: None,
            least_threads: 4,
            few_moves: false,
            ..Self::with(settings, BY_FAULTS, found_by_paging(&[Signal::HintFaults]))
        }
    }

    fn with(settings: &Settings, rule: Rule, needs: Needs<'static>) -> Self {
        Self {
            needs,
            rule,
            mapper: settings.ipm.mapper,
            kept: settings.ipm.age,
            changed_by: Some(settings.ipm.changed_by),
            least_threads: 2,
            few_moves: true,
            pairs: Pairs::default(),
            pools: Vec::new(),
            still: PerThread::default(),
            targets: PerThread::default(),
        }
    }

    /// For each thread, whether it has run in one of the last [`OF_LATE`] intervals.
    fn ran_of_late(&mut self, snapshot: &Snapshot) -> Vec<bool> {
        let left = self.still.line_up(&snapshot.threads);
        let threads = snapshot.threads.iter().zip(left);
        threads
            .map(|(thread, left)| {
                *left = match thread.cpu_share >= RAN {
                    true => OF_LATE,
                    false => left.saturating_sub(1),
                };
                *left > 0
            })
            .collect()
    }

    /// The threads of a pool to map, in their order, with what they share.
    fn to_map(
        &self,
        stage: &Stage<'_>,
        pool: &Pool,
        ran_of_late: &[bool],
    ) -> (Vec<usize>, Communication) {
        let is_busy = |index: usize| pool.busy.binary_search(&index).is_ok();
        let shares = |index: usize| self.pairs.of(stage.thread(index).id).next().is_some();
        let wanted = |&index: &usize| is_busy(index) || (ran_of_late[index] && shares(index));
        let mut threads: Vec<usize> = pool.threads.iter().copied().filter(wanted).collect();
        if threads.len() > pool.cpus.len() {
            // Those that are busy first, then those that use most of a CPU.
            let rank = |&index: &usize| (is_busy(index), stage.thread(index).cpu_share);
            threads.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal));
            let all_busy = threads.iter().filter(|&&index| is_busy(index)).count();
            threads.truncate(all_busy.max(pool.cpus.len()));
            threads.sort_unstable();
        }
        let ids: Vec<ThreadId> = threads.iter().map(|&i| stage.thread(i).id).collect();
        let sharing = self.pairs.among(&ids);
        (threads, sharing)
    }

    /// Whether these threads are to be mapped anew; notes that they were.
    fn has_changed(&mut self, tree: &Tree, ids: &[ThreadId], sharing: &Communication) -> bool {
        let Some(changed_by) = self.changed_by else {
            return sharing.total() > 0;
        };
        let cpus: CpuSet = tree.cpus().iter().copied().collect();
        let known = self.pools.iter().position(|pool| pool.cpus == cpus);
        let at = known.unwrap_or_else(|| {
            self.pools.push(Mapped {
                cpus,
                threads: Vec::new(),
                pattern: Pattern::new(changed_by),
            });
            self.pools.len() - 1
        });
        let pool = &mut self.pools[at];
        if pool.threads != ids {
            pool.threads = ids.to_vec();
            pool.pattern = Pattern::new(changed_by);
        }
        pool.pattern.has_changed(sharing, tree)
    }

    fn map(&self, sharing: &Communication, tree: &Tree) -> Vec<CpuId> {
        match self.mapper {
            Mapper::Eager => eager_map(sharing, tree),
            Mapper::Refined => refined_map(sharing, tree),
            Mapper::Exact => exact_map(sharing, tree, MOST_BRANCHES)
                .unwrap_or_else(|| refined_map(sharing, tree)),
        }
    }
}

impl PlacementRule for BySharing {
    fn needs(&self) -> Needs<'_> {
        self.needs
    }

    fn seat(&mut self, stage: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        let snapshot = stage.snapshot;
        self.pairs.learn(snapshot, self.kept);
        let ran_of_late = self.ran_of_late(snapshot);
        let mut taken = stage.taken();
        let mut targets = std::mem::take(&mut self.targets);
        let target = targets.line_up(&snapshot.threads);
        let mut reasons: BTreeMap<usize, Reason> = BTreeMap::new();
        for pool in &stage.pools {
            let (threads, sharing) = self.to_map(stage, pool, &ran_of_late);
            let Some(tree) = Tree::new(stage.topology, &free_cpus(pool, &taken, threads.len()))
            else {
                continue;
            };
            let ids: Vec<ThreadId> = threads.iter().map(|&i| stage.thread(i).id).collect();
            let enough = threads.len() >= self.least_threads;
            if enough && self.has_changed(&tree, &ids, &sharing) {
                let now: Vec<CpuId> = threads.iter().map(|&i| stage.thread(i).place()).collect();
                let mut mapping = self.map(&sharing, &tree);
                if self.few_moves {
                    mapping = with_few_moves(&tree, &mapping, &now);
                    if !is_worth(&sharing, &tree, &mapping, &now) {
                        mapping.clone_from(&now);
                    }
                }
                let qualities =
                    quality(&sharing, &tree, &now).zip(quality(&sharing, &tree, &mapping));
                for (at, &index) in threads.iter().enumerate() {
                    target[index] = Some(mapping[at]);
                    let reason = because(self.rule, sharing.row(at), &ids, &mapping, qualities);
                    reasons.insert(index, reason);
                }
            }
            for &index in &pool.threads {
                // A thread that has become idle and has not run of late is given back.
                let left = !ran_of_late[index] && stage.why_idle(index).is_some();
                match target[index] {
                    Some(cpu) if pool.cpus.contains(cpu) && !left => taken.hold(cpu, None),
                    _ => target[index] = None,
                }
            }
        }
        let earlier =
            || (self.rule).because(words!("it was mapped there and does not have it yet"));
        let seats = target.iter().enumerate().filter_map(|(index, target)| {
            let cpu = target.filter(|&cpu| stage.thread(index).assigned != Some(cpu))?;
            let reason = reasons.remove(&index).unwrap_or_else(earlier);
            Some(stage.seat(index, cpu, reason))
        });
        let seats = seats.collect();
        self.targets = targets;
        seats
    }
}

/// These signals, by which a paging finds out which threads share pages.
fn found_by_paging(signals: &'static [Signal]) -> Needs<'static> {
    Needs {
        found_sharing: true,
        ..Needs::of(signals)
    }
}

/// Whether a mapping is worth its moves: it brings threads that share closer by enough, or fewer of them meet on one CPU.
fn is_worth(sharing: &Communication, tree: &Tree, mapping: &[CpuId], now: &[CpuId]) -> bool {
    let cpus = |places: &[CpuId]| places.iter().copied().collect::<CpuSet>().len();
    if cpus(mapping) != cpus(now) {
        return cpus(mapping) > cpus(now);
    }
    match (quality(sharing, tree, mapping), quality(sharing, tree, now)) {
        (Some(after), Some(before)) => (before as f64 - after as f64) > before as f64 * LEAST_GAIN,
        // Some threads are on CPUs that are not theirs to use.
        _ => true,
    }
}

/// The CPUs of a pool that no thread outside it holds, if there are enough of them; else all.
fn free_cpus(pool: &Pool, taken: &Taken, threads: usize) -> CpuSet {
    let is_free = |&cpu: &CpuId| taken.of(cpu).threads == 0;
    let free: CpuSet = pool.cpus.iter().filter(is_free).collect();
    if free.len() >= threads {
        free
    } else {
        pool.cpus.clone()
    }
}

/// Why a thread was mapped where it was: `row` is what it shares with each of the threads, `qualities`
/// what sharing times distance is where threads are now, and as mapped.
fn because(
    rule: Rule,
    row: &[u64],
    ids: &[ThreadId],
    mapping: &[CpuId],
    qualities: Option<(u128, u128)>,
) -> Reason {
    let all: u128 = row.iter().map(|&count| u128::from(count)).sum();
    let most = (0..row.len()).max_by_key(|&other| (row[other], Reverse(other)));
    let why = match most.filter(|&other| row[other] > 0) {
        Some(other) => words!(
            "{share} % of what it shares it shares with {other}, which is mapped to CPU {cpu}",
            share = Figure::Measured(row[other] as f64 / all as f64 * 100.0, 0),
            other = ids[other],
            cpu = mapping[other],
        ),
        None => words!(
            "it shares nothing; {others} threads that do are mapped around it",
            others = row.len() - 1,
        ),
    };
    let instead_of = qualities.map(|(before, after)| {
        words!(
            "where threads are now: sharing times distance {before}, mapped {after}",
            before,
            after
        )
    });
    rule.because(why).instead_of(instead_of)
}

#[cfg(test)]
mod tests;
