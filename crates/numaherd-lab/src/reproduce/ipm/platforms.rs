//! IPM §6.1, §6.2, Fig 7 to 10: time, traffic and energy on the paper's four machines.
//!
//! All are changes against the operating system's own mapping: threads spread by the kernel, pages where they
//! are first touched.

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::{mean, smallest};

use super::setup::{Platform, Played, Run, Setup};
use crate::reproduce::testbed::{KERNEL, increase};
use crate::reproduce::traces::{Kernel, NAS_MANY, few, named, nas_and_parsec};

/// A figure of a run.
type Figure = fn(&Played) -> f64;

fn time(played: &Played) -> f64 {
    played.time
}

fn traffic(played: &Played) -> f64 {
    played.traffic
}

fn misses(played: &Played) -> f64 {
    played.misses
}

fn energy(played: &Played) -> f64 {
    played.energy
}

fn processor_energy(played: &Played) -> f64 {
    played.processor_energy
}

fn memory_energy(played: &Played) -> f64 {
    played.memory_energy
}

/// Runs of several programs under several policies on one machine.
struct Board {
    kernels: Vec<&'static Kernel>,
    /// Runs of all kernels under the operating system's own mapping.
    system: Vec<Arc<Played>>,
    /// And under each policy.
    policies: Vec<(&'static str, Vec<Arc<Played>>)>,
}

impl Board {
    fn new(
        setup: &Setup<'_>,
        platform: Platform,
        kernels: Vec<&'static Kernel>,
        policies: &[&'static str],
    ) -> Result<Self> {
        let under = |policy| setup.run_each(platform, &kernels, policy);
        let policies = policies.iter().map(|&policy| Ok((policy, under(policy)?)));
        Ok(Self {
            system: under(KERNEL)?,
            policies: policies.collect::<Result<_>>()?,
            kernels,
        })
    }

    fn under(&self, policy: &str) -> &[Arc<Played>] {
        let runs = self.policies.iter().find(|one| one.0 == policy);
        &runs.expect("the policy was run").1
    }

    /// Change of a figure under a policy for each kernel, in percent.
    fn each(&self, policy: &str, figure: Figure) -> Vec<(&'static str, f64)> {
        let pairs = self.under(policy).iter().zip(&self.system);
        let changes = pairs.map(|(run, system)| increase(figure(run), figure(system)));
        self.kernels
            .iter()
            .map(|kernel| kernel.name)
            .zip(changes)
            .collect()
    }

    /// The change for one kernel.
    fn of(&self, kernel: &str, policy: &str, figure: Figure) -> f64 {
        let each = self.each(policy, figure);
        let of_kernel = each.iter().find(|one| one.0 == kernel);
        of_kernel.expect("the kernel was run").1
    }

    /// The mean over all kernels. A kernel without any of it (no traffic at all) counts as unchanged.
    fn mean(&self, policy: &str, figure: Figure) -> f64 {
        let each = self.each(policy, figure).into_iter().map(|one| one.1);
        mean(each.map(|change| if change.is_finite() { change } else { 0.0 }))
    }

    /// The changes for all kernels, for a note.
    fn listed(&self, policy: &str, figure: Figure) -> String {
        changes(self.each(policy, figure), 1)
    }

    /// The share of pages that are on their right node under the operating system alone, in percent, for a note.
    fn right(&self) -> String {
        let right = self.system.iter().map(|played| played.right);
        format!("{:.0}", mean(right))
    }

    /// The change of the mean time under oracle, for a note.
    fn oracle(&self) -> String {
        format!("{:+.1}", self.mean("oracle", time))
    }
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let mut measured = simics(setup)?;
    measured.append(itanium(setup)?);
    measured.append(xeons(setup)?);
    Ok(measured)
}

fn simics(setup: &Setup<'_>) -> Result<Measured> {
    let policies = ["interleave", "oracle", "ipm"];
    let board = Board::new(setup, Platform::Simics, nas_and_parsec(), &policies)?;
    let mut measured = Measured::new();
    measured.figure("fig7-cg-time", board.of("cg", "ipm", time));
    measured.figure("fig7-cg-traffic", board.of("cg", "ipm", traffic));
    let mean_time = board.mean("ipm", time);
    measured.figure("fig7-time", mean_time);
    measured.figure("fig7-traffic", board.mean("ipm", traffic));
    measured.order(
        "fig7-interleave",
        [board.mean("interleave", time), mean_time],
    );
    let of_cg = board.of("cg", "oracle", time);
    measured.detail("simics-cg-oracle", format!("{of_cg:+.1}"));
    measured.detail("simics-oracle", board.oracle());
    measured.detail("simics-right", board.right());
    measured.detail("simics-time", board.listed("ipm", time));
    let of_traffic = board.mean("oracle", traffic);
    measured.detail("simics-oracle-traffic", format!("{of_traffic:+.1}"));
    measured.detail("simics-traffic", board.listed("ipm", traffic));
    Ok(measured)
}

/// What Fig 8 compares IPM with, beside the oracle.
const RELATED: [&str; 6] = [
    "interleave",
    "random-mapping",
    "numa-balancing",
    "kmaf",
    "tlb-miss",
    "tlb-miss-history",
];

fn itanium(setup: &Setup<'_>) -> Result<Measured> {
    let policies = [&["oracle", "ipm"], &RELATED[..]].concat();
    let board = Board::new(setup, Platform::Itanium, few(), &policies)?;
    let mean_time = |policy| board.mean(policy, time);
    let (ipm, oracle) = (mean_time("ipm"), mean_time("oracle"));
    let mut measured = Measured::new();
    measured.figure("fig8-cg", board.of("cg", "ipm", time));
    measured.figure("fig8-time", ipm);
    measured.figure("fig8-oracle", oracle);
    measured.figure("fig8-ipm-oracle", ipm - oracle);
    measured.figure("fig8-ondes3d", board.of("stencil", "ipm", time));
    measured.figure("fig8-ondes3d-oracle", board.of("stencil", "oracle", time));
    measured.order("fig8-best", [smallest(RELATED.map(mean_time)), ipm]);
    measured.order(
        "fig8-residency-misses",
        [mean_time("tlb-miss-history"), ipm],
    );
    measured.order(
        "fig8-history",
        [mean_time("tlb-miss"), mean_time("tlb-miss-history")],
    );
    measured.order(
        "fig8-kmaf",
        [mean_time("numa-balancing"), mean_time("kmaf")],
    );
    measured.order("fig8-ipm-kmaf", [mean_time("kmaf"), ipm]);
    let moved = |policy: &str| {
        let runs = board.under(policy).iter();
        runs.map(|played| played.moved).sum::<f64>()
    };
    let times_more = moved("tlb-miss") / moved("numa-balancing").max(1.0);
    measured.order("fig8-migrations", [times_more, 1.0]);
    let means = policies.iter().map(|policy| (policy, mean_time(policy)));
    measured.detail("itanium-means", changes(means, 1));
    measured.detail("itanium-right", board.right());
    let is_in_hardware = is_without_software_time(setup, &board)?;
    measured.detail("itanium-is-in-hardware", format!("{is_in_hardware:+.1}"));
    measured.detail("itanium-time", board.listed("ipm", time));
    measured.detail("itanium-oracle-time", board.listed("oracle", time));
    Ok(measured)
}

/// The change of `is`'s time on the same machine if the unit's work took no time of its cores.
fn is_without_software_time(setup: &Setup<'_>, board: &Board) -> Result<f64> {
    let run = Run::new(Platform::Itanium, named("is"), "ipm")?;
    let played = setup.run(vec![run.with_unit(|unit| unit.eviction_cycles = 0)])?;
    let at = board.kernels.iter().position(|kernel| kernel.name == "is");
    let system = &board.system[at.expect("is is a kernel of the board")];
    Ok(increase(played[0].time, system.time))
}

fn xeons(setup: &Setup<'_>) -> Result<Measured> {
    let board = |platform| {
        let policies = ["random-mapping", "oracle", "ipm"];
        Board::new(setup, platform, NAS_MANY.iter().collect(), &policies)
    };
    let (small, large) = (board(Platform::Xeon32)?, board(Platform::Xeon64)?);
    let mut measured = Measured::new();
    measured.figure("fig9-xeon32-cg", small.of("cg", "ipm", time));
    measured.figure("fig9-xeon64-sp", large.of("sp", "ipm", time));
    for (name, board) in [("xeon32", &small), ("xeon64", &large)] {
        let mean_time = board.mean("ipm", time);
        measured.figure(format!("fig9-{name}-time"), mean_time);
        let random = board.mean("random-mapping", time);
        measured.order(format!("fig9-random-{name}"), [random, mean_time]);
        measured.detail(format!("{name}-oracle"), board.oracle());
        measured.detail(format!("{name}-right"), board.right());
        measured.detail(format!("{name}-time"), board.listed("ipm", time));
    }
    measured.figure("fig9-sp-misses", large.of("sp", "ipm", misses));
    measured.figure("fig9-mg-misses", large.of("mg", "ipm", misses));
    measured.figure("fig9-sp-traffic", large.of("sp", "ipm", traffic));
    let of_traffic = large.mean("ipm", traffic);
    measured.figure("fig9-traffic", of_traffic);
    measured.detail("xeon64-traffic", large.listed("ipm", traffic));
    let times = [&small, &large].map(|board| board.mean("ipm", time));
    measured.order("fig9-four-nodes", times);
    let of_misses = large.mean("ipm", misses);
    measured.figure("fig9-misses", of_misses);
    measured.detail("xeon64-misses", large.listed("ipm", misses));
    measured.order("fig9-traffic-most", [of_misses, of_traffic]);
    measured.figure("fig10-energy", small.mean("ipm", energy));
    measured.figure("fig10-sp", small.of("sp", "ipm", energy));
    measured.detail("xeon32-energy", small.listed("ipm", energy));
    let energies = [processor_energy, memory_energy].map(|part| small.mean("ipm", part));
    measured.figure("fig10-processor", energies[0]);
    measured.figure("fig10-dimm", energies[1]);
    measured.order("fig10-memory", energies);
    measured.detail("xeon32-dimm", small.listed("ipm", memory_energy));
    Ok(measured)
}
