//! Of all mappings that are as good as a given one, one that moves few threads.
//!
//! Problem: vertices of a tree that are alike can change names at no cost, and a mapper knows nothing of
//! where threads are: the same grouping of threads can come out with every group on another node, and
//! all of them, and all of their memory, would move for nothing.
//!
//! Rule (ours): from the root down, the groups under a vertex's children are dealt to the children of
//! the same shape anew, the pair of group and child first that has most threads there now. If that
//! greedy deal keeps no more threads where they are than the given mapping, the given one stays.
//!
//! Properties: the quality is the mapping's, and CPUs of a shape are loaded alike; never more threads
//! move than by the given mapping; a mapping that leaves threads where they are now comes out unchanged.

use numaherd_topology::CpuId;

use super::Tree;
use crate::relabel::most_staying_first;

/// The mapping, with vertices that are alike renamed so that few threads leave the CPUs that they are
/// on `now`, in the order of the mapping.
pub fn with_few_moves(tree: &Tree, mapping: &[CpuId], now: &[CpuId]) -> Vec<CpuId> {
    let leaves = |(&mapped, &now): (&CpuId, &CpuId)| Some((tree.leaf(mapped)?, tree.leaf(now)?));
    let pairs: Vec<_> = mapping.iter().zip(now).filter_map(leaves).collect();
    let mut renamed: Vec<usize> = (0..tree.cpus().len()).collect();
    deal(tree, tree.height(), (0, 0), &pairs, &mut renamed);
    let anew: Vec<CpuId> = mapping
        .iter()
        .map(|&cpu| {
            tree.leaf(cpu)
                .map_or(cpu, |leaf| tree.cpus()[renamed[leaf]])
        })
        .collect();
    let staying = |mapping: &[CpuId]| mapping.iter().zip(now).filter(|(a, b)| a == b).count();
    if staying(&anew) > staying(mapping) {
        anew
    } else {
        mapping.to_vec()
    }
}

/// Puts what is under one vertex under another of its shape. `pairs`: where each thread is mapped under
/// the first, and where it is now under the second.
fn deal(
    tree: &Tree,
    height: usize,
    (from, to): (usize, usize),
    pairs: &[(usize, usize)],
    renamed: &mut [usize],
) {
    if height == 0 {
        renamed[from] = to;
        return;
    }
    let below = height - 1;
    let mut free: Vec<usize> = tree.children(height, to).collect();
    let mut left: Vec<usize> = tree.children(height, from).collect();
    let staying = pairs
        .iter()
        .map(|&(mapped, now)| (tree.above(below, mapped), tree.above(below, now)))
        .filter(|&(group, child)| tree.shape(below, group) == tree.shape(below, child));
    let mut dealt = Vec::with_capacity(left.len());
    most_staying_first(staying.collect(), |(group, child)| {
        if left.contains(&group) && free.contains(&child) {
            left.retain(|&other| other != group);
            free.retain(|&other| other != child);
            dealt.push((group, child));
        }
    });
    for group in left {
        let like = |&child: &usize| tree.shape(below, child) == tree.shape(below, group);
        let at = free.iter().position(like);
        let child = at.map_or(group, |at| free.remove(at));
        dealt.push((group, child));
    }
    for (group, child) in dealt {
        let within = |&&(mapped, now): &&(usize, usize)| {
            (tree.above(below, mapped), tree.above(below, now)) == (group, child)
        };
        let pairs: Vec<_> = pairs.iter().filter(within).copied().collect();
        deal(tree, below, (group, child), &pairs, renamed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Communication, eager_map, quality};
    use numaherd_testing::{Scene, Shape};
    use proptest::prelude::*;

    fn cpus(list: &[u32]) -> Vec<CpuId> {
        list.iter().copied().map(CpuId).collect()
    }

    #[test]
    fn nodes_and_cores_that_are_alike_change_names() {
        let tree = Tree::even(&[2, 2, 2]).expect("eight CPUs");
        // The pairs (0 1) and (2 3) are on node 1, (4 5) and (6 7) on node 0; siblings swapped.
        let now = cpus(&[7, 6, 4, 5, 1, 0, 2, 3]);
        let mapping = cpus(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(with_few_moves(&tree, &mapping, &now), now);
    }

    #[test]
    fn a_greedy_deal_that_moves_more_is_not_taken() {
        let tree = Tree::even(&[2, 11]).expect("22 CPUs");
        // Of the first group 5 are on node 0 and 6 on node 1, of the second 5 on node 1: greedily the
        // first goes to node 1, where 6 stay, and the second to node 0, where none does.
        let mapping = cpus(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let now = cpus(&[0, 1, 2, 3, 4, 16, 17, 18, 19, 20, 21, 11, 12, 13, 14, 15]);
        assert_eq!(with_few_moves(&tree, &mapping, &now), mapping);
    }

    proptest! {
        #[test]
        fn as_good_and_no_more_moves(
            nodes in prop::collection::vec(prop::collection::vec(1u32..4, 1..3), 1..4),
            counts in prop::collection::vec(0u64..20, 144),
            now in prop::collection::vec(any::<prop::sample::Index>(), 12),
            threads in 1usize..12,
        ) {
            let shape = Shape { nodes, siblings: 2, offline: vec![] };
            let topology = Scene::new(&shape).topology;
            let all = topology.cpus().iter().map(|cpu| cpu.id).collect();
            let tree = Tree::new(&topology, &all).expect("there are CPUs");
            let of = Communication::of(threads, |row, column| counts[row * 12 + column]);
            let mapping = eager_map(&of, &tree);
            let now: Vec<CpuId> = now.iter().take(threads).map(|at| tree.cpus()[at.index(tree.cpus().len())]).collect();
            let renamed = with_few_moves(&tree, &mapping, &now);
            prop_assert_eq!(quality(&of, &tree, &renamed), quality(&of, &tree, &mapping));
            let moves = |to: &[CpuId]| to.iter().zip(&now).filter(|(to, now)| to != now).count();
            prop_assert!(moves(&renamed) <= moves(&mapping));
            // As it is, so it stays; and it is a renaming: who shared a CPU still does.
            prop_assert_eq!(&with_few_moves(&tree, &mapping, &mapping), &mapping);
            for one in 0..threads {
                for other in 0..threads {
                    prop_assert_eq!(renamed[one] == renamed[other], mapping[one] == mapping[other]);
                }
            }
        }
    }
}
