//! The derivatives of the fluxes along an axis by the five quantities at a point (the matrices A,
//! B, C and N, Q, S of RNR-94-007), and the small dense algebra of implicit schemes.

use super::{Axis, CONDUCTION, ENERGY, Five, GAMMA, PRESSURE, VISCOSITY};

/// Five rows of five.
pub type Block = [Five; 5];

/// The derivatives of both fluxes at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jacobians {
    /// Of the convective flux and the pressure.
    pub convective: Block,
    /// Of friction and heat conduction, for gradients along the axis.
    pub viscous: Block,
}

impl Jacobians {
    /// Along `axis`, at a point with `state`.
    #[inline]
    pub fn new(axis: Axis, state: Five) -> Jacobians {
        Jacobians {
            convective: convective(axis, state),
            viscous: viscous(axis, state),
        }
    }
}

#[inline]
fn convective(axis: Axis, state: Five) -> Block {
    let volume = 1.0 / state[0];
    let velocity = [1, 2, 3].map(|c| state[c] * volume);
    let along = velocity[axis.index()];
    let kinetic = 0.5 * velocity.iter().map(|v| v * v).sum::<f64>();
    let energy = state[ENERGY] * volume;
    let normal = axis.momentum();

    let mut block = [[0.0; 5]; 5];
    block[0][normal] = 1.0;
    for c in 1..=3 {
        // Momentum c is carried by the velocity along the axis.
        block[c][0] = -velocity[c - 1] * along;
        block[c][c] += along;
        block[c][normal] += velocity[c - 1];
    }
    // The pressure, c2 (energy - kinetic energy), pushes along the axis.
    block[normal][0] += PRESSURE * kinetic;
    for c in 1..=3 {
        block[normal][c] -= PRESSURE * velocity[c - 1];
    }
    block[normal][ENERGY] += PRESSURE;

    block[ENERGY][0] = (2.0 * PRESSURE * kinetic - GAMMA * energy) * along;
    for c in 1..=3 {
        block[ENERGY][c] = -PRESSURE * velocity[c - 1] * along;
    }
    block[ENERGY][normal] += GAMMA * energy - PRESSURE * kinetic;
    block[ENERGY][ENERGY] = GAMMA * along;
    block
}

#[inline]
fn viscous(axis: Axis, state: Five) -> Block {
    let volume = 1.0 / state[0];
    let velocity = [1, 2, 3].map(|c| state[c] * volume);
    let conducted = VISCOSITY * CONDUCTION * volume;

    let mut block = [[0.0; 5]; 5];
    block[ENERGY][0] = -conducted * state[ENERGY] * volume;
    for c in 1..=3 {
        let stretch = if c == axis.momentum() { 4.0 / 3.0 } else { 1.0 };
        let rubbed = stretch * VISCOSITY * volume;
        let heated = (rubbed - conducted) * velocity[c - 1];
        block[c][0] = -rubbed * velocity[c - 1];
        block[c][c] = rubbed;
        block[ENERGY][0] -= heated * velocity[c - 1];
        block[ENERGY][c] = heated;
    }
    block[ENERGY][ENERGY] = conducted;
    block
}

/// `block` times `vector`.
#[inline]
pub fn times(block: &Block, vector: &Five) -> Five {
    std::array::from_fn(|row| (0..5).map(|c| block[row][c] * vector[c]).sum())
}

/// Subtracts `left` times `right` from `from`.
#[inline]
pub fn take_product(from: &mut Block, left: &Block, right: &Block) {
    for (row, left) in from.iter_mut().zip(left) {
        for (factor, right) in left.iter().zip(right) {
            for (value, right) in row.iter_mut().zip(right) {
                *value -= factor * right;
            }
        }
    }
}

/// Solves `block` x = r for a right-hand side of five numbers and, if given, for the columns of
/// `more`; the solutions replace both. Uses Gauss-Jordan elimination without pivoting: the schemes'
/// blocks have their large elements on the diagonal.
#[inline]
pub fn solve(mut block: Block, vector: &mut Five, mut more: Option<&mut Block>) {
    for pivot in 0..5 {
        let scale = 1.0 / block[pivot][pivot];
        for value in &mut block[pivot][pivot + 1..] {
            *value *= scale;
        }
        vector[pivot] *= scale;
        if let Some(more) = more.as_deref_mut() {
            more[pivot] = more[pivot].map(|value| value * scale);
        }
        let upper = block[pivot];
        for row in (0..5).filter(|&row| row != pivot) {
            let factor = block[row][pivot];
            for column in pivot + 1..5 {
                block[row][column] -= factor * upper[column];
            }
            vector[row] -= factor * vector[pivot];
            if let Some(more) = more.as_deref_mut() {
                let above = more[pivot];
                for (value, above) in more[row].iter_mut().zip(above) {
                    *value -= factor * above;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The flux whose derivative is `convective` (E, F, G of the report).
    fn flux(axis: Axis, u: Five) -> Five {
        let along = u[axis.momentum()] / u[0];
        let pressure =
            PRESSURE * (u[ENERGY] - 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]);
        let mut flux = u.map(|value| value * along);
        flux[axis.momentum()] += pressure;
        flux[ENERGY] += pressure * along;
        flux
    }

    /// The quantities whose derivative is `viscous`; the viscous flux is their gradient along the
    /// axis.
    fn stretched(axis: Axis, u: Five) -> Five {
        let velocity = [1, 2, 3].map(|c| u[c] / u[0]);
        let along = velocity[axis.index()];
        let kinetic = 0.5 * velocity.iter().map(|v| v * v).sum::<f64>();
        let mut five = [0.0, velocity[0], velocity[1], velocity[2], 0.0];
        five[axis.momentum()] *= 4.0 / 3.0;
        five[ENERGY] =
            (1.0 - CONDUCTION) * kinetic + along * along / 6.0 + CONDUCTION * u[ENERGY] / u[0];
        five.map(|value| VISCOSITY * value)
    }

    fn states() -> impl Strategy<Value = Five> {
        (
            1.0..5.0f64,
            [-3.0..3.0f64, -3.0..3.0, -3.0..3.0],
            10.0..30.0f64,
        )
            .prop_map(|(density, [x, y, z], energy)| [density, x, y, z, energy])
    }

    proptest! {
        #[test]
        fn the_blocks_are_the_derivatives_of_the_fluxes(state in states(), column in 0usize..5) {
            for axis in [Axis::X, Axis::Y, Axis::Z] {
                let Jacobians { convective, viscous } = Jacobians::new(axis, state);
                let of: [fn(Axis, Five) -> Five; 2] = [flux, stretched];
                for (block, of) in [convective, viscous].into_iter().zip(of) {
                    let shifted = |by: f64| {
                        let mut shifted = state;
                        shifted[column] += by;
                        of(axis, shifted)
                    };
                    let (low, high) = (shifted(-1e-5), shifted(1e-5));
                    for row in 0..5 {
                        let slope = (high[row] - low[row]) / 2e-5;
                        prop_assert!((block[row][column] - slope).abs() < 1e-6, "{row} {slope}");
                    }
                }
            }
        }

        #[test]
        fn solving_undoes_multiplying(
            noise in proptest::array::uniform5(proptest::array::uniform5(-1.0..1.0f64)),
            vector in proptest::array::uniform5(-9.0..9.0f64),
            more in proptest::array::uniform5(proptest::array::uniform5(-9.0..9.0f64)),
        ) {
            let mut block = noise;
            (0..5).for_each(|at| block[at][at] += 6.0);
            let mut solved = times(&block, &vector);
            let mut product = [[0.0; 5]; 5];
            let negative = more.map(|row| row.map(|value| -value));
            take_product(&mut product, &block, &negative);
            solve(block, &mut solved, Some(&mut product));
            let close = |found: Five, expected: Five| {
                found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-10)
            };
            prop_assert!(close(solved, vector));
            for (found, expected) in product.into_iter().zip(more) {
                prop_assert!(close(found, expected));
            }
        }
    }
}
