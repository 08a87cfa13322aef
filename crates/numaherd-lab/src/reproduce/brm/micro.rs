//! BRM Fig 5 to 7, 8a and 9: the micro-benchmark, a list of its own for each thread and words that all
//! of them add to (Fig 3).
//!
//! The text gives sizes at the ends and turning points of its figures alone; those between are powers
//! of two. *Intra-S* puts all four threads on node 0, *Inter-S* two on each node.

use anyhow::{Context, Result};
use numaherd_model::{Binding, Job, Outcome};
use numaherd_topology::CpuId;
use rayon::prelude::*;

use super::ground::{BRM, Ground, IN_TURN, KERNEL, Measured, Memory};
use super::{Claim, Effort, at_least, at_most, claim, correlation, largest, points};
use crate::reproduce::Says;
use crate::reproduce::claim::SLOPE_SHARE;

pub(super) const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Threads where the paper says nothing else (§2.2).
const THREADS: u32 = 4;
/// Aggregate working sets of Fig 4, 5 and 8a.
pub(super) const SETS_MIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// Of them those of Fig 5 and 8a.
const COMBINED: usize = 6;
/// Sizes of the shared area in Fig 5b; 0 is none.
const SHARED_KIB: [u64; 8] = [0, 4, 8, 16, 32, 64, 128, 256];
/// Size of the shared area in Fig 5c and 8a.
const SHARED: u64 = 128 * KIB;
/// Why brm can be faster than any binding, and runs of it differ where it is.
const OUT_OF_STEP: &str = "below nothing since threads that have moved fall out of step and meet less often in the \
                           shared area, more or less by chance; bound ones keep step for ever in the model";
/// Below this a difference is none, in percent.
pub(super) const NONE: f64 = 2.0;

/// Two assignments of the same program.
pub(super) struct Pair {
    pub(super) intra: Outcome,
    pub(super) inter: Outcome,
}

impl Pair {
    /// By how much the second is more than the first, as a share of the first (§3.2).
    fn change(&self, of: fn(&Outcome) -> f64) -> f64 {
        let (intra, inter) = (of(&self.intra), of(&self.inter));
        // None before and none after is no change.
        if intra == inter {
            return 0.0;
        }
        (inter - intra) / intra
    }

    /// The same of the run time, in percent.
    pub(super) fn slower(&self) -> f64 {
        self.change(|outcome| outcome.seconds) * 100.0
    }
}

/// So many threads on each node, in turns of cores.
pub(super) fn on(ground: &Ground, node0: usize, node1: usize) -> Vec<CpuId> {
    let mut cpus = ground.cpus(0);
    cpus.truncate(node0);
    cpus.extend(ground.cpus(1).into_iter().take(node1));
    cpus
}

/// A program of four threads, on node 0 alone and on both.
pub(super) fn pair(ground: &Ground, set: u64, shared: u64, memory: Memory) -> Result<Pair> {
    Ok(Pair {
        intra: ground.outcome(set, shared, memory, on(ground, 4, 0))?,
        inter: ground.outcome(set, shared, memory, on(ground, 2, 2))?,
    })
}

/// The claims of all of them.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let mut claims = combined(ground)?;
    claims.extend(topology(ground, effort)?);
    claims.extend(improvement(ground, effort)?);
    Ok(claims)
}

pub(super) fn told(what: &str, figures: impl IntoIterator<Item = (String, f64)>) -> String {
    let each = figures
        .into_iter()
        .map(|(name, figure)| format!("{name} {figure:+.1}"));
    format!("{what}, %: {}", each.collect::<Vec<_>>().join(", "))
}

pub(super) fn by_set(figures: &[f64]) -> impl Iterator<Item = (String, f64)> {
    let sizes = SETS_MIB.iter().zip(figures);
    sizes.map(|(size, &figure)| (format!("{size} MB"), figure))
}

/// Fig 5 and 7: factors against each other, and what tells which wins.
fn combined(ground: &Ground) -> Result<Vec<Claim>> {
    let sets = &SETS_MIB[..COMBINED];
    let of_sets = |shared: u64| -> Result<Vec<Pair>> {
        let pairs = sets.par_iter();
        pairs
            .map(|set| pair(ground, set * MIB, shared, Memory::Node0))
            .collect()
    };
    let (a, c) = (of_sets(0)?, of_sets(SHARED)?);
    let shared = SHARED_KIB.par_iter();
    let b: Vec<Pair> = shared
        .map(|size| pair(ground, 16 * MIB, size * KIB, Memory::Node0))
        .collect::<Result<_>>()?;
    let slower = |pairs: &[Pair]| pairs.iter().map(Pair::slower).collect::<Vec<_>>();
    let (sa, sb, sc) = (slower(&a), slower(&b), slower(&c));
    let turn = SHARED_KIB
        .iter()
        .zip(&sb)
        .find(|&(_, &slower)| slower > 0.0);
    let mut claims = vec![
        claim(
            "fig5a-fits",
            "2.2.2, Fig 5a",
            "locality against cache: neither matters while all fits in one cache (4 and 8 MB)",
            "%",
            at_most(NONE),
            sa[0].abs().max(sa[1].abs()),
        )
        .note(told("Inter-S over Intra-S", by_set(&sa))),
        claim(
            "fig5a-cache",
            "2.2.2, Fig 5a",
            "at 16 MB separate caches win: Inter-S is faster",
            "%",
            Says::Ranking,
            -sa[2],
        ),
        claim(
            "fig5a-locality",
            "2.2.2, Fig 5a",
            "at 128 MB locality wins: Inter-S is slower",
            "%",
            Says::Ranking,
            sa[5],
        ),
        claim(
            "fig5b-turn",
            "2.2.2, Fig 5b",
            "cache against sharing, 16 MB: size of the shared area from which on Intra-S is faster (within a \
             factor of two)",
            "KB",
            Says::Point {
                figure: 32.0,
                tolerance: 32.0,
            },
            turn.map_or(f64::NAN, |(&size, _)| size as f64),
        )
        .note(told(
            "Inter-S over Intra-S",
            SHARED_KIB.iter().zip(&sb).map(|(size, &figure)| (format!("{size} KB"), figure)),
        )),
        claim(
            "fig5c-first",
            "2.2.2, Fig 5c",
            "all three, 128 KB shared: at 4 MB grouping is better",
            "%",
            Says::Ranking,
            sc[0],
        )
        .note(told("Inter-S over Intra-S", by_set(&sc))),
        claim(
            "fig5c-then",
            "2.2.2, Fig 5c",
            "then worse, where the cache decides: by how much Inter-S is faster at the best",
            "%",
            Says::Ranking,
            largest(sc.iter().map(|slower| -slower)),
        ),
        claim(
            "fig5c-last",
            "2.2.2, Fig 5c",
            "at last better again: at 128 MB Inter-S is slower",
            "%",
            Says::Ranking,
            sc[5],
        ),
    ];
    // 128 KB shared at 16 MB is in Fig 5b and in Fig 5c: counted once.
    let c: Vec<&Pair> = c
        .iter()
        .enumerate()
        .filter(|&(at, _)| at != 2)
        .map(|(_, pair)| pair)
        .collect();
    let all: Vec<&Pair> = a.iter().chain(b.iter().skip(1)).chain(c).collect();
    claims.extend(correlations(&all));
    Ok(claims)
}

/// Fig 7.
fn correlations(pairs: &[&Pair]) -> Vec<Claim> {
    let changes = |of: fn(&Outcome) -> f64| -> Vec<f64> {
        pairs.iter().map(|pair| pair.change(of)).collect()
    };
    let time = changes(|outcome| outcome.seconds);
    let penalty = correlation(
        &time,
        &changes(|outcome| outcome.uncore_penalty.unwrap_or(f64::NAN)),
    );
    let misses = correlation(&time, &changes(|outcome| outcome.miss_rate));
    let r = |id: &str, what: &str, says, ours| claim(id, "3.2, Fig 7", what, "r", says, ours);
    vec![
        r(
            "fig7-penalty",
            "uncore penalty and run time, Inter-S over Intra-S in all configurations of Fig 5: linear correlation",
            at_least(0.9),
            penalty,
        )
        .note(format!("{} configurations; the paper has 0.91", pairs.len())),
        r(
            "fig7-misses",
            "misses per 1000 instructions and run time: linear correlation",
            Says::Point {
                figure: 0.61,
                tolerance: 0.15,
            },
            misses,
        ),
        r(
            "fig7-better",
            "the penalty tells the run time better than misses do",
            Says::Ranking,
            penalty - misses,
        ),
    ]
}

/// Fig 6: 128 MB and 128 KB shared, in a machine that fits in a node and in one that does not.
fn topology(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let narrow = ground.micro(THREADS, 128 * MIB, SHARED, Memory::Node0)?;
    let narrow = Job {
        binding: Binding::Within(ground.cpus(0).into_iter().collect()),
        ..narrow
    };
    let wide = ground.micro(THREADS, 128 * MIB, SHARED, Memory::Wide)?;
    let under = |job: Job| ground.under(KERNEL, &[job], &[1.0], effort.runs);
    let (accurate, inaccurate) = (under(narrow)?, under(wide)?);
    Ok(vec![
        claim(
            "fig6-slower",
            "2.3, Fig 6",
            "128 MB in a machine whose memory is on both nodes over one that fits in a node, default scheduler",
            "%",
            points(26.0),
            (inaccurate.mean() / accurate.mean() - 1.0) * 100.0,
        ),
        claim(
            "fig6-deviation",
            "2.3, Fig 6",
            "its relative standard deviation over the runs",
            "%",
            Says::Point {
                figure: 8.0,
                tolerance: 8.0 * SLOPE_SHARE,
            },
            inaccurate.deviation(),
        )
        .note("the modelled kernel leaves no chance: it starts threads on the emptiest node and keeps them"),
    ])
}

/// Fig 8a and 9: the kernel, the best binding and brm.
fn improvement(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    struct Row {
        kernel: Measured,
        best: Measured,
        brm: Measured,
        in_turn: Measured,
    }
    let row = |set: &u64| -> Result<Row> {
        let jobs = [ground.long_micro(set * MIB, SHARED)?];
        let bound = ground.bindings(&jobs, &[1.0])?;
        let best = bound
            .into_iter()
            .min_by(|a, b| a.mean().total_cmp(&b.mean()));
        Ok(Row {
            kernel: ground.under(KERNEL, &jobs, &[1.0], effort.runs)?,
            brm: ground.under(BRM, &jobs, &[1.0], effort.runs)?,
            in_turn: ground.under(IN_TURN, &jobs, &[1.0], effort.runs)?,
            best: best.context("there is a binding")?,
        })
    };
    let sets = SETS_MIB[..COMBINED].par_iter();
    let rows: Vec<Row> = sets.map(row).collect::<Result<_>>()?;
    let gains: Vec<f64> = rows
        .iter()
        .map(|row| (1.0 - row.brm.mean() / row.kernel.mean()) * 100.0)
        .collect();
    let behind = |of: fn(&Row) -> &Measured| -> Vec<f64> {
        let behind = |row: &Row| (of(row).mean() / row.best.mean() - 1.0) * 100.0;
        rows.iter().map(behind).collect()
    };
    let deviations = |of: fn(&Row) -> &Measured| -> Vec<f64> {
        rows.iter().map(|row| of(row).deviation()).collect()
    };
    let (behind, behind_in_turn) = (behind(|row| &row.brm), behind(|row| &row.in_turn));
    let (deviations, in_turn) = (deviations(|row| &row.brm), deviations(|row| &row.in_turn));
    Ok(vec![
        claim(
            "fig8a-least",
            "6.1, Fig 8a",
            "micro-benchmark: brm over the default scheduler, the least of all working sets",
            "%",
            at_least(3.1),
            -largest(gains.iter().map(|gain| -gain)),
        )
        .note(told("all", by_set(&gains))),
        claim(
            "fig8a-most",
            "6.1, Fig 8a",
            "the most of all (at 4 MB)",
            "%",
            points(19.8),
            largest(gains.iter().copied()),
        ),
        claim(
            "fig8a-behind-best",
            "6.1, Fig 8a",
            "brm behind the best fixed binding, at most",
            "%",
            at_most(3.4),
            largest(behind.iter().copied()),
        )
        .note(format!("{}; {OUT_OF_STEP}", told("all", by_set(&behind)))),
        claim(
            "fig9-micro",
            "6.2, Fig 9",
            "micro-benchmark: relative standard deviation over the runs under brm, the largest",
            "%",
            at_most(2.0),
            largest(deviations.iter().copied()),
        )
        .note(told("all", by_set(&deviations))),
        claim(
            "fig8a-in-turn",
            "6.1, Fig 8a",
            "brm-in-turn (ours) behind the best fixed binding, at most",
            "%",
            at_most(3.4),
            largest(behind_in_turn.iter().copied()),
        )
        .proxy(format!(
            "{}; {OUT_OF_STEP}",
            told("the paper's figure is of brm; all", by_set(&behind_in_turn))
        )),
        claim(
            "fig9-in-turn",
            "6.2, Fig 9",
            "relative standard deviation under brm-in-turn (ours), the largest",
            "%",
            at_most(2.0),
            largest(in_turn.iter().copied()),
        )
        .proxy(told("the paper's figure is of brm; all", by_set(&in_turn))),
    ])
}
