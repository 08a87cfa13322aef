//! The claims of N-MASS (Majo and Gross, ISMM 2011) on the model of its machine.
//!
//! Two Xeon E5520 of four cores; programs of CPU2006. What its figures show and its text does not say
//! is held against bounds from the text (FACTS 0). Slowdowns are against the program alone with its
//! memory local, in percent.

mod mappings;
mod workloads;

use anyhow::Result;
use numaherd_model::{Hardware, Library, Program};
use numaherd_topology::Machine;

use super::{Claim, Effort, Says, largest, mean};

/// The paper's machine and its programs.
pub(super) struct Bench {
    hardware: Hardware,
    programs: &'static Library,
}

impl Bench {
    fn new() -> Result<Self> {
        Ok(Self {
            hardware: Hardware::of(&Machine::preset("xeon-e5520-2s")?)?,
            programs: Library::built_in(),
        })
    }

    fn program(&self, name: &str) -> Result<&'static std::sync::Arc<Program>> {
        Ok(self.programs.get(name)?)
    }
}

/// All claims, in the paper's order.
///
/// # Errors
/// Only when the program's own data are damaged.
pub fn claims(effort: &Effort) -> Result<Vec<Claim>> {
    let bench = Bench::new()?;
    let mut claims = mappings::claims(&bench)?;
    claims.extend(workloads::claims(&bench, effort)?);
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_has_an_id_of_its_own_and_a_figure() {
        let claims = claims(&Effort {
            runs: 1,
            hour_s: 30.0,
            ..Effort::QUICK
        })
        .unwrap();
        assert!(claims.len() > 30);
        let mut ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), claims.len());
        for claim in &claims {
            assert!(claim.ours.is_finite(), "{}: {}", claim.id, claim.ours);
        }
    }
}
