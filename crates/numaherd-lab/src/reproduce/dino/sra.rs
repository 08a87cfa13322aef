//! §4.1: which pages should follow a thread that was moved: saved remote accesses (SRA).
//!
//! The paper does not say what it simulated the strategies on. Here: the menagerie's kernels, each as
//! recorded in the lab, on the caches of its machine ([`numaherd_trace::sra`]); a mean over kernels.

use anyhow::Result;
use numaherd_trace::sra::{Options, Sra, Strategy, sra};

use super::super::claim::{Says, at_least, claim};
use super::super::traces::{self, Traces};
use super::{Claim, mean};

/// One in how many memory accesses is sampled: "less than one percent".
const RATE: u64 = 1000;
/// The paper's K.
const PAGES: u64 = 4096;

/// The ids of the lines, for where they cannot be run.
pub const IDS: [&str; 4] = ["sra-k4096", "sra-every", "sra-strategy", "sra-accuracy"];

/// The lines of §4.1.
///
/// # Errors
/// A trace cannot be had.
pub fn claims(traces: &Traces) -> Result<Vec<Claim>> {
    let options = Options {
        pages: vec![1, 16, 256, PAGES],
        one_in: vec![1, RATE, 100_000],
        ..Options::default()
    };
    let kernels = traces::few();
    let tried: Result<Vec<Sra>> = kernels
        .iter()
        .map(|kernel| Ok(sra(&*traces.of(kernel)?, &options)?))
        .collect();
    let tried = tried?;
    let saved = |strategy, pages, one_in| {
        let shares = tried
            .iter()
            .filter_map(|sra| sra.cell(strategy, pages, one_in)?.sra);
        mean(shares) * 100.0
    };
    let both_ways = Strategy::SequentialForwardBackward;
    let by_kernel: Vec<String> = kernels
        .iter()
        .zip(&tried)
        .map(|(kernel, sra)| {
            let share = sra.cell(both_ways, PAGES, RATE).and_then(|cell| cell.sra);
            share.map_or_else(
                || format!("{} nothing to save", kernel.name),
                |share| format!("{} {:.1}", kernel.name, share * 100.0),
            )
        })
        .collect();
    let others = Strategy::ALL
        .into_iter()
        .filter(|&strategy| strategy != both_ways);
    let best_other = others
        .map(|strategy| saved(strategy, PAGES, RATE))
        .fold(f64::NEG_INFINITY, f64::max);
    let by_strategy: Vec<String> = Strategy::ALL
        .iter()
        .map(|&strategy| format!("{} {:.1}", strategy.name(), saved(strategy, PAGES, RATE)))
        .collect();
    let needed = |one_in| {
        let most = saved(both_ways, PAGES, one_in);
        let enough = options
            .pages
            .iter()
            .find(|&&pages| saved(both_ways, pages, one_in) >= 0.9 * most);
        enough.copied().unwrap_or(PAGES) as f64
    };
    let where_ = "4.1";
    let [k4096, every, strategy, accuracy] = IDS;
    Ok(vec![
        claim(
            k4096,
            where_,
            "sequential-forward-backward, K = 4096, 1 access in 1000 sampled: remote accesses saved",
            "%",
            at_least(74.9),
            saved(both_ways, PAGES, RATE),
        )
        .note(format!(
            "class W has one or two windows of 4096 pages in all, so that nearly all follows the first \
             samples; by kernel: {}",
            by_kernel.join(", ")
        )),
        claim(
            every,
            where_,
            "every access seen and its page alone moved: remote accesses saved",
            "%",
            at_least(100.0),
            saved(both_ways, 1, 1),
        ),
        claim(
            strategy,
            where_,
            "sequential-forward-backward saves more than the others (K = 4096, 1 in 1000), by",
            "points",
            Says::Ranking,
            saved(both_ways, PAGES, RATE) - best_other,
        )
        .note(by_strategy.join(", ")),
        claim(
            accuracy,
            where_,
            "with fewer samples (1 in 100,000 in place of every one) more pages are needed for nine \
             tenths of what K = 4096 saves, times",
            "",
            at_least(2.0),
            needed(100_000) / needed(1),
        ),
    ])
}
