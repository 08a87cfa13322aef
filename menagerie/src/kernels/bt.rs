//! bt: the synthetic flow of [`cfd`](super::cfd), marched by the scheme of Beam and Warming: along
//! each axis in turn the five equations are solved together, a line of the grid at a time, as a
//! block tridiagonal system.
//!
//! Threads split the planes of constant z for the right-hand side and the systems along x and y,
//! and the planes of constant y for those along z: twice in each step all of the change array, and
//! once all of the state, goes from one split to the other.
//!
//! Source: RNR-94-007, section 3.3 (the approximate factorisation).

use super::cfd::Axis;
use super::cfd::flow::Arrays;
use super::cfd::published::{Problem, Values};
use super::{Check, Kernel, Member, Stopped, Terms};
use crate::error::Error;
use std::sync::OnceLock;

mod block_tridiagonal;

use block_tridiagonal::Solver;

/// S, W, A, B and C.
const PROBLEMS: [Problem; 5] = [
    Problem::new(
        12,
        60,
        0.01,
        [
            0.170_342_837_095_413_12,
            0.012_975_252_070_034_096,
            0.032_527_926_989_486_054,
            0.026_436_421_275_166_8,
            0.192_117_841_317_444_3,
        ],
        [
            0.000_499_769_133_458_115_8,
            4.519_566_678_296_193e-5,
            7.397_376_517_292_135e-5,
            7.382_123_863_243_973e-5,
            0.000_892_696_309_874_914_5,
        ],
    ),
    Problem::new(
        24,
        200,
        0.0008,
        [
            112.559_040_934_4,
            11.800_075_957_31,
            27.103_297_678_46,
            24.691_749_376_69,
            263.842_787_431_7,
        ],
        [
            4.419_655_736_008,
            0.463_853_126_000_2,
            1.011_551_749_967,
            0.923_587_872_994_4,
            10.180_458_377_18,
        ],
    ),
    Problem::new(
        64,
        200,
        0.0008,
        [
            108.063_467_146_372_64,
            11.319_730_901_220_813,
            25.974_354_511_582_465,
            23.665_622_544_678_91,
            252.789_632_117_483_45,
        ],
        [
            4.234_841_604_052_502_5,
            0.443_902_824_969_957,
            0.966_924_801_363_456_5,
            0.883_020_630_397_654_8,
            9.737_990_177_082_928,
        ],
    ),
    Problem::new(
        102,
        200,
        0.0003,
        [
            1_423.359_722_928_725_4,
            99.330_522_590_150_24,
            356.460_256_445_352_85,
            324.854_479_590_840_9,
            3_270.754_125_465_936_3,
        ],
        [
            52.969_847_140_936_86,
            4.463_289_611_567_067,
            13.122_573_342_210_174,
            12.006_925_323_559_145,
            124.595_761_510_359_86,
        ],
    ),
    Problem::new(
        162,
        200,
        0.0001,
        [
            6_239.811_655_176_461_5,
            507.932_391_904_239_64,
            1_542.353_009_301_359_6,
            1_330.238_792_929_119,
            11_604.087_428_436_455,
        ],
        [
            164.620_083_690_912_65,
            11.497_107_903_824_313,
            41.207_446_207_461_51,
            37.087_651_059_694_17,
            362.110_530_518_412_65,
        ],
    ),
];

/// The problem and its memory.
#[derive(Debug)]
pub struct Bt {
    problem: Problem,
    arrays: Arrays,
    end: OnceLock<Values>,
}

impl Bt {
    /// The problem of a class.
    ///
    /// # Errors
    ///
    /// Where memory is short.
    pub fn make(terms: &Terms<'_>) -> Result<Box<dyn Kernel>, Error> {
        let problem = terms.class.of(PROBLEMS);
        let arrays = Arrays::new(terms, problem.n)?;
        Ok(Box::new(Bt {
            problem,
            arrays,
            end: OnceLock::new(),
        }))
    }
}

impl Kernel for Bt {
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
        let flow = self.arrays.flow();
        let mut solver = Solver::new(flow, self.problem.step);
        for _ in member.iterations() {
            flow.right_hand_side(member, self.problem.step)?;
            for axis in [Axis::X, Axis::Y] {
                for k in flow.own_planes(member) {
                    solver.solve(axis, k);
                }
            }
            member.wait()?;
            // There are as many planes of constant y as of constant z.
            for j in flow.own_planes(member) {
                solver.solve(Axis::Z, j);
            }
            member.wait()?;
            flow.advance(member, 1.0);
            member.wait()?;
        }
        let end = Values::of(flow, member)?;
        if member.index == 0 {
            let _ = self.end.set(end);
        }
        Ok(())
    }

    fn results(&self, _iterations: u64) -> Vec<Check> {
        self.problem.checks(self.end.get())
    }
}
