//! The grid: a cube of points, with a border of one layer, and arrays with one or five values per
//! point.
//!
//! Points are numbered x fastest, z slowest. A row has an odd number of places, so that at sizes
//! that are powers of two, points a row or a plane apart do not map to the same set of a cache.

use super::{Axis, Five};
use crate::kernels::field::Field;
use std::ops::Range;

/// Points of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    n: usize,
    row: usize,
}

impl Grid {
    /// `n` points along each axis, 6 or more.
    pub fn new(n: usize) -> Grid {
        assert!(
            n >= 6,
            "a fourth difference needs 4 points inside the border"
        );
        Grid {
            n,
            row: n / 2 * 2 + 1,
        }
    }

    /// Points along an axis.
    pub fn n(self) -> usize {
        self.n
    }

    /// Number of places of an array.
    pub fn places(self) -> usize {
        self.row * self.n * self.n
    }

    /// The place of point (i, j, k).
    #[inline]
    pub fn at(self, i: usize, j: usize, k: usize) -> usize {
        (k * self.n + j) * self.row + i
    }

    /// Distance in places between neighbours along `axis`.
    #[inline]
    pub fn stride(self, axis: Axis) -> usize {
        match axis {
            Axis::X => 1,
            Axis::Y => self.row,
            Axis::Z => self.row * self.n,
        }
    }

    /// Positions along an axis that are not border.
    #[inline]
    pub fn inside(self) -> Range<usize> {
        1..self.n - 1
    }

    /// The coordinate of a position along its axis, from 0 to 1.
    pub fn coordinate(self, position: usize) -> f64 {
        position as f64 * self.spacing()
    }

    /// Distance of neighbours.
    pub fn spacing(self) -> f64 {
        1.0 / (self.n - 1) as f64
    }

    /// The factors of first and second differences between neighbours, for a time step `step`: the
    /// step over twice their distance, and over its square.
    #[inline]
    pub fn differences(self, step: f64) -> (f64, f64) {
        let per_length = (self.n - 1) as f64;
        (0.5 * step * per_length, step * per_length * per_length)
    }

    /// Points that are not border.
    pub fn points_inside(self) -> f64 {
        ((self.n - 2) as f64).powi(3)
    }
}

/// An array with five adjacent values per point.
#[derive(Clone, Copy, Debug)]
pub struct Fives<'a>(Field<'a>);

impl<'a> Fives<'a> {
    /// Number of elements of such an array.
    pub fn length(grid: Grid) -> usize {
        5 * grid.places()
    }

    /// Uses `field` as such an array.
    pub fn new(field: Field<'a>) -> Fives<'a> {
        Fives(field)
    }

    /// The five values at `place`.
    #[inline(always)]
    pub fn get(self, place: usize) -> Five {
        let five = self.0.row(5 * place, 5);
        std::array::from_fn(|component| five.get(component))
    }

    /// One of the five.
    #[inline(always)]
    pub fn component(self, place: usize, component: usize) -> f64 {
        self.0.get(5 * place + component)
    }

    /// Replaces all five.
    #[inline(always)]
    pub fn set(self, place: usize, values: Five) {
        let five = self.0.row(5 * place, 5);
        for (component, value) in values.into_iter().enumerate() {
            five.set(component, value);
        }
    }
}
