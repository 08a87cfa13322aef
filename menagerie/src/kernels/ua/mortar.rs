//! Mortars, which connect elements. The values on the surface of elements are not free: they follow
//! from values at mortar points, which belong to the finest edges and faces.
//!
//! Where an element meets equal or larger ones, mortar points are its own surface points. An edge or face that meets
//! smaller elements is split: its three inner values along each axis are a projection from nine mortar points (two
//! halves of five, one in common), whose error is orthogonal to polynomials of degree two. For a face, the projection
//! is done along one axis, then the other.
//!
//! An element has slots for mortar points: 8 vertices, up to 7 inner points of each of 12 edges,
//! and up to 49 of each of 6 faces. The split edges and faces determine the slots used. Source:
//! Feng, Van der Wijngaart, Biswas, Mavriplis, NAS-04-006 and J. Sci. Comput. 27 (2006).

use super::element::{POINTS, Values, WEIGHTS, point, points};
use std::sync::LazyLock;

/// Mortar points along a split edge, its ends included.
const FINE: usize = 2 * POINTS - 1;
/// Inner points of an edge, and of a split one.
const INNER: usize = POINTS - 2;
const FINE_INNER: usize = FINE - 2;

const EDGES: usize = 8;
const FACES: usize = EDGES + 12 * FINE_INNER;
/// Slots of an element.
pub const SLOTS: usize = FACES + 6 * FINE_INNER * FINE_INNER;

/// Mortar values, or additions to them, slot by slot.
pub type Skeleton = [f64; SLOTS];

/// Which edges (bits 0 to 11) and faces (bits 12 to 17) of an element are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Split(pub u32);

impl Split {
    /// Whether edge `edge` is split.
    pub fn edge(self, edge: Edge) -> bool {
        self.0 >> edge.number() & 1 != 0
    }

    /// Whether face `face` is split.
    pub fn face(self, face: Face) -> bool {
        self.0 >> (12 + face.number()) & 1 != 0
    }

    /// Marks an edge as split.
    pub fn set_edge(&mut self, edge: Edge) {
        self.0 |= 1 << edge.number();
    }

    /// Marks a face as split.
    pub fn set_face(&mut self, face: Face) {
        self.0 |= 1 << (12 + face.number());
    }
}

/// The two axes that are not `axis`.
pub const fn others(axis: usize) -> [usize; 2] {
    [[1, 2], [0, 2], [0, 1]][axis]
}

/// An edge: its axis, and its side along each of the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its direction.
    pub axis: usize,
    /// Near (0) or far (1) along the [`others`].
    pub sides: [usize; 2],
}

impl Edge {
    /// All 12 edges.
    pub fn all() -> impl Iterator<Item = Edge> {
        (0..12).map(Edge::numbered)
    }

    fn numbered(number: usize) -> Edge {
        Edge {
            axis: number / 4,
            sides: [number & 1, number >> 1 & 1],
        }
    }

    fn number(self) -> usize {
        4 * self.axis + self.sides[0] + 2 * self.sides[1]
    }

    /// Its corner: near or far along each axis; `along` is that of its own axis.
    pub fn corner(self, along: usize) -> [usize; 3] {
        let mut corner = [along; 3];
        for (axis, side) in others(self.axis).into_iter().zip(self.sides) {
            corner[axis] = side;
        }
        corner
    }

    /// The slot of its inner mortar point `at`.
    pub fn slot(self, at: usize) -> usize {
        EDGES + FINE_INNER * self.number() + at
    }

    fn point(self, position: usize) -> usize {
        let mut at = self.corner(0).map(|side| side * (POINTS - 1));
        at[self.axis] = position;
        point(at)
    }

    /// The slots of all nine of its mortar points, if it is split.
    fn line(self) -> [usize; FINE] {
        std::array::from_fn(|at| match at {
            0 => vertex(self.corner(0)),
            last if last == FINE - 1 => vertex(self.corner(1)),
            _ => self.slot(at - 1),
        })
    }
}

/// A face: its normal axis and side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Face {
    /// Its normal.
    pub axis: usize,
    /// Near (0) or far (1).
    pub side: usize,
}

impl Face {
    /// All 6 faces.
    pub fn all() -> impl Iterator<Item = Face> {
        (0..6).map(Face::numbered)
    }

    fn numbered(number: usize) -> Face {
        Face {
            axis: number / 2,
            side: number % 2,
        }
    }

    fn number(self) -> usize {
        2 * self.axis + self.side
    }

    /// Whether `edge` is one of its four edges.
    pub fn has(self, edge: Edge) -> bool {
        edge.axis != self.axis && edge.corner(0)[self.axis] == self.side
    }

    /// The slot of its inner mortar point `at` of `width` along each of its axes.
    pub fn slot(self, at: [usize; 2], width: usize) -> usize {
        FACES + FINE_INNER * FINE_INNER * self.number() + width * at[1] + at[0]
    }

    fn point(self, at: [usize; 2]) -> usize {
        let mut point_at = [self.side * (POINTS - 1); 3];
        for (axis, at) in others(self.axis).into_iter().zip(at) {
            point_at[axis] = at;
        }
        point(point_at)
    }

    /// The edge along the in-plane axis `along` (0 or 1) on `side` of the other.
    fn edge(self, along: usize, side: usize) -> Edge {
        let [first, second] = others(self.axis);
        let (axis, other) = [(first, second), (second, first)][along];
        let mut corner = [0; 3];
        corner[self.axis] = self.side;
        corner[other] = side;
        Edge {
            axis,
            sides: others(axis).map(|axis| corner[axis]),
        }
    }

    /// The slot of each of its 81 mortar points, if it is split.
    fn grid(self) -> [[usize; FINE]; FINE] {
        let rows = [0, 1].map(|side| self.edge(0, side).line());
        let columns = [0, 1].map(|side| self.edge(1, side).line());
        std::array::from_fn(|t| {
            std::array::from_fn(|s| match (s, t) {
                (_, 0) => rows[0][s],
                (_, last) if last == FINE - 1 => rows[1][s],
                (0, _) => columns[0][t],
                (last, _) if last == FINE - 1 => columns[1][t],
                _ => self.slot([s - 1, t - 1], FINE_INNER),
            })
        })
    }
}

/// The slot, and number, of the vertex that is near (0) or far (1) along each axis.
pub const fn vertex(corner: [usize; 3]) -> usize {
    corner[0] | corner[1] << 1 | corner[2] << 2
}

/// The side of vertex `number` along each axis: near (0) or far (1).
pub const fn corner(number: usize) -> [usize; 3] {
    [number & 1, number >> 1 & 1, number >> 2 & 1]
}

/// Constant tables.
struct Tables {
    /// From nine mortar points to three inner points.
    projection: [[f64; FINE]; INNER],
    /// Slots of split edges and faces, their borders included.
    lines: [[usize; FINE]; 12],
    grids: [[[usize; FINE]; FINE]; 6],
    /// The element's points on vertices, and inside edges and faces.
    vertices: [usize; 8],
    edges: [[usize; INNER]; 12],
    faces: [[usize; INNER * INNER]; 6],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let edge = Edge::numbered;
    let face = Face::numbered;
    Tables {
        projection: projection(),
        lines: std::array::from_fn(|number| edge(number).line()),
        grids: std::array::from_fn(|number| face(number).grid()),
        vertices: std::array::from_fn(|number| point(corner(number).map(|c| c * (POINTS - 1)))),
        edges: std::array::from_fn(|number| std::array::from_fn(|r| edge(number).point(r + 1))),
        faces: std::array::from_fn(|number| {
            std::array::from_fn(|at| face(number).point([at % INNER + 1, at / INNER + 1]))
        }),
    }
});

/// The inner values of a polynomial of degree four that agrees with a piecewise one at the ends,
/// and whose difference from it is orthogonal to 1, x and x².
fn projection() -> [[f64; FINE]; INNER] {
    let points = points();
    let moment = |degree: usize, at: f64| std::iter::repeat_n(at, degree).product::<f64>();
    // Five points integrate products of degree six exactly.
    let left: [[f64; INNER]; INNER] = std::array::from_fn(|degree| {
        std::array::from_fn(|of| WEIGHTS[of + 1] * moment(degree, points[of + 1]))
    });
    let mut right = [[0.0; FINE]; INNER];
    for (degree, right) in right.iter_mut().enumerate() {
        for half in 0..2 {
            for p in 0..POINTS {
                let at = 0.5 * (points[p] + [-1.0, 1.0][half]);
                right[(POINTS - 1) * half + p] += 0.5 * WEIGHTS[p] * moment(degree, at);
            }
        }
        right[0] -= WEIGHTS[0] * moment(degree, -1.0);
        right[FINE - 1] -= WEIGHTS[0] * moment(degree, 1.0);
    }
    solve(left, right)
}

/// Solves three equations for nine right-hand sides, by elimination without pivoting.
fn solve(mut left: [[f64; INNER]; INNER], mut right: [[f64; FINE]; INNER]) -> [[f64; FINE]; INNER] {
    for pivot in 0..INNER {
        let scale = 1.0 / left[pivot][pivot];
        left[pivot] = left[pivot].map(|value| value * scale);
        right[pivot] = right[pivot].map(|value| value * scale);
        let (left_row, right_row) = (left[pivot], right[pivot]);
        for row in (0..INNER).filter(|&row| row != pivot) {
            let factor = left[row][pivot];
            (0..INNER).for_each(|c| left[row][c] -= factor * left_row[c]);
            (0..FINE).for_each(|c| right[row][c] -= factor * right_row[c]);
        }
    }
    right
}

/// Sets the surface of an element from the mortars; `mortar` reads a slot.
#[inline]
pub fn expand(split: Split, mortar: impl Fn(usize) -> f64, values: &mut Values) {
    let tables = &*TABLES;
    for (number, point) in tables.vertices.iter().enumerate() {
        values[*point] = mortar(number);
    }
    for (edge, points) in Edge::all().zip(&tables.edges) {
        if split.edge(edge) {
            let line = tables.lines[edge.number()].map(&mortar);
            for (point, row) in points.iter().zip(&tables.projection) {
                values[*point] = product(row, &line);
            }
        } else {
            for (point, slot) in points.iter().zip(edge.slot(0)..) {
                values[*point] = mortar(slot);
            }
        }
    }
    for (face, points) in Face::all().zip(&tables.faces) {
        if split.face(face) {
            let rows = tables.grids[face.number()].map(|row| {
                let row = row.map(&mortar);
                tables.projection.map(|across| product(&across, &row))
            });
            for (at, point) in points.iter().enumerate() {
                let column = rows.map(|row| row[at % INNER]);
                values[*point] = product(&tables.projection[at / INNER], &column);
            }
        } else {
            for (point, slot) in points.iter().zip(face.slot([0, 0], INNER)..) {
                values[*point] = mortar(slot);
            }
        }
    }
}

/// The additions of an element's surface to the mortars: the transpose of [`expand`].
#[inline]
pub fn compress(split: Split, values: &Values) -> Skeleton {
    let tables = &*TABLES;
    let mut mortar = [0.0; SLOTS];
    for (number, point) in tables.vertices.iter().enumerate() {
        mortar[number] = values[*point];
    }
    for (edge, points) in Edge::all().zip(&tables.edges) {
        if split.edge(edge) {
            let line = points.map(|point| values[point]);
            for (at, slot) in tables.lines[edge.number()].into_iter().enumerate() {
                mortar[slot] += column(&tables.projection, at, &line);
            }
        } else {
            for (point, slot) in points.iter().zip(edge.slot(0)..) {
                mortar[slot] = values[*point];
            }
        }
    }
    for (face, points) in Face::all().zip(&tables.faces) {
        if split.face(face) {
            let inner = points.map(|point| values[point]);
            for (t, row) in tables.grids[face.number()].into_iter().enumerate() {
                let line: [f64; INNER] = std::array::from_fn(|s| {
                    let down = std::array::from_fn(|r| inner[INNER * r + s]);
                    column(&tables.projection, t, &down)
                });
                for (s, slot) in row.into_iter().enumerate() {
                    mortar[slot] += column(&tables.projection, s, &line);
                }
            }
        } else {
            for (point, slot) in points.iter().zip(face.slot([0, 0], INNER)..) {
                mortar[slot] = values[*point];
            }
        }
    }
    mortar
}

fn product(left: &[f64; FINE], right: &[f64; FINE]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

/// Column `at` of `matrix` times `vector`.
fn column(matrix: &[[f64; FINE]; INNER], at: usize, vector: &[f64; INNER]) -> f64 {
    matrix.iter().zip(vector).map(|(row, v)| row[at] * v).sum()
}

/// The slots that an element uses.
#[inline]
pub fn used(split: Split) -> impl Iterator<Item = usize> {
    let edges = Edge::all().flat_map(move |edge| {
        let count = if split.edge(edge) { FINE_INNER } else { INNER };
        edge.slot(0)..edge.slot(0) + count
    });
    let faces = Face::all().flat_map(move |face| {
        let count = if split.face(face) { FINE_INNER } else { INNER };
        let first = face.slot([0, 0], count);
        first..first + count * count
    });
    (0..8).chain(edges).chain(faces)
}

/// The weight of each slot in an average of surface values over elements: 0 for split edges and
/// faces; for a vertex, the share of its three faces that are not split.
pub fn weights(split: Split) -> Skeleton {
    let mut weights = [0.0; SLOTS];
    for (number, weight) in weights.iter_mut().take(8).enumerate() {
        let corner = corner(number);
        let whole = Face::all().filter(|face| corner[face.axis] == face.side && !split.face(*face));
        *weight = whole.count() as f64 / 3.0;
    }
    for edge in Edge::all().filter(|edge| !split.edge(*edge)) {
        (0..INNER).for_each(|r| weights[edge.slot(r)] = 1.0);
    }
    for face in Face::all().filter(|face| !split.face(*face)) {
        for at in 0..INNER * INNER {
            weights[face.slot([at % INNER, at / INNER], INNER)] = 1.0;
        }
    }
    weights
}

/// The surface values of an element at its own mortar points, weighted for the average.
pub fn plain(split: Split, values: &Values) -> Skeleton {
    let (mortar, weights) = (compress(Split(0), values), weights(split));
    std::array::from_fn(|slot| mortar[slot] * weights[slot])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_projection_is_the_published_one() {
        let projection = projection();
        let published = [
            [
                -0.177_284_321_861_569,
                0.715_214_641_246_319_7,
                0.439_868_065_031_610_4,
                1.0 / 12.0,
            ],
            [
                0.093_75,
                -0.228_575_793_037_547_1,
                0.208_333_333_333_333_3,
                0.356_179_959_704_213_7,
            ],
        ];
        for (row, published) in projection.iter().zip(published) {
            for (value, published) in row.iter().zip(published) {
                assert!((value - published).abs() < 1e-14, "{value} {published}");
            }
        }
        assert!((projection[1][4] - 2.0 * 0.070_312_5).abs() < 1e-14);
    }

    fn splits() -> impl Strategy<Value = Split> {
        (0u32..1 << 18).prop_map(|bits| {
            let mut split = Split(bits);
            // The edges of a split face are split.
            for face in Face::all()
                .filter(|face| split.face(*face))
                .collect::<Vec<_>>()
            {
                Edge::all()
                    .filter(|edge| face.has(*edge))
                    .for_each(|edge| split.set_edge(edge));
            }
            split
        })
    }

    proptest! {
        #[test]
        fn compressing_is_the_transpose_of_expanding(
            split in splits(),
            mortar in prop::collection::vec(-1.0..1.0f64, SLOTS),
            surface in prop::collection::vec(-1.0..1.0f64, 125),
        ) {
            let mortar: Skeleton = mortar.try_into().unwrap();
            let surface: Values = surface.try_into().unwrap();
            let mut expanded = [0.0; 125];
            expand(split, |slot| mortar[slot], &mut expanded);
            let compressed = compress(split, &surface);
            let left: f64 = expanded.iter().zip(surface).map(|(l, r)| l * r).sum();
            let right: f64 = compressed.iter().zip(mortar).map(|(l, r)| l * r).sum();
            prop_assert!((left - right).abs() < 1e-10, "{left} {right}");
        }
    }
}
