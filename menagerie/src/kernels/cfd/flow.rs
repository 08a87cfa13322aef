//! The arrays of a run, the right-hand side of the system, and the norms that verify a run.
//!
//! The threads split the planes of constant z among them for everything here. The right-hand side
//! needs neighbours two planes away, so at the border of two shares, each thread reads what the
//! other wrote. The threads share nothing else.

use super::exact;
use super::grid::{Fives, Grid};
use super::{Axis, CONDUCTION, DISSIPATION, ENERGY, Five, PRESSURE, VISCOSITY, fourth_difference};
use crate::error::Error;

use crate::kernels::field::Field;
use crate::kernels::{Array, Member, Stopped, Terms};
use std::ops::Range;

/// Owner of the arrays. Computations use its [`Flow`].
#[derive(Debug)]
pub struct Arrays {
    grid: Grid,
    /// State, change, forcing; volume, three velocities, kinetic energy.
    arrays: [Array; 8],
}

impl Arrays {
    /// For `n` points along each axis.
    ///
    /// # Errors
    ///
    /// If there is too little memory.
    pub fn new(terms: &Terms<'_>, n: usize) -> Result<Arrays, Error> {
        let grid = Grid::new(n);
        let (five, one) = (Fives::length(grid), grid.places());
        let lengths = [five, five, five, one, one, one, one, one];
        let arrays = Array::several(terms, lengths)?;
        Ok(Arrays { grid, arrays })
    }

    /// The arrays for computations.
    pub fn flow(&self) -> Flow<'_> {
        let [state, change, forcing, volume, x, y, z, kinetic] =
            self.arrays.each_ref().map(Array::field);
        Flow {
            grid: self.grid,
            state: Fives::new(state),
            change: Fives::new(change),
            forcing: Fives::new(forcing),
            volume,
            velocity: [x, y, z],
            kinetic,
        }
    }
}

/// The state of the system, its change and forcing, and values derived from the state at each point.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// The points.
    pub grid: Grid,
    /// Density, momenta and energy (U).
    pub state: Fives<'a>,
    /// The right-hand side, which the solvers turn into the change of the state.
    pub change: Fives<'a>,
    /// The term that makes the known polynomial the solution (H*, with its sign on the right).
    pub forcing: Fives<'a>,
    /// 1 / density.
    pub volume: Field<'a>,
    /// Velocities along x, y and z.
    pub velocity: [Field<'a>; 3],
    /// Kinetic energy per unit of volume.
    pub kinetic: Field<'a>,
}

impl Flow<'_> {
    /// Computes the forcing and the first guess. All members call it.
    ///
    /// # Errors
    ///
    /// If the run must end, as for all functions here that return [`Stopped`].
    pub fn begin(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let planes = member.share(self.grid.n());
        self.fill(planes.clone(), exact::solution);
        self.for_each(planes.clone(), |place| self.forcing.set(place, [0.0; 5]));
        // The forcing must cancel the right-hand side of the solution without forcing.
        self.right_hand_side(member, 1.0)?;
        member.wait()?;
        self.for_each(planes.clone(), |place| {
            let undone = self.change.get(place).map(|value| -value);
            self.forcing.set(place, undone);
        });
        self.fill(planes, exact::guess);
        member.wait()
    }

    /// Sets the state on own planes: the solution on the border, `inside` elsewhere.
    fn fill(&self, planes: Range<usize>, inside: impl Fn([f64; 3]) -> Five) {
        let last = self.grid.n() - 1;
        for k in planes {
            for j in 0..=last {
                for i in 0..=last {
                    let at = [i, j, k].map(|position| self.grid.coordinate(position));
                    let border = [i, j, k].iter().any(|&p| p == 0 || p == last);
                    let values = if border {
                        exact::solution(at)
                    } else {
                        inside(at)
                    };
                    self.state.set(self.grid.at(i, j, k), values);
                }
            }
        }
    }

    /// Calls `act` with the place of every point of `planes`, border included.
    fn for_each(&self, planes: Range<usize>, act: impl Fn(usize)) {
        for k in planes {
            for j in 0..self.grid.n() {
                let row = self.grid.at(0, j, k);
                (row..row + self.grid.n()).for_each(&act);
            }
        }
    }

    /// Writes the right-hand side times `step` (a time) to `change`; zero on the border. All
    /// members call it; when it returns, a member's own planes ([`Flow::own_planes`]) are done, but
    /// other members may still read the state.
    pub fn right_hand_side(&self, member: &Member<'_>, step: f64) -> Result<(), Stopped> {
        self.derive(member)?;
        for k in self.own_planes(member) {
            self.add_fluxes(Axis::X, k);
            self.add_fluxes(Axis::Y, k);
            self.add_fluxes(Axis::Z, k);
            self.for_row(k, |place| self.scale(place, step));
        }
        Ok(())
    }

    /// Like [`Flow::right_hand_side`], but fluxes along z are done column by column. When it
    /// returns, a member's own rows (as many as planes) of all planes are done.
    pub fn right_hand_side_by_rows(&self, member: &Member<'_>, step: f64) -> Result<(), Stopped> {
        self.derive(member)?;
        for k in self.own_planes(member) {
            self.add_fluxes(Axis::X, k);
            self.add_fluxes(Axis::Y, k);
        }
        member.wait()?;
        for j in self.own_planes(member) {
            for i in self.grid.inside() {
                for k in self.grid.inside() {
                    self.add_flux(Axis::Z, [i, j, k]);
                    self.scale(self.grid.at(i, j, k), step);
                }
            }
        }
        Ok(())
    }

    /// Computes the values derived from the state at each point, and copies the forcing to `change`.
    fn derive(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.for_each(member.share(self.grid.n()), |place| {
            let [density, x, y, z, _] = self.state.get(place);
            let volume = 1.0 / density;
            self.volume.set(place, volume);
            self.velocity[0].set(place, x * volume);
            self.velocity[1].set(place, y * volume);
            self.velocity[2].set(place, z * volume);
            let kinetic = 0.5 * (x * x + y * y + z * z) * volume;
            self.kinetic.set(place, kinetic);
            self.change.set(place, self.forcing.get(place));
        });
        member.wait()
    }

    fn scale(&self, place: usize, factor: f64) {
        let scaled = self.change.get(place).map(|value| value * factor);
        self.change.set(place, scaled);
    }

    /// The planes of `member`, without the border.
    pub fn own_planes(&self, member: &Member<'_>) -> Range<usize> {
        member.share_of(self.grid.inside())
    }

    /// Calls `act` with the place of every point inside plane `k`.
    #[inline]
    pub fn for_row(&self, k: usize, act: impl Fn(usize)) {
        for j in self.grid.inside() {
            let first = self.grid.at(1, j, k);
            (first..first + self.grid.n() - 2).for_each(&act);
        }
    }

    /// Adds the fluxes along `axis`, and their dissipation, to the change of plane `k`.
    fn add_fluxes(&self, axis: Axis, k: usize) {
        for j in self.grid.inside() {
            for i in self.grid.inside() {
                self.add_flux(axis, [i, j, k]);
            }
        }
    }

    /// Like [`Flow::add_fluxes`], for one point.
    #[inline]
    fn add_flux(&self, axis: Axis, [i, j, k]: [usize; 3]) {
        let place = self.grid.at(i, j, k);
        let weights = fourth_difference([i, j, k][axis.index()], self.grid.n());
        let sum = self.fluxes(axis, place, weights);
        let before = self.change.get(place);
        let after = std::array::from_fn(|c| before[c] + sum[c]);
        self.change.set(place, after);
    }

    /// The flux into the point at `place` along `axis` (differences of E + V and the corresponding
    /// terms), less the fourth difference with `weights`.
    #[inline]
    fn fluxes(&self, axis: Axis, place: usize, weights: Five) -> Five {
        let stride = self.grid.stride(axis);
        let (low, high) = (place - stride, place + stride);
        let (first, second) = self.grid.differences(1.0);
        let viscous = VISCOSITY * second;
        let places = [low, place, high];
        let around = |field: Field<'_>| places.map(|place| field.get(place));
        let [u_low, u, u_high] = places.map(|place| self.state.get(place));
        let [w_low, w, w_high] = around(self.velocity[axis.index()]);
        let [e_low, e, e_high] = around(self.kinetic);
        let [v_low, v, v_high] = around(self.volume);
        let pressure = |u: Five, kinetic: f64| PRESSURE * (u[ENERGY] - kinetic);
        let (p_low, p_high) = (pressure(u_low, e_low), pressure(u_high, e_high));
        let curved = |[low, here, high]: [f64; 3]| high - 2.0 * here + low;

        let mut sum: Five = std::array::from_fn(|c| {
            axis.diffusion() * second * curved([u_low[c], u[c], u_high[c]])
        });
        // Mass is carried by momentum; momenta and energy by the velocity.
        sum[0] -= first * (u_high[axis.momentum()] - u_low[axis.momentum()]);
        for c in 1..=3 {
            sum[c] -= first * (u_high[c] * w_high - u_low[c] * w_low);
            let bend = curved(around(self.velocity[c - 1]));
            sum[c] += viscous * bend * if c == axis.momentum() { 4.0 / 3.0 } else { 1.0 };
        }
        sum[axis.momentum()] -= first * (p_high - p_low);
        sum[ENERGY] -=
            first * ((u_high[ENERGY] + p_high) * w_high - (u_low[ENERGY] + p_low) * w_low);
        // Friction heats, and heat is conducted.
        let kinetic = curved([e_low * v_low, e * v, e_high * v_high]);
        let along = curved([w_low * w_low, w * w, w_high * w_high]) / 6.0;
        let energy = [
            u_low[ENERGY] * v_low,
            u[ENERGY] * v,
            u_high[ENERGY] * v_high,
        ];
        sum[ENERGY] +=
            viscous * ((1.0 - CONDUCTION) * kinetic + along + CONDUCTION * curved(energy));
        self.dissipate(&mut sum, place, stride, [u_low, u, u_high], weights);
        sum
    }

    /// Subtracts [`DISSIPATION`] times the fourth difference with weights `w` from `sum`.
    #[inline]
    fn dissipate(&self, sum: &mut Five, place: usize, stride: usize, near: [Five; 3], w: Five) {
        // A weight of zero may belong to a point outside the line.
        let far = |weight: f64, place: usize| match weight {
            0.0 => [0.0; 5],
            _ => self.state.get(place),
        };
        let before = far(w[0], place.wrapping_sub(2 * stride));
        let after = far(w[4], place.wrapping_add(2 * stride));
        for c in 0..5 {
            let difference = w[0] * before[c]
                + w[1] * near[0][c]
                + w[2] * near[1][c]
                + w[3] * near[2][c]
                + w[4] * after[c];
            sum[c] -= DISSIPATION * difference;
        }
    }

    /// Adds `factor` times the change to the state, on own planes.
    pub fn advance(&self, member: &Member<'_>, factor: f64) {
        for k in self.own_planes(member) {
            self.for_row(k, |place| {
                let (state, change) = (self.state.get(place), self.change.get(place));
                self.state.set(
                    place,
                    std::array::from_fn(|c| state[c] + factor * change[c]),
                );
            });
        }
    }

    /// Root mean squares of the five of `values` over the points inside. All members call it and
    /// get the same result.
    fn norms(
        &self,
        member: &Member<'_>,
        values: impl Fn(usize, [usize; 3]) -> Five,
    ) -> Result<Five, Stopped> {
        let mut sums = [0.0; 5];
        for k in self.own_planes(member) {
            for j in self.grid.inside() {
                for i in self.grid.inside() {
                    let values = values(self.grid.at(i, j, k), [i, j, k]);
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += value * value;
                    }
                }
            }
        }
        let sums = member.sums(sums)?;
        Ok(sums.map(|sum| (sum / self.grid.points_inside()).sqrt()))
    }

    /// Root mean squares of the right-hand side of the current state. Overwrites `change`.
    pub fn residual_norms(&self, member: &Member<'_>) -> Result<Five, Stopped> {
        self.right_hand_side(member, 1.0)?;
        self.norms(member, |place, _| self.change.get(place))
    }

    /// Root mean squares of the distance from the solution.
    pub fn error_norms(&self, member: &Member<'_>) -> Result<Five, Stopped> {
        self.norms(member, |place, position| {
            let exact = exact::solution(position.map(|p| self.grid.coordinate(p)));
            let state = self.state.get(place);
            std::array::from_fn(|c| state[c] - exact[c])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Class;
    use crate::kernels::team::Team;
    use crate::kernels::trial::with_terms;
    use crate::stop::Stop;

    /// What each of `threads` members returns of `work` on a grid of `n` points along each axis.
    fn all<T: Send>(
        n: usize,
        threads: usize,
        work: impl Fn(Flow<'_>, &Member<'_>) -> Result<T, Stopped> + Sync,
    ) -> Vec<T> {
        let arrays = with_terms(Class::S, threads, |terms| Arrays::new(terms, n)).unwrap();
        let stop = Stop::new();
        let team = Team::new(threads, &stop);
        std::thread::scope(|scope| {
            let start = |index| {
                let (arrays, team, work) = (&arrays, &team, &work);
                scope.spawn(move || work(arrays.flow(), &team.member(index, 0)).unwrap())
            };
            let members: Vec<_> = (0..threads).map(start).collect();
            members
                .into_iter()
                .map(|member| member.join().unwrap())
                .collect()
        })
    }

    #[test]
    fn the_known_solution_stays_where_it_is() {
        for (n, threads) in [(7, 1), (12, 3), (9, 11)] {
            let norms = all(n, threads, |flow, member| {
                flow.begin(member)?;
                flow.fill(member.share(n), exact::solution);
                member.wait()?;
                Ok((flow.error_norms(member)?, flow.residual_norms(member)?))
            });
            for (error, residual) in norms {
                assert_eq!(error, [0.0; 5]);
                assert!(residual.iter().all(|&norm| norm < 1e-13), "{residual:?}");
            }
        }
    }

    #[test]
    fn the_first_guess_is_the_solution_on_the_border_and_not_inside() {
        all(8, 2, |flow, member| {
            flow.begin(member)?;
            for (i, j, k) in [
                (0, 3, 4),
                (7, 3, 4),
                (3, 0, 4),
                (3, 7, 4),
                (3, 4, 0),
                (3, 4, 7),
            ] {
                let at = [i, j, k].map(|position| flow.grid.coordinate(position));
                let state = flow.state.get(flow.grid.at(i, j, k));
                assert_eq!(state, exact::solution(at));
            }
            assert!(flow.error_norms(member)?.iter().all(|&error| error > 1.0));
            Ok(())
        });
    }

    #[test]
    fn a_step_moves_the_state_by_that_much_of_the_change() {
        all(6, 1, |flow, member| {
            flow.begin(member)?;
            flow.right_hand_side(member, 1.0)?;
            let place = flow.grid.at(2, 3, 4);
            let (state, change) = (flow.state.get(place), flow.change.get(place));
            flow.advance(member, 0.25);
            let expected: Five = std::array::from_fn(|c| state[c] + 0.25 * change[c]);
            assert_eq!(flow.state.get(place), expected);
            // The border does not move.
            let border = flow.grid.at(0, 3, 4);
            let at = [0, 3, 4].map(|position| flow.grid.coordinate(position));
            assert_eq!(flow.state.get(border), exact::solution(at));
            Ok(())
        });
    }
}
