//! DI against the best placement there is, on a machine with one memory node: what DINO §3.3.1 says
//! of DI's source (Zhuravlev et al., ASPLOS 2010), and why DINO builds on it.
//!
//! Eight programs on eight cores in pairs that share a cache. There are 105 pairings, so that `oracle`
//! tries them all. Workloads are drawn: two of each of four programs of CPU2006, or eight different
//! ones, from the programs of DINO's own classes.

use std::time::Duration;

use anyhow::Result;
use numaherd_model::{Hardware, Job, Library, Options, Until, alone};
use numaherd_topology::{CpuId, Machine};
use rayon::prelude::*;

use crate::reproduce::claim::{Claim, Kind, Says};
use numaherd_experiment::trial::{Trial, as_published, run};

/// Workloads of eight, from all memory bound to hardly any.
const WORKLOADS: [[&str; 8]; 8] = [
    [
        "mcf", "milc", "omnetpp", "gcc", "bwaves", "bzip2", "povray", "h264ref",
    ],
    [
        "soplex", "sphinx3", "gamess", "namd", "soplex", "sphinx3", "gamess", "namd",
    ],
    [
        "mcf", "mcf", "lbm", "lbm", "povray", "povray", "namd", "namd",
    ],
    [
        "milc",
        "lbm",
        "libquantum",
        "soplex",
        "gobmk",
        "namd",
        "calculix",
        "hmmer",
    ],
    [
        "omnetpp",
        "astar",
        "xalancbmk",
        "sphinx3",
        "perlbench",
        "sjeng",
        "tonto",
        "gromacs",
    ],
    [
        "mcf",
        "milc",
        "soplex",
        "lbm",
        "gobmk",
        "perlbench",
        "namd",
        "povray",
    ],
    [
        "leslie3d",
        "GemsFDTD",
        "zeusmp",
        "wrf",
        "cactusADM",
        "dealII",
        "gamess",
        "povray",
    ],
    [
        "mcf",
        "omnetpp",
        "xalancbmk",
        "soplex",
        "astar",
        "bzip2",
        "gcc",
        "sphinx3",
    ],
];

/// Mean slowdown of a workload's programs under a policy, 1 for none.
fn slowdown(hardware: &Hardware, programs: &[&str; 8], policy: &str, seconds: f64) -> Result<f64> {
    let library = Library::built_in();
    let programs = programs
        .iter()
        .map(|name| Ok(library.get(name)?.clone()))
        .collect::<Result<Vec<_>>>()?;
    let ran = run(&Trial {
        hardware,
        jobs: programs.iter().cloned().map(Job::new).collect(),
        until: Until::Time(Duration::from_secs_f64(seconds)),
        options: Options::default(),
        policy,
        policies: &numaherd_policy::Settings::default(),
        herd: &as_published(),
    })?;
    let slowdowns = ran.work.iter().zip(&programs).map(|(work, program)| {
        let solo = alone(hardware, &program.phases[0], CpuId(0)).ns;
        ran.seconds * 1e12 / work.instructions / solo
    });
    Ok(slowdowns.sum::<f64>() / 8.0)
}

/// The claim, and what it would be worth without a policy.
///
/// # Errors
/// Only when the program's own data are damaged.
pub(super) fn claims() -> Result<Vec<Claim>> {
    let hardware = Hardware::of(&Machine::preset("uma-4x2")?)?;
    // Long enough for the first interval, in which nobody is placed, not to count.
    let seconds = 600.0;
    let behind = WORKLOADS
        .par_iter()
        .map(|programs| {
            let of = |policy| slowdown(&hardware, programs, policy, seconds);
            let best = of("oracle")?;
            Ok((
                100.0 * (of("di-plain")? / best - 1.0),
                100.0 * (of("linux")? / best - 1.0),
            ))
        })
        .collect::<Result<Vec<(f64, f64)>>>()?;
    let mean =
        |of: fn(&(f64, f64)) -> f64| behind.iter().map(of).sum::<f64>() / behind.len() as f64;
    let each: Vec<String> = behind.iter().map(|(di, _)| format!("{di:.1}")).collect();
    Ok(vec![Claim {
        id: "di-near-optimal".to_owned(),
        section: "3.3.1".to_owned(),
        what: "DI behind the best placement on one memory node, workloads of eight programs"
            .to_owned(),
        unit: "%".to_owned(),
        says: Says::AtMost {
            figure: 3.0,
            tolerance: 0.0,
        },
        kind: Kind::Stated,
        ours: mean(|(di, _)| *di),
        note: format!(
            "mean slowdown under di-plain against `oracle` on the preset uma-4x2, all 105 pairings \
             tried; by workload: {}. Linux, which pairs by chance, is {:.1} behind",
            each.join(", "),
            mean(|(_, linux)| *linux)
        ),
    }])
}
