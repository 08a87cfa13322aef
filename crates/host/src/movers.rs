//! Several movers at once, each for some of the target nodes.
//!
//! Problem: one thread copies pages as fast as one core reads and writes, while several nodes could take some at once;
//! until a process's memory has moved, its threads wait for the old place. Rule: orders for all or a kind of a
//! process's memory go to as many movers as there are target nodes, at most [`MOST_AT_ONCE`]. Orders to one node stay
//! with one mover, in their order, so that a node that proves full gets no more orders. Orders for windows have few
//! pages each, and may name the same pages twice: if there is one, one mover does all.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use numaherd_topology::NodeId;
use numaherd_world::{PageOrder, PageOutcome, Pages};

use crate::files::Root;
use crate::kernel::Kernel;
use crate::options::PageOptions;
use crate::pages::Mover;
use crate::stop::Stop;

/// Movers at work at once (chosen here: as many cores at most are kept from what runs on them).
const MOST_AT_ONCE: usize = 4;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Movers(Vec<Mover>);

impl Movers {
    pub(crate) fn new(root: &Root, options: PageOptions, page_bytes: u64) -> Self {
        let mover = |_| Mover::new(root.clone(), options, page_bytes);
        Self((0..MOST_AT_ONCE).map(mover).collect())
    }

    /// Carries out orders; one outcome each, in their order.
    pub(crate) fn carry_out(
        &mut self,
        kernel: &dyn Kernel,
        orders: &[PageOrder],
        stop: &Stop,
    ) -> Vec<PageOutcome> {
        let lanes = lanes(orders, self.0.len());
        let mut outcomes: Vec<Option<PageOutcome>> = vec![None; orders.len()];
        let (first, others) = self.0.split_at_mut(1);
        scope(|scope| {
            let work = |mover: &mut Mover, lane: &[usize]| {
                let orders: Vec<PageOrder> = lane.iter().map(|&at| orders[at].clone()).collect();
                mover.carry_out(kernel, &orders, stop)
            };
            let mut at_work = Vec::new();
            for (mover, lane) in others.iter_mut().zip(lanes.iter().skip(1)) {
                let thread = Builder::new().name("numaherd-move".to_owned());
                // What no thread can be started for is done below.
                if let Ok(handle) = thread.spawn_scoped(scope, move || work(mover, lane)) {
                    at_work.push((lane, handle));
                }
            }
            let done = lanes.first().map(|lane| (lane, work(&mut first[0], lane)));
            let others = at_work.into_iter().map(|(lane, handle)| {
                let done = handle.join();
                (lane, done.unwrap_or_else(|panic| resume_unwind(panic)))
            });
            for (lane, done) in done.into_iter().chain(others) {
                for (&at, outcome) in lane.iter().zip(done) {
                    outcomes[at] = Some(outcome);
                }
            }
        });
        let left = outcomes.iter().zip(orders);
        let left: Vec<PageOrder> = left
            .filter(|(outcome, _)| outcome.is_none())
            .map(|(_, order)| order.clone())
            .collect();
        let mut left = self.0[0].carry_out(kernel, &left, stop).into_iter();
        let outcomes = outcomes.into_iter();
        outcomes
            .filter_map(|outcome| outcome.or_else(|| left.next()))
            .collect()
    }
}

/// The places of the orders for each of so many movers at most.
fn lanes(orders: &[PageOrder], most: usize) -> Vec<Vec<usize>> {
    let is_window = |order: &PageOrder| matches!(order.pages, Pages::Window { .. });
    let most = match orders.iter().any(is_window) {
        true => 1,
        false => most,
    };
    let mut lane_of: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    for (at, order) in orders.iter().enumerate() {
        let next = lane_of.len() % most;
        let lane = *lane_of.entry(order.to).or_insert(next);
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push(at);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;
    use numaherd_world::{MemoryKind, Part, ProcessId, ThreadId};

    fn order(pages: Pages, to: u32) -> PageOrder {
        PageOrder {
            process: ProcessId { pid: 9, born: 90 },
            thread: ThreadId { tid: 9, born: 90 },
            pages,
            to: NodeId(to),
            rule: "test".into(),
            why: String::new(),
        }
    }

    fn all(to: u32) -> PageOrder {
        order(Pages::All, to)
    }

    #[test]
    fn a_node_has_one_mover_and_windows_have_one_for_all() {
        let orders = [all(1), all(2), all(1), all(3), all(0), all(5)];
        let to_five = [vec![0, 2], vec![1], vec![3], vec![4], vec![5]];
        assert_eq!(lanes(&orders, 5), to_five);
        assert_eq!(lanes(&orders, 2), [vec![0, 2, 3, 5], vec![1, 4]]);
        assert_eq!(lanes(&orders, 1), [(0..6).collect::<Vec<_>>()]);
        let window = order(Pages::Window { first: 1, count: 1 }, 3);
        assert_eq!(lanes(&[all(1), window, all(2)], 4), [vec![0, 1, 2]]);
        assert_eq!(lanes(&[], 4), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn parts_go_to_their_nodes_at_once_and_each_order_has_its_outcome() {
        const FIRST: u64 = 0x10_0000;
        let kernel = FakeKernel::default();
        kernel.thread(9, 90, "0".parse().unwrap());
        kernel.pages(FIRST, 4096, 0);
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/9");
        std::fs::create_dir_all(&folder).unwrap();
        let (start, end) = (FIRST * 4096, (FIRST + 4096) * 4096);
        let maps = format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        std::fs::write(folder.join("maps"), maps).unwrap();
        let numa_maps = format!("{start:x} default anon=4096 N0=4096 kernelpagesize_kB=4\n");
        std::fs::write(folder.join("numa_maps"), numa_maps).unwrap();
        let kind = MemoryKind::Private;
        // Of eight blocks one to node 1, two to node 2, and five to node 0, where they are.
        let parts = Part::dealt(&[5, 1, 2]);
        let orders: Vec<PageOrder> = (0..)
            .zip(parts)
            .map(|(to, part)| order(Pages::OfKind { kind, part }, to))
            .collect();
        let mut movers = Movers::new(&Root::new(root.path()), PageOptions::default(), 4096);
        let outcomes = movers.carry_out(&kernel, &orders, &Stop::new().unwrap());
        let moved: Vec<(NodeId, u64)> = outcomes.iter().map(|of| (of.to, of.moved)).collect();
        assert_eq!(moved, [(NodeId(0), 0), (NodeId(1), 512), (NodeId(2), 1024)]);
        assert_eq!((kernel.pages_on(1), kernel.pages_on(2)), (512, 1024));
    }
}
