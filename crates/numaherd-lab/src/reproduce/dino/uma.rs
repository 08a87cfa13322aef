//! DI against the best placement on a machine with one memory node: what DINO §3.3.1 says about DI's source
//! (Zhuravlev et al., ASPLOS 2010), and why DINO builds on it.
//!
//! Eight programs run on eight cores, in pairs that share a cache. There are 105 pairings, few enough for
//! `oracle` to try all. The workloads are drawn: two of each of four programs of CPU2006, or eight different
//! ones, from the programs of DINO's own classes.

use std::time::Duration;

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_experiment::statistics::mean;
use numaherd_model::{Job, Until};
use rayon::prelude::*;

use crate::reproduce::inputs::Inputs;
use crate::reproduce::testbed::{KERNEL, Testbed, Workload, increase};

/// The machine.
pub(super) const MACHINE: &str = "uma-4x2";
/// Workloads of eight, from all memory bound to hardly any.
const WORKLOADS: [&str; 8] = [
    "mcf milc omnetpp gcc bwaves bzip2 povray h264ref",
    "soplex sphinx3 gamess namd soplex sphinx3 gamess namd",
    "mcf mcf lbm lbm povray povray namd namd",
    "milc lbm libquantum soplex gobmk namd calculix hmmer",
    "omnetpp astar xalancbmk sphinx3 perlbench sjeng tonto gromacs",
    "mcf milc soplex lbm gobmk perlbench namd povray",
    "leslie3d GemsFDTD zeusmp wrf cactusADM dealII gamess povray",
    "mcf omnetpp xalancbmk soplex astar bzip2 gcc sphinx3",
];
/// Modelled seconds of a run: long enough for the first interval, in which nothing is placed, not to matter.
const SECONDS: u64 = 600;

/// All of them, by their programs, for so long.
pub(super) fn workloads(testbed: &Testbed, until: Until) -> Result<Vec<(&'static str, Workload)>> {
    let workload = |programs: &'static str| {
        let job = |name| Ok(Job::new(testbed.program(name)?.clone()));
        let jobs = programs.split(' ').map(job).collect::<Result<_>>()?;
        Ok((programs, Workload::new(jobs, until)))
    };
    WORKLOADS.into_iter().map(workload).collect()
}

pub(super) fn measure(inputs: &Inputs) -> Result<Measured> {
    let testbed = inputs.testbed(MACHINE)?;
    let workloads = workloads(&testbed, Until::Time(Duration::from_secs(SECONDS)))?;
    let behind = |(_, workload): &(&str, Workload)| {
        let slowdown =
            |policy| -> Result<f64> { Ok(mean(testbed.slowdowns(policy, workload, &[0])?)) };
        let best = slowdown("oracle")?;
        let behind = |policy| Ok::<f64, anyhow::Error>(increase(slowdown(policy)?, best));
        Ok((behind("di-plain")?, behind(KERNEL)?))
    };
    let behind: Vec<(f64, f64)> = workloads.par_iter().map(behind).collect::<Result<_>>()?;
    let mut measured = Measured::new();
    measured.figure("di-near-optimal", mean(behind.iter().map(|one| one.0)));
    let by_workload: Vec<String> = behind.iter().map(|one| format!("{:.1}", one.0)).collect();
    measured.detail("di-by-workload", by_workload.join(", "));
    let kernel = mean(behind.iter().map(|one| one.1));
    measured.detail("linux-behind", format!("{kernel:.1}"));
    Ok(measured)
}
