//! A mapper that is never worse than EagerMap: two ways to begin, then swaps across groups.
//!
//! Problem: EagerMap begins each group with the lowest free thread, wherever that is in the pattern.
//! A chain of threads that is numbered from somewhere in its middle is cut up from there, and the
//! last group is left with both ends, which have nothing to do with each other. Nothing put together
//! badly is ever taken apart again.
//!
//! Rule (ours), where EagerMap ([`super::eager`]) leaves off:
//! 1. Level by level from the bottom, group anew from the edges of the pattern inwards
//!    ([`super::edge`]), and keep that if it lowers the quality of the whole mapping. Swaps alone do
//!    not do this: to shift a chain by one, every group must hand one thread on, and until the last
//!    has, nothing is gained. This is left out if all groups of a size are equally good (one left with
//!    the rest would be worse), or if the new groups do not hold more communication.
//! 2. Level by level from the bottom, swap two elements of one shape across groups while that
//!    lowers the quality of the whole mapping, not only that of the level. For each element, the group
//!    in which it would gain most is found. Elements are tried in the order of that gain, each against
//!    all members of that group, and the best swap is made. Passes go on until one makes no swap.
//!    Swapping groups moves everything under them, so levels below keep what they have.
//!
//! Bounded: at each level, swaps and passes end once they have touched a quarter as many cells as the
//! level's matrix has, and a thousand more, so that a dozen threads can be swapped at all.
//!
//! Properties: quality is never above EagerMap's (by counts halved as [`Communication`] says, if they
//! are astronomic); CPUs are loaded as by one of the two groupings, so all that is said there holds;
//! equal input gives equal output.

use std::borrow::Cow;
use std::collections::BTreeMap;

use numaherd_topology::CpuId;

use super::eager::{Grouped, Stage, group, shares_of_level};
use super::edge::grow_from_edges;
use super::grouping::{FewCells, Groups, add, collapse, few_cells, sum_rows, within_groups};
use super::{Communication, Tree};

/// A scattered cell takes the time of about so many in a row.
const SCATTERED: usize = 8;
/// So many cells may be touched however small the matrix is.
const ALWAYS: usize = 1024;

/// Maps every thread of the matrix to a CPU of the tree. See the top of this file.
pub fn refined_map(communication: &Communication, tree: &Tree) -> Vec<CpuId> {
    let mut grouped = group(communication, tree);
    // The cells of the threads' matrix, the lowest, that are not 0, where they are few.
    let lowest = grouped.stages.first();
    let few = lowest.and_then(|stage| few_cells(stage.square().rows(), |_, _| 1));
    let few = few.as_ref();
    for stage in 0..grouped.stages.len() {
        let few = few.filter(|_| stage == 0);
        if let Some(groups) = from_edges(&grouped.stages[stage], tree, few) {
            grouped.try_anew(stage, groups);
        }
    }
    swap_all(&mut grouped, few);
    grouped.mapping(communication.threads())
}

/// The groups of a stage grown from the edges, if they hold more communication than they do now.
fn from_edges(stage: &Stage<'_>, tree: &Tree, few: Option<&FewCells>) -> Option<Groups> {
    let square = stage.square();
    let now = within_groups(square, &stage.groups);
    // Where some group was left with the rest, groups of a size differ.
    let mut first_of_size = BTreeMap::new();
    let differs = |(group, &within): (&Vec<usize>, &u64)| {
        *first_of_size.entry(group.len()).or_insert(within) != within
    };
    if !stage.groups.members.iter().zip(&now).any(differs) {
        return None;
    }
    let shares = shares_of_level(tree, stage.height, &stage.shapes);
    let members = grow_from_edges(square, &stage.shapes, &shares, few)?;
    let ties = sum_rows(square, few, &members);
    let anew = Groups { members, ties };
    let held = |within: Vec<u64>| within.into_iter().sum::<u64>();
    (held(within_groups(square, &anew)) > held(now)).then_some(anew)
}

fn swap_all(grouped: &mut Grouped<'_>, few: Option<&FewCells>) {
    let places = grouped.places();
    let tree = grouped.tree;
    let mut swapped = false;
    for (at, places) in places.iter().enumerate() {
        let (below, here) = grouped.stages.split_at_mut(at);
        let stage = &mut here[0];
        if let (true, Some(below)) = (swapped, below.last()) {
            let (groups, elements) = (&below.groups, below.elements());
            stage.cells = Cow::Owned(collapse(&groups.members, &groups.ties, elements));
            stage.groups.ties = sum_rows(stage.square(), None, &stage.groups.members);
        }
        forget_own(stage);
        let few = few.filter(|_| at == 0);
        swapped |= Swaps::new(stage, tree, places).make(few);
    }
}

/// Removes what elements communicate within themselves: it does not change with where they are.
fn forget_own(stage: &mut Stage<'_>) {
    let elements = stage.elements();
    for (group, members) in stage.groups.members.iter().enumerate() {
        for &member in members {
            let own = stage.cells[member * elements + member];
            if own > 0 {
                stage.groups.ties[group * elements + member] -= own;
                stage.cells.to_mut()[member * elements + member] = 0;
            }
        }
    }
}

/// The swaps of one level.
struct Swaps<'s, 'a> {
    stage: &'s mut Stage<'a>,
    elements: usize,
    // For each height from above the stage's to below the root: what each element communicates with
    // all that is under each vertex. Rows as in `Groups::ties`, by place in `under`.
    higher: Vec<Vec<u64>>,
    // For each group its row in `higher`, height by height.
    under: Vec<Vec<usize>>,
    group_of: Vec<usize>,
    cells_touched: usize,
}

impl<'s, 'a> Swaps<'s, 'a> {
    fn new(stage: &'s mut Stage<'a>, tree: &Tree, places: &[usize]) -> Self {
        let elements = stage.elements();
        let mut under = vec![Vec::new(); places.len()];
        let mut higher = Vec::new();
        let mut vertices = places.to_vec();
        for height in stage.height..tree.height().saturating_sub(1) {
            let mut rows = vec![0; tree.vertices(height + 1) * elements];
            for (group, vertex) in vertices.iter_mut().enumerate() {
                *vertex = tree.parent(height, *vertex);
                under[group].push(*vertex);
                let ties = &stage.groups.ties[group * elements..][..elements];
                let row = &mut rows[*vertex * elements..][..elements];
                add(row, ties);
            }
            higher.push(rows);
        }
        let mut group_of = vec![0; elements];
        for (group, members) in stage.groups.members.iter().enumerate() {
            members.iter().for_each(|&member| group_of[member] = group);
        }
        Self {
            stage,
            elements,
            higher,
            under,
            group_of,
            cells_touched: 0,
        }
    }

    /// Makes all swaps that gain, within bounds. Returns whether there were any.
    fn make(&mut self, few: Option<&FewCells>) -> bool {
        // Where elements differ in shape, the best group may have none to swap with.
        let few = few.filter(|_| self.stage.kinds == 1);
        let mut any = false;
        while self.stage.groups.members.len() > 1 && self.is_within_bounds() {
            let mut swapped = false;
            for (element, group) in self.wishes(few) {
                if !self.is_within_bounds() {
                    break;
                }
                if let Some(with) = self.best_swap(element, group) {
                    self.swap(element, with, few);
                    swapped = true;
                }
            }
            if !swapped {
                break;
            }
            any = true;
        }
        any
    }

    fn is_within_bounds(&self) -> bool {
        self.cells_touched < ALWAYS + self.elements * self.elements / 4
    }

    /// How many levels farther apart two groups are than two elements of one group.
    fn apart(&self, one: usize, other: usize) -> usize {
        if one == other {
            return 0;
        }
        let differ = |(a, b): &(&usize, &usize)| a != b;
        let (one, other) = (&self.under[one], &self.under[other]);
        1 + one.iter().zip(other).take_while(differ).count()
    }

    /// Rows of what elements communicate with all that is within so many levels of a group.
    fn rows(&self, group: usize, levels: usize) -> impl Iterator<Item = &[u64]> {
        let elements = self.elements;
        let own = &self.stage.groups.ties[group * elements..][..elements];
        let higher = self.higher.iter().zip(&self.under[group]);
        let higher = higher.map(move |(rows, &at)| &rows[at * elements..][..elements]);
        std::iter::once(own).chain(higher).take(levels)
    }

    /// The elements that would be better off in another group, each with the best one, those that would
    /// gain most first. Where few cells are not 0, only groups that an element communicates with are
    /// tried: of groups under the same vertices, such a one always has more.
    fn wishes(&mut self, few: Option<&FewCells>) -> Vec<(usize, usize)> {
        let (elements, levels) = (self.elements, 1 + self.higher.len());
        let sum = |element: usize, group: usize| -> u64 {
            self.rows(group, levels).map(|row| row[element]).sum()
        };
        let mut best = vec![(0, 0); elements];
        let mut of_group = vec![0; elements];
        let mut last_seen = self.group_of.clone();
        let mut sums = elements;
        for (group, members) in self.stage.groups.members.iter().enumerate() {
            if few.is_none() {
                of_group.fill(0);
                self.rows(group, levels)
                    .for_each(|row| add(&mut of_group, row));
            }
            let holds = |shape: usize| members.iter().any(|&m| self.stage.shapes[m] == shape);
            let mut see = |element: usize| {
                let is_new = std::mem::replace(&mut last_seen[element], group) != group;
                if self.group_of[element] == group || !is_new {
                    return;
                }
                sums += 1;
                let sum = few.map_or(of_group[element], |_| sum(element, group));
                if sum > best[element].0 && holds(self.stage.shapes[element]) {
                    best[element] = (sum, group);
                }
            };
            match few {
                Some(few) => {
                    let others = members.iter().flat_map(|&member| &few[member]);
                    others.for_each(|&(other, _)| see(other));
                }
                None => (0..elements).for_each(see),
            }
        }
        let own = (0..elements).map(|element| sum(element, self.group_of[element]));
        let own: Vec<u64> = own.collect();
        self.cells_touched += few.map_or(1, |_| SCATTERED) * levels * sums;
        let mut wishes: Vec<usize> = (0..elements).filter(|&e| best[e].0 > own[e]).collect();
        wishes.sort_by_key(|&element| std::cmp::Reverse(best[element].0 - own[element]));
        let with_group = |element: usize| (element, best[element].1);
        wishes.into_iter().map(with_group).collect()
    }

    /// The member of a group with which a swap gains most, if one gains.
    fn best_swap(&mut self, element: usize, group: usize) -> Option<usize> {
        let from = self.group_of[element];
        let apart = self.apart(from, group);
        if apart == 0 {
            return None;
        }
        // What an element gains by going from one group to another.
        let gain = |element: usize, from: usize, to: usize| -> i64 {
            let sum = |group| self.rows(group, apart).map(|row| row[element]).sum::<u64>();
            sum(to).cast_signed() - sum(from).cast_signed()
        };
        let own = gain(element, from, group);
        let counts = self.stage.square().row(element);
        let mut best = None;
        for &with in &self.stage.groups.members[group] {
            if self.stage.shapes[with] != self.stage.shapes[element] {
                continue;
            }
            // Each would gain by being where the other is, but the other is then no longer there.
            let lost = 2 * apart as u64 * counts[with];
            let gain = own + gain(with, group, from) - lost.cast_signed();
            if gain > best.map_or(0, |(gain, _)| gain) {
                best = Some((gain, with));
            }
        }
        self.cells_touched += SCATTERED * 2 * apart * self.stage.groups.members[group].len();
        best.map(|(_, with)| with)
    }

    fn swap(&mut self, one: usize, other: usize, few: Option<&FewCells>) {
        let groups = [self.group_of[one], self.group_of[other]];
        let apart = self.apart(groups[0], groups[1]);
        let elements = self.elements;
        let Stage {
            groups: of, cells, ..
        } = &mut *self.stage;
        let rows = [one, other].map(|element| &cells[element * elements..][..elements]);
        for (group, leaves, comes) in [(groups[0], 0, 1), (groups[1], 1, 0)] {
            for level in 0..apart {
                let (sums, at) = match level {
                    0 => (&mut of.ties, group),
                    _ => (&mut self.higher[level - 1], self.under[group][level - 1]),
                };
                let sums = &mut sums[at * elements..][..elements];
                if let Some(few) = few {
                    let cells = [one, other].map(|element| &few[element]);
                    cells[comes]
                        .iter()
                        .for_each(|&(at, count)| sums[at] += count);
                    cells[leaves]
                        .iter()
                        .for_each(|&(at, count)| sums[at] -= count);
                    continue;
                }
                for ((sum, leaves), comes) in sums.iter_mut().zip(rows[leaves]).zip(rows[comes]) {
                    *sum = *sum + comes - leaves;
                }
            }
        }
        for (group, leaves, comes) in [(groups[0], one, other), (groups[1], other, one)] {
            if let Some(seat) = of.members[group].iter_mut().find(|seat| **seat == leaves) {
                *seat = comes;
            }
        }
        self.group_of.swap(one, other);
        let cells = |few: &FewCells| SCATTERED * (few[one].len() + few[other].len());
        self.cells_touched += 2 * apart * few.map_or(2 * elements, cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Where few cells are not 0, going by those alone finds the same: sums, wishes, and sums after
        /// swaps.
        #[test]
        fn by_few_cells_as_by_all(
            pairs in prop::collection::vec((0usize..48, 0usize..48, 1u64..50), 0..100),
            swaps in prop::collection::vec((0usize..48, 0usize..48), 0..10),
        ) {
            let tree = Tree::even(&[3, 4, 4]).expect("48 CPUs");
            let mut of = Communication::new(48);
            pairs.iter().for_each(|&(one, other, count)| of.add(one, other, count));
            let mut grouped = group(&of, &tree);
            let few = few_cells(grouped.stages[0].square().rows(), |_, _| 1);
            let few = Some(few.as_ref().expect("at most 200 cells of 48 rows"));
            let places = grouped.places();
            let stage = &mut grouped.stages[0];
            let summed = |stage: &Stage<'_>, few| sum_rows(stage.square(), few, &stage.groups.members);
            prop_assert_eq!(&summed(stage, few), &stage.groups.ties);
            let mut by_few = Swaps::new(stage, &tree, &places[0]);
            prop_assert_eq!(by_few.wishes(few), by_few.wishes(None));
            for &(one, other) in &swaps {
                if by_few.group_of[one] != by_few.group_of[other] {
                    by_few.swap(one, other, few);
                }
            }
            prop_assert_eq!(by_few.wishes(few), by_few.wishes(None));
            prop_assert_eq!(&summed(by_few.stage, None), &by_few.stage.groups.ties);
        }
    }
}
