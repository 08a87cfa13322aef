//! The results of a run, in figures.

use numaherd_hardware::{IpmCounts, TlbCounts};
use numaherd_topology::{NodeId, ways};
use serde::Serialize;

use super::energy::{Energy, Spent};
use super::engine::Engine;

mod since;

/// The results of a run. Times and counts cover the whole run, all loops together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Modelled time until the last thread ended, in s.
    pub seconds: f64,
    /// How often the trace was played.
    pub loops: u32,
    /// Threads of the trace.
    pub threads: usize,
    /// Instructions.
    pub instructions: u64,
    /// Accesses; one that crosses into a second line counts twice.
    pub accesses: u64,
    /// Of these, stores.
    pub stores: u64,
    /// What the caches did.
    pub caches: CacheFigures,
    /// The sources and destinations of lines.
    pub lines: LineFigures,
    /// Share of accesses to pages on another node than the core's; 0 without accesses.
    pub remote_access_share: f64,
    /// Bytes over each link. Only lines count, not requests without data. Empty if the machine names no links.
    pub links: Vec<LinkTraffic>,
    /// Bytes between nodes, by whatever route.
    pub interchip_bytes: u64,
    /// Bytes over links, counted once for each link; as `interchip_bytes` where the machine names none.
    pub link_bytes: u64,
    /// The places of pages.
    pub pages: PageFigures,
    /// Threads moved to another core by order.
    pub thread_moves: u64,
    /// What the TLBs did, where the machine has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbFigures>,
    /// What the IPM unit did, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitFigures>,
    /// Where energy went.
    pub energy: Energy,
    /// Hint faults.
    pub hint_faults: u64,
    /// Sleeps that someone outside the trace must have ended.
    pub released: u64,
    /// Accesses left out since no node had memory left.
    pub without_memory: u64,
    /// Why events of threads ended early, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// How much each pair of threads shared according to the IPM unit, without ageing: a square matrix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sharing_seen: Vec<Vec<u64>>,
}

/// What the caches did, all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheFigures {
    /// Accesses that missed the first level.
    pub l1_misses: u64,
    /// Accesses that missed all private caches: those that reached the last level.
    pub private_misses: u64,
    /// Lines fetched on demand from beyond the last level: from memory, or dirty from another domain.
    pub llc_misses: u64,
    /// Lines that the prefetchers fetched from memory.
    pub prefetches: u64,
    /// Lines fetched from beyond the last level, including prefetched ones, per 1000 instructions.
    pub llc_misses_per_1000_instructions: f64,
    /// Copies in other cores' caches dropped because of stores.
    pub invalidations: u64,
}

/// Where lines came from and went to, all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LineFigures {
    /// From memory of the core's own node.
    pub local: u64,
    /// From memory of another node.
    pub remote: u64,
    /// Dirty, from another domain's cache.
    pub dirty_transfers: u64,
    /// Back to memory.
    pub written_back: u64,
    /// Share of lines from memory that came from another node; 0 without any.
    pub remote_share: f64,
}

/// Bytes over one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkTraffic {
    /// Node that sent.
    pub from: NodeId,
    /// Node that received.
    pub to: NodeId,
    /// Bytes.
    pub bytes: u64,
}

/// Where pages were. A page's right node is the one whose cores made most accesses to it over the whole run; among
/// equals, the one that the page is on, if it is one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PageFigures {
    /// Pages touched.
    pub touched: u64,
    /// Of these, on their right node at the end.
    pub right: u64,
    /// Their share (the accuracy of IPM §3.3, §6.3); 0 without pages.
    pub right_share: f64,
    /// The same with each page weighted by its accesses.
    pub right_by_accesses: f64,
    /// Share of the time since their first touch that pages were on their right node.
    pub right_by_time: f64,
    /// Moves of pages.
    pub moved: u64,
    /// Moves that failed because the node was full.
    pub not_moved: u64,
}

/// What the TLBs did, all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TlbFigures {
    /// Their counts.
    #[serde(flatten)]
    pub counts: TlbCounts,
    /// Misses per translation; 0 without any.
    pub miss_rate: f64,
}

/// What the IPM unit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UnitFigures {
    /// Its counts.
    #[serde(flatten)]
    pub counts: IpmCounts,
    /// Evictions lost to another core that dealt with the same page, or that would have been.
    pub races: u64,
    /// Share of evictions that it handled (67.6 % in IPM §6.3); 0 without any.
    pub handled_share: f64,
    /// Its memory accesses for each access of the program (1.2 % in IPM §6.3); 0 without any.
    pub extra_access_share: f64,
}

impl Engine {
    pub(super) fn figures(&mut self) -> Figures {
        self.count_accesses();
        let line_bytes = self.hardware.config.line_bytes;
        let now_ps = if self.is_over {
            self.now_ps
        } else {
            let furthest = self.cores.iter().map(|core| core.time_ps).max();
            self.now_ps.max(furthest.unwrap_or(0))
        };
        let seconds = now_ps as f64 * 1e-12;
        let mut figures = Figures {
            seconds,
            loops: self.loops,
            threads: self.threads.len(),
            thread_moves: self.done.thread_moves,
            hint_faults: self.memory.hint_faults,
            released: self.done.released,
            without_memory: self.memory.without_memory,
            failures: self.done.failures.clone(),
            pages: self.page_figures(now_ps),
            tlb: self.tlb_figures(),
            ..Figures::default()
        };
        let lines_between = self.count_lines(&mut figures);
        let carried = self.memory.machine.lines_carried();
        let to_memory =
            (figures.lines.local + figures.lines.remote + figures.lines.written_back) * line_bytes;
        figures.interchip_bytes = lines_between * line_bytes;
        figures.links = self.link_traffic(&carried);
        figures.link_bytes = if figures.links.is_empty() {
            figures.interchip_bytes
        } else {
            figures.links.iter().map(|link| link.bytes).sum()
        };
        figures.remote_access_share = share(self.memory.pages.remote_accesses(), figures.accesses);
        if let Some(unit) = &self.memory.unit {
            figures.unit = Some(unit_figures(*unit.counts(), unit.races(), figures.accesses));
            figures.sharing_seen = unit.sharing(self.threads.len());
        }
        figures.energy = Energy::of(&Spent {
            dram_bytes: to_memory,
            link_bytes: figures.link_bytes,
            instructions: figures.instructions,
            seconds,
            cores: self.cores.len(),
        });
        figures
    }

    /// Adds up what the cores counted; returns the lines that went between nodes.
    fn count_lines(&self, figures: &mut Figures) -> u64 {
        let (caches, lines) = (&mut figures.caches, &mut figures.lines);
        for core in &self.cores {
            let counts = core.core.counts();
            figures.instructions += core.executed;
            figures.accesses += counts.accesses;
            figures.stores += counts.stores;
            caches.l1_misses += counts.l1_miss;
            caches.private_misses += counts.llc_access;
            caches.llc_misses += counts.llc_miss + counts.dirty_transfer;
            caches.prefetches += counts.prefetch;
            caches.invalidations += counts.invalidation;
            lines.local += counts.dram_local;
            lines.remote += counts.dram_remote;
            lines.dirty_transfers += counts.dirty_transfer;
            lines.written_back += counts.writeback;
        }
        lines.remote_share = share(lines.remote, lines.local + lines.remote);
        let beyond = caches.llc_misses + caches.prefetches;
        caches.llc_misses_per_1000_instructions = 1000.0 * share(beyond, figures.instructions);
        let nodes = self.hardware.config.nodes();
        let carried = self.memory.machine.lines_carried();
        let between = carried.iter().enumerate();
        between
            .filter(|(at, _)| at / nodes != at % nodes)
            .map(|(_, lines)| lines)
            .sum()
    }

    fn link_traffic(&self, carried: &[u64]) -> Vec<LinkTraffic> {
        let config = &self.hardware.config;
        let ids = &self.memory.nodes;
        let mut traffic: Vec<LinkTraffic> = config
            .links
            .iter()
            .map(|link| LinkTraffic {
                from: ids[link.from],
                to: ids[link.to],
                bytes: 0,
            })
            .collect();
        // The machine was built, so there is a route.
        let ways = ways(config.nodes(), &config.links).unwrap_or_default();
        for (way, lines) in ways.iter().zip(carried) {
            for &link in way {
                traffic[link].bytes += lines * config.line_bytes;
            }
        }
        traffic
    }

    fn page_figures(&self, now_ps: u64) -> PageFigures {
        let pages = &self.memory.pages;
        let (mut right, mut right_accesses, mut accesses) = (0, 0, 0);
        let (mut right_ps, mut all_ps) = (0, 0);
        for (place, page) in pages.iter().enumerate() {
            let by_node = pages.accesses(place);
            let here = page.node as usize;
            let best = (0..by_node.len())
                .max_by_key(|&node| (by_node[node], node == here))
                .unwrap_or(here);
            let all: u64 = by_node.iter().sum();
            accesses += all;
            if best == here {
                right += 1;
                right_accesses += all;
            }
            for node in 0..by_node.len() {
                let time = pages.time_on(place, node, now_ps);
                all_ps += time;
                if node == best {
                    right_ps += time;
                }
            }
        }
        let touched = pages.len() as u64;
        PageFigures {
            touched,
            right,
            right_share: share(right, touched),
            right_by_accesses: share(right_accesses, accesses),
            right_by_time: share(right_ps, all_ps),
            moved: pages.moves(),
            not_moved: self.done.pages_not_moved,
        }
    }

    fn tlb_figures(&self) -> Option<TlbFigures> {
        let mut counts = TlbCounts::default();
        for core in &self.cores {
            let of_core = core.core.mmu()?.counts();
            counts.lookups += of_core.lookups;
            counts.second_level_hits += of_core.second_level_hits;
            counts.misses += of_core.misses;
            counts.evictions += of_core.evictions;
        }
        Some(TlbFigures {
            counts,
            miss_rate: share(counts.misses, counts.lookups),
        })
    }
}

fn unit_figures(counts: IpmCounts, races: u64, accesses: u64) -> UnitFigures {
    let extra = counts.memory_reads + counts.memory_writes;
    UnitFigures {
        counts,
        races,
        handled_share: share(counts.evictions - counts.dropped, counts.evictions),
        extra_access_share: share(extra, accesses),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
