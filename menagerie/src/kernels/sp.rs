//! sp: the synthetic flow of [`cfd`](super::cfd), marched by the diagonalised scheme of Beam and
//! Warming (Pulliam and Chaussee): along each axis in turn the equations are taken apart into five
//! that stand alone, each of which couples a point to two neighbours on either side.
//!
//! Threads split the planes of constant z for the right-hand side and the systems along x and y,
//! and the planes of constant y for those along z: twice in each step all of the change array goes
//! from one split to the other, which is the program's sharing pattern.
//!
//! Source: RNR-94-007, section 3.4 (the diagonalised approximate factorisation).

use super::cfd::flow::{Arrays, Flow};
use super::cfd::published::{Problem, Values};
use super::cfd::{Axis, ENERGY, GAMMA, PRESSURE};
use super::field::Field;
use super::{Array, Check, Kernel, Member, Stopped, Terms};
use crate::error::Error;
use std::sync::OnceLock;

mod characteristic;
mod pentadiagonal;

use characteristic::{Point, x_into_y, y_into_z};
use pentadiagonal::Solver;

/// S, W, A, B and C.
const PROBLEMS: [Problem; 5] = [
    Problem::new(
        12,
        100,
        0.015,
        [
            2.747_031_545_133_947_9e-2,
            1.036_074_670_528_541_7e-2,
            1.623_574_506_509_553_2e-2,
            1.584_055_722_445_561_5e-2,
            3.484_904_060_936_246e-2,
        ],
        [
            2.728_925_855_737_722_7e-5,
            1.036_444_664_083_728_5e-5,
            1.615_479_828_716_647_1e-5,
            1.575_070_499_448_010_2e-5,
            3.417_766_618_339_053_1e-5,
        ],
    ),
    Problem::new(
        36,
        400,
        0.0015,
        [
            0.189_325_373_358_4e-2,
            0.171_707_544_777_5e-3,
            0.277_815_335_093_6e-3,
            0.288_747_540_998_4e-3,
            0.314_361_116_124_2e-2,
        ],
        [
            0.754_208_859_953_4e-4,
            0.651_285_225_308_6e-5,
            0.104_909_228_568_8e-4,
            0.112_883_867_153_5e-4,
            0.121_284_563_977_3e-3,
        ],
    ),
    Problem::new(
        64,
        400,
        0.0015,
        [
            2.479_982_239_930_019_5,
            1.127_633_796_436_883_2,
            1.502_897_788_877_049_1,
            1.421_781_621_169_517_9,
            2.129_211_303_513_828,
        ],
        [
            1.090_014_029_782_055e-4,
            3.734_395_176_928_209_1e-5,
            5.009_278_540_654_163_3e-5,
            4.767_109_393_952_825_5e-5,
            1.362_161_339_921_300_1e-4,
        ],
    ),
    Problem::new(
        102,
        400,
        0.001,
        [
            0.690_329_357_999_8e2,
            0.309_513_448_808_4e2,
            0.410_333_664_701_7e2,
            0.386_476_900_960_4e2,
            0.564_348_227_259_6e2,
        ],
        [
            0.981_000_619_018_8e-2,
            0.102_282_790_567e-2,
            0.172_059_791_169_2e-2,
            0.169_447_942_823_1e-2,
            0.184_745_626_398_1e-1,
        ],
    ),
    Problem::new(
        162,
        400,
        0.00067,
        [
            0.588_169_158_182_9e3,
            0.245_441_760_356_9e3,
            0.329_382_919_185_1e3,
            0.308_192_497_189_1e3,
            0.459_722_379_917_6e3,
        ],
        [
            0.259_812_050_018_3,
            0.259_088_892_231_5e-1,
            0.513_288_641_632e-1,
            0.480_607_341_945_4e-1,
            0.548_337_749_130_1,
        ],
    ),
];

/// The problem and its memory.
#[derive(Debug)]
pub struct Sp {
    problem: Problem,
    arrays: Arrays,
    /// Speed of sound at the points inside.
    sound: Array,
    end: OnceLock<Values>,
}

impl Sp {
    /// The problem of a class.
    ///
    /// # Errors
    ///
    /// Where memory is short.
    pub fn make(terms: &Terms<'_>) -> Result<Box<dyn Kernel>, Error> {
        let problem = terms.class.of(PROBLEMS);
        let arrays = Arrays::new(terms, problem.n)?;
        let sound = Array::new(terms, arrays.flow().grid.places())?;
        Ok(Box::new(Sp {
            problem,
            arrays,
            sound,
            end: OnceLock::new(),
        }))
    }
}

impl Kernel for Sp {
    fn problem(&self) -> String {
        self.problem.text()
    }

    fn iterations(&self) -> u64 {
        self.problem.iterations
    }

    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.arrays.flow().begin(member)
    }

    fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let march = March {
            flow: self.arrays.flow(),
            sound: self.sound.field(),
            step: self.problem.step,
        };
        let mut solver = Solver::new(march.flow, march.sound, march.step);
        for _ in member.iterations() {
            march.step(member, &mut solver)?;
        }
        let end = Values::of(march.flow, member)?;
        if member.index == 0 {
            let _ = self.end.set(end);
        }
        Ok(())
    }

    fn results(&self, _iterations: u64) -> Vec<Check> {
        self.problem.checks(self.end.get())
    }
}

/// What the steps work on.
#[derive(Clone, Copy)]
struct March<'a> {
    flow: Flow<'a>,
    sound: Field<'a>,
    step: f64,
}

impl March<'_> {
    /// One time step.
    fn step(self, member: &Member<'_>, solver: &mut Solver<'_>) -> Result<(), Stopped> {
        let (flow, change) = (self.flow, self.flow.change);
        flow.right_hand_side(member, self.step)?;
        for k in flow.own_planes(member) {
            flow.for_row(k, |place| {
                self.sound.set(place, self.speed_of_sound(place));
                change.set(place, self.point(place).into_x(change.get(place)));
            });
        }
        for k in flow.own_planes(member) {
            solver.solve(Axis::X, k);
            flow.for_row(k, |place| change.set(place, x_into_y(change.get(place))));
        }
        for k in flow.own_planes(member) {
            solver.solve(Axis::Y, k);
            flow.for_row(k, |place| change.set(place, y_into_z(change.get(place))));
        }
        member.wait()?;
        // There are as many planes of constant y as of constant z.
        for j in flow.own_planes(member) {
            solver.solve(Axis::Z, j);
        }
        member.wait()?;
        for k in flow.own_planes(member) {
            flow.for_row(k, |place| {
                change.set(place, self.point(place).from_z(change.get(place)));
            });
        }
        flow.advance(member, 1.0);
        member.wait()
    }

    fn speed_of_sound(self, place: usize) -> f64 {
        let inner = self.flow.state.component(place, ENERGY) - self.flow.kinetic.get(place);
        (GAMMA * PRESSURE * self.flow.volume.get(place) * inner).sqrt()
    }

    fn point(self, place: usize) -> Point {
        Point {
            density: self.flow.state.component(place, 0),
            velocity: self.flow.velocity.map(|velocity| velocity.get(place)),
            sound: self.sound.get(place),
        }
    }
}
