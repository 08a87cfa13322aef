//! Fourier transforms of several lines at once, by Stockham's method: log2(n) passes from one
//! buffer to another, without a bit-reversal pass. Each pass halves the length of the transforms
//! and doubles their number.

use crate::kernels::field::Field;
use std::f64::consts::PI;

/// The sign of a transform's exponents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From values to frequencies.
    Forward,
    /// From frequencies to values.
    Inverse,
}

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    /// Its real part.
    pub real: f64,
    /// Its imaginary part.
    pub imaginary: f64,
}

impl Complex {
    /// `real` + i `imaginary`.
    pub const fn new(real: f64, imaginary: f64) -> Complex {
        Complex { real, imaginary }
    }

    #[inline(always)]
    fn plus(self, other: Complex) -> Complex {
        Complex::new(self.real + other.real, self.imaginary + other.imaginary)
    }

    #[inline(always)]
    fn minus(self, other: Complex) -> Complex {
        Complex::new(self.real - other.real, self.imaginary - other.imaginary)
    }

    #[inline(always)]
    fn times(self, other: Complex) -> Complex {
        Complex::new(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )
    }

    fn conjugate(self) -> Complex {
        Complex::new(self.real, -self.imaginary)
    }
}

/// The places of some lines of a field.
#[derive(Clone, Copy)]
pub struct Place {
    /// The first element of the first line.
    pub start: usize,
    /// Elements from one point to the next.
    pub along: usize,
    /// Elements from one line to the next.
    pub beside: usize,
    /// Number of lines.
    pub width: usize,
}

/// Room for a block of lines of one length, and that length's roots of unity. Belongs to one thread.
///
/// Element `at` of line `line` is at `at * width + line`: the passes work on all lines of a block
/// in their inner loop.
pub struct Lines {
    length: usize,
    width: usize,
    /// exp(-2 pi i k / length) for k below half the length.
    roots: Vec<Complex>,
    data: Vec<Complex>,
    other: Vec<Complex>,
}

impl Lines {
    /// Room for blocks of up to `width` lines of `length` elements, a power of two.
    pub fn new(length: usize, width: usize) -> Lines {
        let angle = |k: usize| -2.0 * PI * k as f64 / length as f64;
        Lines {
            length,
            width,
            roots: (0..length / 2)
                .map(|k| Complex::new(angle(k).cos(), angle(k).sin()))
                .collect(),
            data: vec![Complex::default(); length * width],
            other: vec![Complex::default(); length * width],
        }
    }

    /// Reads the lines of `place` from `field`. Further lines of the block keep their values.
    pub fn read(&mut self, field: Field<'_>, place: Place) {
        self.each(place, |at, element| {
            *element = Complex::new(field.get(at), field.get(at + 1));
        });
    }

    /// Writes the lines of `place` to `field`.
    pub fn write(&mut self, field: Field<'_>, place: Place) {
        self.each(place, |at, element| {
            field.set(at, element.real);
            field.set(at + 1, element.imaginary);
        });
    }

    /// Visits the lines of `place` in the order in which they lie in memory.
    #[inline(always)]
    fn each(&mut self, place: Place, visit: impl Fn(usize, &mut Complex)) {
        let Place {
            start,
            along,
            beside,
            width,
        } = place;
        if along < beside {
            for line in 0..width {
                for at in 0..self.length {
                    let element = &mut self.data[at * self.width + line];
                    visit(start + (at * along + line * beside), element);
                }
            }
        } else {
            for at in 0..self.length {
                let elements = &mut self.data[at * self.width..][..width];
                for (line, element) in elements.iter_mut().enumerate() {
                    visit(start + (at * along + line * beside), element);
                }
            }
        }
    }

    /// Transforms all lines of the block, without normalisation.
    pub fn transform(&mut self, direction: Direction) {
        // In a pass there are `count` transforms of `length / count` elements each, interleaved.
        let mut count = 1;
        while count < self.length {
            self.pass(count, direction);
            std::mem::swap(&mut self.data, &mut self.other);
            count *= 2;
        }
    }

    /// Halves transforms: the sum of an element and the one half a transform later belongs to the
    /// even frequencies; their difference, multiplied by a root of unity, to the odd ones.
    fn pass(&mut self, count: usize, direction: Direction) {
        let half = self.length / count / 2;
        let run = count * self.width;
        let (low, high) = self.data.split_at(half * run);
        let targets = self.other.chunks_exact_mut(2 * run);
        let sources = low.chunks_exact(run).zip(high.chunks_exact(run));
        for (at, (target, (low, high))) in targets.zip(sources).enumerate() {
            let root = self.roots[at * count];
            let root = match direction {
                Direction::Forward => root,
                Direction::Inverse => root.conjugate(),
            };
            let (even, odd) = target.split_at_mut(run);
            for at in 0..run {
                even[at] = low[at].plus(high[at]);
                odd[at] = low[at].minus(high[at]).times(root);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(length: usize, width: usize, values: &[f64]) -> Lines {
        let mut lines = Lines::new(length, width);
        let numbers = values.chunks_exact(2);
        for (element, number) in lines.data.iter_mut().zip(numbers) {
            *element = Complex::new(number[0], number[1]);
        }
        lines
    }

    fn case() -> impl Strategy<Value = (usize, usize, Vec<f64>)> {
        (0u32..7, 1usize..4).prop_flat_map(|(power, width)| {
            let length = 1 << power;
            let values = prop::collection::vec(-1.0f64..1.0, 2 * length * width);
            (Just(length), Just(width), values)
        })
    }

    proptest! {
        #[test]
        fn a_transform_is_the_sum_it_is_defined_as((length, width, values) in case()) {
            let before = lines(length, width, &values);
            let mut after = lines(length, width, &values);
            after.transform(Direction::Forward);
            for line in 0..width {
                for frequency in 0..length {
                    let mut sum = Complex::default();
                    for at in 0..length {
                        let angle = -2.0 * PI * (at * frequency % length) as f64 / length as f64;
                        let root = Complex::new(angle.cos(), angle.sin());
                        sum = sum.plus(before.data[at * width + line].times(root));
                    }
                    let error = sum.minus(after.data[frequency * width + line]);
                    prop_assert!(error.real.hypot(error.imaginary) < 1e-12 * length as f64);
                }
            }
        }

        #[test]
        fn there_and_back_is_the_length_times_as_much((length, width, values) in case()) {
            let before = lines(length, width, &values);
            let mut after = lines(length, width, &values);
            after.transform(Direction::Forward);
            after.transform(Direction::Inverse);
            for (before, after) in before.data.iter().zip(&after.data) {
                let scaled = Complex::new(after.real / length as f64, after.imaginary / length as f64);
                let error = scaled.minus(*before);
                prop_assert!(error.real.hypot(error.imaginary) < 1e-13);
            }
        }
    }
}
