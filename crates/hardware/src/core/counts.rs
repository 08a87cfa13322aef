//! What a core counts.

/// What a core has done. All counts only grow.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Data accesses.
    pub accesses: u64,
    /// Of these, stores.
    pub stores: u64,
    /// Accesses whose line the first-level cache did not have.
    pub l1_miss: u64,
    /// Accesses that the private caches did not satisfy: requests to the last-level cache.
    pub llc_access: u64,
    /// Stores that had the data in a private cache and asked for the right to write it.
    pub upgrade: u64,
    /// Lines fetched from memory on demand.
    pub llc_miss: u64,
    /// Lines fetched from memory by the prefetcher.
    pub prefetch: u64,
    /// Lines of both kinds from the core's own node.
    pub dram_local: u64,
    /// Lines of both kinds from other nodes.
    pub dram_remote: u64,
    /// Lines of both kinds, by node.
    pub fetches_from: Vec<u64>,
    /// Dirty lines written back to memory because of this core's accesses.
    pub writeback: u64,
    /// Lines that came dirty out of another domain's cache.
    pub dirty_transfer: u64,
    /// Copies in other cores' caches dropped because of stores of this core.
    pub invalidation: u64,
    /// Accesses to addresses outside every node; left out of the model.
    pub outside_memory: u64,
}

impl Counts {
    /// Demand requests that left the private caches: for lines, and for the right to write them (BRM
    /// §3.1: λ).
    pub fn uncore_requests(&self) -> u64 {
        self.llc_access + self.upgrade
    }
}
