//! What the lab compares: policies, and what places threads and pages on a machine without Numaherd.

use std::fmt;

use anyhow::Result;
use numaherd_policy::registry;
use numaherd_policy::settings::Settings;
use numaherd_world::Signal;
use serde::{Deserialize, Serialize};

use numaherd::exit::ended;

/// What places threads and pages in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The kernel, with NUMA balancing off.
    Linux,
    /// The kernel, with NUMA balancing on and as Debian ships it.
    LinuxBalancing,
    /// Debian's numad, with its own defaults and NUMA balancing off (it turns it off itself).
    Numad,
    /// A policy, with NUMA balancing off.
    Policy(String),
}

impl Scheduler {
    /// Reads `linux`, `linux-balancing`, `numad` or a policy's name.
    ///
    /// # Errors
    /// The policy is unknown: the message lists what there is.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "linux" => Ok(Self::Linux),
            "linux-balancing" => Ok(Self::LinuxBalancing),
            "numad" => Ok(Self::Numad),
            policy => {
                registry::build(policy, &Settings::default()).map_err(|error| {
                    let others = "lab compare also knows linux-balancing and numad";
                    ended!(Usage, "{error}; {others}")
                })?;
                Ok(Self::Policy(policy.to_owned()))
            }
        }
    }

    /// The policy of the `numaherd run` that observes the trial: `linux`, which changes nothing, unless a policy
    /// places, so that every trial is observed by the same means and at the same cost.
    pub fn policy(&self) -> &str {
        match self {
            Self::Policy(name) => name,
            Self::Linux | Self::LinuxBalancing | Self::Numad => "linux",
        }
    }

    /// Whether it needs a machine that measures how long pages stay in TLBs: one with an IPM unit.
    pub fn needs_tlb_residency(&self) -> bool {
        registry::needs(self.policy()).is_ok_and(|needs| needs.contains(&Signal::TlbResidency))
    }

    /// Whether the kernel's NUMA balancing is on.
    pub fn kernel_balances(&self) -> bool {
        matches!(self, Self::LinuxBalancing)
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linux => f.write_str("linux"),
            Self::LinuxBalancing => f.write_str("linux-balancing"),
            Self::Numad => f.write_str("numad"),
            Self::Policy(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_need_an_ipm_unit_are_known() {
        let needs = |name| Scheduler::parse(name).unwrap().needs_tlb_residency();
        assert!(needs("ipm"));
        for name in ["linux", "linux-balancing", "numad", "dino"] {
            assert!(!needs(name), "{name}");
        }
    }
}
