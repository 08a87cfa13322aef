//! N-MASS (Majo and Gross: Memory Management in NUMA Multicore Systems: Trapped between Cache Contention and
//! Interconnect Overhead, ISMM 2011), on the model of its machine: two Xeon E5520 of four cores.
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`mappings`] | §2, §3.1, §3.2, Fig 2 to 5, 7: placements of few programs, without any scheduler |
//! | [`workloads`] | §4, Fig 9 to 12: multiprogrammed workloads under each scheduler |
//!
//! The programs are those of CPU2006. Where the paper's figures show something that its text does not state,
//! bounds from the text are compared (FACTS 0). Slowdowns are in percent of the program's time alone with local
//! memory.

mod mappings;
mod workloads;

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_model::{alone, numa_penalty};
use numaherd_topology::{CpuId, NodeId};

use super::inputs::Inputs;
use super::testbed::{Effort, Suite, Testbed, cpu2006};

/// The paper's machine.
pub const MACHINE: &str = "xeon-e5520-2s";
/// The node that has the memory, a CPU of it, and one of the other node.
const HOME: NodeId = NodeId(0);
const NEAR: u32 = 0;
const FAR: u32 = 4;

/// Runs all experiments.
///
/// # Errors
/// A machine or program is unknown, or a run fails.
pub fn measure(effort: &Effort, inputs: &Inputs) -> Result<Measured> {
    let testbed = inputs.testbed(MACHINE)?;
    let profiles = profiles(&testbed)?;
    let profiled = workloads::profiled(&testbed, &profiles);
    let mut measured = mappings::measure(&testbed)?;
    measured.append(workloads::pressures(&profiles));
    let mut measured = measured.exact();
    if effort.runs == 0 {
        return Ok(measured);
    }
    measured.append(effort.with_intervals(|effort| workloads::measure(&profiled, effort))?);
    measured.append(workloads::readings(&profiled, &effort.at_most(1))?);
    Ok(measured)
}

/// The multiprogrammed workloads, for `adaptive`.
///
/// # Errors
/// As [`measure`].
pub fn suites(effort: &Effort) -> Result<Vec<Suite>> {
    let testbed = Inputs::default().testbed(MACHINE)?;
    Ok(vec![Suite {
        name: "n-mass",
        testbed: workloads::profiled(&testbed, &profiles(&testbed)?),
        workloads: workloads::of_figures(&testbed, effort)?,
    }])
}

/// What a run of a program alone shows.
struct Profiled {
    name: &'static str,
    /// Lines per 1000 instructions.
    miss_rate: f64,
    /// Slowdown by remote memory, 1 for none.
    penalty: f64,
}

/// Every program of CPU2006 alone.
fn profiles(testbed: &Testbed) -> Result<Vec<Profiled>> {
    let profile = |name| {
        let phase = testbed.phase(name)?;
        Ok(Profiled {
            name,
            miss_rate: alone(&testbed.hardware, phase, CpuId(NEAR)).lines,
            penalty: numa_penalty(&testbed.hardware, phase, CpuId(FAR), HOME),
        })
    };
    cpu2006().map(profile).collect()
}
