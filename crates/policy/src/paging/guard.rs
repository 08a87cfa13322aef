//! The ping-pong guard: pages that are ordered back and forth between nodes are frozen.
//!
//! Problem: if threads of a process on different nodes share data, each would draw the pages to its own
//! node, again and again. Nothing is gained, and each move costs (DINO §3.3.2: detect it and discontinue).
//!
//! Rule: a process's pages fall into chunks of `K` pages (aligned). A chunk *belongs* to the node
//! that a sampled access inside it last had pages ordered to. When a chunk changes hands, it *bounces*. A
//! chunk that would bounce more than `bounce_limit` times is frozen: no page of it is ordered anywhere. A
//! window never reaches into a neighbouring chunk that belongs to another node or is frozen, so two
//! threads at work side by side do not bounce each other's edges.
//!
//! Thaw: `thaw_after_s` seconds after it was frozen, by the samples' own time, a chunk starts again
//! as if never ordered. A chunk that has not bounced for that long also starts counting again, so that
//! rare moves of a thread never add up.
//!
//! Source: DINO §3.3.2 for the rule, the authors' scheduler for the limit (5); chunks and thaw are
//! chosen here. Property: within `thaw_after_s` no chunk changes hands more than `bounce_limit`
//! times by way of accesses inside it, and none at all by way of accesses outside.

use std::collections::HashMap;
use std::ops::Range;

use numaherd_files::settings;
use numaherd_topology::NodeId;
use numaherd_world::ProcessId;

settings! {
    /// Which pages are moved, by the policies whose memory follows (`dino`, `di-migrate`).
    #[derive(Copy, Eq)]
    pub struct PagingSettings {
        /// K: how many pages one sampled access moves in total, half of them before it.
        window_pages: u64 = 4096, unit: "base pages", range: 1.0..=MOST_WINDOW_PAGES,
            source: "DINO 4.1; a total in Clavis";
        /// How often a chunk of pages may be ordered back to another node before it is frozen.
        bounce_limit: u32 = 5, unit: "orders back", source: "Clavis";
        /// After what time of the samples a frozen chunk gets another chance. DINO 3.3.2 only says that
        /// migration is discontinued.
        thaw_after_s: u64 = 60, unit: "s", source: "chosen here";
    }
}

/// The most base pages that one access may move (64 GiB of 4 KiB pages): the governor looks at
/// every piece of a window.
const MOST_WINDOW_PAGES: f64 = (1 << 24) as f64;

/// What is known of all chunks that were ordered somewhere.
#[derive(Clone, Debug)]
pub struct Guard {
    chunk_pages: u64,
    bounce_limit: u32,
    thaw_after_ns: u64,
    chunks: HashMap<(ProcessId, u64), Chunk>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    belongs_to: NodeId,
    bounces: u32,
    /// When it last changed hands, or was frozen.
    since_ns: u64,
    frozen: bool,
}

impl Guard {
    /// Nothing ordered yet.
    pub fn new(settings: &PagingSettings) -> Self {
        Self {
            chunk_pages: settings.window_pages.max(1),
            bounce_limit: settings.bounce_limit,
            thaw_after_ns: settings.thaw_after_s.saturating_mul(1_000_000_000),
            chunks: HashMap::new(),
        }
    }

    /// Returns the part of a window around `page` that may be ordered to a node, and counts a bounce if it
    /// is one; `None` if the page is frozen.
    pub fn admit(
        &mut self,
        process: ProcessId,
        to: NodeId,
        page: u64,
        window: Range<u64>,
        now_ns: u64,
    ) -> Option<Range<u64>> {
        let own = page / self.chunk_pages;
        self.thaw(process, own, now_ns);
        let chunk = self.chunks.entry((process, own)).or_insert(Chunk {
            belongs_to: to,
            bounces: 0,
            since_ns: now_ns,
            frozen: false,
        });
        if chunk.frozen {
            return None;
        }
        if chunk.belongs_to != to {
            if chunk.bounces >= self.bounce_limit {
                chunk.frozen = true;
                chunk.since_ns = now_ns;
                return None;
            }
            chunk.bounces += 1;
            chunk.since_ns = now_ns;
            chunk.belongs_to = to;
        }
        let mut open = own..own + 1;
        while window.start < open.start * self.chunk_pages
            && self.is_open(process, open.start - 1, to, now_ns)
        {
            open.start -= 1;
        }
        while window.end.div_ceil(self.chunk_pages) > open.end
            && self.is_open(process, open.end, to, now_ns)
        {
            open.end += 1;
        }
        let first = window.start.max(open.start * self.chunk_pages);
        let end = window.end.min(open.end.saturating_mul(self.chunk_pages));
        Some(first..end)
    }

    /// Forgets the chunks of all other processes.
    pub fn keep_only(&mut self, lives: impl Fn(ProcessId) -> bool) {
        self.chunks.retain(|&(process, _), _| lives(process));
    }

    /// Whether a window may reach into a chunk without an access inside it.
    fn is_open(&mut self, process: ProcessId, chunk: u64, to: NodeId, now_ns: u64) -> bool {
        self.thaw(process, chunk, now_ns);
        self.chunks
            .get(&(process, chunk))
            .is_none_or(|chunk| !chunk.frozen && chunk.belongs_to == to)
    }

    fn thaw(&mut self, process: ProcessId, chunk: u64, now_ns: u64) {
        let Some(known) = self.chunks.get_mut(&(process, chunk)) else {
            return;
        };
        if now_ns.saturating_sub(known.since_ns) < self.thaw_after_ns {
            return;
        }
        if known.frozen {
            self.chunks.remove(&(process, chunk));
        } else {
            known.bounces = 0;
        }
    }
}
