//! Grouping from the edges of a pattern inwards: the refined mapper's other way to group a level.
//!
//! Problem: EagerMap begins each group with the lowest free element, wherever that is in the pattern
//! (see [`super::refine`]). Rule (ours): a group begins with the free element that has the least to
//! do with those that are free, yet something: the end of a chain, the corner of a grid. It grows as
//! EagerMap's do; ties go to the element that has less to do with those that are free, then to the
//! lowest. Where nothing is left that communicates with the group, it begins again at an edge.
//!
//! Only *strong* ties count here: cells with at most four binary digits less than the largest of their
//! row (a power of two as bound lets whole stretches of a row be passed over at a glance). Where more than an eighth of the cells are strong, the pattern has no edges to speak of, and there is no
//! such grouping. Cost: the matrix is read once, up to where that is clear; the rest goes by strong ties.

use std::cmp::Reverse;

use super::grouping::{FewCells, Share, Square};

/// How many binary digits a strong tie may have less than the largest of its row.
const STRONG_BITS: u32 = 4;
/// One of so many cells may be strong.
const FEW: usize = 8;
/// Cells that are looked at together: where none has as high a bit as a strong tie, none is one.
const CHUNK: usize = 16;

/// The strong ties of each element, and all its ties where these are few too. Rows are read one by one,
/// in any order, so that whoever reads them for something else need not fetch them twice.
pub(super) struct StrongTies {
    // With whom, and how much.
    strong: FewCells,
    // All cells that are not 0, while they are few.
    all: Option<FewCells>,
    rows_read: usize,
    // All cells of each chunk of a row, put together bit by bit.
    bits: Vec<u64>,
}

impl StrongTies {
    /// Of so many elements, none read yet.
    pub(super) fn new(elements: usize) -> Self {
        Self {
            strong: FewCells::new(elements),
            all: Some(FewCells::new(elements)),
            rows_read: 0,
            bits: Vec::with_capacity(elements.div_ceil(CHUNK)),
        }
    }

    fn of_matrix(communication: Square<'_>) -> Self {
        let mut ties = Self::new(communication.side);
        for element in 0..communication.side {
            ties.read(element, communication.row(element));
        }
        ties
    }

    /// Whether so many ties are few enough to speak of edges. The first rows may have more than their
    /// part; four to an element are always few.
    fn are_few(&self, ties: usize) -> bool {
        let elements = self.strong.rows();
        ties <= self.rows_read * (elements / FEW).max(4) + elements
    }

    /// Reads an element's row.
    pub(super) fn read(&mut self, element: usize, row: &[u64]) {
        if !self.are_few(self.strong.len()) {
            return;
        }
        let all = |bits: &[u64]| bits.iter().fold(0, |all, cell| all | cell);
        self.bits.clear();
        self.bits.extend(row.chunks(CHUNK).map(all));
        let from = element / CHUNK * CHUNK;
        let to = row.len().min(from + CHUNK);
        let with_own = self.bits[element / CHUNK];
        self.bits[element / CHUNK] = all(&row[from..element]) | all(&row[element + 1..to]);
        let least = ((all(&self.bits) >> STRONG_BITS) + 1).next_power_of_two() / 2;
        let least = least.max(1);
        self.strong.begin(element);
        let looked_at = if self.all.is_some() { 1 } else { least };
        if let Some(all) = &mut self.all {
            all.begin(element);
            self.bits[element / CHUNK] = with_own;
        }
        let chunks = self.bits.iter().enumerate();
        for (chunk, _) in chunks.filter(|&(_, &bits)| bits >= looked_at) {
            let cells = row.iter().enumerate().skip(chunk * CHUNK).take(CHUNK);
            for (other, &count) in cells {
                if count >= least && other != element {
                    self.strong.push(element, other, count);
                }
                if let (Some(all), true) = (&mut self.all, count > 0) {
                    all.push(element, other, count);
                }
            }
        }
        self.rows_read += 1;
        let all = self.all.as_ref().map_or(0, FewCells::len);
        if !self.are_few(all) {
            self.all = None;
        }
    }

    /// All cells that are not 0, where they are few.
    pub(super) fn take_all(&mut self) -> Option<FewCells> {
        self.all.take()
    }

    fn of_element(&self, element: usize) -> &[(usize, u64)] {
        self.strong.row(element)
    }
}

/// Groups elements of these `shapes` as `shares` says (see above); `None` when the pattern has no
/// edges. Strong ties that were read already are handed in.
pub(super) fn grow_from_edges(
    communication: Square<'_>,
    shapes: &[usize],
    shares: &[Share],
    ties: Option<StrongTies>,
) -> Option<Vec<Vec<usize>>> {
    let ties = ties.unwrap_or_else(|| StrongTies::of_matrix(communication));
    if !ties.are_few(ties.strong.len()) {
        return None;
    }
    let elements = communication.side;
    let mut is_free = vec![true; elements];
    let mut free: Vec<usize> = (0..elements).collect();
    let sum = |element| ties.of_element(element).iter().map(|&(_, count)| count);
    let mut with_free: Vec<u64> = (0..elements).map(|element| sum(element).sum()).collect();
    let mut with_group = vec![0; elements];
    let mut groups = Vec::with_capacity(shares.len());
    for share in shares {
        let mut wanted = share.of_shape.clone();
        let mut left: usize = wanted.iter().sum();
        let mut members = Vec::with_capacity(left);
        // The free elements that communicate with the group.
        let mut near: Vec<usize> = Vec::new();
        free.retain(|&element| is_free[element]);
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
                let free = free.iter().copied().filter(|&e| is_free[e]).filter(fits);
                free.min_by_key(|&e| (with_free[e] == 0, with_free[e]))
            };
            let member = closest.or_else(at_edge)?;
            is_free[member] = false;
            with_group[member] = 0;
            wanted[shapes[member]] -= 1;
            left -= 1;
            members.push(member);
            for &(other, count) in ties.of_element(member) {
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
            for &(other, count) in ties.of_element(member) {
                // A tie may be strong for one of the two only.
                with_free[other] = with_free[other].saturating_sub(count);
            }
        }
        groups.push(members);
    }
    Some(groups)
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
