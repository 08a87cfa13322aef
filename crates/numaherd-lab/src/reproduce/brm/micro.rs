//! BRM Fig 5 to 7, 8a and 9: the micro-benchmark, a list of its own for each thread and words that all threads
//! add to (Fig 3).
//!
//! The text gives only the sizes at the ends and turning points of its figures; those between are powers of
//! two. *Intra-S* puts all four threads on node 0, *Inter-S* two on each node.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::{Sample, correlation, largest, mean, smallest};
use numaherd_model::{Binding, Job, Outcome};
use numaherd_topology::NodeId;
use rayon::prelude::*;

use super::setup::{BRM, IN_TURN, Memory, Setup, Sizes};
use crate::reproduce::testbed::{Effort, KERNEL, improvement, increase};

pub(super) const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Threads where the paper says nothing else (§2.2).
const THREADS: u32 = 4;
/// Aggregate working sets of Fig 4, 5 and 8a.
pub(super) const SETS_MIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// Those of Fig 5 and 8a.
pub(super) const COMBINED_MIB: [u64; 6] = [4, 8, 16, 32, 64, 128];
/// The one that is in Fig 5b and in Fig 5c.
const IN_BOTH: usize = 2;
/// Sizes of the shared area in Fig 5b; 0 is none.
const SHARED_KIB: [u64; 8] = [0, 4, 8, 16, 32, 64, 128, 256];
/// Size of the shared area in Fig 5c and 8a.
pub(super) const SHARED: u64 = 128 * KIB;

/// Two assignments of the same program.
pub(super) struct Pair {
    pub(super) intra: Outcome,
    pub(super) inter: Outcome,
}

impl Pair {
    /// By how much the second is more than the first, as a share of the first (§3.2).
    fn change(&self, of: fn(&Outcome) -> f64) -> f64 {
        let (intra, inter) = (of(&self.intra), of(&self.inter));
        // Two zeros are no change.
        if intra == inter {
            return 0.0;
        }
        (inter - intra) / intra
    }

    /// The change of the run time in percent.
    fn slower(&self) -> f64 {
        self.change(|outcome| outcome.seconds) * 100.0
    }
}

/// A program of four threads, on node 0 alone and on both nodes.
pub(super) fn pair(setup: &Setup, sizes: Sizes, memory: Memory) -> Result<Pair> {
    Ok(Pair {
        intra: setup.outcome(sizes, memory, [4, 0])?,
        inter: setup.outcome(sizes, memory, [2, 2])?,
    })
}

pub(super) fn measure(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let mut measured = topology(setup, effort)?;
    measured.append(schedulers(setup, effort)?);
    Ok(measured)
}

/// Figures with the working sets that they belong to.
pub(super) fn by_set(figures: &[f64]) -> impl Iterator<Item = (String, f64)> {
    let sizes = SETS_MIB.iter().zip(figures);
    sizes.map(|(size, &figure)| (format!("{size} MB"), figure))
}

/// Fig 5 and 7, with bound threads: factors against each other, and what shows which one wins.
pub(super) fn bound(setup: &Setup) -> Result<Measured> {
    let pairs = |sizes: Vec<(u64, u64)>| -> Result<Vec<Pair>> {
        let sizes = sizes.into_par_iter();
        let sizes = sizes.map(|(lists, shared)| Sizes { lists, shared });
        sizes
            .map(|sizes| pair(setup, sizes, Memory::Node0))
            .collect()
    };
    let sets = |shared| COMBINED_MIB.map(|set| (set * MIB, shared)).to_vec();
    let a = pairs(sets(0))?;
    let b = pairs(SHARED_KIB.map(|shared| (16 * MIB, shared * KIB)).to_vec())?;
    let c = pairs(sets(SHARED))?;
    let slower = |pairs: &[Pair]| pairs.iter().map(Pair::slower).collect::<Vec<f64>>();
    let mut measured = Measured::new();

    let of_sets = slower(&a);
    measured.figure("fig5a-fits", of_sets[0].abs().max(of_sets[1].abs()));
    measured.order("fig5a-cache", [0.0, of_sets[2]]);
    measured.figure("fig5a-locality", of_sets[5]);
    measured.detail("locality-and-cache", changes(by_set(&of_sets), 1));

    let of_shared = slower(&b);
    let by_shared = SHARED_KIB.iter().zip(of_shared);
    let turn = by_shared.clone().find(|one| one.1 > 0.0);
    measured.figure("fig5b-turn", turn.map_or(f64::NAN, |one| *one.0 as f64));
    let by_shared = by_shared.map(|(size, figure)| (format!("{size} KB"), figure));
    measured.detail("cache-and-sharing", changes(by_shared, 1));

    let of_sets = slower(&c);
    measured.figure("fig5c-first", of_sets[0]);
    measured.order("fig5c-then", [0.0, smallest(&of_sets)]);
    measured.figure("fig5c-last", of_sets[5]);
    measured.detail("all-three", changes(by_set(&of_sets), 1));

    // The first of Fig 5b is the third of 5a, and one of 5c is in 5b: each counts once.
    let c = c.iter().enumerate().filter(|one| one.0 != IN_BOTH);
    let all = a.iter().chain(&b[1..]).chain(c.map(|one| one.1));
    correlations(&all.collect::<Vec<_>>(), &mut measured);
    Ok(measured)
}

/// Fig 7.
fn correlations(pairs: &[&Pair], measured: &mut Measured) {
    let changes = |of: fn(&Outcome) -> f64| -> Vec<f64> {
        pairs.iter().map(|pair| pair.change(of)).collect()
    };
    let time = changes(|outcome| outcome.seconds);
    let penalty = changes(|outcome| outcome.uncore_penalty.unwrap_or(f64::NAN));
    let penalty = correlation(&time, &penalty);
    let misses = correlation(&time, &changes(|outcome| outcome.miss_rate));
    measured.figure("fig7-penalty", penalty);
    measured.figure("fig7-misses", misses);
    measured.order("fig7-better", [penalty, misses]);
    measured.detail("configurations", pairs.len());
}

/// Fig 6: 128 MB and 128 KB shared, in a virtual machine that fits in a node and in one that does not.
fn topology(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let sizes = Sizes {
        lists: 128 * MIB,
        shared: SHARED,
    };
    let narrow = Job {
        binding: Binding::Within(setup.testbed.cpus(NodeId(0)).into_iter().collect()),
        ..setup.micro(THREADS, sizes, Memory::Node0)?
    };
    let wide = setup.micro(THREADS, sizes, Memory::Wide)?;
    let under = |job: Job| setup.under(KERNEL, &[job], &[1.0], &effort.seeds());
    let (narrow, wide) = (under(narrow)?, under(wide)?);
    let mut measured = Measured::new();
    measured.figure("fig6-slower", increase(wide.mean(), narrow.mean()));
    measured.figure("fig6-deviation", wide.deviation_percent());
    Ok(measured)
}

/// Fig 8a and 9: the kernel, the best binding and brm.
fn schedulers(setup: &Setup, effort: &Effort) -> Result<Measured> {
    struct Row {
        kernel: Sample,
        best: f64,
        brm: Sample,
        in_turn: Sample,
    }
    let row = |set: &u64| -> Result<Row> {
        let jobs = [setup.long_micro(Sizes {
            lists: set * MIB,
            shared: SHARED,
        })?];
        let under = |policy| setup.under(policy, &jobs, &[1.0], &effort.seeds());
        Ok(Row {
            best: setup.bindings(&jobs, &[1.0])?[0],
            kernel: under(KERNEL)?,
            brm: under(BRM)?,
            in_turn: under(IN_TURN)?,
        })
    };
    let rows: Vec<Row> = COMBINED_MIB.par_iter().map(row).collect::<Result<_>>()?;
    let mut measured = Measured::new();
    let gains = rows
        .iter()
        .map(|row| improvement(row.kernel.mean(), row.brm.mean()));
    let gains: Vec<f64> = gains.collect();
    measured.figure("fig8a-least", smallest(&gains));
    measured.figure("fig8a-most", largest(&gains));
    measured.detail("gains", changes(by_set(&gains), 1));
    let mut of_policy = |of: fn(&Row) -> &Sample, behind: [&str; 2], deviation: [&str; 2]| {
        let each = |figure: &dyn Fn(&Row) -> f64| rows.iter().map(figure).collect::<Vec<f64>>();
        let slower = each(&|row| increase(of(row).mean(), row.best));
        let deviations = each(&|row| of(row).deviation_percent());
        // §6.1 states the most, §6.2 the average.
        for ([id, detail], figure, figures) in [
            (behind, largest(&slower), &slower),
            (deviation, mean(&deviations), &deviations),
        ] {
            measured.figure(id, figure);
            measured.detail(detail, changes(by_set(figures), 1));
        }
    };
    of_policy(
        |row| &row.brm,
        ["fig8a-behind-best", "behind"],
        ["fig9-micro", "deviations"],
    );
    of_policy(
        |row| &row.in_turn,
        ["fig8a-in-turn", "behind-in-turn"],
        ["fig9-in-turn", "deviations-in-turn"],
    );
    Ok(measured)
}
