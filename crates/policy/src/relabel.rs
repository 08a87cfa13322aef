//! Which group of threads gets which place, so that most threads stay where they are.
//!
//! Problem: placements decide in groups (the hand of a CPU, the threads of a core, those under a vertex of
//! the machine's tree), and groups of one kind can change places at no cost. Dealt blindly, threads would
//! move for nothing.
//!
//! Rule (ours), greedy: the pair of a group and a place that has most threads there already comes first,
//! ties in the order of pairs. The caller gives the group the place if both are still free.

use std::cmp::Reverse;

/// Calls `give` with each pair of a group and a place, those with most threads first. `staying` has a pair
/// for each thread that would stay.
pub fn most_staying_first<Pair: Ord + Copy>(mut staying: Vec<Pair>, give: impl FnMut(Pair)) {
    staying.sort_unstable();
    let same = staying.chunk_by(|a, b| a == b);
    let mut pairs: Vec<_> = same.map(|same| (Reverse(same.len()), same[0])).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, pair)| pair).for_each(give);
}
