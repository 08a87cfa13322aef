//! The events that the kernel names for every machine, as `perf list` writes them.
//!
//! Source: include/uapi/linux/perf_event.h (`perf_hw_id`, `perf_hw_cache_id`).

/// `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;
/// `PERF_TYPE_HW_CACHE`.
const CACHE: u32 = 3;

const LAST_LEVEL: u64 = 2;
const NODE: u64 = 6;
const READ: u64 = 0;
const WRITE: u64 = 1;
const PREFETCH: u64 = 2;

const ACCESS: u64 = 0;
const MISS: u64 = 1;

/// Cache events: which cache, operation << 8, result << 16.
const fn cache(which: u64, operation: u64, result: u64) -> (u32, u64) {
    (CACHE, which | operation << 8 | result << 16)
}

/// Name to kind and code.
pub(super) const EVENTS: &[(&str, (u32, u64))] = &[
    ("cycles", (HARDWARE, 0)),
    ("instructions", (HARDWARE, 1)),
    ("cache-references", (HARDWARE, 2)),
    ("cache-misses", (HARDWARE, 3)),
    ("stalled-cycles-backend", (HARDWARE, 8)),
    ("ref-cycles", (HARDWARE, 9)),
    ("LLC-loads", cache(LAST_LEVEL, READ, ACCESS)),
    ("LLC-load-misses", cache(LAST_LEVEL, READ, MISS)),
    ("LLC-stores", cache(LAST_LEVEL, WRITE, ACCESS)),
    ("LLC-store-misses", cache(LAST_LEVEL, WRITE, MISS)),
    ("LLC-prefetches", cache(LAST_LEVEL, PREFETCH, ACCESS)),
    ("LLC-prefetch-misses", cache(LAST_LEVEL, PREFETCH, MISS)),
    ("node-loads", cache(NODE, READ, ACCESS)),
    ("node-load-misses", cache(NODE, READ, MISS)),
    ("node-stores", cache(NODE, WRITE, ACCESS)),
    ("node-store-misses", cache(NODE, WRITE, MISS)),
    ("node-prefetches", cache(NODE, PREFETCH, ACCESS)),
    ("node-prefetch-misses", cache(NODE, PREFETCH, MISS)),
];

/// The kind and code of a name.
pub(super) fn code(name: &str) -> Option<(u32, u64)> {
    let found = EVENTS.iter().find(|(known, _)| *known == name);
    found.map(|&(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_events_are_coded_as_the_kernel_wants_them() {
        assert_eq!(code("LLC-prefetch-misses"), Some((3, 0x1_0202)));
        assert_eq!(code("node-loads"), Some((3, 0x6)));
        assert_eq!(code("node-load-misses"), Some((3, 0x1_0006)));
        assert_eq!(code("no such event"), None);
    }
}
