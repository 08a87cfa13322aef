//! Worlds whose physics differ from those that the policy assumes, by up to 30 %.
//!
//! What differs, by factors drawn evenly from 0.7 to 1.3: of the machine the height of the loaded-latency curve,
//! the bandwidth at which it bends, a core's lines in flight, and the part of the last-level caches that programs
//! come to hold; of each program its cycles per instruction and its lines in flight. What a policy is told of
//! the machine stays as it was.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use numaherd_model::Program;
use numaherd_policy::Random;
use rand::{Rng, SeedableRng};

use crate::reproduce::testbed::{Suite, Testbed, Workload};

/// The factors.
const WITHIN: Range<f64> = 0.7..1.3;

/// The machine and the workloads of a suite in a world.
pub(super) fn perturbed(suite: &Suite, world: u64) -> Result<(Testbed, Vec<(String, Workload)>)> {
    let mut random = Random::seed_from_u64(world);
    let mut testbed = suite.testbed.with(|_| {});
    let figures = &mut testbed.hardware.figures;
    let (height, bend) = (random.random_range(WITHIN), random.random_range(WITHIN));
    for channel in &mut figures.channels {
        channel.service_ns *= height;
        channel.capacity *= bend;
    }
    figures.in_flight = (figures.in_flight * random.random_range(WITHIN)).max(1.0);
    let held = random.random_range(WITHIN);
    figures
        .llc_bytes
        .iter_mut()
        .for_each(|bytes| *bytes *= held);
    let mut of_program: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    let mut factors = |program: &Program| {
        let known = of_program.entry(program.name.clone());
        *known.or_insert_with(|| [0; 2].map(|_| random.random_range(WITHIN)))
    };
    let mut workloads = suite.workloads.clone();
    for (_, workload) in &mut workloads {
        for job in &mut workload.jobs {
            let [cycles, in_flight] = factors(&job.program);
            for phase in &mut Arc::make_mut(&mut job.program).phases {
                phase.cycles_per_instruction *= cycles;
                phase.misses_in_flight = (phase.misses_in_flight * in_flight).max(1.0);
            }
        }
    }
    Ok((testbed, workloads))
}
