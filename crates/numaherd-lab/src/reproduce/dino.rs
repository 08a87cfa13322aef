//! The claims of DINO (Blagodurov, Zhuravlev, Dashti, Fedorova: A Case for NUMA-aware Contention
//! Management on Multicore Systems, USENIX ATC 2011), one for each statement that can be checked.
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`scenarios`] | §2.1, Fig 3 to 5: what contention costs, and which factor how much |
//! | [`uma`] | §3.3.1: DI against the best placement, where memory is one node's |
//! | [`clones`] | §3.3.1, Fig 8: degradation against miss rate |
//! | [`cpu`] | §3.2, §5.3, Fig 6, 11, Table 1: CPU2006 under each policy |
//! | [`mpi`] | §3.2, §5.3, Fig 7, 12, Table 1: MPI2007 under each policy |
//! | [`lamp`] | §5.2, §5.3, Fig 10, 13: a web service under each policy |
//! | [`sra`] | §4.1: which pages should follow a thread, on traces |
//! | [`sweep`] | §5.2, Fig 9: how many pages follow a thread |
//!
//! When a line holds, the same for all: a printed figure in percent, within 10 points either way; a
//! count, within a factor of two; a bound, without any tolerance; an order, strictly. Where the
//! paper's words are weaker than its figure ("as much as", "up to") they are held as a bound: what
//! it saw at most is at most what there is. A line is a proxy where the paper does not print what was
//! run or what came of it.

mod clones;
mod cpu;
mod lamp;
mod mpi;
mod runs;
mod scenarios;
pub mod sra;
mod sweep;
mod uma;

use anyhow::Result;
use numaherd_model::program::Phase;
use numaherd_model::{Hardware, Library};
use numaherd_topology::{CpuId, Machine, NodeId};

use super::claim::{at_least, at_most, claim, points};
use super::{Claim, Effort, correlation, largest, mean};

/// All claims of DINO, in the paper's order.
///
/// # Errors
/// A machine or program of the library that cannot be had, or a run that fails.
pub fn claims(effort: &Effort) -> Result<Vec<Claim>> {
    let ground = Ground::new()?;
    let mut claims = scenarios::claims(&ground)?;
    claims.extend(clones::claims(&ground)?);
    claims.extend(uma::claims()?);
    claims.extend(cpu::claims(&ground, effort)?);
    claims.extend(mpi::claims(&ground, effort)?);
    claims.extend(lamp::claims(&ground, effort)?);
    claims.extend(sweep::claims(&ground, effort)?);
    Ok(claims)
}

/// The machine of the paper and the programs.
struct Ground {
    hardware: Hardware,
    library: &'static Library,
}

impl Ground {
    fn new() -> Result<Self> {
        Ok(Self {
            hardware: Hardware::of(&Machine::preset("opteron-8356-4s")?)?,
            library: Library::built_in(),
        })
    }

    /// What a program of one phase does.
    fn phase(&self, program: &str) -> Result<&Phase> {
        Ok(&self.library.get(program)?.phases[0])
    }

    /// The CPUs of a node, in their order.
    fn cpus(&self, node: NodeId) -> Vec<CpuId> {
        let cpus = self.hardware.topology().cpus().iter();
        let cpus = cpus.filter(|cpu| cpu.node == node);
        cpus.map(|cpu| cpu.id).collect()
    }

    /// All nodes, each with each other one.
    fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        let nodes = || self.hardware.topology().nodes().iter().map(|node| node.id);
        let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }
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

    /// The paper's three of that class.
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
