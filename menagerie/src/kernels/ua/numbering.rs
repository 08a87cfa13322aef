//! Numbers mortar points, so that equal points of different elements have equal numbers.
//!
//! A mortar point belongs to a vertex, an edge or a face of the finest elements that meet there.
//! Position and size identify these.

use super::mesh::{Cell, Found, Mesh, Places};
use super::mortar::{Edge, Face, Split, corner, others};
use std::collections::HashMap;

/// A vertex, edge or face: its kind, its level, and its position in sides of that level. Vertices
/// use the finest level.
type Key = (Kind, u32, [u32; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Vertex,
    /// Along this axis.
    Edge(usize),
    /// Across this axis.
    Face(usize),
}

impl Kind {
    /// Number of its mortar points.
    const fn points(self) -> u32 {
        match self {
            Kind::Vertex => 1,
            Kind::Edge(_) => 3,
            Kind::Face(_) => 9,
        }
    }
}

/// The leaves of a mesh in order, and their connections.
#[derive(Debug, Default)]
pub struct Grid {
    finest: u32,
    /// The elements.
    pub cells: Vec<Cell>,
    /// The place of each in `cells`.
    pub places: Places,
    /// The split edges and faces of each element.
    pub splits: Vec<Split>,
    /// Whether each mortar point lies on the border of the unit cube.
    pub border: Vec<bool>,
    first: HashMap<Key, u32>,
}

impl Grid {
    /// The grid of the leaves of `mesh`.
    pub fn new(mesh: &Mesh, finest: u32) -> Grid {
        let cells = mesh.cells();
        let places = Places::new(&cells);
        let splits: Vec<_> = cells.iter().map(|cell| split(mesh, *cell)).collect();
        let mut grid = Grid {
            finest,
            cells,
            places,
            splits,
            border: Vec::new(),
            first: HashMap::new(),
        };
        for element in 0..grid.cells.len() {
            let (cell, split) = (grid.cells[element], grid.splits[element]);
            for vertex in 0..8 {
                grid.number(grid.vertex(cell, corner(vertex).map(|c| 2 * c as u32)));
            }
            for edge in Edge::all().filter(|edge| !split.edge(*edge)) {
                grid.number(edge_key(cell, edge));
            }
            for face in Face::all().filter(|face| !split.face(*face)) {
                grid.number(face_key(cell, face));
            }
        }
        grid
    }

    /// Number of mortar points.
    pub fn mortars(&self) -> usize {
        self.border.len()
    }

    /// Numbers the mortar points of `key`, unless they have numbers.
    fn number(&mut self, key: Key) {
        let next = self.border.len() as u32;
        let (kind, level, at) = key;
        if let std::collections::hash_map::Entry::Vacant(free) = self.first.entry(key) {
            free.insert(next);
            let level = if kind == Kind::Vertex {
                self.finest
            } else {
                level
            };
            let last = 1 << level;
            let on_border = (0..3).any(|axis| {
                let across = match kind {
                    Kind::Vertex => true,
                    Kind::Edge(along) => along != axis,
                    Kind::Face(across) => across == axis,
                };
                across && (at[axis] == 0 || at[axis] == last)
            });
            let points = kind.points() as usize;
            self.border.extend(std::iter::repeat_n(on_border, points));
        }
    }

    /// The vertex at a distance of `halves` half sides from the corner of `cell`.
    fn vertex(&self, cell: Cell, halves: [u32; 3]) -> Key {
        let at = std::array::from_fn(|axis| {
            // In halves of the finest side, then in whole ones, which suffice for vertices.
            (2 * cell.at[axis] + halves[axis]) << (self.finest - cell.level) >> 1
        });
        (Kind::Vertex, 0, at)
    }

    /// Calls `tell` with every slot that `element` uses and the number of its mortar point.
    pub fn slots(&self, element: usize, mut tell: impl FnMut(usize, u32)) {
        let (cell, split) = (self.cells[element], self.splits[element]);
        for vertex in 0..8 {
            let key = self.vertex(cell, corner(vertex).map(|c| 2 * c as u32));
            tell(vertex, self.first[&key]);
        }
        for edge in Edge::all() {
            if split.edge(edge) {
                let mut middle = edge.corner(0).map(|c| 2 * c as u32);
                middle[edge.axis] = 1;
                tell(edge.slot(3), self.first[&self.vertex(cell, middle)]);
                for half in 0..2 {
                    let first = self.first[&half_edge(cell, edge, half)];
                    (0..3).for_each(|r| tell(edge.slot(4 * half + r), first + r as u32));
                }
            } else {
                let first = self.first[&edge_key(cell, edge)];
                (0..3).for_each(|r| tell(edge.slot(r), first + r as u32));
            }
        }
        for face in Face::all() {
            if split.face(face) {
                self.split_face(cell, face, &mut tell);
            } else {
                let first = self.first[&face_key(cell, face)];
                for r in 0..9 {
                    tell(face.slot([r % 3, r / 3], 3), first + r as u32);
                }
            }
        }
    }

    /// Calls `tell` for the 49 inner slots of a split face: four faces, the cross between them, its centre.
    fn split_face(&self, cell: Cell, face: Face, tell: &mut impl FnMut(usize, u32)) {
        let axes = others(face.axis);
        let level = cell.level + 1;
        // The corner of the face in half sides, moved within it.
        let at = |within: [usize; 2]| {
            let mut at = cell.at.map(|at| 2 * at);
            at[face.axis] += 2 * face.side as u32;
            for (axis, within) in axes.into_iter().zip(within) {
                at[axis] += within as u32;
            }
            at
        };
        for quarter in [[0, 0], [1, 0], [0, 1], [1, 1]] {
            let first = self.first[&(Kind::Face(face.axis), level, at(quarter))];
            for r in 0..9 {
                let slot = face.slot([4 * quarter[0] + r % 3, 4 * quarter[1] + r / 3], 7);
                tell(slot, first + r as u32);
            }
        }
        for half in 0..2 {
            let first = self.first[&(Kind::Edge(axes[0]), level, at([half, 1]))];
            (0..3).for_each(|r| tell(face.slot([4 * half + r, 3], 7), first + r as u32));
            let first = self.first[&(Kind::Edge(axes[1]), level, at([1, half]))];
            (0..3).for_each(|r| tell(face.slot([3, 4 * half + r], 7), first + r as u32));
        }
        let mut halves = [2 * face.side as u32; 3];
        axes.into_iter().for_each(|axis| halves[axis] = 1);
        tell(face.slot([3, 3], 7), self.first[&self.vertex(cell, halves)]);
    }
}

/// The edges and faces of `cell` that meet smaller leaves.
fn split(mesh: &Mesh, cell: Cell) -> Split {
    let mut split = Split::default();
    for face in Face::all() {
        let mut away = [0; 3];
        away[face.axis] = [-1, 1][face.side];
        if mesh.look(cell, away) == Found::Parts {
            split.set_face(face);
            Edge::all()
                .filter(|edge| face.has(*edge))
                .for_each(|edge| split.set_edge(edge));
        }
    }
    for edge in Edge::all() {
        let mut away = edge.corner(0).map(|side| [-1, 1][side]);
        away[edge.axis] = 0;
        if mesh.look(cell, away) == Found::Parts {
            split.set_edge(edge);
        }
    }
    split
}

fn edge_key(cell: Cell, edge: Edge) -> Key {
    let corner = edge.corner(0);
    let at = std::array::from_fn(|axis| cell.at[axis] + corner[axis] as u32);
    (Kind::Edge(edge.axis), cell.level, at)
}

fn half_edge(cell: Cell, edge: Edge, half: usize) -> Key {
    let corner = edge.corner(0);
    let mut at: [u32; 3] = std::array::from_fn(|axis| 2 * (cell.at[axis] + corner[axis] as u32));
    at[edge.axis] += half as u32;
    (Kind::Edge(edge.axis), cell.level + 1, at)
}

fn face_key(cell: Cell, face: Face) -> Key {
    let mut at = cell.at;
    at[face.axis] += face.side as u32;
    (Kind::Face(face.axis), cell.level, at)
}

/// For every mortar point, its slots in all elements: those of point m are
/// `slots[starts[m]..starts[m + 1]]`, in the elements' order. A slot's number is its element's
/// times [`SLOTS`](super::mortar::SLOTS), plus its own.
#[derive(Debug, Default)]
pub struct Sources {
    starts: Vec<u32>,
    slots: Vec<u32>,
}

impl Sources {
    /// Built from the mortar point of every slot of every element; `u32::MAX` for unused slots.
    pub fn new(mortars: usize, slots: impl Iterator<Item = u32> + Clone) -> Sources {
        let used = slots.zip(0u32..).filter(|(mortar, _)| *mortar != u32::MAX);
        let mut starts = vec![0u32; mortars + 1];
        used.clone()
            .for_each(|(mortar, _)| starts[mortar as usize + 1] += 1);
        (0..mortars).for_each(|mortar| starts[mortar + 1] += starts[mortar]);
        let mut next = starts.clone();
        let mut sources = vec![0; starts[mortars] as usize];
        for (mortar, slot) in used {
            let at = &mut next[mortar as usize];
            sources[*at as usize] = slot;
            *at += 1;
        }
        Sources {
            starts,
            slots: sources,
        }
    }

    /// The slots of mortar point `mortar`.
    #[inline]
    pub fn of(&self, mortar: usize) -> &[u32] {
        &self.slots[self.starts[mortar] as usize..self.starts[mortar + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::mesh::Ball;
    use super::super::mortar::SLOTS;
    use super::*;
    use std::collections::HashSet;

    fn refined(centre: [f64; 3]) -> Grid {
        let mut mesh = Mesh::new(4);
        mesh.adapt(&Ball {
            centre,
            radius: 0.04,
        });
        Grid::new(&mesh, 4)
    }

    #[test]
    fn every_mortar_point_is_some_elements_own() {
        for centre in [
            [3.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0],
            [0.5; 3],
            [0.1, 0.8, 0.97],
        ] {
            let grid = refined(centre);
            let mut own = HashSet::new();
            for element in 0..grid.cells.len() {
                let mut seen = HashSet::new();
                grid.slots(element, |slot, mortar| {
                    assert!(slot < SLOTS && (mortar as usize) < grid.mortars());
                    assert!(seen.insert(slot));
                    own.insert(mortar);
                });
                let split = grid.splits[element];
                let edges = Edge::all().map(|edge| if split.edge(edge) { 7 } else { 3 });
                let faces = Face::all().map(|face| if split.face(face) { 49 } else { 9 });
                assert_eq!(seen.len(), 8 + edges.sum::<usize>() + faces.sum::<usize>());
            }
            assert_eq!(own.len(), grid.mortars());
        }
    }

    #[test]
    fn two_equal_cubes_share_a_face() {
        let mut mesh = Mesh::new(1);
        mesh.adapt(&Ball {
            centre: [0.0; 3],
            radius: 0.1,
        });
        let grid = Grid::new(&mesh, 1);
        // 27 vertices, 54 edges with three points each, 36 faces with nine.
        assert_eq!(grid.mortars(), 27 + 54 * 3 + 36 * 9);
        assert_eq!(
            grid.border.iter().filter(|border| !**border).count(),
            1 + 6 * 3 + 12 * 9
        );
    }

    #[test]
    fn sources_are_the_slots_turned_round() {
        let sources = Sources::new(3, [2, u32::MAX, 0, 2, 1].into_iter());
        assert_eq!(sources.of(0), [2]);
        assert_eq!(sources.of(1), [4]);
        assert_eq!(sources.of(2), [0, 3]);
    }
}
