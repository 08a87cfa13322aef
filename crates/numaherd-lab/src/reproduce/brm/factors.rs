//! BRM Fig 4: what each factor alone does to the micro-benchmark: where its memory is, a shared cache, shared
//! data.

use anyhow::Result;

use super::ground::{Ground, Memory};
use super::micro::{MIB, NONE, Pair, SETS_MIB, by_set, on, pair, told};
use super::{Claim, at_most, claim, largest, points};
use crate::reproduce::Says;

/// The last-level cache.
const CACHE_MIB: u64 = 12;

/// The claims of Fig 4.
pub(super) fn claims(ground: &Ground) -> Result<Vec<Claim>> {
    let mut claims = locality(ground)?;
    claims.extend(contention(ground)?);
    claims.extend(sharing(ground)?);
    Ok(claims)
}

/// Fig 4a: one thread, its memory local and remote.
fn locality(ground: &Ground) -> Result<Vec<Claim>> {
    let slower = |set: &u64| {
        let on_node =
            |node0, node1| ground.outcome(set * MIB, 0, Memory::Node0, on(ground, node0, node1));
        let pair = Pair {
            intra: on_node(1, 0)?,
            inter: on_node(0, 1)?,
        };
        Ok(pair.slower())
    };
    let slower: Vec<f64> = SETS_MIB.iter().map(slower).collect::<Result<_>>()?;
    let fitting = SETS_MIB.iter().filter(|&&set| set < CACHE_MIB).count();
    Ok(vec![
        claim(
            "fig4a-fits",
            "2.2.1, Fig 4a",
            "one thread, remote memory over local: nothing while the working set fits in the cache",
            "%",
            at_most(NONE),
            largest(slower[..fitting].iter().copied()),
        )
        .note(told("all", by_set(&slower))),
        claim(
            "fig4a-16",
            "2.2.1, Fig 4a",
            "one thread, remote memory over local, 16 MB",
            "%",
            points(26.0),
            slower[2],
        ),
        claim(
            "fig4a-256",
            "2.2.1, Fig 4a",
            "one thread, remote memory over local, 256 MB",
            "%",
            points(44.0),
            slower[6],
        )
        .proxy("the machine's remote latency was derived from this very figure: an input"),
    ])
}

/// Fig 4b: four threads, memory local, nothing shared, on one socket and on two.
fn contention(ground: &Ground) -> Result<Vec<Claim>> {
    let saved = |set: &u64| {
        let pair = pair(ground, set * MIB, 0, Memory::Local)?;
        // The second assignment is given as a part of the first (§2.2).
        Ok((1.0 - pair.inter.seconds / pair.intra.seconds) * 100.0)
    };
    let saved: Vec<f64> = SETS_MIB.iter().map(saved).collect::<Result<_>>()?;
    let most = largest(saved.iter().copied());
    Ok(vec![
        claim(
            "fig4b-fits",
            "2.2.1, Fig 4b",
            "four threads, what two caches save over one: nothing while all working sets fit in one",
            "%",
            at_most(NONE),
            largest(saved[..2].iter().copied()),
        ),
        claim(
            "fig4b-most",
            "2.2.1, Fig 4b",
            "four threads, what two caches save over one, the most of all working sets",
            "%",
            points(33.0),
            most,
        )
        .note(told("all", by_set(&saved))),
        claim(
            "fig4b-diminishes",
            "2.2.1, Fig 4b",
            "the effect is less again when each thread's set is larger than a cache: the most less that at 256 MB",
            "points",
            Says::Ranking,
            most - saved[6],
        ),
    ])
}

/// Fig 4c: one shared line, nothing else, within a socket and across.
fn sharing(ground: &Ground) -> Result<Vec<Claim>> {
    let across = |threads: usize| -> Result<f64> {
        let seconds = |node0, node1| {
            let cpus = on(ground, node0, node1);
            ground.outcome(0, 64, Memory::Node0, cpus)
        };
        let within = seconds(threads, 0)?;
        let across = seconds(threads / 2, threads / 2)?;
        Ok((across.seconds / within.seconds - 1.0) * 100.0)
    };
    let [two, four]: [f64; 2] = [across(2)?, across(4)?];
    Ok(vec![
        claim(
            "fig4c-across",
            "2.2.1, Fig 4c",
            "threads that add to one line take longer across sockets than within one: the least of 2 and 4 threads",
            "%",
            Says::Ranking,
            two.min(four),
        )
        .note(format!("2 threads {two:+.0}, 4 threads {four:+.0} %")),
        claim(
            "fig4c-peak",
            "2.2.1, Fig 4c",
            "by more with 4 threads than with 2",
            "points",
            Says::Ranking,
            four - two,
        )
        .note("8 threads in a socket, where the effect falls again, need SMT, which the model has not"),
    ])
}
