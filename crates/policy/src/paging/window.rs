//! Window: the pages around each sampled remote access follow the thread.
//!
//! Problem: after a thread has moved, its memory is remote. For large sets, moving all of it costs more than
//! it saves, and which pages the thread uses is unknown (DINO §4).
//!
//! Rule (DINO §4.1, §4.2): when a sample shows that a placed thread reads or writes memory of another node,
//! the `K` pages around the address are ordered to the thread's node. `K` is a total: `page - K/2` up to
//! `page + K/2 - 1`, as in the authors' own scheduler (§4.2 of the paper can be read as twice that).
//!
//! Which accesses are remote: the page's node is known and is not the thread's; or it is unknown, but the
//! hardware reports that the access left the node, and the thread was on its own node at that time. Accesses
//! that the core's own caches answered never count, nor do accesses of unknown origin.
//!
//! [`super::windows`] makes the orders, without duplicates and without ping-pong (DINO §3.3.2).
//!
//! Samples are of no use while no thread is placed, or while the last snapshot shows every page of each placed
//! thread's process on the thread's node: then the paging does not listen. A page that moves to another node
//! meanwhile shows in the next snapshot.
//!
//! Terms: a thread is *placed* when its placement has given it a core; an access is *remote* if another node's
//! memory answers it; a page is *frozen* if it has gone back and forth too often. Source:
//! DINO §3.3.2, §4.1, §4.2; the authors' scheduler.
//!
//! Properties: no order reaches below page 0, has more than `K` pages, or names a thread that is not placed or
//! a page that is frozen; orders of one call to one node never overlap; the sampled page is in its order;
//! equal input gives equal output; while it does not listen, no access to a page that the snapshot knows
//! causes an order.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{MemorySource, Sample, Signal, Snapshot};

use super::driver::{Access, Driven, PageRule, Wish};
use super::windows::Windows;
use crate::policy::{PagingNeeds, PlacedThread};
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
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::of(&[Signal::MemorySamples])
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
