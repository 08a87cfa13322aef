//! DINO (Blagodurov, Zhuravlev, Dashti, Fedorova: A Case for NUMA-aware Contention Management on Multicore
//! Systems, USENIX ATC 2011).
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`scenarios`] | §2.1, Fig 3 to 5: what contention costs, and how much of it each factor causes |
//! | [`uma`] | §3.3.1: DI against the best placement, where all memory is on one node |
//! | [`clones`] | §3.3.1, Fig 8: degradation against miss rate |
//! | [`cpu`] | §3.2, §5.3, Fig 6, 11, Table 1: CPU2006 under each policy |
//! | [`mpi`] | §3.2, §5.3, Fig 7, 12, Table 1: MPI2007 under each policy |
//! | [`lamp`] | §5.2, §5.3, Fig 10, 13: a web service under each policy, on the second machine |
//! | [`sweep`] | §5.2, Fig 9: how many pages follow a thread, on the second machine |
//! | [`sra`] | §4.1: which pages should follow a thread, on traces |
//!
//! "As much as" and "up to" are figures of the largest. Claims are proxies where the paper does not print what it ran
//! or what it measured.

mod clones;
mod cpu;
mod lamp;
mod mpi;
mod runs;
mod scenarios;
mod sra;
mod sweep;
mod uma;

use anyhow::Result;
use numaherd_experiment::claims::Measured;

use super::inputs::Inputs;
use super::testbed::{Effort, Suite, Workload};
use super::traces::{Traces, where_recorded};

/// The paper's machine.
const MACHINE: &str = "opteron-8356-4s";
/// Its second machine (§5.1), with 4 GB a node, on which K was varied (§5.2).
const SECOND: &str = "opteron-2350-2s";
/// All that its experiments on the model run on.
pub const MACHINES: [&str; 3] = [MACHINE, SECOND, uma::MACHINE];

/// Runs all experiments; without those on traces where the lab, which records them, is not set up.
///
/// # Errors
/// A machine or program is unknown, or a run fails.
pub fn measure(effort: &Effort, traces: &Traces, inputs: &Inputs) -> Result<Measured> {
    let testbed = inputs.testbed(MACHINE)?;
    let mut measured = scenarios::measure(&testbed)?;
    measured.append(clones::measure(&testbed)?);
    measured.append(uma::measure(inputs)?);
    let mut measured = measured.exact();
    if effort.runs == 0 {
        return Ok(measured);
    }
    let second = inputs.testbed(SECOND)?;
    let windows = sweep::testbeds(&second);
    measured.append(effort.with_intervals(|effort| cpu::measure(&testbed, effort))?);
    measured.append(cpu::by_noise(&testbed, effort)?);
    measured.append(effort.with_intervals(|effort| mpi::measure(&testbed, effort))?);
    measured.append(mpi::by_waking(&testbed, effort)?);
    measured.append(effort.with_intervals(|effort| lamp::measure(&second, effort))?);
    measured.append(effort.with_intervals(|effort| sweep::measure(&second, &windows, effort))?);
    measured.append(where_recorded(sra::measure(traces))?);
    Ok(measured)
}

/// The workloads of §5.3 and of §3.3.1, for `adaptive`.
///
/// # Errors
/// As [`measure`].
pub fn suites(effort: &Effort) -> Result<Vec<Suite>> {
    type Named = (&'static str, Workload);
    let suite = |name, testbed, workloads: Vec<Named>| Suite {
        name,
        testbed,
        workloads: workloads
            .into_iter()
            .map(|(name, one)| (name.to_owned(), one))
            .collect(),
    };
    let old = |workloads: Vec<Named>| -> Vec<Named> {
        let old = |(name, one): Named| (name, runs::on_old_linux(&one));
        workloads.into_iter().map(old).collect()
    };
    let machine = |name| Inputs::default().testbed(name);
    let (cpu, mpi, web) = (machine(MACHINE)?, machine(MACHINE)?, machine(MACHINE)?);
    let uma = machine(uma::MACHINE)?;
    let on_cpu = old(vec![("cpu2006", cpu::for_an_hour(&cpu, effort)?)]);
    let on_mpi = old(mpi::of_the_table(&mpi, effort)?);
    let on_web = old(vec![("web", lamp::workload(&web, effort)?)]);
    let on_uma = uma::workloads(&uma, effort.part_of_hour(1.0 / 6.0))?;
    Ok(vec![
        suite("dino-cpu", cpu, on_cpu),
        suite("dino-mpi", mpi, on_mpi),
        suite("dino-web", web, on_web),
        suite("dino-uma", uma, on_uma),
    ])
}

/// The three classes of DINO §2.1, by misses per 1000 instructions of a program alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Devil,
    SoftDevil,
    Turtle,
}

impl Class {
    const ALL: [Self; 3] = [Self::Devil, Self::SoftDevil, Self::Turtle];

    /// More than 15, from 2 to 15, or fewer.
    fn of(miss_rate: f64) -> Self {
        if miss_rate > 15.0 {
            Self::Devil
        } else if miss_rate >= 2.0 {
            Self::SoftDevil
        } else {
            Self::Turtle
        }
    }

    /// The paper's three programs of that class.
    fn programs(self) -> [&'static str; 3] {
        match self {
            Self::Devil => ["mcf", "omnetpp", "milc"],
            Self::SoftDevil => ["gcc", "bwaves", "bzip2"],
            Self::Turtle => ["povray", "calculix", "h264ref"],
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Devil => "devils",
            Self::SoftDevil => "soft devils",
            Self::Turtle => "turtles",
        }
    }
}
