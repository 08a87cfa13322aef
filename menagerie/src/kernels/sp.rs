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
            0.027_470_315_451_339_48,
            0.010_360_746_705_285_417,
            0.016_235_745_065_095_532,
            0.015_840_557_224_455_615,
            0.034_849_040_609_362_46,
        ],
        [
            2.728_925_855_737_722_5e-5,
            1.036_444_664_083_728_5e-5,
            1.615_479_828_716_647e-5,
            1.575_070_499_448_01e-5,
            3.417_766_618_339_053e-5,
        ],
    ),
    Problem::new(
        36,
        400,
        0.0015,
        [
            0.001_893_253_733_584,
            0.000_171_707_544_777_5,
            0.000_277_815_335_093_6,
            0.000_288_747_540_998_4,
            0.003_143_611_161_242,
        ],
        [
            7.542_088_599_534e-5,
            6.512_852_253_086e-6,
            1.049_092_285_688e-5,
            1.128_838_671_535e-5,
            0.000_121_284_563_977_3,
        ],
    ),
    Problem::new(
        64,
        400,
        0.0015,
        [
            2.479_982_239_930_019_5,
            1.127_633_796_436_883_2,
            1.502_897_788_877_049_2,
            1.421_781_621_169_518,
            2.129_211_303_513_828,
        ],
        [
            0.000_109_001_402_978_205_5,
            3.734_395_176_928_209e-5,
            5.009_278_540_654_163e-5,
            4.767_109_393_952_825e-5,
            0.000_136_216_133_992_13,
        ],
    ),
    Problem::new(
        102,
        400,
        0.001,
        [
            69.032_935_799_98,
            30.951_344_880_84,
            41.033_366_470_17,
            38.647_690_096_04,
            56.434_822_725_96,
        ],
        [
            0.009_810_006_190_188,
            0.001_022_827_905_67,
            0.001_720_597_911_692,
            0.001_694_479_428_231,
            0.018_474_562_639_81,
        ],
    ),
    Problem::new(
        162,
        400,
        0.00067,
        [
            588.169_158_182_9,
            245.441_760_356_9,
            329.382_919_185_1,
            308.192_497_189_1,
            459.722_379_917_6,
        ],
        [
            0.259_812_050_018_3,
            0.025_908_889_223_15,
            0.051_328_864_163_2,
            0.048_060_734_194_54,
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
                change.set(place, self.point(place).out_of_z(change.get(place)));
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
