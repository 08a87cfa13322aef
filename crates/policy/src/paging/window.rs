//! Window: the pages around each sampled remote access follow the thread.
//!
//! Problem: after a thread has moved, its memory is remote. Moving all of it costs more than it
//! saves for large sets, and nobody knows which pages are the thread's (DINO §4).
//!
//! Rule (DINO §4.1, §4.2): whenever a sample shows a placed thread reading or writing memory of
//! another node, the `K` pages around the address are ordered to the thread's node. `K` is a total:
//! `page - K/2` up to `page + K/2 - 1`, as in the authors' own scheduler (the paper's §4.2 can be
//! read as twice that).
//!
//! What counts as remote: the page's node is known and is not the thread's; or it is not known, but
//! the hardware says that the access left the node, and the thread was on its own node then.
//! Answers from the core's own caches never count, nor do accesses of which nothing is known.
//!
//! The orders, none of them twice and without ping-pong (DINO §3.3.2): [`super::windows`].
//!
//! Whom samples can tell nothing: while no thread is placed, or the last snapshot shows every page
//! of each placed thread's process on the thread's node, there is nothing to fetch, and it does not
//! listen. A page that comes to lie elsewhere meanwhile is in the next snapshot.
//!
//! Terms: a thread is *placed* when its placement has given it a core; an access is *remote* that is
//! answered from another node's memory; a page is *frozen* that has gone to and fro too often. Source:
//! DINO §3.3.2, §4.1, §4.2; the authors' scheduler.
//!
//! Properties: no order reaches below page 0, has more than `K` pages, names a thread that is not
//! placed or a page that is frozen; orders of one call to one node never overlap; the sampled page
//! is in its order; equal input gives equal output; while it does not listen, no access to a page that
//! the snapshot knows of leads to an order.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{MemorySource, Sample, Signal, Snapshot};

use super::driver::{Access, Driven, PageRule, Wish};
use super::windows::Windows;
use crate::policy::{Basis, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;

/// The rules that orders name.
pub const RULES: &[Rule] = &[AROUND];
const AROUND: Rule = Rule {
    name: "window: around a remote access",
    source: "DINO 4.1 (sequential-forward-backward), 4.2; window as in the authors' scheduler",
    what: "A placed thread accessed a page of another node: the K pages around it are ordered to \
           the thread's node, unless they were ordered there just now or are frozen.",
};

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Ascending by thread.
    placed: Vec<PlacedThread>,
    /// Whether a placed thread may have memory on another node.
    listens: bool,
}

impl Window {
    /// The paging; nothing seen yet.
    pub fn paging(settings: &Settings) -> Driven<Self, Windows> {
        Driven {
            rule: Self::default(),
            orders: Windows::new(&settings.paging),
        }
    }
}

impl PageRule for Window {
    fn basis(&self) -> Basis<'_> {
        Basis::of(&[Signal::MemorySamples])
    }

    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        debug_assert!(placed.is_sorted_by_key(|thread| thread.thread));
        self.placed = placed.to_vec();
        let mut threads = placed.iter();
        self.listens = threads.any(|thread| may_have_memory_elsewhere(thread, snapshot));
    }

    fn listens(&self) -> bool {
        self.listens
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let thread = access.sample.thread;
        let at = self.placed.binary_search_by_key(&thread, |t| t.thread);
        let placed = &self.placed[at.ok()?];
        is_remote(access.sample, placed, access.topology).then_some(placed.node)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        let sample = wish.sample.expect("it takes no notices");
        let latency = sample.latency;
        let from = sample.node;
        AROUND.because(words!(
            "{thread} on node {to} {access} address {address} on {from}{latency}; {pages} around it",
            thread = sample.thread,
            to = wish.to,
            access = if sample.store { "wrote" } else { "read" }.to_owned(),
            address = format!("{:#x}", sample.address),
            from = from.map_or("another node".to_owned(), |from| format!("node {from}")),
            latency = latency.map_or_else(String::new, |latency| format!(", latency {latency}")),
            pages,
        ))
    }
}

/// Whether any page of the thread's process is on another node than the thread, as far as is known.
fn may_have_memory_elsewhere(thread: &PlacedThread, snapshot: &Snapshot) -> bool {
    let process = snapshot.process(thread.process);
    let residency = process.and_then(|process| process.residency.as_ref());
    residency.is_none_or(|residency| {
        let pages = &mut residency.pages.iter();
        pages.any(|&(node, pages)| node != thread.node && pages > 0)
    })
}

/// Whether an access left the core's caches and the thread's node.
fn is_remote(sample: &Sample, placed: &PlacedThread, topology: &Topology) -> bool {
    if sample.source == MemorySource::Cache {
        return false;
    }
    let near = |cpu| Some(topology.memory_near(topology.node_of(cpu)?));
    sample.node.map_or_else(
        || sample.source.is_remote() && near(sample.cpu) == Some(placed.node),
        |node| node != placed.node,
    )
}

#[cfg(test)]
mod tests;
