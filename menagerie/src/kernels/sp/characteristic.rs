//! The eigenvectors of the flux Jacobians along x, y and z, which decouple the five equations:
//! three travel with the flow and two with sound.
//!
//! The scheme needs the inverse eigenvectors of x, the products of those of one axis with the next
//! (constant matrices), and the eigenvectors of z (RNR-94-007, section 3.4.3: T_ξ⁻¹, N, P, T_ζ).

use crate::kernels::cfd::{ENERGY, Five, PRESSURE};
use std::f64::consts::FRAC_1_SQRT_2;

/// The quantities that determine the eigenvectors at a point.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Density.
    pub density: f64,
    /// Velocities along x, y and z.
    pub velocity: [f64; 3],
    /// Speed of sound.
    pub sound: f64,
}

impl Point {
    /// Kinetic energy per unit of mass.
    fn kinetic(self) -> f64 {
        let [x, y, z] = self.velocity;
        0.5 * (x * x + y * y + z * z)
    }

    /// Converts conserved quantities to the characteristic ones of x.
    pub fn into_x(self, r: Five) -> Five {
        let [x, y, z] = self.velocity;
        let volume = 1.0 / self.density;
        let moved = self.kinetic() * r[0] - x * r[1] - y * r[2] - z * r[3] + r[ENERGY];
        let pressure = PRESSURE / (self.sound * self.sound) * moved;
        let across = FRAC_1_SQRT_2 * volume * (x * r[0] - r[1]);
        let along = FRAC_1_SQRT_2 * volume * self.sound * pressure;
        [
            r[0] - pressure,
            -volume * (z * r[0] - r[3]),
            volume * (y * r[0] - r[2]),
            along - across,
            along + across,
        ]
    }

    /// Converts characteristic quantities of z to conserved ones.
    pub fn out_of_z(self, r: Five) -> Five {
        let [x, y, z] = self.velocity;
        let scaled = FRAC_1_SQRT_2 * self.density;
        let pressure = scaled / self.sound * (r[3] + r[4]);
        let along = scaled * (r[3] - r[4]);
        let mass = r[2] + pressure;
        [
            mass,
            -self.density * r[1] + x * mass,
            self.density * r[0] + y * mass,
            z * mass + along,
            self.density * (y * r[0] - x * r[1])
                + self.kinetic() * mass
                + self.sound * self.sound / PRESSURE * pressure
                + z * along,
        ]
    }
}

/// Converts characteristic quantities of x to those of y.
pub fn x_into_y(r: Five) -> Five {
    let (turned, half) = (FRAC_1_SQRT_2 * r[2], 0.5 * (r[3] + r[4]));
    let across = FRAC_1_SQRT_2 * (r[3] - r[4]);
    [-r[1], r[0], across, half - turned, half + turned]
}

/// Converts characteristic quantities of y to those of z.
pub fn y_into_z(r: Five) -> Five {
    let (turned, half) = (FRAC_1_SQRT_2 * r[0], 0.5 * (r[3] + r[4]));
    let across = FRAC_1_SQRT_2 * (r[3] - r[4]);
    [across, -r[2], r[1], half - turned, half + turned]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_and_back_over_all_axes_is_the_identity(
            density in 0.1..10.0f64,
            velocity in [-5.0..5.0f64, -5.0..5.0, -5.0..5.0],
            sound in 0.1..10.0f64,
            change in [-5.0..5.0f64, -5.0..5.0, -5.0..5.0, -5.0..5.0, -5.0..5.0],
        ) {
            let point = Point { density, velocity, sound };
            let back = point.out_of_z(y_into_z(x_into_y(point.into_x(change))));
            for (value, expected) in back.into_iter().zip(change) {
                prop_assert!((value - expected).abs() < 1e-8, "{value} {expected}");
            }
        }
    }
}
