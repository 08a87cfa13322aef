//! BRM Fig 10: what keeping the penalties costs, by number of vCPUs.
//!
//! The paper turns migrations off in both schedulers and compares run times, each update being made
//! under a lock by the core whose vCPU it is. Here one thread makes all updates once in 10 ms, so that
//! the cost is its time: what a policy takes for a snapshot of so many candidates, in percent of the
//! interval. Reading the counters is not in it; on a live machine `numaherd top` of the herd's own
//! thread shows both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_model::{Model, Options, Until};
use numaherd_policy::Random;
use numaherd_world::World;
use rand::SeedableRng;

use super::ground::{BRM, Ground, Memory};
use super::{Claim, at_most, claim};
use crate::reproduce::Says;

/// Snapshots that are timed; the median counts.
const TICKS: usize = 300;
/// The policy's cadence.
const TICK: Duration = Duration::from_millis(10);

/// Time of one decision for so many threads, in percent of the cadence.
fn share(ground: &Ground, threads: u32) -> Result<f64> {
    let job = ground.micro(threads, u64::from(threads) << 20, 0, Memory::Local)?;
    let until = Until::Time(TICK * (TICKS as u32 + 1));
    let mut model = Model::new(
        ground.hardware.clone(),
        vec![job],
        until,
        Options::default(),
    )?;
    let mut policy = numaherd_policy::registry::build(BRM, &ground.settings)?;
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

/// The claims of Fig 10.
pub(super) fn claims(ground: &Ground) -> Result<Vec<Claim>> {
    let [two, four, eight, sixteen] = [2, 4, 8, 16].map(|threads| share(ground, threads));
    let (two, four, eight, sixteen) = (two?, four?, eight?, sixteen?);
    let of = |id: &str, what: &str, says, ours| {
        claim(id, "6.3, Fig 10", what, "%", says, ours)
            .proxy("ours: time of one decision in 10 ms, not of reading counters; measured on the machine that ran this")
    };
    Ok(vec![
        of(
            "fig10-2-4",
            "overhead with 2 and 4 vCPUs",
            at_most(2.0),
            two.max(four),
        ),
        of(
            "fig10-8",
            "overhead with 8 vCPUs, at most",
            at_most(6.14),
            eight,
        ),
        of(
            "fig10-16",
            "overhead with 16 vCPUs is more than with 8",
            Says::Ranking,
            sixteen - eight,
        ),
    ])
}
