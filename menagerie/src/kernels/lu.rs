//! lu: the synthetic flow of [`cfd`](super::cfd), marched by symmetric successive over-relaxation:
//! the implicit operator of all three axes at once, split into a lower and an upper triangular
//! part, each solved in one sweep over the grid.
//!
//! A point waits for its neighbours, so threads cannot each take planes of their own. They split
//! the rows instead, and follow one another through the planes: a thread does its rows of a plane
//! once its neighbour has done his, and waits for that a plane at a time. What flows along z is
//! split by rows too, the rest of the right-hand side by planes: twice in each step all of the
//! change array goes from one split to the other. The blocks of the triangular systems are made
//! where they are needed, not kept.
//!
//! Source: RNR-94-007, section 3.5 (symmetric successive over-relaxation).

use super::cfd::flow::Arrays;
use super::cfd::published::{Problem, Values};
use super::{Check, Kernel, Member, Stopped, Terms};
use crate::error::Error;
use std::sync::OnceLock;

mod pipeline;
mod surface;
mod sweep;

use pipeline::Pipeline;
use sweep::{RELAXATION, Sweeper};

/// S, W, A, B and C.
const PROBLEMS: [Problem; 5] = [
    Problem::new(
        12,
        50,
        0.5,
        [
            0.016_196_343_210_976_703,
            0.002_197_674_516_482_132,
            0.001_517_992_765_339_918_5,
            0.001_502_958_443_599_432_3,
            0.034_264_073_155_896_46,
        ],
        [
            0.000_642_233_199_579_609_2,
            8.414_434_204_734_792e-5,
            5.858_826_961_648_518_7e-5,
            5.847_422_259_515_735e-5,
            0.001_310_334_791_411_129_4,
        ],
    )
    .with_surface(7.841_892_886_593_708),
    Problem::new(
        33,
        300,
        0.0015,
        [
            12.365_116_381_92,
            1.317_228_477_799,
            2.550_120_713_095,
            2.326_187_750_252,
            28.267_994_441_89,
        ],
        [
            0.486_787_714_421_6,
            0.050_646_528_809_82,
            0.092_818_181_019_6,
            0.085_701_265_427_33,
            1.084_277_417_792,
        ],
    )
    .with_surface(11.613_993_110_23),
    Problem::new(
        64,
        250,
        2.0,
        [
            779.021_076_066_893_7,
            63.402_765_259_692_87,
            194.992_497_272_924_8,
            178.453_011_604_185_38,
            1_838.476_034_946_424_8,
        ],
        [
            29.964_085_685_471_943,
            2.819_457_636_500_335,
            7.347_341_269_877_474,
            6.713_922_568_777_705,
            70.715_315_688_392_58,
        ],
    )
    .with_surface(26.030_925_604_886_278),
    Problem::new(
        102,
        250,
        2.0,
        [
            3_553.267_296_998_273_7,
            262.147_507_953_106_9,
            883.337_218_509_521_9,
            778.127_747_394_252_7,
            7_308.796_959_254_531,
        ],
        [
            114.011_763_802_127_09,
            8.109_896_365_542_157,
            28.480_597_317_698_308,
            25.905_394_567_832_94,
            260.549_075_048_574_14,
        ],
    )
    .with_surface(47.887_162_703_308_23),
    Problem::new(
        162,
        250,
        2.0,
        [
            10_376.698_032_353_785,
            892.212_458_801_008_6,
            2_562.388_145_826_608_7,
            2_191.943_438_578_314_3,
            17_807.805_726_106_12,
        ],
        [
            215.986_399_716_949_28,
            15.578_955_923_986_36,
            54.131_886_307_720_78,
            48.226_264_315_404_54,
            455.902_910_043_250_36,
        ],
    )
    .with_surface(66.640_455_357_218_13),
];

/// The problem and its memory.
#[derive(Debug)]
pub struct Lu {
    problem: Problem,
    arrays: Arrays,
    pipeline: Pipeline,
    end: OnceLock<Values>,
}

impl Lu {
    /// The problem of a class.
    ///
    /// # Errors
    ///
    /// Where memory is short.
    pub fn make(terms: &Terms<'_>) -> Result<Box<dyn Kernel>, Error> {
        let problem = terms.class.of(PROBLEMS);
        let arrays = Arrays::new(terms, problem.n)?;
        Ok(Box::new(Lu {
            problem,
            arrays,
            pipeline: Pipeline::new(terms.threads),
            end: OnceLock::new(),
        }))
    }
}

impl Kernel for Lu {
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
        let mut sweeper = Sweeper::new(flow, self.problem.step, member, &self.pipeline);
        for _ in member.iterations() {
            flow.right_hand_side_by_rows(member, self.problem.step)?;
            sweeper.sweep();
            member.wait()?;
            flow.advance(member, 1.0 / (RELAXATION * (2.0 - RELAXATION)));
            member.wait()?;
        }
        let end = Values {
            surface: Some(surface::integral(flow, member)?),
            ..Values::of(flow, member)?
        };
        if member.index == 0 {
            let _ = self.end.set(end);
        }
        Ok(())
    }

    fn results(&self, _iterations: u64) -> Vec<Check> {
        self.problem.checks(self.end.get())
    }
}
