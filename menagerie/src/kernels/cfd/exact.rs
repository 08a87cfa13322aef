//! The solution that determines the forcing, and the first guess from which the march starts.

use super::Five;

/// Coefficients of the solution, a row for each of the five: the constant, then those of x, y and z
/// for the first, second, third and fourth powers (RNR-94-007, table of C).
const COEFFICIENTS: [[f64; 13]; 5] = [
    [
        2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3,
    ],
    [
        1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5,
    ],
    [
        2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4,
    ],
    [
        2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3,
    ],
    [
        5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2,
    ],
];

/// The solution at `at` = (x, y, z), each from 0 to 1.
pub fn solution(at: [f64; 3]) -> Five {
    COEFFICIENTS.map(|row| {
        let along = |axis: usize| {
            // Horner's rule from the fourth power down.
            let powers = [row[10 + axis], row[7 + axis], row[4 + axis], row[1 + axis]];
            powers
                .iter()
                .fold(0.0, |sum, coefficient| (sum + coefficient) * at[axis])
        };
        row[0] + along(0) + along(1) + along(2)
    })
}

/// The first guess at `at`, inside the cube: from the solution on the six faces, interpolated
/// between opposite ones and combined as in the report, with products of values (unlike transfinite
/// interpolation, but all implementations must agree).
pub fn guess(at: [f64; 3]) -> Five {
    let between = |axis: usize| -> Five {
        let face = |side: f64| {
            let mut there = at;
            there[axis] = side;
            solution(there)
        };
        let (near, far) = (face(0.0), face(1.0));
        std::array::from_fn(|c| at[axis] * far[c] + (1.0 - at[axis]) * near[c])
    };
    let (x, y, z) = (between(0), between(1), between(2));
    std::array::from_fn(|c| {
        x[c] + y[c] + z[c] - x[c] * y[c] - y[c] * z[c] - z[c] * x[c] + x[c] * y[c] * z[c]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corner_of_the_solution_is_the_sum_of_its_coefficients() {
        assert_eq!(solution([0.0; 3]), [2.0, 1.0, 2.0, 2.0, 5.0]);
        let far = solution([1.0; 3]);
        for (value, row) in far.into_iter().zip(COEFFICIENTS) {
            assert!((value - row.iter().sum::<f64>()).abs() < 1e-13, "{value}");
        }
    }

    #[test]
    fn powers_are_of_their_axis() {
        let x: f64 = 0.3;
        let expected = 2.0 + 5.0 * x * x + 0.02 * x.powi(3) + 0.5 * x.powi(4);
        assert!((solution([x, 0.0, 0.0])[0] - expected).abs() < 1e-15);
        let z: f64 = 0.7;
        let expected = 2.0 + 4.0 * z + 0.5 * z * z + 0.03 * z.powi(3) + 0.3 * z.powi(4);
        assert!((solution([0.0, 0.0, z])[0] - expected).abs() < 1e-15);
    }
}
