//! How a trace is played: seed, times, costs, what is sampled, where things start.
//!
//! Costs of the kernel's work are figures of real machines. Marks as in FACTS: [S] stated in a paper,
//! [C] recalled, so of the right order and no more.

use std::collections::HashMap;

use numaherd_hardware::{IpmConfig, PeriodicPass};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::NewPages;
use serde::{Deserialize, Serialize};

use crate::Error;

/// How a trace is played.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What all chance is drawn from: ties in where threads begin, random pages.
    pub seed: u64,
    /// How often the trace is played; threads and pages stay where they are in between. This is for short traces of
    /// programs that repeat themselves. Threads that executed less than a hundredth of what the busiest did are played
    /// once.
    pub loops: u32,
    /// Milliseconds of the loop's time: after the first loop, in which threads set up, whole loops are played for at
    /// least this long; 0 if `loops` alone decides.
    pub again_ms: u64,
    /// Milliseconds of the loop's time that one modelled millisecond stands for (see the module's
    /// "Two times"); 64.
    pub dilation: u64,
    /// Where new pages go, unless a policy decides otherwise.
    pub new_pages: NewPages,
    /// Where threads and pages are from the start, for those that it names.
    #[serde(skip)]
    pub start: Start,
    /// The IPM unit; None for none. Its registers are for modelled cycles: see [`unit`].
    pub ipm: Option<IpmConfig>,
    /// Whether an eviction is lost while another core's unit is handling the same page (IPM §4.5.3, §6.3).
    pub races: bool,
    /// Which accesses are memory samples.
    pub sample_every: SampleEvery,
    /// Time from one scan of a process for hint faults to its next, in ms of the loop's time; 1000
    /// (Linux, `numa_balancing_scan_period_min_ms`).
    pub scan_period_ms: u64,
    /// Memory that a scan marks, in MiB; 256 (Linux, `numa_balancing_scan_size_mb`).
    pub scan_mib: u64,
    /// What a hint fault costs its thread, in ns of the loop's time; 1500, the middle of 1 to 2 us
    /// for a minor fault [C].
    pub hint_fault_ns: u64,
    /// What moving a page costs the core of the thread that it is moved for, per 4 KiB, in ns of the loop's time; 2000,
    /// the middle of 1 to 3 us (FACTS 7.3 [C]).
    pub page_move_ns: u64,
    /// What each other core that runs the process loses when translations of up to 512 moved pages
    /// are invalidated together, in ns of the loop's time; 1000 for an interrupt from another
    /// processor [C]. Linux 6.3 and newer invalidate in such batches [C].
    pub shootdown_ns: u64,
    /// What a move costs a thread, besides cold caches and TLBs, in ns of the loop's time; 5000 [C].
    pub thread_move_ns: u64,
    /// What a switch to another thread costs a core, in modelled ns; 1500 [C].
    pub switch_ns: u64,
    /// From a wake until the woken thread can run, in modelled ns; 2000 for a futex [C].
    pub wake_ns: u64,
    /// How long a thread runs while others wait for its core, in modelled ns; 3 ms (Linux's least
    /// granularity with several CPUs [C]).
    pub slice_ns: u64,
    /// How far a core may be ahead of the others, in modelled ns; 200. A smaller quantum changes times by less than 2 %
    /// for usual programs, and by up to 8 % where links are the bottleneck of every access (see the tests); a run takes
    /// longer the smaller it is.
    pub quantum_ns: u64,
}

/// Which accesses are memory samples. Each thread counts its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleEvery {
    /// One in this many accesses.
    Accesses(u64),
    /// One in this many lines from beyond the last-level cache that an access waits for.
    LlcMisses(u64),
}

/// Where threads and pages are from the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// CPU of each thread, by its number in the trace; it stays there until ordered away. The kernel places threads
    /// without one.
    pub cpus: Vec<Option<CpuId>>,
    /// Node of each page, by process and page number. Pages without one go where new pages go.
    pub nodes: HashMap<(u32, u64), NodeId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            loops: 1,
            again_ms: 0,
            dilation: DILATION,
            new_pages: NewPages::FirstTouch,
            start: Start::default(),
            ipm: Some(unit(DILATION)),
            races: true,
            sample_every: SampleEvery::LlcMisses(100),
            scan_period_ms: 1000,
            scan_mib: 256,
            hint_fault_ns: 1500,
            page_move_ns: 2000,
            shootdown_ns: 1000,
            thread_move_ns: 5000,
            switch_ns: 1500,
            wake_ns: 2000,
            slice_ns: 3_000_000,
            quantum_ns: 200,
        }
    }
}

/// Traces of kernels last some tens of milliseconds; the loop decides every 200 ms (IPM §4.4.4), so
/// every 3 modelled ms.
const DILATION: u64 = 64;

/// The IPM unit of the paper ([`IpmConfig::of_paper`]), fitted to the dilation d: one eviction here stands for d
/// evictions of the long run that the trace stands for.
///
/// Both `cr_shift` and `cr_aging` are reduced by half of log2 d, rounded down. So a page's counters reach the same
/// values in the long run as in the paper (residency times 2^(`cr_aging` - `cr_shift`)), and in the loop's time it
/// takes the same residency until a page is first moved (Eq. 8, 9: 2^(`cr_aging` + `cr_shift` + `cr_mig`) cycles). With
/// `cr_shift` alone, counters would be full after a few evictions, and pages would not follow a thread that was moved
/// for hundreds of them.
///
/// The unit makes the pass over infrequently evicted pages. The paper gives no figures for it; here, in the loop's time
/// at 2 GHz, a pass comes every 10 ms and takes the entries that stayed 5 ms.
pub fn unit(dilation: u64) -> IpmConfig {
    let paper = IpmConfig::of_paper();
    let dilation = dilation.max(1);
    let less = dilation.ilog2() / 2;
    IpmConfig {
        cr_shift: paper.cr_shift.saturating_sub(less),
        cr_aging: paper.cr_aging.saturating_sub(less),
        pass: Some(PeriodicPass {
            every_cycles: (20_000_000 / dilation).max(1),
            resident_cycles: 10_000_000 / dilation,
        }),
        ..paper
    }
}

impl Options {
    /// Converts ns of the loop's time to picoseconds of modelled time.
    pub(super) fn modelled_ps(&self, loop_ns: u64) -> u64 {
        let ps = u128::from(loop_ns) * 1000 / u128::from(self.dilation);
        u64::try_from(ps).unwrap_or(u64::MAX)
    }

    /// Converts picoseconds of modelled time to ns of the loop's time.
    pub(super) fn loop_ns(&self, ps: u64) -> u64 {
        let ns = u128::from(ps) * u128::from(self.dilation) / 1000;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Checks each option against its range.
    pub(super) fn check(&self) -> Result<(), Error> {
        const SECOND_NS: u64 = 1_000_000_000;
        const DAY_MS: u64 = 86_400_000;
        let (SampleEvery::Accesses(sampled) | SampleEvery::LlcMisses(sampled)) = self.sample_every;
        let some = (1..=u64::MAX, "1 or more");
        let second = (0..=SECOND_NS, "at most a second");
        let some_of_a_second = (1..=SECOND_NS, "1 or more, at most a second");
        for (option, value, (possible, must)) in [
            ("loops", u64::from(self.loops), some.clone()),
            ("again_ms", self.again_ms, (0..=DAY_MS, "at most a day")),
            ("dilation", self.dilation, (1..=1_000_000, "1 to 1000000")),
            ("sample_every", sampled, some),
            (
                "scan_period_ms",
                self.scan_period_ms,
                (1..=DAY_MS, "1 or more, at most a day"),
            ),
            ("scan_mib", self.scan_mib, (1..=1 << 40, "1 to 2^40")),
            ("hint_fault_ns", self.hint_fault_ns, second.clone()),
            ("page_move_ns", self.page_move_ns, second.clone()),
            ("shootdown_ns", self.shootdown_ns, second.clone()),
            ("thread_move_ns", self.thread_move_ns, second.clone()),
            ("switch_ns", self.switch_ns, second.clone()),
            ("wake_ns", self.wake_ns, second),
            ("slice_ns", self.slice_ns, some_of_a_second.clone()),
            ("quantum_ns", self.quantum_ns, some_of_a_second),
        ] {
            if !possible.contains(&value) {
                return Err(Error::Option {
                    option,
                    value,
                    must,
                });
            }
        }
        Ok(())
    }
}
