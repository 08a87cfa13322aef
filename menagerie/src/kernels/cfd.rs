//! cfd: the common part of the three pseudo-applications bt, sp and lu.
//!
//! All three march the same synthetic system of five coupled equations to its steady state:
//! density, three momenta and energy of a compressible viscous flow in the unit cube. They use an
//! even grid and central differences with a fourth-order dissipation; the forcing is chosen so that
//! a known polynomial is the solution. They differ in how they take a step. The flow is not real,
//! but the constants make the system behave like one.
//!
//! Source: Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, section 3 ("A methodology for
//! the simulated CFD applications"). Comments give the report's symbols.
//!
//! | file | subject |
//! |---|---|
//! | `application` | what the three do alike as kernels |
//! | `grid` | points, their numbers in memory, five values at each |
//! | `exact` | the known solution and the first guess |
//! | `flow` | the arrays, the right-hand side, the norms |
//! | `jacobian` | derivatives of the fluxes, and blocks of 5 by 5 |

pub mod application;
pub mod exact;
pub mod flow;
pub mod grid;
pub mod jacobian;

/// Density, three momenta, energy; or any other five values of a point.
pub type Five = [f64; 5];

/// Index of the energy among the five.
pub const ENERGY: usize = 4;

/// Ratio of specific heats (c1).
pub const GAMMA: f64 = 1.4;
/// The gas constant's part of the pressure (c2): pressure = c2 (energy - kinetic energy).
pub const PRESSURE: f64 = 0.4;
/// Viscosity (c3 c4).
pub const VISCOSITY: f64 = 0.1;
/// Heat conduction over viscosity (c1 c5).
pub const CONDUCTION: f64 = 1.96;
/// Weight of the fourth-order dissipation (ε, "dssp"): a quarter of the largest diffusion.
pub const DISSIPATION: f64 = 0.25;

/// A direction of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// ξ: neighbours in memory.
    X,
    /// η: a row apart.
    Y,
    /// ζ: a plane apart.
    Z,
}

impl Axis {
    /// 0, 1 or 2.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Index of the momentum along this axis among the five.
    pub const fn momentum(self) -> usize {
        self as usize + 1
    }

    /// Additional diffusion along this axis, the same for all five equations (d_x, d_y, d_z).
    pub const fn diffusion(self) -> f64 {
        match self {
            Axis::X | Axis::Y => 0.75,
            Axis::Z => 1.0,
        }
    }
}

/// Weights of the fourth difference at `position` of a line of `n` points, for the points two
/// before to two after. Near the border, points that would lie on it or outside are left out.
pub const fn fourth_difference(position: usize, n: usize) -> Five {
    if position == 1 {
        [0.0, 0.0, 5.0, -4.0, 1.0]
    } else if position == 2 {
        [0.0, -4.0, 6.0, -4.0, 1.0]
    } else if position == n - 3 {
        [1.0, -4.0, 6.0, -4.0, 0.0]
    } else if position == n - 2 {
        [1.0, -4.0, 5.0, 0.0, 0.0]
    } else {
        [1.0, -4.0, 6.0, -4.0, 1.0]
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::trial::compute;
    use crate::kernels::{Class, Name};
    use crate::stop::Stop;

    #[test]
    fn any_number_of_threads_gets_the_same_to_ten_digits() {
        for name in [Name::Bt, Name::Lu, Name::Sp] {
            let values = |threads| {
                let (_, verification) = compute(name, Class::S, threads, None, &Stop::new());
                let checks = verification.checks.into_iter();
                checks.map(|check| check.value).collect::<Vec<_>>()
            };
            let alone = values(1);
            assert!(alone.len() >= 10);
            for threads in [2, 4, 5, 12] {
                for (value, alone) in values(threads).into_iter().zip(&alone) {
                    let error = ((value - alone) / alone).abs();
                    assert!(
                        error < 1e-10,
                        "{name:?}, {threads} threads: {value} {alone}"
                    );
                }
            }
        }
    }
}
