//! The mapping with knowledge of the whole program: threads by all their communication, then each page to
//! the node that accesses it most.
//!
//! Problem: policies are judged by what is possible at all. IPM's oracle (§5.2, §5.3) knows every access
//! beforehand, and maps threads and pages once.
//!
//! Rule: threads are mapped by the exact mapper if there are few, else by the refined one. Then each page
//! goes to the node with the most accesses to it, the lowest of several; nodes without memory get no
//! pages. The second step is the best for pages one by one (accesses across nodes are fewest); the first
//! is by communication alone, so both together need not be the best of all.
//!
//! Properties: no other node has more accesses to a page than the one it goes to, of those with memory.

use numaherd_topology::{CpuId, Node, NodeId, Topology};

use super::{Communication, Tree, exact_map, refined_map};

/// So many threads are mapped exactly, if that ends in time.
const FEW_THREADS: usize = 12;
/// Branches that the exact mapper may take.
const MOST_BRANCHES: u64 = 200_000;

/// See the top of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// The CPU of each thread.
    pub cpus: Vec<CpuId>,
    /// The node of each page; `None` for one that no thread accesses.
    pub pages: Vec<Option<NodeId>>,
}

/// Maps threads and pages by all there is to know. Each page lists how often which thread accesses it; a
/// thread may be listed several times.
///
/// # Panics
/// When a page lists a thread that the matrix does not have.
pub fn best<Page: AsRef<[(usize, u64)]>>(
    communication: &Communication,
    tree: &Tree,
    topology: &Topology,
    pages: impl IntoIterator<Item = Page>,
) -> Best {
    let cpus = best_cpus(communication, tree);
    let node = |page: Page| best_node(page.as_ref(), &cpus, topology);
    let pages = pages.into_iter().map(node).collect();
    Best { cpus, pages }
}

/// The CPU of each thread: exactly where there are few, else by the refined mapper.
pub fn best_cpus(communication: &Communication, tree: &Tree) -> Vec<CpuId> {
    let exact = (communication.threads() <= FEW_THREADS)
        .then(|| exact_map(communication, tree, MOST_BRANCHES))
        .flatten();
    exact.unwrap_or_else(|| refined_map(communication, tree))
}

/// The node with the most accesses to a page, by threads that run on these CPUs; `None` without any.
///
/// # Panics
/// When a thread without a CPU is listed.
pub fn best_node(accesses: &[(usize, u64)], cpus: &[CpuId], topology: &Topology) -> Option<NodeId> {
    let mut by_node: Vec<(NodeId, u64)> = Vec::new();
    for &(thread, count) in accesses {
        let Some(node) = topology.node_of(cpus[thread]) else {
            continue;
        };
        match by_node.iter_mut().find(|(known, _)| *known == node) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => by_node.push((node, count)),
        }
    }
    let has_memory = |&(node, count): &(NodeId, u64)| {
        count > 0 && topology.node(node).is_some_and(Node::has_memory)
    };
    let with_memory = by_node.into_iter().filter(has_memory);
    let most = with_memory.max_by_key(|&(node, count)| (count, std::cmp::Reverse(node)));
    most.map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{eager_map, quality};
    use numaherd_testing::{Scene, Shape};
    use proptest::prelude::*;

    fn machine(nodes: usize, cores: u32) -> (Topology, Tree) {
        let topology = Scene::new(&Shape::uniform(nodes, cores)).topology;
        let all = topology.cpus().iter().map(|cpu| cpu.id).collect();
        let tree = Tree::new(&topology, &all).expect("there are CPUs");
        (topology, tree)
    }

    #[test]
    fn pages_follow_the_threads_that_use_them_most() {
        let (topology, tree) = machine(2, 2);
        let of = Communication::of(4, |row, column| u64::from(row + column == 3));
        // Threads 0 and 3 together, 1 and 2 together.
        let pages: [&[(usize, u64)]; 5] = [
            &[(0, 5), (1, 4)],
            &[(0, 5), (1, 3), (2, 3)],
            &[(1, 2), (0, 1), (3, 1)],
            &[],
            &[(2, 0)],
        ];
        let best = best(&of, &tree, &topology, pages);
        let node = |thread: usize| topology.node_of(best.cpus[thread]);
        assert_eq!((node(0), node(1)), (node(3), node(2)));
        assert_ne!(node(0), node(1));
        let tie = Some(NodeId(0));
        assert_eq!(best.pages, [node(0), node(1), tie, None, None]);
    }

    #[test]
    fn a_node_without_memory_gets_no_page() {
        let (topology, _) = machine(2, 1);
        let cpus = [CpuId(0), CpuId(1)];
        assert_eq!(
            best_node(&[(0, 1), (1, 9)], &cpus, &topology),
            Some(NodeId(1))
        );
        let mut written = toml::Value::try_from(&topology).unwrap();
        written["nodes"][1]["memory_bytes"] = 0.into();
        let bare: Topology = written.try_into().unwrap();
        assert_eq!(best_node(&[(0, 1), (1, 9)], &cpus, &bare), Some(NodeId(0)));
        assert_eq!(best_node(&[(1, 9)], &cpus, &bare), None);
    }

    proptest! {
        /// Threads are mapped no worse than by EagerMap, and no page has more accesses from elsewhere.
        #[test]
        fn none_is_better(
            threads in 1usize..20,
            counts in prop::collection::vec(0u64..50, 400),
            accesses in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), 0u64..9), 0..8), 0..10),
        ) {
            let (topology, tree) = machine(4, 3);
            let of = Communication::of(threads, |row, column| counts[row * 20 + column]);
            let pages: Vec<Vec<(usize, u64)>> = accesses
                .iter()
                .map(|page| page.iter().map(|(thread, n)| (thread.index(threads), *n)).collect())
                .collect();
            let best = best(&of, &tree, &topology, &pages);
            prop_assert!(quality(&of, &tree, &best.cpus) <= quality(&of, &tree, &eager_map(&of, &tree)));
            for (page, chosen) in pages.iter().zip(&best.pages) {
                let of_node = |node: NodeId| -> u64 {
                    let on = |&&(thread, _): &&(usize, u64)| topology.node_of(best.cpus[thread]) == Some(node);
                    page.iter().filter(on).map(|&(_, n)| n).sum()
                };
                let most = topology.nodes().iter().map(|node| of_node(node.id)).max();
                prop_assert_eq!(chosen.map_or(0, of_node), most.unwrap_or(0));
            }
        }
    }
}
