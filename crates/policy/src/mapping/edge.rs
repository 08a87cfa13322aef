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
const CHUNK: usize = 8;

/// The strong ties of each element, and all its ties where these are few too. Rows are read one by one,
/// in any order, so that whoever reads them for something else need not fetch them twice.
pub(super) struct StrongTies {
    // All cells that are not 0 while these are few; after that, strong ones.
    cells: FewCells,
    has_all: bool,
    // Of each row the least that is strong.
    least: Vec<u64>,
    strong: usize,
    rows_read: usize,
    // All cells of each chunk of a row, put together bit by bit.
    bits: Vec<u64>,
}

impl StrongTies {
    /// Of so many elements, none read yet.
    pub(super) fn new(elements: usize) -> Self {
        Self {
            cells: FewCells::new(elements),
            has_all: true,
            least: vec![0; elements],
            strong: 0,
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
        let elements = self.least.len();
        ties <= self.rows_read * (elements / FEW).max(4) + elements
    }

    /// Reads an element's row.
    pub(super) fn read(&mut self, element: usize, row: &[u64]) {
        if !self.are_few(self.strong) {
            return;
        }
        let all = |bits: &[u64]| bits.iter().fold(0, |all, cell| all | cell);
        self.bits.clear();
        self.bits.extend(row.chunks(CHUNK).map(all));
        // What an element communicates within itself is no tie.
        let of_others = if row[element] == 0 {
            all(&self.bits)
        } else {
            all(&row[..element]) | all(&row[element + 1..])
        };
        let least = ((of_others >> STRONG_BITS) + 1).next_power_of_two() / 2;
        let least = least.max(1);
        self.least[element] = least;
        self.cells.begin(element);
        let looked_at = if self.has_all { 1 } else { least };
        for (chunk, _) in (0..)
            .zip(&self.bits)
            .filter(|&(_, &bits)| bits >= looked_at)
        {
            let from = chunk * CHUNK;
            let to = row.len().min(from + CHUNK);
            for (other, &count) in (from..to).zip(&row[from..to]) {
                if count < looked_at {
                    continue;
                }
                let is_strong = count >= least && other != element;
                self.strong += usize::from(is_strong);
                if self.has_all || is_strong {
                    self.cells.push(element, other, count);
                }
            }
        }
        self.rows_read += 1;
        if self.has_all && !self.are_few(self.cells.len()) {
            self.keep_strong();
        }
    }

    /// From here on there are too many cells to keep them all.
    fn keep_strong(&mut self) {
        let mut strong = FewCells::new(self.least.len());
        for element in 0..self.least.len() {
            strong.begin(element);
            for (other, count) in self.of_element(element) {
                strong.push(element, other, count);
            }
        }
        self.cells = strong;
        self.has_all = false;
    }

    /// All cells that are not 0, where they are few and every row has been read.
    pub(super) fn all(&self) -> Option<&FewCells> {
        (self.has_all && self.rows_read == self.least.len()).then_some(&self.cells)
    }

    fn of_element(&self, element: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let least = self.least[element];
        let cells = self.cells.row(element).iter().copied();
        cells.filter(move |&(other, count)| count >= least && other != element)
    }
}

/// Groups elements of these `shapes` as `shares` says (see above); `None` when the pattern has no
/// edges. Strong ties that were read already are handed in.
pub(super) fn grow_from_edges(
    communication: Square<'_>,
    shapes: &[usize],
    shares: &[Share],
    ties: Option<&StrongTies>,
) -> Option<Vec<Vec<usize>>> {
    let read_now = ties.is_none().then(|| StrongTies::of_matrix(communication));
    let ties = ties.or(read_now.as_ref())?;
    if !ties.are_few(ties.strong) {
        return None;
    }
    let elements = communication.side;
    let mut is_free = vec![true; elements];
    let sum = |element| ties.of_element(element).map(|(_, count)| count);
    let mut with_free: Vec<u64> = (0..elements).map(|element| sum(element).sum()).collect();
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
            for (other, count) in ties.of_element(member) {
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
            for (other, count) in ties.of_element(member) {
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

/// What stands for an element that is not free any more, above all others.
const TAKEN: u64 = u64::MAX;

/// How much an element is at an edge, the least most: by what it has to do with those that are free.
/// One that has nothing to do with them is last.
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
