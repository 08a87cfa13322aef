//! A plan's orders, a pager's observations, and the outcomes of orders.

use std::collections::BTreeMap;

use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{
    MemorySource, Notice, PageOrder, PageOutcome, Pages, Placement, Plan, Release, Sample, Thread,
};

use crate::seen::{PAGE_BYTES, pid, tid};

/// An order to place the thread on CPU `to`.
pub fn place(thread: &Thread, to: u32) -> Placement {
    Placement {
        thread: thread.id,
        from: thread.place(),
        to: CpuId(to),
        rule: "test: as told".into(),
        why: "the test says so".to_owned(),
        instead_of: String::new(),
    }
}

/// A plan with these placements.
pub fn plan_of(placements: &[Placement]) -> Plan {
    Plan {
        placements: placements.to_vec(),
        ..Plan::default()
    }
}

/// An order to give the thread back to the kernel.
pub fn release(thread: &Thread) -> Release {
    Release {
        thread: thread.id,
        rule: "test: as told".into(),
        why: "the test says so".to_owned(),
    }
}

/// An order to move `count` pages from page `first` on to node `to`, for the thread.
pub fn window(thread: &Thread, first: u64, count: u64, to: u32) -> PageOrder {
    PageOrder {
        process: thread.process,
        thread: thread.id,
        pages: Pages::Window { first, count },
        to: NodeId(to),
        rule: "test: as told".into(),
        why: "the test says so".to_owned(),
    }
}

/// An order to move all pages of the thread's process to node `to`.
pub fn all_pages(thread: &Thread, to: u32) -> PageOrder {
    PageOrder {
        pages: Pages::All,
        ..window(thread, 0, 1, to)
    }
}

/// The outcome of an order of which `moved` pages were moved.
pub fn moved(order: &PageOrder, moved: u64) -> PageOutcome {
    PageOutcome {
        process: order.process,
        thread: order.thread,
        pages: order.pages,
        to: order.to,
        moved,
        already_there: 0,
        failed: BTreeMap::new(),
        not_tried: 0,
        took_ns: 1000,
        longest_batch_ns: 1000,
        error: None,
    }
}

/// A sample of a read by the thread, from its CPU, of a page on node `home`.
pub fn sample(thread: &Thread, page: u64, home: u32, topology: &Topology) -> Sample {
    let is_local = topology.node_of(thread.cpu) == Some(NodeId(home));
    Sample {
        time_ns: 0,
        thread: thread.id,
        process: thread.process,
        address: page * PAGE_BYTES + 8,
        cpu: thread.cpu,
        latency: None,
        source: if is_local {
            MemorySource::LocalMemory
        } else {
            MemorySource::RemoteMemory
        },
        node: Some(NodeId(home)),
        store: false,
    }
}

/// A notice: thread 1 on node `to` intensely uses page 1 of process 1, which is on node 0.
pub fn notice(time_ns: u64, to: u32) -> Notice {
    Notice {
        time_ns,
        thread: tid(1),
        process: pid(1),
        page: 1,
        from: NodeId(0),
        to: NodeId(to),
    }
}
