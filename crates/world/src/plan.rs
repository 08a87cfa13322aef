//! A plan: what a policy wants, each decision with its reason and the alternative it beat.

use std::borrow::Cow;
use std::ops::Range;

use numaherd_topology::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

use crate::snapshot::{MemoryKind, ProcessId, ThreadId};

numaherd_files::choices! {
    /// How far from its assigned core a thread may run: its affinity scope.
    #[derive(PartialOrd, Ord)]
    pub enum AffinityScope {
        /// To its SMT siblings only.
        Core = "core",
        /// Among the cores that share a last-level cache.
        #[default]
        Domain = "domain",
        /// Within the memory node.
        Node = "node",
    }
}

numaherd_files::choices! {
    /// How placements are carried out.
    pub enum Enforcement {
        /// By affinity masks: a placed thread runs nowhere else.
        #[default]
        Affinity = "affinity",
        /// By hints to a scheduler of `sched_ext`: a placed thread prefers its memory domain, and runs elsewhere when
        /// that has no idle CPU. No affinity changes.
        Scx = "scx",
    }
}

/// A thread that is to be on another core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Which thread.
    pub thread: ThreadId,
    /// The CPU it was on ([`crate::Thread::place`]).
    pub from: CpuId,
    /// The CPU it is to have.
    pub to: CpuId,
    /// The rule that decided, by its name in the policy (for instance `dino: fill slots`).
    pub rule: Cow<'static, str>,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
    /// What else was considered and why it lost; empty where the rule leaves no choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instead_of: String,
}

/// A thread that is to be the kernel's again: it gets its own affinity back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Which thread.
    pub thread: ThreadId,
    /// The rule that decided, by its name in the policy.
    pub rule: Cow<'static, str>,
    /// Why, in one sentence.
    pub why: String,
}

/// Which pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// Everything it has resident.
    All,
    /// `count` base pages from page number `first` (virtual address / page size) on; those that
    /// are not there or not its own are passed over.
    Window {
        /// First page number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Only those in mappings of one kind of memory, or a part of them. Of shared memory and files, this includes pages
    /// that other processes have mapped, but not programs and libraries that are mapped again. Of private memory, it
    /// excludes pages that a fork has left to several processes.
    OfKind {
        /// Which kind.
        kind: MemoryKind,
        /// Which part of it.
        part: Part,
    },
}

/// Base pages of a block: 2 MiB of 4 KiB pages, so that a huge page is in one.
pub const BLOCK_PAGES: u64 = 512;

/// A part of memory: of every `of` blocks of [`BLOCK_PAGES`] in a row, `count` from number `first` on. Blocks of private
/// memory are counted by address; those of shared memory and files, within what is mapped, so that they are the same for
/// all processes that map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Part {
    /// The first block of it, below `of`.
    pub first: u64,
    /// How many blocks, at most as many as come after.
    pub count: u64,
    /// After how many blocks it begins anew.
    pub of: u64,
}

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self {
        first: 0,
        count: 1,
        of: 1,
    };

    /// Parts that together are all memory, each as large as its weight says; those of no weight are empty. They repeat
    /// after as few blocks as the weights allow, so that parts of small memory differ little from their weights, too.
    pub fn dealt(weights: &[u64]) -> Vec<Self> {
        let common = weights.iter().copied().fold(0, greatest_common_divisor);
        let common = common.max(1);
        let of = weights.iter().sum::<u64>() / common;
        let mut first = 0;
        let part = |weight: &u64| {
            let count = weight / common;
            let part = Self { first, count, of };
            first += count;
            part
        };
        weights.iter().map(part).collect()
    }

    /// Whether a page is in it, by its number.
    pub fn takes(self, page: u64) -> bool {
        let block = page / BLOCK_PAGES % self.of.max(1);
        block >= self.first && block - self.first < self.count
    }

    /// The pages of a range that are in it, as runs, ascending.
    pub fn runs(self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let is_whole = self.count >= self.of.max(1);
        let (period, begins, length) = match is_whole {
            true => (u64::MAX, 0, u64::MAX),
            false => (
                self.of.saturating_mul(BLOCK_PAGES),
                self.first.saturating_mul(BLOCK_PAGES),
                self.count.saturating_mul(BLOCK_PAGES),
            ),
        };
        (pages.start / period..pages.end.div_ceil(period)).filter_map(move |turn| {
            let first = (turn * period).saturating_add(begins);
            let end = first.saturating_add(length);
            let run = first.max(pages.start)..end.min(pages.end);
            (run.start < run.end).then_some(run)
        })
    }

    /// How many of so many pages are in it, if these are spread evenly, rounded up.
    pub fn share_of(self, pages: u64) -> u64 {
        let share = u128::from(pages) * u128::from(self.count);
        let share = share.div_ceil(u128::from(self.of.max(1)));
        u64::try_from(share).map_or(pages, |share| share.min(pages))
    }
}

/// The greatest common divisor; 0 of 0 and 0.
fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Memory that can be placed by itself: the pages of a process that all its threads use, or those that
/// one of them uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Whose it is.
    pub process: ProcessId,
    /// The thread that its pages are moved for: the one that uses them, or any of them.
    pub thread: ThreadId,
    /// Whether all threads of the process use it.
    pub is_shared: bool,
    /// Runs of page numbers; the pages of a run are used alike.
    pub runs: Vec<Range<u64>>,
}

/// Pages that are to be on another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageOrder {
    /// Whose pages.
    pub process: ProcessId,
    /// For which thread.
    pub thread: ThreadId,
    /// Which.
    pub pages: Pages,
    /// Where to.
    pub to: NodeId,
    /// The rule that decided, by its name in the policy.
    pub rule: Cow<'static, str>,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
}

/// What a policy wants done. Threads and pages that it does not name stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Threads to move; each thread at most once.
    pub placements: Vec<Placement>,
    /// Threads to give back to the kernel; none of them is among the placements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Release>,
    /// Pages to move.
    pub pages: Vec<PageOrder>,
}

impl Plan {
    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty() && self.releases.is_empty() && self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Parts that share blocks out have every page once, in runs of whole blocks.
        #[test]
        fn parts_of_all_blocks_have_each_page_once(
            counts in proptest::collection::vec(1u64..4, 1..5),
            first in 0u64..20_000,
            pages in 1u64..20_000,
        ) {
            let mut seen = vec![0u8; usize::try_from(pages).unwrap()];
            let all: u64 = counts.iter().sum();
            for (part, count) in Part::dealt(&counts).into_iter().zip(counts) {
                prop_assert_eq!(part.count * all, count * part.of);
                for run in part.runs(first..first + pages) {
                    for page in run {
                        prop_assert!(part.takes(page));
                        seen[usize::try_from(page - first).unwrap()] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn twelve_blocks_for_two_threads_on_each_of_four_nodes_are_three_for_each() {
        let pages = |part: &Part| {
            let runs = part.runs(0..12 * BLOCK_PAGES);
            runs.map(|run| run.end - run.start).sum::<u64>()
        };
        let dealt = Part::dealt(&[2, 2, 2, 2]);
        assert!(dealt.iter().all(|part| pages(part) == 3 * BLOCK_PAGES));
        assert_eq!(Part::dealt(&[6, 0, 3]), Part::dealt(&[2, 0, 1]));
        assert_eq!(Part::dealt(&[0, 0])[1].count, 0);
    }

    /// Of every part of up to four blocks, and every range of four that begins or ends beside the edge of a block.
    #[test]
    fn the_runs_of_every_small_part_are_the_pages_that_it_takes() {
        let edges = || {
            (0..=4 * BLOCK_PAGES)
                .filter(|page| [0, 1, BLOCK_PAGES - 1].contains(&(page % BLOCK_PAGES)))
        };
        let parts = (1..=4).flat_map(|of| {
            (0..of)
                .flat_map(move |first| (0..=of - first).map(move |count| Part { first, count, of }))
        });
        for part in parts {
            for (start, end) in edges().flat_map(|start| edges().map(move |end| (start, end))) {
                let runs: Vec<_> = part.runs(start..end).collect();
                assert!(
                    runs.is_sorted_by(|one, next| one.end < next.start),
                    "{runs:?}"
                );
                let found = runs.into_iter().flatten();
                let expected = (start..end).filter(|&page| part.takes(page));
                assert!(found.eq(expected), "{part:?} of {start}..{end}");
            }
        }
    }

    #[test]
    fn a_part_that_no_ledger_should_hold_is_read_as_well() {
        let odd = Part {
            first: 3,
            count: u64::MAX,
            of: 0,
        };
        assert!(odd.runs(0..9).eq(std::iter::once(0..9)));
        assert_eq!(odd.share_of(7), 7);
        assert_eq!(Part::WHOLE.share_of(u64::MAX), u64::MAX);
    }
}
