//! cg: the smallest eigenvalue of a large sparse matrix, by inverse iteration with conjugate
//! gradients (RNR-94-007, section 2.2.2 "CG"; sizes and values of NPB 3).
//!
//! The matrix A is the sum of outer products of sparse random vectors, weighted for a known
//! condition number, with a shift on the diagonal. The benchmark finds zeta, an estimate of the
//! eigenvalue nearest the shift. Every iteration solves A z = x with 25 steps of conjugate
//! gradients.
//!
//! Memory: a thread owns a block of rows of A and the same block of every vector. It streams its rows from its own
//! memory, and gathers the elements of p that the columns name, from all threads' blocks.

use super::nas_random::{NasRandom, SEED};
use super::{Array, Check, Class, Kernel, Member, Problem, Stopped, Terms, WholeArray};
use crate::error::Error;
use std::ops::Range;

/// Steps of conjugate gradients in an iteration.
const STEPS: usize = 25;

/// The reciprocal of the matrix's condition number.
const RCOND: f64 = 0.1;

/// Largest relative error of zeta.
const TOLERANCE: f64 = 1e-10;

/// A class's parameters.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    /// Non-zero elements drawn for each random vector.
    drawn: usize,
    shift: f64,
}

impl Size {
    fn of(class: Class) -> Size {
        Size {
            rows: class.of([1400, 7000, 14_000, 75_000, 150_000]),
            drawn: class.of([7, 8, 11, 13, 15]),
            shift: class.of([10.0, 12.0, 20.0, 60.0, 110.0]),
        }
    }
}

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let size = Size::of(terms.class);
    let Size { rows, shift, .. } = size;
    let iterations = terms.class.of([15, 15, 15, 75, 75]);
    let sizes = format!("{rows} rows, shift {shift}");
    Problem::new(sizes, iterations, Cg::new(size, terms)?)
}

/// The problem and its memory.
pub struct Cg {
    size: Size,
    vectors: Vectors,
    /// Start of each row of the matrix in `columns` and `values`, and the end of the last.
    starts: WholeArray,
    columns: WholeArray,
    values: Array,
    x: Array,
    z: Array,
    p: Array,
    q: Array,
    r: Array,
    /// The published value.
    zeta: Option<f64>,
}

impl Cg {
    fn new(size: Size, terms: &Terms<'_>) -> Result<Cg, Error> {
        let rows = size.rows;
        // Each vector's outer product has at most (drawn + 1)^2 elements.
        let drawn = rows * (size.drawn + 1);
        let most = drawn * (size.drawn + 1);
        let counts = WholeArray::new(terms, rows)?;
        let places = WholeArray::new(terms, drawn)?;
        let starts = WholeArray::new(terms, rows + 1)?;
        let columns = WholeArray::new(terms, most)?;
        let lengths = [drawn, most, rows, rows, rows, rows, rows];
        let [vector_values, values, x, z, p, q, r] = Array::several(terms, lengths)?;
        Ok(Cg {
            size,
            vectors: Vectors {
                room: size.drawn + 1,
                counts,
                places,
                values: vector_values,
            },
            starts,
            columns,
            values,
            x,
            z,
            p,
            q,
            r,
            zeta: terms.published("zeta").first().copied(),
        })
    }

    /// Computes q = A p for a member's rows; returns its part of p·q.
    fn multiply(&self, rows: Range<usize>, p: &Array, q: &Array) -> f64 {
        let (starts, columns) = (self.starts.field(), self.columns.field());
        let (values, p, q) = (self.values.field(), p.field(), q.field());
        let mut product = 0.0;
        for row in rows {
            let start = starts.get(row) as usize;
            let length = starts.get(row + 1) as usize - start;
            let (columns, values) = (columns.row(start, length), values.row(start, length));
            let mut sum = 0.0;
            for at in 0..length {
                sum += values.get(at) * p.get(columns.get(at) as usize);
            }
            q.set(row, sum);
            product += sum * p.get(row);
        }
        product
    }

    /// Solves A z = x approximately; returns the norm of the residual.
    fn solve(&self, member: &Member<'_>) -> Result<f64, Stopped> {
        let rows = member.share(self.size.rows);
        let (x, z) = (self.x.field(), self.z.field());
        let (p, q, r) = (self.p.field(), self.q.field(), self.r.field());
        let mut part = 0.0;
        for row in rows.clone() {
            q.set(row, 0.0);
            z.set(row, 0.0);
            let value = x.get(row);
            r.set(row, value);
            p.set(row, value);
            part += value * value;
        }
        let mut rho = member.sum(part)?;
        for _ in 0..STEPS {
            let product = member.sum(self.multiply(rows.clone(), &self.p, &self.q))?;
            let alpha = rho / product;
            let mut part = 0.0;
            for row in rows.clone() {
                z.set(row, z.get(row) + alpha * p.get(row));
                let residual = r.get(row) - alpha * q.get(row);
                r.set(row, residual);
                part += residual * residual;
            }
            let next = member.sum(part)?;
            let beta = next / rho;
            rho = next;
            for row in rows.clone() {
                p.set(row, r.get(row) + beta * p.get(row));
            }
            // The next product gathers p from all members.
            member.wait()?;
        }
        self.multiply(rows.clone(), &self.z, &self.r);
        let part = rows
            .map(|row| (x.get(row) - r.get(row)).powi(2))
            .sum::<f64>();
        Ok(member.sum(part)?.sqrt())
    }
}

impl Kernel for Cg {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let rows = member.share(self.size.rows);
        self.vectors.draw(&self.size, rows.clone());
        member.wait()?;
        let matrix = Rows::assemble(&self.size, &self.vectors, rows.clone());
        // The number of elements in all earlier rows, which is exact in floating point.
        let mut start = 0;
        for other in 0..member.threads {
            let own = if other == member.index {
                matrix.columns.len()
            } else {
                0
            };
            let count = member.sum(own as f64)? as usize;
            start += if other < member.index { count } else { 0 };
        }
        let (starts, columns, values) = (
            self.starts.field(),
            self.columns.field(),
            self.values.field(),
        );
        for (row, end) in rows.clone().zip(&matrix.ends) {
            starts.set(row + 1, to_index(start + end));
        }
        for (at, (column, value)) in matrix.columns.iter().zip(&matrix.values).enumerate() {
            columns.set(start + at, *column);
            values.set(start + at, *value);
        }
        let x = self.x.field();
        for array in [&self.z, &self.p, &self.q, &self.r] {
            array.field().fill(rows.clone(), 0.0);
        }
        x.fill(rows, 1.0);
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let mut zeta = f64::NAN;
        let (x, z) = (self.x.field(), self.z.field());
        let rows = member.share(self.size.rows);
        for _ in member.iterations() {
            self.solve(member)?;
            let mut products = [0.0; 2];
            for row in rows.clone() {
                let value = z.get(row);
                products[0] += x.get(row) * value;
                products[1] += value * value;
            }
            let [xz, zz] = member.sums(products)?;
            let scale = 1.0 / zz.sqrt();
            for row in rows.clone() {
                x.set(row, scale * z.get(row));
            }
            zeta = self.size.shift + 1.0 / xz;
        }
        let check = Check::published("zeta", zeta, self.zeta, TOLERANCE);
        Ok(vec![check])
    }
}

/// An index as it is stored: 32 bits, as in the benchmark.
fn to_index(value: usize) -> u32 {
    u32::try_from(value).expect("the largest class has fewer than 2^32 elements")
}

/// A run of rows of the matrix.
struct Rows {
    /// End of each row in the other two.
    ends: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// The random vectors that make up the matrix, in shared memory. The number of draws for a vector
/// is not known in advance, so every thread draws all vectors up to its last, and keeps its own.
/// Each has the same room.
struct Vectors {
    room: usize,
    /// Number of elements of each.
    counts: WholeArray,
    places: WholeArray,
    values: Array,
}

impl Vectors {
    /// Draws the vectors of `own`. In vector `i`, element `i` is one half.
    fn draw(&self, size: &Size, own: Range<usize>) {
        let (places, values) = (self.places.field(), self.values.field());
        let range = size.rows.next_power_of_two() as f64;
        let mut random = NasRandom::new(SEED);
        // The benchmark draws one number before the matrix.
        random.next();
        let mut elements: Vec<(u32, f64)> = Vec::with_capacity(self.room);
        for vector in 0..own.end {
            elements.clear();
            while elements.len() < size.drawn {
                let value = random.next();
                let place = to_index((range * random.next()) as usize);
                let is_there = elements.iter().any(|(other, _)| *other == place);
                if (place as usize) < size.rows && !is_there {
                    elements.push((place, value));
                }
            }
            if !own.contains(&vector) {
                continue;
            }
            let diagonal = to_index(vector);
            match elements.iter_mut().find(|(place, _)| *place == diagonal) {
                Some((_, value)) => *value = 0.5,
                None => elements.push((diagonal, 0.5)),
            }
            self.counts.field().set(vector, to_index(elements.len()));
            for (at, (place, value)) in elements.iter().enumerate() {
                places.set(vector * self.room + at, *place);
                values.set(vector * self.room + at, *value);
            }
        }
    }

    /// The places of `vector`'s elements.
    fn elements(&self, vector: usize) -> Range<usize> {
        let start = vector * self.room;
        start..start + self.counts.field().get(vector) as usize
    }
}

impl Rows {
    /// The rows `rows` of the sum of the vectors' weighted outer products.
    fn assemble(size: &Size, vectors: &Vectors, rows: Range<usize>) -> Rows {
        let (places, values) = (vectors.places.field(), vectors.values.field());
        // For each row, the vectors that have an element there, in order: additions to an element
        // of the matrix follow this order.
        let mut having = vec![Vec::new(); rows.len()];
        let ratio = RCOND.powf(1.0 / size.rows as f64);
        let mut weight = 1.0;
        let mut weights = Vec::with_capacity(size.rows);
        for vector in 0..size.rows {
            weights.push(weight);
            weight *= ratio;
            for at in vectors.elements(vector) {
                let row = places.get(at) as usize;
                if rows.contains(&row) {
                    having[row - rows.start].push((vector, values.get(at)));
                }
            }
        }
        let mut matrix = Rows {
            ends: Vec::with_capacity(rows.len()),
            columns: Vec::new(),
            values: Vec::new(),
        };
        // The current row, dense, and the columns where it is not zero.
        let mut dense = vec![0.0; size.rows];
        let mut is_used = vec![false; size.rows];
        let mut used = Vec::new();
        for (row, having) in rows.zip(having) {
            for (vector, factor) in having {
                let scale = weights[vector] * factor;
                for at in vectors.elements(vector) {
                    let column = places.get(at) as usize;
                    let mut value = values.get(at) * scale;
                    if column == row && row == vector {
                        value = value + RCOND - size.shift;
                    }
                    dense[column] += value;
                    if !std::mem::replace(&mut is_used[column], true) {
                        used.push(column);
                    }
                }
            }
            used.sort_unstable();
            for column in used.drain(..) {
                matrix.columns.push(to_index(column));
                matrix.values.push(std::mem::take(&mut dense[column]));
                is_used[column] = false;
            }
            matrix.ends.push(matrix.columns.len());
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::trial;
    use std::collections::BTreeMap;

    #[test]
    fn the_matrix_is_symmetric_and_the_same_however_it_is_divided() {
        let size = Size {
            rows: 300,
            ..Size::of(Class::S)
        };
        trial::with_terms(Class::S, 1, |terms| {
            let cg = Cg::new(size, terms).unwrap();
            for own in [0..77, 77..78, 78..300] {
                cg.vectors.draw(&size, own);
            }
            let whole = Rows::assemble(&size, &cg.vectors, 0..300);
            let mut elements = BTreeMap::new();
            let mut start = 0;
            for (row, end) in whole.ends.iter().enumerate() {
                for at in start..*end {
                    elements.insert((row, whole.columns[at] as usize), whole.values[at]);
                }
                let columns = &whole.columns[start..*end];
                assert!(columns.is_sorted_by(|left, right| left < right));
                start = *end;
            }
            for ((row, column), value) in &elements {
                let mirrored = elements[&(*column, *row)];
                assert!((value - mirrored).abs() <= 1e-12 * value.abs());
            }
            let parts =
                [0..100, 100..101, 101..300].map(|rows| Rows::assemble(&size, &cg.vectors, rows));
            let columns: Vec<_> = parts.iter().flat_map(|part| part.columns.clone()).collect();
            let values: Vec<_> = parts.iter().flat_map(|part| part.values.clone()).collect();
            assert_eq!((columns, values), (whole.columns, whole.values));
        });
    }
}
