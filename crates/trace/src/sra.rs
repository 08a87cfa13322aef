//! Saved remote accesses: which pages should follow a thread that was moved to another node?
//!
//! DINO (§4.1) answers by simulation: of the accesses that a program makes to memory, how many would have been remote
//! had no page moved, and how many of these does a strategy save? The measure is *saved remote accesses* (SRA), their
//! share. This is that simulation, on a recorded trace. Where the paper is silent, this is our reading:
//!
//! * *Accesses to memory* are the demand misses of the last-level cache, loads and stores alike ([`Caches`]; no
//!   prefetcher; caches start empty). A dirty line that comes from another domain's cache does not come from memory and
//!   is not counted. Threads run at the same time as recorded (the one with the fewest instructions next; sleeps and
//!   wakes kept) and share caches by their numbers.
//! * *The thread was moved* before its first event, and alone: all pages of its process are remote to it. Each thread
//!   is evaluated by itself, as if it were the one that moved; a program's figure is the sum over its threads.
//! * *Sampling* 1 in N: of each N successive accesses to memory of the thread, whether still remote or not, one is
//!   sampled, at a place that is drawn uniformly. Sampling 1 in N instructions shows the same share of these accesses.
//! * *A sample that is remote* moves its page and K − 1 others ([`Strategy`]) at once, before the access is carried
//!   out, so that the access itself counts as saved. So K = 1 with every access sampled saves all, as the paper says.
//! * *K pages* are K successive pages of addresses. Those that the process never touches are moved at no cost and
//!   without effect.
//!
//! The cost of moving is not included. [`Cell::moved_pages`] gives the number of pages that moved, so that it can be
//! weighed.

mod evaluate;
mod misses;
mod pattern;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use numaherd_hardware::{Cache, Config};

use crate::error::{Damage, Error};
use crate::file::Trace;
use evaluate::Samples;

/// Which pages move along with a page whose access was sampled.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// K pages from the accessed one on.
    SequentialForward,
    /// K/2 pages before the accessed one, and K − K/2 from it on (DINO's choice).
    SequentialForwardBackward,
    /// The accessed page and K − 1 others, drawn uniformly from all pages that the process touches.
    Random,
    /// The accessed page and the K − 1 pages that follow it, forward or backward, at the distance between the thread's
    /// recent accesses; the accessed page alone if there is no such pattern. See `pattern`.
    PatternBased,
}

impl Strategy {
    /// All strategies, in the paper's order.
    pub const ALL: [Self; 4] = [
        Self::SequentialForward,
        Self::SequentialForwardBackward,
        Self::Random,
        Self::PatternBased,
    ];

    /// The paper's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequentialForward => "sequential-forward",
            Self::SequentialForwardBackward => "sequential-forward-backward",
            Self::Random => "random",
            Self::PatternBased => "pattern-based",
        }
    }
}

/// The caches that accesses pass before they reach memory. Lines are as long as `line_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Caches {
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Each core's first level.
    pub l1: Cache,
    /// Each core's second level, if it has one.
    pub l2: Option<Cache>,
    /// The last level of each memory domain.
    pub llc: Cache,
    /// Cores that share a last level. Thread number t runs on core t.
    pub cores_per_domain: usize,
}

impl Caches {
    /// DINO's machine (§2.1): AMD Barcelona, four cores to a domain with 64 KiB and 512 KiB each,
    /// and 2 MiB shared.
    pub const fn barcelona() -> Self {
        const fn cache(kib: u64, ways: usize) -> Cache {
            Cache {
                bytes: kib << 10,
                ways,
                hit_ns: 0.0,
            }
        }
        Self {
            line_bytes: 64,
            l1: cache(64, 2),
            l2: Some(cache(512, 16)),
            llc: cache(2048, 32),
            cores_per_domain: 4,
        }
    }

    /// The caches of a modelled machine; its first domain gives the number of cores that share a last level.
    pub fn of(config: &Config) -> Self {
        let first = config.domain_of_core.first();
        let cores = config
            .domain_of_core
            .iter()
            .filter(|domain| Some(*domain) == first);
        Self {
            line_bytes: config.line_bytes,
            l1: config.l1,
            l2: config.l2,
            llc: config.llc,
            cores_per_domain: cores.count().max(1),
        }
    }
}

/// What to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Strategies.
    pub strategies: Vec<Strategy>,
    /// Pages that move at a time: values of K, each at least 1.
    pub pages: Vec<u64>,
    /// Sampling of one in N accesses to memory: values of N, each at least 1.
    pub one_in: Vec<u64>,
    /// Caches before memory.
    pub caches: Caches,
    /// Seed for the places of samples and the pages of [`Strategy::Random`].
    pub seed: u64,
}

impl Default for Options {
    /// The paper's: all strategies, K = 1, 2, 4 … 16,384, from every access to one in 100,000.
    fn default() -> Self {
        Self {
            strategies: Strategy::ALL.to_vec(),
            pages: (0..=14).map(|power| 1 << power).collect(),
            one_in: (0..=5).map(|power| 10_u64.pow(power)).collect(),
            caches: Caches::barcelona(),
            seed: 0,
        }
    }
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sra {
    /// What was tried.
    #[serde(flatten)]
    pub options: Options,
    /// Size of pages, in bytes.
    pub page_bytes: u64,
    /// Threads that accessed memory at all.
    pub threads: usize,
    /// Loads and stores of the trace, each of at most a line.
    pub accesses: u64,
    /// Of these, accesses to memory: remote accesses when no page moves.
    pub remote: u64,
    /// Pages that the threads' accesses to memory touch, summed over threads.
    pub touched_pages: u64,
    /// One cell for each strategy, K and N: by strategy, then K, then N.
    pub cells: Vec<Cell>,
    /// Where the trace is damaged, and how. The figures cover what lies before it.
    pub damage: Option<Damage>,
}

/// What one strategy saves with one K and one N.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The strategy.
    pub strategy: Strategy,
    /// K.
    pub pages: u64,
    /// N.
    pub one_in: u64,
    /// Saved remote accesses, as a share from 0 to 1; `None` when there are none to save.
    pub sra: Option<f64>,
    /// Remote accesses saved.
    pub saved: u64,
    /// Samples that were remote, and so moved pages.
    pub triggers: u64,
    /// Pages of the process that moved, summed over threads.
    pub moved_pages: u64,
}

impl Sra {
    /// The cell of a strategy, K and N, if it was tried.
    pub fn cell(&self, strategy: Strategy, pages: u64, one_in: u64) -> Option<&Cell> {
        let is_it =
            |cell: &&Cell| (cell.strategy, cell.pages, cell.one_in) == (strategy, pages, one_in);
        self.cells.iter().find(is_it)
    }
}

/// Runs a trace through the caches once and tries every strategy, K and N on what reaches memory.
///
/// # Errors
/// When the trace cannot be read, K or N is 0, or the caches cannot be modelled. Damage is no error: the part before it
/// is used.
pub fn sra(trace: &Trace, options: &Options) -> Result<Sra, Error> {
    if let Some(what) = [("K", &options.pages), ("N", &options.one_in)]
        .iter()
        .find_map(|(name, values)| values.contains(&0).then_some(*name))
    {
        return Err(Error::Zero(what));
    }
    let misses = misses::misses(trace, &options.caches)?;
    let remote = misses.threads.iter().map(|thread| thread.count).sum();
    let samples: Vec<Vec<Samples>> = options
        .one_in
        .iter()
        .map(|&one_in| {
            let drawn = misses.threads.par_iter().enumerate();
            drawn
                .map(|(number, thread)| Samples::draw(thread.count, one_in, seed(options, number)))
                .collect()
        })
        .collect();
    let tried: Vec<_> = options
        .strategies
        .iter()
        .flat_map(|&strategy| options.pages.iter().map(move |&pages| (strategy, pages)))
        .flat_map(|(strategy, pages)| (0..options.one_in.len()).map(move |n| (strategy, pages, n)))
        .collect();
    let cell = |&(strategy, pages, n): &(Strategy, u64, usize)| {
        let mut cell = Cell {
            strategy,
            pages,
            one_in: options.one_in[n],
            sra: None,
            saved: 0,
            triggers: 0,
            moved_pages: 0,
        };
        for (number, thread) in misses.threads.iter().enumerate() {
            let space = &misses.processes[thread.process];
            let seed = seed(options, number);
            let of_thread =
                evaluate::evaluate(thread, space, &samples[n][number], strategy, pages, seed);
            cell.saved += of_thread.saved;
            cell.triggers += of_thread.triggers;
            cell.moved_pages += of_thread.moved_pages;
        }
        cell.sra = (remote > 0).then(|| cell.saved as f64 / remote as f64);
        cell
    };
    Ok(Sra {
        options: options.clone(),
        page_bytes: misses.page_bytes,
        threads: misses
            .threads
            .iter()
            .filter(|thread| thread.count > 0)
            .count(),
        accesses: misses.accesses,
        remote,
        touched_pages: misses.threads.iter().map(|thread| thread.pages).sum(),
        cells: tried.par_iter().map(cell).collect(),
        damage: misses.damage,
    })
}

/// A thread's own seed, so that threads' samples are independent of each other.
const fn seed(options: &Options, thread: usize) -> u64 {
    options.seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
