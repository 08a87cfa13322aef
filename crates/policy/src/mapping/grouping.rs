//! One level of EagerMap: which elements (threads, or groups of them) go together.
//!
//! Shares: how many elements each vertex of the level gets, in proportion to its room and whole: the
//! floor of the proportion, and left-overs one at a time to the vertex that is then least full, ties
//! to the first. Among vertices of equal room that is EagerMap's rule: floor(n / groups) each, the
//! left-overs to the first groups. Elements of different shapes (uneven trees) are shared out shape
//! by shape, so that every group fits where it was made for.
//!
//! Growth: vertices in their order; a group begins with the lowest free element and takes, until
//! it is full, the one with the largest sum of communication with its members.
//!
//! Cost: every element's row is added once to the sums of the group it joins, n^2 for the level,
//! where summing anew for each comparison would cost n^2 times the group's size.

/// A square matrix, row by row.
#[derive(Clone, Copy)]
pub(super) struct Square<'a> {
    pub(super) side: usize,
    pub(super) cells: &'a [u64],
}

impl<'a> Square<'a> {
    /// For each row, the columns and counts that are not 0, and some that are: only whole stretches of
    /// zeros are skipped.
    pub(super) fn rows(
        self,
    ) -> impl ExactSizeIterator<Item = impl Iterator<Item = (usize, u64)> + Clone> {
        const STRETCH: usize = 8;
        let stretches = move |row: usize| self.row(row).chunks(STRETCH).zip((0..).step_by(STRETCH));
        (0..self.side).map(move |row| {
            let filled =
                stretches(row).filter(|(cells, _)| cells.iter().fold(0, |a, b| a | b) != 0);
            filled.flat_map(|(cells, from)| (from..).zip(cells.iter().copied()))
        })
    }

    pub(super) fn row(&self, row: usize) -> &'a [u64] {
        &self.cells[row * self.side..][..self.side]
    }
}

/// What a level's vertex is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) vertex: usize,
    /// Elements of each shape.
    pub(super) of_shape: Vec<usize>,
}

/// Groups of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    /// The elements of each group.
    pub(super) members: Vec<Vec<usize>>,
    /// For each group, a row: what every element communicates with all members together.
    pub(super) ties: Vec<u64>,
}

/// The cells of each row of a matrix that count, where they are few: a column and a count each.
pub(super) type FewCells = Vec<Vec<(usize, u64)>>;

/// One of so many cells may count.
const FEW: usize = 8;

/// For each row, the cells that are at least what `least` says of it, except its own; `None` where they
/// are not few. The first rows may have more than their part; four to an element are always few.
pub(super) fn few_cells<Row: Iterator<Item = (usize, u64)> + Clone>(
    rows: impl ExactSizeIterator<Item = Row>,
    least: impl Fn(usize, Row) -> u64,
) -> Option<FewCells> {
    let elements = rows.len();
    let (mut cells, mut count) = (FewCells::with_capacity(elements), 0);
    for (element, row) in rows.enumerate() {
        let least = least(element, row.clone());
        let counts = |&(other, count): &(usize, u64)| count >= least && other != element;
        cells.push(row.filter(counts).collect());
        count += cells[element].len();
        if count > (element + 1) * (elements / FEW).max(4) + elements {
            return None;
        }
    }
    Some(cells)
}

/// Twice what the members of each group communicate with each other, from the groups' ties.
pub(super) fn within_groups(communication: Square<'_>, groups: &Groups) -> Vec<u64> {
    let ties = groups.ties.chunks_exact(communication.side);
    let within = |(members, ties): (&Vec<usize>, &[u64])| {
        let own = |member: usize| communication.row(member)[member];
        members
            .iter()
            .map(|&member| ties[member] - own(member))
            .sum()
    };
    groups.members.iter().zip(ties).map(within).collect()
}

/// Shares `elements` out to vertices that have `room` (see above). Where there is less room than
/// elements, all are filled beyond it, in proportion.
pub(super) fn shares(elements: usize, room: &[usize]) -> Vec<usize> {
    let whole: u128 = room.iter().map(|&room| room as u128).sum();
    let floor = |&room: &usize| (elements as u128 * room as u128).checked_div(whole);
    let mut shares: Vec<usize> = room
        .iter()
        .map(|room| floor(room).unwrap_or(0) as usize)
        .collect();
    let left = elements - shares.iter().sum::<usize>().min(elements);
    if room.windows(2).all(|pair| pair[0] == pair[1]) {
        shares.iter_mut().take(left).for_each(|share| *share += 1);
        return shares;
    }
    for _ in 0..left {
        let fuller = |&a: &usize, &b: &usize| {
            let full = |at: usize, other: usize| (shares[at] + 1) as u128 * room[other] as u128;
            full(a, b).cmp(&full(b, a))
        };
        let with_room = (0..room.len()).filter(|&at| room[at] > 0);
        if let Some(at) = with_room.min_by(fuller) {
            shares[at] += 1;
        }
    }
    shares
}

/// Groups elements of these `shapes` as `shares` says.
pub(super) fn grow(communication: Square<'_>, shapes: &[usize], shares: &[Share]) -> Groups {
    let elements = communication.side;
    let mut groups = Groups {
        members: Vec::with_capacity(shares.len()),
        ties: vec![0; shares.len() * elements],
    };
    let mut free: Vec<usize> = (0..elements).collect();
    for (share, ties) in shares.iter().zip(groups.ties.chunks_exact_mut(elements)) {
        let mut wanted = share.of_shape.clone();
        let mut left: usize = wanted.iter().sum();
        let mut members = Vec::with_capacity(left);
        while left > 0 {
            // A group without members has no ties yet: the lowest element is its seed. The table is not
            // read for it: that would cost the kernel a page fault more than is needed.
            let seed = || free.iter().position(|&element| wanted[shapes[element]] > 0);
            let found = if members.is_empty() {
                seed()
            } else {
                closest(&free, shapes, &wanted, ties)
            };
            let Some(at) = found else {
                break;
            };
            let member = free.remove(at);
            wanted[shapes[member]] -= 1;
            left -= 1;
            members.push(member);
            let row = communication.row(member);
            if members.len() == 1 {
                ties.copy_from_slice(row);
            } else {
                add(ties, row);
            }
        }
        groups.members.push(members);
    }
    groups
}

/// The place among the free elements of the one with the largest sum; ties to the lowest.
fn closest(free: &[usize], shapes: &[usize], wanted: &[usize], sums: &[u64]) -> Option<usize> {
    let mut best: Option<(u64, usize)> = None;
    for (at, &element) in free.iter().enumerate() {
        let sum = sums[element];
        if best.is_none_or(|(best, _)| sum > best) && wanted[shapes[element]] > 0 {
            best = Some((sum, at));
        }
    }
    best.map(|(_, at)| at)
}

/// What every element communicates with all members of each group together: a row for each group. By
/// `few`, the cells that are not 0, where they are few.
pub(super) fn sum_rows(
    communication: Square<'_>,
    few: Option<&FewCells>,
    members: &[Vec<usize>],
) -> Vec<u64> {
    let mut sums = vec![0; members.len() * communication.side];
    for (members, ties) in members
        .iter()
        .zip(sums.chunks_exact_mut(communication.side))
    {
        for &member in members {
            match few {
                Some(few) => few[member]
                    .iter()
                    .for_each(|&(column, count)| ties[column] += count),
                None => add(ties, communication.row(member)),
            }
        }
    }
    sums
}

/// Adds a row to sums of rows.
pub(super) fn add(sums: &mut [u64], row: &[u64]) {
    sums.iter_mut()
        .zip(row)
        .for_each(|(sum, cell)| *sum += cell);
}

/// What the groups communicate with each other, and on the diagonal, twice, within.
pub(super) fn collapse(members: &[Vec<usize>], ties: &[u64], elements: usize) -> Vec<u64> {
    let mut cells = Vec::with_capacity(members.len() * members.len());
    for ties in ties.chunks_exact(elements) {
        let with = |members: &Vec<usize>| members.iter().map(|&member| ties[member]).sum::<u64>();
        cells.extend(members.iter().map(with));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_overs_go_to_the_first_of_equal_vertices() {
        assert_eq!(shares(6, &[4, 4, 4, 4]), [2, 2, 1, 1]);
        assert_eq!(shares(2, &[2, 2, 2]), [1, 1, 0]);
        assert_eq!(shares(7, &[1, 1, 1]), [3, 2, 2]);
        assert_eq!(shares(0, &[1, 1]), [0, 0]);
    }

    #[test]
    fn larger_vertices_get_more_and_none_more_than_it_holds() {
        assert_eq!(shares(8, &[2, 6]), [2, 6]);
        assert_eq!(shares(4, &[2, 6]), [1, 3]);
        assert_eq!(shares(1, &[2, 6]), [0, 1]);
        assert_eq!(shares(5, &[0, 2, 6]), [0, 1, 4]);
        assert_eq!(shares(16, &[2, 6]), [4, 12]);
        for elements in 0..=9 {
            let shares = shares(elements, &[1, 3, 5]);
            assert_eq!(shares.iter().sum::<usize>(), elements);
            assert!(
                shares
                    .iter()
                    .zip([1, 3, 5])
                    .all(|(&share, room)| share <= room)
            );
        }
    }

    #[test]
    fn a_group_takes_who_communicates_most_with_all_its_members() {
        // 0 likes 3 best; 2 likes 0 less than 1 does, but 3 far more.
        let cells = [
            [0, 4, 3, 9, 0],
            [4, 0, 0, 0, 0],
            [3, 0, 0, 5, 0],
            [9, 0, 5, 0, 0],
            [0, 0, 0, 0, 0],
        ]
        .concat();
        let communication = Square {
            side: 5,
            cells: &cells,
        };
        let share = |vertex, elements| Share {
            vertex,
            of_shape: vec![elements],
        };
        let shares = [share(0, 3), share(1, 2)];
        let groups = grow(communication, &[0; 5], &shares);
        assert_eq!(groups.members, [vec![0, 3, 2], vec![1, 4]]);
        assert_eq!(groups.ties, [12, 4, 8, 14, 0, 4, 0, 0, 0, 0]);
        let collapsed = collapse(&groups.members, &groups.ties, 5);
        assert_eq!(collapsed, [34, 4, 4, 0]);
    }
}
