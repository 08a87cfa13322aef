//! What holds of all mappers, on known patterns and on random ones.

use std::collections::BTreeMap;

use numaherd_topology::CpuId;
use proptest::prelude::*;

use super::patterns::{all_to_all, band, butterfly, grid, pipelines, scattered, shifted};
use super::{Communication, Tree, eager_map, exact_map, quality, refined_map};
use numaherd_testing::{Scene, Shape};

const BRANCHES: u64 = 3_000_000;

fn even(arities: &[usize]) -> Tree {
    Tree::even(arities).expect("there are CPUs")
}

fn tree_of(shape: &Shape) -> Option<Tree> {
    let topology = Scene::new(shape).topology;
    Tree::new(&topology, &topology.online_cpus())
}

/// Qualities by EagerMap and refined.
fn qualities(of: &Communication, tree: &Tree) -> (u128, u128) {
    let quality = |mapping: &[CpuId]| quality(of, tree, mapping).expect("a mapping to the tree");
    (
        quality(&eager_map(of, tree)),
        quality(&refined_map(of, tree)),
    )
}

fn best(of: &Communication, tree: &Tree) -> u128 {
    let mapping = exact_map(of, tree, BRANCHES).expect("few threads");
    quality(of, tree, &mapping).expect("a mapping to the tree")
}

fn load(mapping: &[CpuId]) -> BTreeMap<CpuId, usize> {
    let mut load = BTreeMap::new();
    for &cpu in mapping {
        *load.entry(cpu).or_insert(0) += 1;
    }
    load
}

#[test]
fn neighbours_in_their_order_are_mapped_in_their_order() {
    let tree = even(&[2, 2, 4]);
    for reach in [1, 3] {
        let of = band(16, reach);
        let in_order: Vec<CpuId> = (0..16).map(CpuId).collect();
        let expected = quality(&of, &tree, &in_order).expect("a mapping");
        assert_eq!(qualities(&of, &tree), (expected, expected));
    }
    // Three cuts of 100, one of them higher up: 15 pairs one hop apart, and 3 + 1 hops more.
    assert_eq!(qualities(&band(16, 1), &tree).0, 100 * (15 + 3 + 1));
}

#[test]
fn a_shifted_chain_is_split_badly_by_eager_map_and_not_by_refined() {
    let tree = even(&[4, 4]);
    let of = shifted(&band(16, 1), 14);
    // EagerMap leaves both ends of the chain to the last group: four cuts where three would do.
    assert_eq!(qualities(&of, &tree), (100 * (15 + 4), 100 * (15 + 3)));
    let tree = even(&[2, 4, 4, 2]);
    for by in 1..64 {
        let (eager, refined) = qualities(&shifted(&band(64, 1), by), &tree);
        let (_, unshifted) = qualities(&band(64, 1), &tree);
        assert!(refined <= eager);
        assert_eq!(refined, unshifted, "shifted by {by}");
    }
}

#[test]
fn where_all_mappings_are_alike_nothing_is_gained() {
    let (eager, refined) = qualities(&all_to_all(16), &even(&[2, 2, 4]));
    assert_eq!(eager, refined);
    // Each thread: 3 at one hop, 4 at two, 8 at three.
    assert_eq!(eager, 100 * 16 * (3 + 4 * 2 + 8 * 3) / 2);
}

#[test]
fn pipelines_stay_together_however_they_are_numbered() {
    let tree = even(&[4, 4]);
    for stride in [1, 3, 5, 7] {
        let (eager, refined) = qualities(&scattered(&pipelines(16, 4), stride), &tree);
        assert_eq!((eager, refined), (100 * 12, 100 * 12), "stride {stride}");
    }
}

#[test]
fn a_butterfly_is_cut_along_its_bits() {
    let tree = even(&[2, 2, 2, 2]);
    // 8 pairs for each of four bits, each bit a hop farther.
    assert_eq!(
        best(&butterfly(8), &even(&[2, 2, 2])),
        100 * 4 * (1 + 2 + 3)
    );
    assert_eq!(
        qualities(&butterfly(16), &tree).1,
        100 * 8 * (1 + 2 + 3 + 4)
    );
}

#[test]
fn refined_beats_eager_map_on_a_scattered_grid() {
    let tree = even(&[4, 16]);
    let (eager, refined) = qualities(&scattered(&grid(64, 8), 27), &tree);
    assert!(refined < eager, "{refined} is not below {eager}");
}

#[test]
fn on_an_uneven_machine_groups_go_where_they_fit() {
    // Nodes of 2, 4 and 2 cores; teams of 4, 2 and 2 threads.
    let tree = tree_of(&Shape {
        nodes: vec![vec![2], vec![4], vec![], vec![3]],
        siblings: 1,
        offline: vec![8],
    });
    let tree = tree.expect("eight CPUs");
    let team = |thread: usize| [0, 0, 0, 0, 1, 1, 2, 2][thread];
    let of = Communication::of(8, |a, b| if a < b && team(a) == team(b) { 100 } else { 0 });
    assert_eq!(best(&of, &tree), 100 * 8);
    // The node of four cores is filled first, though it is not the first node.
    assert_eq!(qualities(&of, &tree), (100 * 8, 100 * 8));
}

fn communications(threads: impl Strategy<Value = usize>) -> impl Strategy<Value = Communication> {
    threads.prop_flat_map(|threads| {
        let count = prop_oneof![2 => Just(0u64), 1 => 0..10u64, 1 => 0..1000u64];
        proptest::collection::vec(count, threads * threads).prop_map(move |counts| {
            Communication::of(
                threads,
                |a, b| if a < b { counts[a * threads + b] } else { 0 },
            )
        })
    })
}

fn trees() -> impl Strategy<Value = Tree> {
    let node = proptest::collection::vec(0..4u32, 0..3);
    let nodes = proptest::collection::vec(node, 1..4);
    let offline = proptest::collection::vec(0..12u32, 0..4);
    (nodes, 1..3u32, offline).prop_filter_map("no CPU online", |(nodes, siblings, offline)| {
        let mut nodes: Vec<Vec<u32>> = nodes;
        nodes
            .iter_mut()
            .for_each(|node| node.retain(|&cores| cores > 0));
        let cpus = nodes.iter().flatten().sum::<u32>() * siblings;
        if (0..cpus).all(|cpu| offline.contains(&cpu)) {
            return None;
        }
        tree_of(&Shape {
            nodes,
            siblings,
            offline,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exact_is_at_most_refined_and_refined_at_most_eager(
        of in communications(0..8usize),
        tree in trees(),
    ) {
        let (eager, refined) = qualities(&of, &tree);
        prop_assert!(refined <= eager);
        let same_seats = load(&eager_map(&of, &tree)) == load(&refined_map(&of, &tree));
        let best = best(&of, &tree);
        prop_assert!(best <= eager);
        prop_assert!(best <= refined || !same_seats);
    }

    #[test]
    fn exact_is_the_best_of_all_ways_to_seat(of in communications(2..6usize), tree in trees()) {
        let mut seats = eager_map(&of, &tree);
        let mut least = u128::MAX;
        permute(&mut seats, 0, &mut |mapping| {
            least = least.min(quality(&of, &tree, mapping).expect("a mapping"));
        });
        prop_assert_eq!(best(&of, &tree), least);
    }

    #[test]
    fn every_thread_has_a_cpu_of_the_tree_and_loads_are_even(
        of in communications(0..40usize),
        tree in trees(),
    ) {
        for mapping in [eager_map(&of, &tree), refined_map(&of, &tree)] {
            prop_assert_eq!(mapping.len(), of.threads());
            prop_assert!(mapping.iter().all(|cpu| tree.cpus().contains(cpu)));
            let load = load(&mapping);
            let of_cpu = |cpu: &CpuId| load.get(cpu).copied().unwrap_or(0);
            let loads = tree.cpus().iter().map(of_cpu);
            let most = loads.clone().max().unwrap_or(0);
            prop_assert!(most - loads.min().unwrap_or(0) <= 1);
        }
    }

    #[test]
    fn fewer_threads_than_cpus_spread_evenly_over_the_nodes(of in communications(0..13usize)) {
        let tree = even(&[3, 4]);
        for mapping in [eager_map(&of, &tree), refined_map(&of, &tree)] {
            let on = |node: u32| mapping.iter().filter(|cpu| cpu.0 / 4 == node).count();
            let nodes = [on(0), on(1), on(2)];
            prop_assert!(nodes.iter().max() <= nodes.iter().min().map(|least| least + 1).as_ref());
        }
    }

    #[test]
    fn refined_is_at_most_eager_on_larger_machines(of in communications(20..70usize)) {
        for tree in [even(&[2, 2, 4, 2]), even(&[4, 16]), even(&[3, 3, 3])] {
            let (eager, refined) = qualities(&of, &tree);
            prop_assert!(refined <= eager);
        }
    }

    #[test]
    fn equal_input_gives_equal_output(of in communications(0..20usize), tree in trees()) {
        let again = Communication::of(of.threads(), |a, b| if a < b { of.between(a, b) } else { 0 });
        prop_assert_eq!(&again, &of);
        prop_assert_eq!(eager_map(&of, &tree), eager_map(&again, &tree));
        prop_assert_eq!(refined_map(&of, &tree), refined_map(&again, &tree));
    }
}

fn permute(seats: &mut Vec<CpuId>, from: usize, visit: &mut impl FnMut(&[CpuId])) {
    if from == seats.len() {
        return visit(seats);
    }
    for at in from..seats.len() {
        seats.swap(from, at);
        permute(seats, from + 1, visit);
        seats.swap(from, at);
    }
}
