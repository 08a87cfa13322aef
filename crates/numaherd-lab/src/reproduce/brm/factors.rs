//! BRM Fig 4: what each factor alone does to the micro-benchmark: where its memory is, a shared cache, shared
//! data.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::largest;

use super::micro::{MIB, SETS_MIB, by_set, pair};
use super::setup::{Memory, Setup, Sizes};
use crate::reproduce::testbed::{improvement, increase};

/// The last-level cache.
const CACHE_MIB: u64 = 12;

pub(super) fn measure(setup: &Setup) -> Result<Measured> {
    let mut measured = locality(setup)?;
    measured.append(contention(setup)?);
    measured.append(sharing(setup)?);
    Ok(measured)
}

/// Fig 4a: one thread, its memory local and remote.
fn locality(setup: &Setup) -> Result<Measured> {
    let slower = |set: &u64| {
        let sizes = Sizes {
            lists: set * MIB,
            shared: 0,
        };
        let local = setup.outcome(sizes, Memory::Node0, [1, 0])?;
        let remote = setup.outcome(sizes, Memory::Node0, [0, 1])?;
        Ok(increase(remote.seconds, local.seconds))
    };
    let slower: Vec<f64> = SETS_MIB.iter().map(slower).collect::<Result<_>>()?;
    let fitting = SETS_MIB.iter().filter(|&&set| set < CACHE_MIB).count();
    let mut measured = Measured::new();
    measured.figure("fig4a-fits", largest(&slower[..fitting]));
    measured.figure("fig4a-16", slower[2]);
    measured.figure("fig4a-256", slower[6]);
    measured.detail("remote-by-set", changes(by_set(&slower), 1));
    Ok(measured)
}

/// Fig 4b: four threads, memory local, nothing shared, on one socket and on two.
fn contention(setup: &Setup) -> Result<Measured> {
    let saved = |set: &u64| {
        let sizes = Sizes {
            lists: set * MIB,
            shared: 0,
        };
        let pair = pair(setup, sizes, Memory::Local)?;
        // The paper gives the second assignment as a part of the first (§2.2).
        Ok(improvement(pair.intra.seconds, pair.inter.seconds))
    };
    let saved: Vec<f64> = SETS_MIB.iter().map(saved).collect::<Result<_>>()?;
    let most = largest(&saved);
    let mut measured = Measured::new();
    measured.figure("fig4b-fits", largest(&saved[..2]));
    measured.figure("fig4b-most", most);
    measured.order("fig4b-diminishes", [most, saved[6]]);
    measured.detail("saved-by-set", changes(by_set(&saved), 1));
    Ok(measured)
}

/// Fig 4c: one shared line and nothing else, within a socket and across.
fn sharing(setup: &Setup) -> Result<Measured> {
    let across = |threads: usize| -> Result<f64> {
        let sizes = Sizes {
            lists: 0,
            shared: 64,
        };
        let within = setup.outcome(sizes, Memory::Node0, [threads, 0])?;
        let across = setup.outcome(sizes, Memory::Node0, [threads / 2, threads / 2])?;
        Ok(increase(across.seconds, within.seconds))
    };
    let (two, four) = (across(2)?, across(4)?);
    let mut measured = Measured::new();
    measured.figure("fig4c-across", two.min(four));
    measured.order("fig4c-peak", [four, two]);
    measured.detail("two-across", format!("{two:+.0}"));
    measured.detail("four-across", format!("{four:+.0}"));
    Ok(measured)
}
