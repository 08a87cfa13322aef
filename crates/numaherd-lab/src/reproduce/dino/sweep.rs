//! DINO Fig 9: how many pages K around a sampled access follow a thread, compared with moving all its pages; eight of
//! the programs that the paper names, whose pages are all on the nodes where they started. The times for the same
//! work over ten minutes are compared; DINO places the programs within that time.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::mean;

use super::cpu;
use super::runs::{Runs, pace};
use crate::reproduce::testbed::{Effort, Testbed, Workload};

/// The workload, the programs of Table 1 first.
const PROGRAMS: [&str; 8] = [
    "soplex", "milc", "lbm", "gamess", "namd", "mcf", "gcc", "povray",
];
/// K, in base pages. Smaller windows cut the pages into pieces that slow the model down.
const WINDOWS: [u64; 4] = [16, 64, 4096, 16384];
/// Part of an hour for which the workload is observed.
const OF_AN_HOUR: f64 = 1.0 / 6.0;

/// The machine with each of the windows.
pub(super) fn testbeds(testbed: &Testbed) -> [Testbed; WINDOWS.len()] {
    WINDOWS.map(|window| testbed.with(|settings| settings.paging.window_pages = window))
}

pub(super) fn measure(
    testbed: &Testbed,
    windows: &[Testbed; WINDOWS.len()],
    effort: &Effort,
) -> Result<Measured> {
    let workload = Workload::new(
        cpu::jobs(testbed, &PROGRAMS)?,
        effort.part_of_hour(OF_AN_HOUR),
    );
    let whole = Runs::of(testbed, "dino+whole-set", &workload, &pace, effort)?;
    let mut gains = Vec::new();
    for testbed in windows {
        let runs = Runs::of(testbed, "dino", &workload, &pace, effort)?;
        gains.push(mean(runs.improvements(&whole)));
    }
    let [of_16, _, of_4096, _] = gains[..] else {
        unreachable!("a gain for each window");
    };
    let mut measured = Measured::new();
    measured.order("fig9-small-windows-hurt", [0.0, of_16]);
    measured.figure("fig9-4096-is-comparable", of_4096);
    measured.order("fig9-more-is-better", [of_4096, of_16]);
    let named = WINDOWS.map(|window| format!("{window}:"));
    measured.detail("by-window", changes(named.iter().zip(gains), 1));
    Ok(measured)
}
