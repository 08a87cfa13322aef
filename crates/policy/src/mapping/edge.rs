//! Grouping from the edges of a pattern inwards: the refined mapper's other way to group a level.
//!
//! Problem: EagerMap begins each group with the lowest free element, wherever that is in the pattern
//! (see [`super::refine`]). Rule (ours): a group begins with the free element that communicates least with the free ones,
//! but not nothing: the end of a chain, the corner of a grid. It grows as EagerMap's do; ties go to the element that
//! communicates less with the free ones, then to the lowest. Where nothing is left that communicates with the group, it
//! begins again at an edge.
//!
//! Only *strong* ties count here: cells with at most four binary digits less than the largest of their
//! row (with a power of two as bound, whole stretches of a row can be skipped at once). Where more than an eighth of the
//! cells are strong, the pattern has no edges to speak of, and there is no such grouping. Cost: the matrix is read once, up
//! to where that is clear; the rest depends on the number of strong ties.

use std::cmp::Reverse;

use super::grouping::{FewCells, Share, Square, few_cells};

/// How many binary digits a strong tie may have less than the largest of its row.
const STRONG_BITS: u32 = 4;

/// The strong ties of each element; `None` where they are not few.
fn strong_ties(communication: Square<'_>, few: Option<&FewCells>) -> Option<FewCells> {
    fn least(element: usize, row: impl Iterator<Item = (usize, u64)>) -> u64 {
        let others = row.filter(|&(other, _)| other != element);
        let largest = others.map(|(_, count)| count).max().unwrap_or(0);
        (((largest >> STRONG_BITS) + 1).next_power_of_two() / 2).max(1)
    }
    match few {
        Some(few) => few_cells(few.iter().map(|row| row.iter().copied()), least),
        None => few_cells(communication.rows(), least),
    }
}

/// Groups elements of these `shapes` as `shares` says (see above); `None` when the pattern has no
/// edges. `few` are the cells that are not 0, where they are few.
pub(super) fn grow_from_edges(
    communication: Square<'_>,
    shapes: &[usize],
    shares: &[Share],
    few: Option<&FewCells>,
) -> Option<Vec<Vec<usize>>> {
    let ties = strong_ties(communication, few)?;
    let elements = communication.side;
    let mut is_free = vec![true; elements];
    let sum = |ties: &Vec<(usize, u64)>| ties.iter().map(|&(_, count)| count).sum();
    let mut with_free: Vec<u64> = ties.iter().map(sum).collect();
    let mut edges: Vec<u64> = with_free.iter().map(|&with| edge(with)).collect();
    let mut with_group = vec![0; elements];
    let mut groups = Vec::with_capacity(shares.len());
    for share in shares {
        let mut wanted = share.of_shape.clone();
        let mut left: usize = wanted.iter().sum();
        let mut members = Vec::with_capacity(left);
        // The free elements that communicate with the group.
        let mut near: Vec<usize> = Vec::new();
        while left > 0 {
            let fits = |&element: &usize| wanted[shapes[element]] > 0;
            let closest = (0..near.len())
                .filter(|&at| fits(&near[at]))
                .max_by_key(|&at| {
                    let element = near[at];
                    let least_free = Reverse((with_free[element], element));
                    (with_group[element], least_free)
                })
                .map(|at| near.swap_remove(at));
            let at_edge = || {
                if wanted.len() == 1 {
                    let least = edges.iter().copied().min().filter(|&edge| edge < TAKEN)?;
                    return edges.iter().position(|&edge| edge == least);
                }
                let free = (0..elements).filter(|&e| is_free[e]).filter(fits);
                free.min_by_key(|&e| edges[e])
            };
            let member = closest.or_else(at_edge)?;
            is_free[member] = false;
            edges[member] = TAKEN;
            with_group[member] = 0;
            wanted[shapes[member]] -= 1;
            left -= 1;
            members.push(member);
            for &(other, count) in &ties[member] {
                if !is_free[other] {
                    continue;
                }
                if with_group[other] == 0 {
                    near.push(other);
                }
                with_group[other] += count;
            }
        }
        near.into_iter().for_each(|element| with_group[element] = 0);
        for &member in &members {
            for &(other, count) in &ties[member] {
                // A tie may be strong for one of the two only.
                with_free[other] = with_free[other].saturating_sub(count);
                if is_free[other] {
                    edges[other] = edge(with_free[other]);
                }
            }
        }
        groups.push(members);
    }
    Some(groups)
}

/// The figure of an element that is no longer free, above all others.
const TAKEN: u64 = u64::MAX;

/// How near an element is to an edge, the nearest lowest: how much it communicates with the free ones. An element that does
/// not communicate with them comes last.
fn edge(with_free: u64) -> u64 {
    match with_free {
        0 => TAKEN - 1,
        _ => with_free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Communication;
    use crate::mapping::patterns::{all_to_all, band, shifted};

    fn groups(of: &Communication, size: usize) -> Option<Vec<Vec<usize>>> {
        let cells = of.cells();
        let threads = of.threads();
        let square = Square {
            side: threads,
            cells: &cells,
        };
        let share = |vertex| Share {
            vertex,
            of_shape: vec![size],
        };
        let shares: Vec<Share> = (0..threads / size).map(share).collect();
        grow_from_edges(square, &vec![0; threads], &shares, None)
    }

    #[test]
    fn a_chain_is_cut_up_from_an_end() {
        let groups = groups(&shifted(&band(12, 1), 10), 4);
        // Thread 10 is the chain's first, thread 9 its last; both ends are edges.
        let expected = [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0, 11, 10]];
        assert_eq!(groups, Some(expected.map(Vec::from).to_vec()));
    }

    #[test]
    fn all_to_all_has_no_edges() {
        assert_eq!(groups(&all_to_all(64), 4), None);
    }
}
