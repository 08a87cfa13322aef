//! The mesh: cubes of different sizes that fill the unit cube, fine where the source of heat is.
//!
//! It consists of an octree's leaves. Two leaves that share a face or an edge differ by at most one
//! level; those that share only a corner may differ by more. The leaves depend on the source's
//! present and past positions, never on the solution.

use std::collections::{BTreeSet, HashMap, HashSet};

/// A cube: one of the 8^level cubes of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// 0 is the unit cube; each level halves the side.
    pub level: u32,
    /// Its position, in multiples of its side from the origin.
    pub at: [u32; 3],
}

impl Cell {
    /// The unit cube.
    pub const ROOT: Cell = Cell {
        level: 0,
        at: [0; 3],
    };

    /// Its side.
    pub fn side(self) -> f64 {
        0.5f64.powi(self.level.cast_signed())
    }

    /// Its corner nearest the origin.
    pub fn corner(self) -> [f64; 3] {
        self.at.map(|at| f64::from(at) * self.side())
    }

    /// One of its eight parts; bit `axis` of `octant` is set for the far half along that axis.
    pub fn child(self, octant: usize) -> Cell {
        Cell {
            level: self.level + 1,
            at: std::array::from_fn(|axis| 2 * self.at[axis] + u32::from(octant >> axis & 1 != 0)),
        }
    }

    /// The cube that it is a part of, and its octant there.
    pub fn parent(self) -> Option<(Cell, usize)> {
        let level = self.level.checked_sub(1)?;
        let octant = (0..3).map(|axis| (self.at[axis] as usize & 1) << axis);
        let at = self.at.map(|at| at / 2);
        Some((Cell { level, at }, octant.sum()))
    }

    /// It and all cubes that contain it.
    fn enclosing(self) -> impl Iterator<Item = Cell> {
        std::iter::successors(Some(self), |cell| cell.parent().map(|(parent, _)| parent))
    }

    /// The cube of the same size that is `away` sides away, if it is in the unit cube.
    pub fn neighbour(self, away: [i32; 3]) -> Option<Cell> {
        let mut at = self.at;
        for (at, away) in at.iter_mut().zip(away) {
            *at = at
                .checked_add_signed(away)
                .filter(|at| *at < 1 << self.level)?;
        }
        Some(Cell {
            level: self.level,
            at,
        })
    }

    /// Its place on the space-filling curve of the octree, x fastest.
    fn order(self, finest: u32) -> u64 {
        let bit = |axis: usize, bit: u32| {
            let fine = u64::from(self.at[axis]) << (finest - self.level);
            (fine >> bit & 1) << (3 * bit as usize + axis)
        };
        (0..3)
            .flat_map(|axis| (0..finest).map(move |at| (axis, at)))
            .map(|(axis, at)| bit(axis, at))
            .sum()
    }
}

/// A ball that heats what it touches.
#[derive(Clone, Copy, Debug)]
pub struct Ball {
    /// Where its centre is.
    pub centre: [f64; 3],
    /// Its radius.
    pub radius: f64,
}

impl Ball {
    fn touches(&self, cell: Cell) -> bool {
        let corner = cell.corner();
        let square = (0..3).map(|axis| {
            let (low, high) = (corner[axis], corner[axis] + cell.side());
            let centre = self.centre[axis];
            let distance = (low - centre).max(centre - high).max(0.0);
            distance * distance
        });
        square.sum::<f64>() < self.radius * self.radius
    }
}

/// What occupies the place of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it is outside the unit cube.
    Outside,
    /// The cell itself, or one that contains it.
    Whole(Cell),
    /// Its parts.
    Parts,
}

/// The leaves.
#[derive(Clone, Debug)]
pub struct Mesh {
    finest: u32,
    leaves: HashSet<Cell>,
}

impl Mesh {
    /// The unit cube in one piece, to be refined to level `finest`.
    pub fn new(finest: u32) -> Mesh {
        Mesh {
            finest,
            leaves: HashSet::from([Cell::ROOT]),
        }
    }

    /// The leaves in the octree's order.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<_> = self.leaves.iter().copied().collect();
        cells.sort_by_cached_key(|cell| cell.order(self.finest));
        cells
    }

    /// What occupies the cell `away` from `cell`.
    pub fn look(&self, cell: Cell, away: [i32; 3]) -> Found {
        cell.neighbour(away)
            .map_or(Found::Outside, |neighbour| self.find(neighbour))
    }

    fn find(&self, cell: Cell) -> Found {
        let whole = cell.enclosing().find(|cell| self.leaves.contains(cell));
        whole.map_or(Found::Parts, Found::Whole)
    }

    /// Refines all leaves that touch the ball as far as possible, and joins leaves that no longer need to be so fine.
    pub fn adapt(&mut self, ball: &Ball) {
        loop {
            let finest = self.finest;
            let touched = |cell: &&Cell| cell.level < finest && ball.touches(**cell);
            let mut touched: Vec<_> = self.leaves.iter().filter(touched).copied().collect();
            if touched.is_empty() {
                break;
            }
            touched.sort_unstable();
            touched.into_iter().for_each(|cell| self.refine(cell));
        }
        while self.coarsen(ball) {}
    }

    /// Splits `cell`, after the larger leaves around it.
    fn refine(&mut self, cell: Cell) {
        for away in around() {
            if let Found::Whole(neighbour) = self.look(cell, away)
                && neighbour.level < cell.level
            {
                self.refine(neighbour);
            }
        }
        if self.leaves.remove(&cell) {
            self.leaves.extend((0..8).map(|octant| cell.child(octant)));
        }
    }

    /// Joins eight leaves wherever the ball touches none of them and no smaller leaf prevents it.
    /// Returns whether it joined any.
    fn coarsen(&mut self, ball: &Ball) -> bool {
        let parents: BTreeSet<_> = self
            .leaves
            .iter()
            .filter_map(|cell| cell.parent())
            .map(|(parent, _)| parent)
            .filter(|parent| self.may_be_whole(*parent, ball))
            .collect();
        for parent in &parents {
            for octant in 0..8 {
                self.leaves.remove(&parent.child(octant));
            }
            self.leaves.insert(*parent);
        }
        !parents.is_empty()
    }

    fn may_be_whole(&self, parent: Cell, ball: &Ball) -> bool {
        (0..8).map(|octant| parent.child(octant)).all(|child| {
            self.leaves.contains(&child)
                && !ball.touches(child)
                && around().all(|away| self.look(child, away) != Found::Parts)
        })
    }
}

/// The offsets of the 18 neighbours that share a face or an edge.
fn around() -> impl Iterator<Item = [i32; 3]> {
    (0..27)
        .map(|way| [way % 3 - 1, way / 3 % 3 - 1, way / 9 - 1])
        .filter(|way| (1..=2).contains(&way.iter().filter(|along| **along != 0).count()))
}

/// The place of each cell in a list.
#[derive(Debug, Default)]
pub struct Places(HashMap<Cell, usize>);

impl Places {
    /// The places of `cells`.
    pub fn new(cells: &[Cell]) -> Places {
        Places(cells.iter().copied().zip(0..).collect())
    }

    /// The place of `cell` itself.
    pub fn of(&self, cell: Cell) -> Option<usize> {
        self.0.get(&cell).copied()
    }

    /// Whether a cell of the list contains `cell`.
    pub fn cover(&self, cell: Cell) -> bool {
        cell.enclosing().any(|cell| self.0.contains_key(&cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ball(centre: [f64; 3]) -> Ball {
        Ball {
            centre,
            radius: 0.06,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn leaves_fill_the_cube_and_neighbours_differ_by_one_level(
            centres in prop::collection::vec([0.0..1.0f64, 0.0..1.0, 0.0..1.0], 1..5)
        ) {
            let mut mesh = Mesh::new(5);
            for centre in centres {
                mesh.adapt(&ball(centre));
                let cells = mesh.cells();
                let volume: f64 = cells.iter().map(|cell| cell.side().powi(3)).sum();
                prop_assert_eq!(volume, 1.0);
                for cell in cells {
                    prop_assert!(cell.level == 5 || !ball(centre).touches(cell));
                    for away in around() {
                        if let Found::Whole(found) = mesh.look(cell, away) {
                            prop_assert!(found.level + 1 >= cell.level);
                        }
                    }
                }
            }
        }
    }

    /// Elements after each change of the mesh in class S, as the NAS program prints them.
    #[test]
    fn the_mesh_is_that_of_the_nas_program() {
        let mut mesh = Mesh::new(4);
        let elements = (0..10).map(|change| {
            let time = 0.0125 * f64::from(change);
            mesh.adapt(&Ball {
                centre: [3.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0].map(|at| at + 3.0 * time),
                radius: 0.04,
            });
            mesh.cells().len()
        });
        let published = [141, 134, 246, 190, 120, 204, 204, 120, 190, 246];
        assert!(elements.eq(published));
    }

    #[test]
    fn cells_are_in_the_order_of_the_octree() {
        let mut mesh = Mesh::new(3);
        mesh.adapt(&Ball {
            centre: [0.0; 3],
            radius: 0.01,
        });
        let cells = mesh.cells();
        assert_eq!(cells.len(), 22);
        assert_eq!(cells[0].at, [0; 3]);
        assert_eq!(cells[1].at, [1, 0, 0]);
        assert_eq!(
            cells[21],
            Cell {
                level: 1,
                at: [1; 3]
            }
        );
    }
}
