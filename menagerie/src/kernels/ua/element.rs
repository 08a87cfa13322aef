//! An element: 5 by 5 by 5 values at Gauss-Lobatto-Legendre points of a cube, and the operators
//! within it. The values are those of a polynomial of degree four along each axis.

/// Points along an axis.
pub const POINTS: usize = 5;
/// Points of an element; x fastest.
pub const VOLUME: usize = POINTS * POINTS * POINTS;

/// Values at all points of an element.
pub type Values = [f64; VOLUME];
/// A linear operator along one axis.
pub type Line = [[f64; POINTS]; POINTS];

/// Weights of the points in an integral from -1 to 1.
pub const WEIGHTS: [f64; POINTS] = [0.1, 49.0 / 90.0, 32.0 / 45.0, 49.0 / 90.0, 0.1];

/// Speed of the source, and of the medium, along each axis.
pub const VELOCITY: f64 = 3.0;
/// Heat conductivity of the medium.
pub const CONDUCTIVITY: f64 = 0.005;

/// The points on the interval from -1 to 1.
pub fn points() -> [f64; POINTS] {
    let inner = (3.0f64 / 7.0).sqrt();
    [-1.0, -inner, 0.0, inner, 1.0]
}

/// The number of a point.
pub const fn point(at: [usize; 3]) -> usize {
    (at[2] * POINTS + at[1]) * POINTS + at[0]
}

/// The weight of each point's value in the polynomial's value at `at`.
pub fn interpolation(at: f64) -> [f64; POINTS] {
    let points = points();
    std::array::from_fn(|of| {
        let others = (0..POINTS).filter(|other| *other != of);
        others
            .map(|other| (at - points[other]) / (points[of] - points[other]))
            .product()
    })
}

/// The operators, computed once.
#[derive(Debug)]
pub struct Operators {
    /// The slope at each point.
    derivative: Line,
    /// The integrals of products of two slopes.
    stiffness: Line,
    /// From an element to its near and its far half.
    halves: [Line; 2],
    /// From the two halves to the element: the half that contains each point, and the weights.
    whole: [(usize, [f64; POINTS]); POINTS],
}

impl Operators {
    /// The operators.
    pub fn new() -> Operators {
        let points = points();
        let derivative = derivative();
        let stiffness = std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                (0..POINTS)
                    .map(|p| WEIGHTS[p] * derivative[p][i] * derivative[p][j])
                    .sum()
            })
        });
        Operators {
            derivative,
            stiffness,
            halves: [-1.0, 1.0].map(|side| points.map(|at| interpolation(0.5 * (at + side)))),
            whole: std::array::from_fn(|p| {
                let half = usize::from(p > POINTS / 2);
                let side = [1.0, -1.0][half];
                (half, interpolation(2.0 * points[p] + side))
            }),
        }
    }

    /// The polynomial of an element at the points of one of its eight parts.
    pub fn part(&self, values: &Values, octant: usize) -> Values {
        (0..3).fold(*values, |values, axis| {
            along(axis, &self.halves[octant >> axis & 1], &values)
        })
    }

    /// The polynomials of an element's eight parts at the points of the whole.
    pub fn whole(&self, parts: &[Values; 8]) -> Values {
        let mut values = [0.0; VOLUME];
        for k in 0..POINTS {
            for j in 0..POINTS {
                for i in 0..POINTS {
                    let [x, y, z] = [i, j, k].map(|p| &self.whole[p]);
                    let part = &parts[x.0 | y.0 << 1 | z.0 << 2];
                    let mut sum = 0.0;
                    for c in 0..POINTS {
                        for b in 0..POINTS {
                            for a in 0..POINTS {
                                sum += x.1[a] * y.1[b] * z.1[c] * part[point([a, b, c])];
                            }
                        }
                    }
                    values[point([i, j, k])] = sum;
                }
            }
        }
        values
    }

    /// The rate of change of the temperature by convection, in an element of this `side`.
    pub fn carried(&self, values: &Values, side: f64) -> Values {
        let slopes = [0, 1, 2].map(|axis| along(axis, &self.derivative, values));
        std::array::from_fn(|p| {
            -VELOCITY * (slopes[0][p] + slopes[1][p] + slopes[2][p]) * 2.0 / side
        })
    }

    /// The conduction of an element of side 2; its mass is [`MASS`].
    pub fn conducted(&self, values: &Values) -> Values {
        let mut sum = [0.0; VOLUME];
        for (axis, area) in AREA.iter().enumerate() {
            let bent = along(axis, &self.stiffness, values);
            for (sum, (area, bent)) in sum.iter_mut().zip(area.iter().zip(bent)) {
                *sum += area * bent;
            }
        }
        sum
    }
}

/// The weight of each point in the integral over an element of side 2.
pub const MASS: Values = weighted([true; 3]);

/// The weight of each point in the integral over the cross-section at it, for each axis.
const AREA: [Values; 3] = [
    weighted([false, true, true]),
    weighted([true, false, true]),
    weighted([true, true, false]),
];

/// The products of the weights along those axes.
const fn weighted(axes: [bool; 3]) -> Values {
    let mut product = [1.0; VOLUME];
    let mut p = 0;
    while p < VOLUME {
        let at = [p % POINTS, p / POINTS % POINTS, p / (POINTS * POINTS)];
        let mut axis = 0;
        while axis < 3 {
            if axes[axis] {
                product[p] *= WEIGHTS[at[axis]];
            }
            axis += 1;
        }
        p += 1;
    }
    product
}

/// The factors of conduction and mass in an element of this `side`, for steps of length `step`.
pub fn scales(side: f64, step: f64) -> [f64; 2] {
    let half = 0.5 * side;
    [CONDUCTIVITY * half, half.powi(3) / step]
}

/// Applies `operator` along an axis.
#[inline]
pub fn along(axis: usize, operator: &Line, values: &Values) -> Values {
    match axis {
        0 => apply::<1>(operator, values),
        1 => apply::<POINTS>(operator, values),
        _ => apply::<{ POINTS * POINTS }>(operator, values),
    }
}

/// Applies `operator` along the axis whose neighbours are `STRIDE` points apart.
#[inline]
fn apply<const STRIDE: usize>(operator: &Line, values: &Values) -> Values {
    let mut result = [0.0; VOLUME];
    let blocks = result.chunks_exact_mut(POINTS * STRIDE);
    for (result, values) in blocks.zip(values.chunks_exact(POINTS * STRIDE)) {
        for (result, row) in result.chunks_exact_mut(STRIDE).zip(operator) {
            for (values, factor) in values.chunks_exact(STRIDE).zip(row) {
                for (result, value) in result.iter_mut().zip(values) {
                    *result += factor * value;
                }
            }
        }
    }
    result
}

fn derivative() -> Line {
    let points = points();
    std::array::from_fn(|at| {
        std::array::from_fn(|of| {
            // The derivative of the product in `interpolation`.
            let others = |left_out: usize| (0..POINTS).filter(move |&o| o != of && o != left_out);
            (0..POINTS)
                .filter(|&slope| slope != of)
                .map(|slope| {
                    let rest =
                        others(slope).map(|o| (points[at] - points[o]) / (points[of] - points[o]));
                    rest.product::<f64>() / (points[of] - points[slope])
                })
                .sum()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(f: impl Fn(f64, f64, f64) -> f64, low: [f64; 3], side: f64) -> Values {
        let points = points();
        std::array::from_fn(|p| {
            let at = [p % 5, p / 5 % 5, p / 25];
            let [x, y, z] = [0, 1, 2].map(|axis| low[axis] + side * 0.5 * (points[at[axis]] + 1.0));
            f(x, y, z)
        })
    }

    fn quartic(x: f64, y: f64, z: f64) -> f64 {
        x.powi(4) - 2.0 * x * y.powi(3) + z * z * y + 0.5 * z.powi(4) - 1.0
    }

    fn close(left: &Values, right: &Values) -> bool {
        left.iter().zip(right).all(|(l, r)| (l - r).abs() < 1e-12)
    }

    #[test]
    fn parts_and_whole_have_the_same_polynomial() {
        let operators = Operators::new();
        let whole = sampled(quartic, [0.0; 3], 1.0);
        let parts: [Values; 8] = std::array::from_fn(|octant| operators.part(&whole, octant));
        for (octant, part) in parts.iter().enumerate() {
            let low = [0, 1, 2].map(|axis| 0.5 * f64::from(u8::from(octant >> axis & 1 != 0)));
            assert!(close(part, &sampled(quartic, low, 0.5)));
        }
        assert!(close(&operators.whole(&parts), &whole));
    }

    #[test]
    fn what_is_carried_follows_the_slopes() {
        let values = sampled(quartic, [0.25; 3], 0.25);
        let expected = sampled(
            |x, y, z| {
                let slopes = 4.0 * x.powi(3) - 2.0 * y.powi(3) - 6.0 * x * y * y
                    + z * z
                    + 2.0 * z * y
                    + 2.0 * z.powi(3);
                -VELOCITY * slopes
            },
            [0.25; 3],
            0.25,
        );
        assert!(close(&Operators::new().carried(&values, 0.25), &expected));
    }

    #[test]
    fn an_even_temperature_conducts_nothing() {
        let flat = Operators::new().conducted(&[3.0; VOLUME]);
        assert!(flat.iter().all(|value| value.abs() < 1e-12));
        let volume: f64 = MASS.iter().sum();
        assert!((volume - 8.0).abs() < 1e-14);
    }
}
