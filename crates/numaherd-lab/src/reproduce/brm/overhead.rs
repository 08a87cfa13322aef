//! BRM Fig 10: what keeping the penalties costs, by number of vCPUs.
//!
//! The paper disables migrations in both schedulers and compares run times; each core updates the penalty of
//! its own vCPU under a lock. Here one thread makes all updates once in 10 ms, so that the cost is its time:
//! what a policy takes for a snapshot of so many candidates, in percent of the interval. The time to read
//! counters is not part of it; on a live machine, `numaherd top` of the herd's own thread shows both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_experiment::claims::Measured;
use numaherd_model::{Model, Options, Until};
use numaherd_policy::Random;
use numaherd_world::World;
use rand::SeedableRng;

use super::setup::{BRM, Memory, Setup, Sizes};

/// Snapshots that are timed; the median counts.
const TICKS: usize = 300;
/// The policy's cadence.
const TICK: Duration = Duration::from_millis(10);

/// Time of one decision for so many threads, in percent of the cadence.
fn share(setup: &Setup, threads: u32) -> Result<f64> {
    let sizes = Sizes {
        lists: u64::from(threads) << 20,
        shared: 0,
    };
    let job = setup.micro(threads, sizes, Memory::Local)?;
    let until = Until::Time(TICK * (TICKS as u32 + 1));
    let hardware = setup.testbed.hardware.clone();
    let mut model = Model::new(hardware, vec![job], until, Options::default())?;
    let mut policy = numaherd_policy::registry::build(BRM, &setup.testbed.policies)?;
    let mut random = Random::seed_from_u64(0);
    let topology = model.topology().clone();
    let mut took = Vec::with_capacity(TICKS);
    for _ in 0..TICKS {
        model.run_for(TICK);
        let snapshot = model.observe().context("a model can be observed")?;
        let began = Instant::now();
        let placements = policy.placement.place(&snapshot, &topology, &mut random);
        took.push(began.elapsed());
        drop(placements);
    }
    took.sort_unstable();
    Ok(took[TICKS / 2].as_secs_f64() / TICK.as_secs_f64() * 100.0)
}

pub(super) fn measure(setup: &Setup) -> Result<Measured> {
    let share = |threads| share(setup, threads);
    let (two, four, eight, sixteen) = (share(2)?, share(4)?, share(8)?, share(16)?);
    let mut measured = Measured::new();
    measured.figure("fig10-2-4", two.max(four));
    measured.figure("fig10-8", eight);
    measured.order("fig10-16", [sixteen, eight]);
    Ok(measured)
}
