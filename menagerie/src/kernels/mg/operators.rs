//! The operators of the V-cycle on grids with a periodic border. Each is a weighted sum over the 27
//! points around a point, with one weight each for the point itself, the 6 that share a face with
//! its cell, the 12 that share an edge and the 8 that share a corner.
//!
//! A row along the first axis is computed as a whole: the sums over the faces' and edges' rows are
//! computed once for each point and used for its neighbours, too, which saves two thirds of the
//! additions. Each thread keeps them in two lines of its own.
//!
//! Every operator ends with a barrier and with the border of its result up to date.

use crate::kernels::field::Field;
use crate::kernels::team::{Member, Stopped};

/// The residual's weights of the 27 points: those of the finite-element Laplacian, whose weight for
/// faces is 0.
const LAPLACIAN: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];

/// A cube of points with its border.
#[derive(Clone, Copy)]
pub struct Grid<'a> {
    field: Field<'a>,
    side: usize,
}

impl<'a> Grid<'a> {
    /// `field` as a cube of `side` points along an axis, borders included.
    pub fn new(field: Field<'a>, side: usize) -> Grid<'a> {
        Grid { field, side }
    }

    /// All points.
    pub fn field(self) -> Field<'a> {
        self.field
    }

    /// The index of a point.
    pub fn index(self, plane: usize, row: usize, at: usize) -> usize {
        (plane * self.side + row) * self.side + at
    }

    /// A row along the first axis.
    #[inline(always)]
    fn row(self, plane: usize, row: usize) -> Field<'a> {
        self.field.row(self.index(plane, row, 0), self.side)
    }

    /// Sets a member's planes to 0. The planes divided among members include the borders.
    pub fn clear(self, member: &Member<'_>) {
        let plane = self.side * self.side;
        let planes = member.share(self.side);
        self.field
            .fill(planes.start * plane..planes.end * plane, 0.0);
    }

    /// A member's planes, without the borders.
    fn inner(self, member: &Member<'_>) -> std::ops::Range<usize> {
        member.share_of(1..self.side - 1)
    }

    /// The sum of the squares of a member's points, without the borders.
    pub fn squares(self, member: &Member<'_>) -> f64 {
        let mut sum = 0.0;
        for plane in self.inner(member) {
            for row in 1..self.side - 1 {
                let row = self.row(plane, row);
                sum += (1..self.side - 1)
                    .map(|at| row.get(at).powi(2))
                    .sum::<f64>();
            }
        }
        sum
    }

    /// Copies the opposite sides to the border, once all members have written their points: first
    /// along the first two axes, in each member's own planes, then the two planes at the ends,
    /// whose rows all members divide.
    pub fn wrap(self, member: &Member<'_>) -> Result<(), Stopped> {
        let last = self.side - 1;
        for plane in self.inner(member) {
            for row in 1..last {
                let row = self.row(plane, row);
                row.set(0, row.get(last - 1));
                row.set(last, row.get(1));
            }
            copy(self.row(plane, last - 1), self.row(plane, 0));
            copy(self.row(plane, 1), self.row(plane, last));
        }
        member.wait()?;
        for row in member.share(self.side) {
            copy(self.row(last - 1, row), self.row(0, row));
            copy(self.row(1, row), self.row(last, row));
        }
        member.wait()
    }
}

fn copy(from: Field<'_>, to: Field<'_>) {
    for at in 0..from.len() {
        to.set(at, from.get(at));
    }
}

/// Two lines of sums over the rows around a row: those that share a face with it, and those that share an edge.
struct Sums {
    faces: Vec<f64>,
    edges: Vec<f64>,
}

impl Sums {
    fn new(side: usize) -> Sums {
        Sums {
            faces: vec![0.0; side],
            edges: vec![0.0; side],
        }
    }

    /// Adds up the rows around a row.
    #[inline(always)]
    fn around(&mut self, grid: Grid<'_>, plane: usize, row: usize) {
        let side = grid.side;
        let [before, after] = [grid.row(plane, row - 1), grid.row(plane, row + 1)];
        let [below, above] = [grid.row(plane - 1, row), grid.row(plane + 1, row)];
        let [below_before, below_after] =
            [grid.row(plane - 1, row - 1), grid.row(plane - 1, row + 1)];
        let [above_before, above_after] =
            [grid.row(plane + 1, row - 1), grid.row(plane + 1, row + 1)];
        let (faces, edges) = (&mut self.faces[..side], &mut self.edges[..side]);
        for at in 0..side {
            faces[at] = before.get(at) + after.get(at) + below.get(at) + above.get(at);
            edges[at] = below_before.get(at)
                + below_after.get(at)
                + above_before.get(at)
                + above_after.get(at);
        }
    }
}

/// r = v - A u. `v` and `r` may be the same.
pub fn residual(member: &Member<'_>, u: Grid<'_>, v: Grid<'_>, r: Grid<'_>) -> Result<(), Stopped> {
    let side = u.side;
    let mut sums = Sums::new(side);
    for plane in u.inner(member) {
        for row in 1..side - 1 {
            sums.around(u, plane, row);
            let (faces, edges) = (&sums.faces[..side], &sums.edges[..side]);
            let (u, v, r) = (u.row(plane, row), v.row(plane, row), r.row(plane, row));
            for at in 1..side - 1 {
                // The weight of faces is 0.
                let value = v.get(at)
                    - LAPLACIAN[0] * u.get(at)
                    - LAPLACIAN[2] * (edges[at] + faces[at - 1] + faces[at + 1])
                    - LAPLACIAN[3] * (edges[at - 1] + edges[at + 1]);
                r.set(at, value);
            }
        }
    }
    r.wrap(member)
}

/// u = u + S r, where the weight of S for corners is 0.
pub fn smooth(
    member: &Member<'_>,
    r: Grid<'_>,
    u: Grid<'_>,
    weights: [f64; 3],
) -> Result<(), Stopped> {
    let side = u.side;
    let mut sums = Sums::new(side);
    for plane in u.inner(member) {
        for row in 1..side - 1 {
            sums.around(r, plane, row);
            let (faces, edges) = (&sums.faces[..side], &sums.edges[..side]);
            let (u, r) = (u.row(plane, row), r.row(plane, row));
            for at in 1..side - 1 {
                let change = weights[0] * r.get(at)
                    + weights[1] * (r.get(at - 1) + r.get(at + 1) + faces[at])
                    + weights[2] * (edges[at] + faces[at - 1] + faces[at + 1]);
                u.add(at, change);
            }
        }
    }
    u.wrap(member)
}

/// Sets the coarse grid's points to weighted sums of the fine points around them: half for the point itself, a quarter
/// for those that share a face, an eighth for edges, a sixteenth for corners.
pub fn restrict(member: &Member<'_>, fine: Grid<'_>, coarse: Grid<'_>) -> Result<(), Stopped> {
    let side = coarse.side;
    let mut sums = Sums::new(fine.side);
    for plane in coarse.inner(member) {
        for row in 1..side - 1 {
            sums.around(fine, 2 * plane, 2 * row);
            let (faces, edges) = (&sums.faces[..fine.side], &sums.edges[..fine.side]);
            let (coarse, fine) = (coarse.row(plane, row), fine.row(2 * plane, 2 * row));
            for at in 1..side - 1 {
                let mid = 2 * at;
                let value = 0.5 * fine.get(mid)
                    + 0.25 * (fine.get(mid - 1) + fine.get(mid + 1) + faces[mid])
                    + 0.125 * (faces[mid - 1] + faces[mid + 1] + edges[mid])
                    + 0.0625 * (edges[mid - 1] + edges[mid + 1]);
                coarse.set(at, value);
            }
        }
    }
    coarse.wrap(member)
}

/// Adds the coarse correction to the fine grid, with linear interpolation. The owner of a coarse
/// plane computes the fine planes at it and behind it; borders become right without a copy.
pub fn correct(member: &Member<'_>, coarse: Grid<'_>, fine: Grid<'_>) -> Result<(), Stopped> {
    let side = coarse.side;
    // Sums over the coarse rows around a fine row: one, two, two and four.
    let mut lines: [Vec<f64>; 4] = std::array::from_fn(|_| vec![0.0; side]);
    for plane in member.share(side - 1) {
        for row in 0..side - 1 {
            let [near, after] = [coarse.row(plane, row), coarse.row(plane, row + 1)];
            let [above, above_after] = [coarse.row(plane + 1, row), coarse.row(plane + 1, row + 1)];
            let [one, along, up, four] = lines.each_mut().map(|line| &mut line[..side]);
            for at in 0..side {
                one[at] = near.get(at);
                along[at] = one[at] + after.get(at);
                up[at] = one[at] + above.get(at);
                four[at] = along[at] + above.get(at) + above_after.get(at);
            }
            for (part, (line, weight)) in lines.iter().zip([1.0, 0.5, 0.5, 0.25]).enumerate() {
                let fine = fine.row(2 * plane + part / 2, 2 * row + part % 2);
                for at in 0..side - 1 {
                    fine.add(2 * at, weight * line[at]);
                    fine.add(2 * at + 1, 0.5 * weight * (line[at] + line[at + 1]));
                }
            }
        }
    }
    member.wait()
}
