//! DINO §4.1: which pages should follow a thread that moved: saved remote accesses (SRA).
//!
//! The paper does not say what it simulated the strategies on. Here they run on the menagerie's kernels, each as
//! recorded in the lab, on the caches of the kernel's machine ([`numaherd_trace::sra`]); figures are means over the
//! kernels. These are some [`SCALE`] times smaller than real programs. Caches and K are smaller by as much, and
//! samples more frequent, so that a window of pages gets as many of them.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{largest, mean};
use numaherd_trace::sra::{Caches, Options, Sra, Strategy, sra};

use crate::reproduce::ipm::setup::{SCALE, smaller};
use crate::reproduce::traces::{self, Traces};

/// One in how many memory accesses is sampled: "less than one percent".
const RATE: u64 = 1000 / SCALE;
/// The same much less often.
const SELDOM: u64 = 100_000 / SCALE;
/// The paper's K.
const PAGES: u64 = 4096 / SCALE;

pub(super) fn measure(traces: &Traces) -> Result<Measured> {
    let caches = Caches::barcelona();
    let cache = |cache| smaller(cache, caches.line_bytes, SCALE);
    let options = Options {
        pages: vec![1, 16 / SCALE, 256 / SCALE, PAGES],
        one_in: vec![1, RATE, SELDOM],
        caches: Caches {
            l1: cache(caches.l1),
            l2: caches.l2.map(cache),
            llc: cache(caches.llc),
            ..caches
        },
        ..Options::default()
    };
    let kernels = traces::few();
    let tried = kernels
        .iter()
        .map(|kernel| Ok(sra(&*traces.of(kernel)?, &options)?))
        .collect::<Result<Vec<Sra>>>()?;
    let saved = |strategy, pages, one_in| {
        let cells = tried
            .iter()
            .filter_map(|sra| sra.cell(strategy, pages, one_in)?.sra);
        mean(cells) * 100.0
    };
    let both_ways = Strategy::SequentialForwardBackward;
    let best = saved(both_ways, PAGES, RATE);
    let others = Strategy::ALL
        .into_iter()
        .filter(|&strategy| strategy != both_ways);
    let others = largest(others.map(|strategy| saved(strategy, PAGES, RATE)));
    let pages_needed = |one_in| {
        let enough = 0.9 * saved(both_ways, PAGES, one_in);
        let mut sizes = options.pages.iter().copied();
        sizes
            .find(|&pages| saved(both_ways, pages, one_in) >= enough)
            .unwrap_or(PAGES) as f64
    };
    let mut measured = Measured::new();
    measured.figure("sra-k4096", best);
    measured.figure("sra-every", saved(both_ways, 1, 1));
    measured.order("sra-strategy", [best, others]);
    measured.figure("sra-accuracy", pages_needed(SELDOM) / pages_needed(1));
    let by_kernel = kernels.iter().zip(&tried).map(|(kernel, sra)| {
        let saved = sra.cell(both_ways, PAGES, RATE).and_then(|cell| cell.sra);
        match saved {
            Some(saved) => format!("{} {:.1}", kernel.name, saved * 100.0),
            None => format!("{} nothing to save", kernel.name),
        }
    });
    measured.detail("sra-by-kernel", by_kernel.collect::<Vec<_>>().join(", "));
    let by_strategy = Strategy::ALL.map(|strategy| (strategy.name(), saved(strategy, PAGES, RATE)));
    measured.detail("sra-by-strategy", list(by_strategy, 1));
    Ok(measured)
}
