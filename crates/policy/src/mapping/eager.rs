//! EagerMap: threads that communicate much go close together, greedily, from the CPUs up.
//!
//! Problem: of n threads and a tree of CPUs, find a mapping of low [`super::quality()`]; the best one
//! is out of reach beyond a dozen threads, and an operating system asks every 200 ms.
//!
//! Rule (Cruz, Diener, Pilla, Navaux: EagerMap, PDP 2015; used by IPM §4.4.4): level by level from
//! the bottom, elements are grouped ([`super::grouping`]): as many groups as there are elements or
//! vertices, whichever are fewer; each group as large as it must be, grown greedily from the lowest
//! free element. Then groups are the elements of the next level, and what they communicate is the
//! sum of what their members do. At the end the tree is walked down, and group after group put on
//! child after child.
//!
//! The paper has even trees and, in its examples, as many threads as CPUs. Ours:
//! * Uneven trees: a vertex gets elements in proportion to its room, and where vertices of one
//!   height differ in shape, a group is made for one shape and put on a vertex of it. The vertices
//!   that get most are filled first (on even trees: those with left-overs), lest many small groups
//!   leave scraps to a large one. A vertex much smaller than the others may stay empty while there
//!   are fewer threads than CPUs.
//! * More threads than CPUs: the CPUs are one more level of groups, so that threads that share a CPU
//!   are those that communicate most. Their distance is 0.
//! * All CPUs count alike, whatever their capacity.
//!
//! Properties: every thread has a CPU of the tree; no CPU has two threads while another has none,
//! and the numbers of threads on two CPUs never differ by more than 1; on an even tree with a CPU for
//! every thread, that also holds for the vertices of the lowest level above the CPUs; equal input
//! gives equal output. Cost: n^2 times the levels, most of it at the bottom.

use std::borrow::Cow;
use std::cmp::Reverse;

use numaherd_topology::CpuId;

use super::grouping::{Groups, Share, Square, collapse, grow, shares};
use super::{Communication, Tree};

/// Maps every thread of the matrix to a CPU of the tree. See the top of this file.
pub fn eager_map(communication: &Communication, tree: &Tree) -> Vec<CpuId> {
    group(communication, tree).mapping(communication.threads())
}

/// A mapping in the making: the groups of all heights.
pub(super) struct Grouped<'a> {
    pub(super) tree: &'a Tree,
    /// From the bottom up; the last has one group, the root's, unless there is nothing to group.
    pub(super) stages: Vec<Stage<'a>>,
    /// The sum of all cells of the matrix, with whatever halving there was.
    total: u128,
}

/// The groups made for the vertices of one height. Their elements are the groups of the height
/// below, or threads.
pub(super) struct Stage<'a> {
    pub(super) height: usize,
    /// What the elements communicate.
    pub(super) cells: Cow<'a, [u64]>,
    /// The shape of the vertex that each element was made for.
    pub(super) shapes: Vec<usize>,
    /// How many shapes there are at that height.
    pub(super) kinds: usize,
    pub(super) groups: Groups,
    /// Twice what is communicated across this height: its part in the quality of the mapping.
    cut: u128,
}

impl Grouped<'_> {
    /// Groups the elements of a stage as given, and those of higher stages anew, and keeps that if it
    /// improves the mapping. The groups must match the stage's shares.
    pub(super) fn try_anew(&mut self, from: usize, groups: Groups) {
        let stage = &self.stages[from];
        let (cells, shapes) = (stage.cells.clone(), stage.shapes.clone());
        let anew = climb(
            self.tree,
            stage.height,
            cells,
            shapes,
            self.total,
            Some(groups),
        );
        let cut = |stages: &[Stage<'_>]| stages.iter().map(|stage| stage.cut).sum::<u128>();
        if cut(&anew) < cut(&self.stages[from..]) {
            self.stages.truncate(from);
            self.stages.extend(anew);
        }
    }

    /// The vertices that the groups of each stage are put on, in the order of stages.
    pub(super) fn places(&self) -> Vec<Vec<usize>> {
        let mut places = Vec::with_capacity(self.stages.len());
        let mut above = vec![0];
        for stage in self.stages.iter().rev() {
            let below = stage.put_down(self.tree, &above);
            places.push(std::mem::replace(&mut above, below));
        }
        places.reverse();
        places
    }

    /// The CPU of each thread.
    pub(super) fn mapping(&self, threads: usize) -> Vec<CpuId> {
        let mut above = vec![0; threads.min(1)];
        for stage in self.stages.iter().rev() {
            above = stage.put_down(self.tree, &above);
        }
        above.iter().map(|&leaf| self.tree.cpus()[leaf]).collect()
    }
}

impl Stage<'_> {
    pub(super) fn elements(&self) -> usize {
        self.shapes.len()
    }

    pub(super) fn square(&self) -> Square<'_> {
        Square {
            side: self.elements(),
            cells: &self.cells,
        }
    }

    /// Where the elements go when the groups are on these vertices: the first member of a shape on
    /// the first child of that shape, and so on. Threads that share a CPU go where their group is.
    fn put_down(&self, tree: &Tree, places: &[usize]) -> Vec<usize> {
        let mut below = vec![0; self.elements()];
        for (members, &place) in self.groups.members.iter().zip(places) {
            if self.height == 0 {
                members.iter().for_each(|&member| below[member] = place);
                continue;
            }
            let below_here = self.height - 1;
            let children = tree.children(self.height, place);
            // The next child of each shape.
            let mut next = vec![children.start; self.kinds];
            for &member in members {
                let shape = self.shapes[member];
                let rest = next[shape]..children.end;
                let like = |&child: &usize| tree.shape(below_here, child) == shape;
                if let Some(child) = rest.into_iter().find(like) {
                    below[member] = child;
                    next[shape] = child + 1;
                }
            }
        }
        below
    }
}

/// Groups threads up to the root.
pub(super) fn group<'a>(communication: &'a Communication, tree: &'a Tree) -> Grouped<'a> {
    let threads = communication.threads();
    let cells = communication.cells();
    let total = match &cells {
        Cow::Borrowed(_) => 2 * communication.total(),
        Cow::Owned(cells) => cells.iter().map(|&cell| u128::from(cell)).sum(),
    };
    let lowest = usize::from(threads <= tree.cpus().len());
    Grouped {
        tree,
        stages: climb(tree, lowest, cells, vec![0; threads], total, None),
        total,
    }
}

/// Groups elements of these shapes from a height up to the root; at the first height as given.
fn climb<'a>(
    tree: &Tree,
    lowest: usize,
    mut cells: Cow<'a, [u64]>,
    mut shapes: Vec<usize>,
    total: u128,
    mut given: Option<Groups>,
) -> Vec<Stage<'a>> {
    let mut stages = Vec::new();
    if shapes.is_empty() {
        return stages;
    }
    for height in lowest..=tree.height() {
        let shares = shares_of_level(tree, height, &shapes);
        let elements = shapes.len();
        let square = Square {
            side: elements,
            cells: &cells,
        };
        let groups = given
            .take()
            .unwrap_or_else(|| grow(square, &shapes, &shares));
        let above = collapse(&groups.members, &groups.ties, elements);
        let within = above.iter().step_by(groups.members.len() + 1);
        let within: u128 = within.map(|&cell| u128::from(cell)).sum();
        let shapes_above = shares
            .iter()
            .map(|share| tree.shape(height, share.vertex))
            .collect();
        stages.push(Stage {
            height,
            kinds: shares[0].of_shape.len(),
            cells: std::mem::replace(&mut cells, Cow::Owned(above)),
            shapes: std::mem::replace(&mut shapes, shapes_above),
            groups,
            cut: total - within,
        });
    }
    stages
}

/// What each vertex of a height is to hold, most first, without those that get nothing.
pub(super) fn shares_of_level(tree: &Tree, height: usize, shapes: &[usize]) -> Vec<Share> {
    let vertices = tree.vertices(height);
    if height == 0 {
        return (0..)
            .zip(shares(shapes.len(), &vec![1; vertices]))
            .map(|(vertex, share)| Share {
                vertex,
                of_shape: vec![share],
            })
            .collect();
    }
    let below = tree.vertices(height - 1);
    let kinds = (0..below).map(|vertex| tree.shape(height - 1, vertex));
    let kinds = kinds.max().map_or(0, |largest| largest + 1);
    let mut all: Vec<Share> = (0..vertices)
        .map(|vertex| Share {
            vertex,
            of_shape: vec![0; kinds],
        })
        .collect();
    for kind in 0..kinds {
        let of_kind = shapes.iter().filter(|&&shape| shape == kind).count();
        let like = |&child: &usize| tree.shape(height - 1, child) == kind;
        let room: Vec<usize> = (0..vertices)
            .map(|vertex| tree.children(height, vertex).filter(like).count())
            .collect();
        for (share, of_vertex) in all.iter_mut().zip(shares(of_kind, &room)) {
            share.of_shape[kind] = of_vertex;
        }
    }
    let elements = |share: &Share| share.of_shape.iter().sum::<usize>();
    all.retain(|share| elements(share) > 0);
    all.sort_by_key(|share| Reverse(elements(share)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(mapping: &[CpuId]) -> Vec<u32> {
        mapping.iter().map(|cpu| cpu.0).collect()
    }

    fn pairs(threads: usize, pairs: &[(usize, usize)]) -> Communication {
        let mut of = Communication::new(threads);
        for &(one, other) in pairs {
            of.add(one, other, 10);
        }
        of
    }

    #[test]
    fn partners_share_a_core_and_pairs_of_pairs_a_node() {
        let tree = Tree::even(&[2, 2, 2]).expect("eight CPUs");
        let mut of = pairs(8, &[(0, 7), (1, 6), (2, 5), (3, 4)]);
        of.add(0, 5, 3);
        of.add(6, 3, 3);
        // Cores: (0 7) (1 6) (2 5) (3 4); nodes: the first with the third, the second with the
        // fourth.
        assert_eq!(cpus(&eager_map(&of, &tree)), [0, 4, 2, 6, 7, 3, 5, 1]);
    }

    #[test]
    fn fewer_threads_than_cpus_spread_over_the_nodes() {
        let tree = Tree::even(&[4, 4]).expect("16 CPUs");
        let of = pairs(6, &[(0, 5), (1, 4), (2, 3)]);
        // Left-overs to the first groups: 2, 2, 1, 1.
        assert_eq!(cpus(&eager_map(&of, &tree)), [0, 4, 8, 12, 5, 1]);
    }

    #[test]
    fn more_threads_than_cpus_share_cpus_with_whom_they_communicate() {
        let tree = Tree::even(&[2, 2]).expect("four CPUs");
        let of = pairs(6, &[(0, 5), (1, 4), (2, 3)]);
        // Groups of 2, 2, 1, 1; the last two communicate.
        assert_eq!(cpus(&eager_map(&of, &tree)), [0, 1, 2, 3, 1, 0]);
    }

    #[test]
    fn no_thread_and_one_cpu_are_no_special_case() {
        let one = Tree::even(&[1]).expect("a CPU");
        assert_eq!(eager_map(&Communication::new(0), &one), []);
        assert_eq!(cpus(&eager_map(&pairs(3, &[(0, 2)]), &one)), [0, 0, 0]);
        let tree = Tree::even(&[2, 2]).expect("four CPUs");
        assert_eq!(cpus(&eager_map(&Communication::new(1), &tree)), [0]);
    }
}
