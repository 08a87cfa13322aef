//! The claims of BRM (Rao, Wang, Zhou, Xu: Optimizing Virtual Machine Scheduling in NUMA Multicore
//! Systems, HPCA 2013), one for each statement that can be checked.
//!
//! | experiment | of the paper |
//! |---|---|
//! | [`factors`] | §2.2.1, Fig 4: locality, cache and sharing, each alone |
//! | [`micro`] | §2.2.2, §2.3, §3.2, §6.1, Fig 5 to 7, 8a: all of them at once |
//! | [`workloads`] | §1, §6.1, §6.2, Fig 1, 8b, 8c, 9: parallel and multiprogrammed workloads |
//! | [`overhead`] | §6.3, Fig 10: what the bookkeeping costs |
//! | [`lab`] | Fig 5, 7, 8a, 9 in the lab: `numaherd lab brm` |
//! | [`inference`] | §8: candidates found without being told |
//!
//! The paper's virtual machine is what its threads are here: a vCPU is a thread to the host. Its default
//! scheduler is Xen's; ours is the model's Linux. When a line holds is as for the other papers
//! (`claim`).

mod factors;
mod ground;
mod inference;
pub mod lab;
mod micro;
mod overhead;
mod workloads;

use anyhow::Result;

use super::claim::{at_least, at_most, claim, points};
use super::{Claim, Effort, correlation, largest, mean};

/// All claims of BRM, in the paper's order.
///
/// # Errors
/// A machine or program of the library that cannot be had, or a run that fails.
pub fn claims(effort: &Effort) -> Result<Vec<Claim>> {
    let ground = ground::Ground::new()?;
    let mut claims = factors::claims(&ground)?;
    claims.extend(micro::claims(&ground, effort)?);
    claims.extend(workloads::claims(&ground, effort)?);
    claims.extend(overhead::claims(&ground)?);
    claims.extend(inference::claims(&ground, effort)?);
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_has_an_id_of_its_own_and_a_figure() {
        let claims = claims(&Effort {
            runs: 1,
            ..Effort::QUICK
        })
        .unwrap();
        let mut ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), claims.len());
        for claim in &claims {
            assert!(claim.ours.is_finite(), "{}: {}", claim.id, claim.ours);
        }
    }
}
