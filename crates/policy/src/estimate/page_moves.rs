//! What moving a page takes.
//!
//! Rule: the mean over the pages that have moved, and over as many more as the kernel moves at once, each with the usual
//! time. Pages that moved long ago count less: a machine that is busy now moves pages more slowly.

use numaherd_world::PageOutcome;

/// What a page takes before any has moved, in ns: 1 to 3 µs on machines of 2010 to 2020 (FACTS 7.3).
const USUAL_NS: f64 = 1_500.0;
/// So many pages are assumed to have moved in the usual time before.
const BEFORE: f64 = 512.0;
/// The most pages whose times are remembered (chosen here).
const REMEMBERED: f64 = 65_536.0;

/// How many pages have moved, and how long they took.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageMoves {
    pages: f64,
    took_ns: f64,
}

impl Default for PageMoves {
    fn default() -> Self {
        Self {
            pages: BEFORE,
            took_ns: BEFORE * USUAL_NS,
        }
    }
}

impl PageMoves {
    /// Takes in the outcomes of orders. An order most of whose pages did not move says nothing about the time of a move:
    /// looking at the others took time, too.
    pub(super) fn learn(&mut self, outcomes: &[PageOutcome]) {
        let says_it = |outcome: &&PageOutcome| {
            let others = outcome
                .failed
                .values()
                .fold(outcome.already_there, |a, b| a.saturating_add(*b));
            outcome.moved > others
        };
        for outcome in outcomes.iter().filter(says_it) {
            self.pages += outcome.moved as f64;
            self.took_ns += outcome.took_ns as f64;
        }
        let kept = (REMEMBERED / self.pages).min(1.0);
        self.pages *= kept;
        self.took_ns *= kept;
    }

    /// How long a page takes, in ns.
    pub(super) fn each_ns(&self) -> f64 {
        self.took_ns / self.pages
    }
}

#[cfg(test)]
mod tests {
    use numaherd_testing::{all_pages, moved};
    use numaherd_world::PageFailure;

    use super::*;

    #[test]
    fn what_a_page_takes_is_learned_from_those_that_moved() {
        let mut moves = PageMoves::default();
        assert_eq!(moves.each_ns(), USUAL_NS);
        let topology = numaherd_testing::machine(2, 1);
        let order = all_pages(&numaherd_testing::thread(1, 1, 0, &topology), 1);
        let outcome = |pages, took_ns| PageOutcome {
            took_ns,
            ..moved(&order, pages)
        };
        moves.learn(&[outcome(0, 1_000_000_000)]);
        assert_eq!(moves.each_ns(), USUAL_NS);
        let mut sparse = outcome(512, 1_000_000_000);
        sparse.failed.insert(PageFailure::NotThere, 20_000);
        moves.learn(&[sparse]);
        assert_eq!(moves.each_ns(), USUAL_NS);
        moves.learn(&[outcome(512, 512 * 10_500)]);
        assert_eq!(moves.each_ns(), 6_000.0);
        // What is long past is forgotten.
        for _ in 0..100 {
            moves.learn(&[outcome(65_536, 65_536 * 2_000)]);
        }
        assert!((moves.each_ns() - 2_000.0).abs() < 1.0);
    }
}
