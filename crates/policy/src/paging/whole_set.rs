//! Whole set: when a process moves to another node, all of its pages follow.
//!
//! Problem: after a thread has moved, its memory is remote. DINO §4 first discusses migrating the whole
//! resident set with the thread. This is simple, but undefined if the threads of a process are on several
//! nodes, because no page belongs to one thread. DINO §5.2 found it good for single-threaded programs with
//! small sets and bad for others; it is here for comparison.
//!
//! Rule: if a placed thread was moved to another node in this interval, and all placed threads of its process
//! are now on that node, all resident pages of the process are ordered there. A process is left alone if its
//! placed threads are on several nodes, if none of them moved, or if it may not have memory on that node.
//!
//! Terms: a thread is *placed* when its placement has given it a core; the *resident set* is all pages
//! that a process has in memory. Source: DINO §4, §5.2; one node per process is chosen here.
//!
//! Properties: at most one order per process and interval; none if no thread changed its node.

use std::borrow::Cow;
use std::collections::BTreeMap;

use numaherd_world::{PageOrder, Pages, ProcessId, Snapshot};

use crate::policy::{Paging, PlacedThread};
use crate::rules::Rule;

/// The rules that orders name.
pub const RULES: &[Rule] = &[FOLLOW];
const FOLLOW: Rule = Rule {
    name: "whole-set: follow the process",
    source: "DINO 4 (entire resident set); one node per process is chosen here",
    what: "All placed threads of a process are on one node since this interval: all its pages \
           are ordered there.",
};

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeSet;

impl Paging for WholeSet {
    fn placed(&mut self, threads: &[PlacedThread], snapshot: &Snapshot) -> Vec<PageOrder> {
        let mut processes: BTreeMap<ProcessId, Vec<&PlacedThread>> = BTreeMap::new();
        for thread in threads {
            processes.entry(thread.process).or_default().push(thread);
        }
        let order = |(&process, threads): (&ProcessId, &Vec<&PlacedThread>)| {
            let moved = threads
                .iter()
                .find(|thread| thread.moved_from.is_some_and(|from| from != thread.node))?;
            let together = threads.iter().all(|thread| thread.node == moved.node);
            let known = snapshot.process(process);
            let allowed = known.is_none_or(|known| known.allowed_nodes.contains(moved.node));
            let from = moved.moved_from?;
            (together && allowed).then(|| PageOrder {
                process,
                thread: moved.thread,
                pages: Pages::All,
                to: moved.node,
                rule: Cow::Borrowed(FOLLOW.name),
                why: format!(
                    "{} moved from node {from} to node {}, where all {} placed threads of {process} \
                     are now",
                    moved.thread,
                    moved.node,
                    threads.len()
                ),
            })
        };
        processes.iter().filter_map(order).collect()
    }

    fn listens(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::Scene;
    use numaherd_topology::NodeId;

    fn placed(tid: u32, process: u32, node: u32, moved_from: Option<u32>) -> PlacedThread {
        PlacedThread {
            thread: numaherd_testing::tid(tid),
            process: Scene::process(process),
            node: NodeId(node),
            moved_from: moved_from.map(NodeId),
        }
    }

    fn orders(threads: &[PlacedThread]) -> Vec<(u32, u32)> {
        let snapshot = Scene::uniform(2, 2).snapshot;
        WholeSet
            .placed(threads, &snapshot)
            .iter()
            .map(|order| {
                assert_eq!(order.pages, Pages::All);
                (order.process.pid, order.to.0)
            })
            .collect()
    }

    #[test]
    fn a_process_that_moved_takes_its_pages_along() {
        let threads = [placed(1, 7, 1, Some(0)), placed(2, 8, 0, None)];
        assert_eq!(orders(&threads), [(7, 1)]);
    }

    #[test]
    fn threads_on_two_nodes_leave_the_pages_where_they_are() {
        let threads = [placed(1, 7, 1, Some(0)), placed(2, 7, 0, None)];
        assert_eq!(orders(&threads), []);
    }

    #[test]
    fn the_last_thread_to_come_brings_the_pages_once() {
        let threads = [
            placed(1, 7, 1, None),
            placed(2, 7, 1, Some(0)),
            placed(3, 7, 1, Some(0)),
        ];
        assert_eq!(orders(&threads), [(7, 1)]);
    }

    #[test]
    fn a_move_within_a_node_moves_no_pages() {
        assert_eq!(orders(&[placed(1, 7, 1, Some(1))]), []);
    }
}
