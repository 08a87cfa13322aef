//! The results of a part of a run: the difference between two of its figures.

use super::*;

impl Figures {
    /// The results of a run since `earlier`: times and counts cover that part. The places of pages are those at its
    /// end. Rightness and the share of remote accesses cover the whole run, because they are only counted so.
    pub(crate) fn since(self, earlier: &Self) -> Self {
        let instructions = self.instructions - earlier.instructions;
        let links = self.links.iter().zip(&earlier.links);
        let link = |(now, before): (&LinkTraffic, &LinkTraffic)| LinkTraffic {
            bytes: now.bytes - before.bytes,
            ..*now
        };
        let accesses = self.accesses - earlier.accesses;
        let rows = self.sharing_seen.iter().zip(&earlier.sharing_seen);
        let row = |(now, before): (&Vec<u64>, &Vec<u64>)| {
            let cells = now.iter().zip(before);
            cells.map(|(now, before)| now - before).collect()
        };
        Self {
            seconds: self.seconds - earlier.seconds,
            loops: self.loops - earlier.loops,
            instructions,
            accesses,
            stores: self.stores - earlier.stores,
            caches: self.caches.since(&earlier.caches, instructions),
            lines: self.lines.since(&earlier.lines),
            links: links.map(link).collect(),
            interchip_bytes: self.interchip_bytes - earlier.interchip_bytes,
            link_bytes: self.link_bytes - earlier.link_bytes,
            pages: PageFigures {
                moved: self.pages.moved - earlier.pages.moved,
                not_moved: self.pages.not_moved - earlier.pages.not_moved,
                ..self.pages
            },
            thread_moves: self.thread_moves - earlier.thread_moves,
            tlb: (self.tlb.zip(earlier.tlb)).map(|(now, before)| now.since(&before)),
            unit: (self.unit.zip(earlier.unit)).map(|(now, before)| now.since(&before, accesses)),
            energy: self.energy.since(&earlier.energy, instructions),
            hint_faults: self.hint_faults - earlier.hint_faults,
            released: self.released - earlier.released,
            without_memory: self.without_memory - earlier.without_memory,
            sharing_seen: rows.map(row).collect(),
            ..self
        }
    }
}

impl CacheFigures {
    fn since(&self, earlier: &Self, instructions: u64) -> Self {
        let (llc_misses, prefetches) = (
            self.llc_misses - earlier.llc_misses,
            self.prefetches - earlier.prefetches,
        );
        Self {
            l1_misses: self.l1_misses - earlier.l1_misses,
            private_misses: self.private_misses - earlier.private_misses,
            llc_misses,
            prefetches,
            llc_misses_per_1000_instructions: 1000.0 * share(llc_misses + prefetches, instructions),
            invalidations: self.invalidations - earlier.invalidations,
        }
    }
}

impl LineFigures {
    fn since(&self, earlier: &Self) -> Self {
        let (local, remote) = (self.local - earlier.local, self.remote - earlier.remote);
        Self {
            local,
            remote,
            dirty_transfers: self.dirty_transfers - earlier.dirty_transfers,
            written_back: self.written_back - earlier.written_back,
            remote_share: share(remote, local + remote),
        }
    }
}

impl TlbFigures {
    fn since(&self, earlier: &Self) -> Self {
        let (now, before) = (&self.counts, &earlier.counts);
        let counts = TlbCounts {
            lookups: now.lookups - before.lookups,
            second_level_hits: now.second_level_hits - before.second_level_hits,
            misses: now.misses - before.misses,
            evictions: now.evictions - before.evictions,
        };
        Self {
            counts,
            miss_rate: share(counts.misses, counts.lookups),
        }
    }
}

impl UnitFigures {
    fn since(&self, earlier: &Self, accesses: u64) -> Self {
        let (now, before) = (&self.counts, &earlier.counts);
        let counts = IpmCounts {
            misses: now.misses - before.misses,
            evictions: now.evictions - before.evictions,
            dropped: now.dropped - before.dropped,
            infrequent: now.infrequent - before.infrequent,
            notifications: now.notifications - before.notifications,
            memory_reads: now.memory_reads - before.memory_reads,
            memory_writes: now.memory_writes - before.memory_writes,
        };
        unit_figures(counts, self.races - earlier.races, accesses)
    }
}
