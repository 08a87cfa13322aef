//! Orders for whole blocks.

use numaherd_topology::{Node, Topology};
use numaherd_world::{PageOrder, PageOutcome, ProcessId, Snapshot};

use super::spread_out;
use crate::paging::driver::{Orders, Wish};
use crate::policy::PlacedThread;
use crate::reason::Reason;

/// Makes an order for the whole block of each wish.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    block_pages: u64,
    page_bytes: u64,
    processes: Vec<ProcessId>,
}

impl Blocks {
    /// Orders for blocks of so many pages.
    pub(super) fn of(block_pages: u64) -> Self {
        Self {
            block_pages,
            ..Self::default()
        }
    }
}

impl Orders for Blocks {
    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        self.page_bytes = snapshot.page_bytes;
        self.processes = spread_out(placed).into_keys().collect();
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes.max(1)
    }

    fn knows(&self, process: ProcessId) -> bool {
        self.processes.binary_search(&process).is_ok()
    }

    fn orders(
        &mut self,
        wishes: Vec<Wish<'_>>,
        topology: &Topology,
        _now_ns: u64,
        reason: &dyn Fn(&Wish<'_>, String) -> Reason,
    ) -> Vec<PageOrder> {
        let is_to_move =
            |wish: &Wish<'_>| !wish.stays && topology.node(wish.to).is_some_and(Node::has_memory);
        let block = self.block_pages;
        let order = |wish: Wish<'_>| {
            let first = wish.page / block * block;
            let pages = format!("{block} pages from {first:#x} on");
            wish.order(first..first + block, &reason(&wish, pages))
        };
        wishes.into_iter().filter(is_to_move).map(order).collect()
    }

    fn moved(&mut self, _: &[PageOutcome]) {}
}
