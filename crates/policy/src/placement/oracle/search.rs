//! The search for the layout of least cost: all of them where there are few, else a local search.
//!
//! Local search: from each start, the cheapest first, threads are tried in random order on other
//! CPUs and in each other's place; the first change that lowers the cost is made, until none does or
//! no more may be tried. The starts are the present layout and those passed in.
//!
//! A cost must be lower by more than one part in 10^9 to count as lower, so that sums in another
//! order move no thread.

use std::ops::ControlFlow;

use rand::seq::SliceRandom;

use crate::placement::oracle::layouts::{Board, Space};
use crate::placement::slots::{At, PoolSlots};
use crate::policy::Random;

/// By what share a cost must be lower.
const LOWER: f64 = 1e-9;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The layout of least cost, by thread.
    pub layout: Vec<At>,
    /// Its cost.
    pub cost: f64,
    /// The cost of the present layout, if it is known.
    pub before: Option<f64>,
    /// How many layouts were tried.
    pub tried: usize,
    /// Whether those are all there are.
    pub all: bool,
    /// Whether the search ended because no more may be tried.
    pub exhausted: bool,
}

/// The layout of least cost of those tried, at most `most` and the present one; `None` where no cost
/// is known.
pub fn search(
    space: &Space,
    slots: &PoolSlots,
    starts: &[Vec<At>],
    most: usize,
    cost: impl Fn(&[At]) -> Option<f64>,
    random: &mut Random,
) -> Option<Found> {
    let now = space.board(&slots.sits);
    let mut search = Search {
        space,
        cost,
        most,
        tried: 0,
        best: None,
    };
    let all = space.count_up_to(most);
    let before = match all {
        // The present layout is one of all, and is not counted twice.
        Some(_) => {
            let before = search.try_layout(&now);
            search.tried = 0;
            let _ = space.walk(|board| {
                search.try_layout(board);
                ControlFlow::Continue(())
            });
            before
        }
        None => search.local(now, starts, random),
    };
    let exhausted = search.tried >= most;
    let tried = search.tried;
    let (cost, board) = search.best?;
    Some(Found {
        layout: space.layout(&space.renamed(&board, &slots.sits)),
        cost,
        before,
        tried,
        all: all.is_some(),
        exhausted,
    })
}

struct Search<'a, Cost> {
    space: &'a Space,
    cost: Cost,
    most: usize,
    tried: usize,
    best: Option<(f64, Board)>,
}

impl<Cost: Fn(&[At]) -> Option<f64>> Search<'_, Cost> {
    /// The cost of a layout, which becomes the best if its cost is the least so far.
    fn try_layout(&mut self, board: &Board) -> Option<f64> {
        self.tried += 1;
        let cost = (self.cost)(&self.space.layout(board))?;
        if self
            .best
            .as_ref()
            .is_none_or(|(best, _)| is_lower(cost, *best))
        {
            self.best = Some((cost, board.clone()));
        }
        Some(cost)
    }

    /// Searches locally. Returns the cost of the present layout.
    fn local(&mut self, now: Board, starts: &[Vec<At>], random: &mut Random) -> Option<f64> {
        let before = self.try_layout(&now);
        let mut from: Vec<(f64, Board)> = before.map(|cost| (cost, now)).into_iter().collect();
        for start in starts {
            if self.tried >= self.most {
                break;
            }
            let wishes: Vec<_> = start.iter().copied().map(Some).collect();
            let board = self.space.board(&wishes);
            if let Some(cost) = self.try_layout(&board) {
                from.push((cost, board));
            }
        }
        from.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (cost, mut board) in from {
            let mut cost = cost;
            while let ControlFlow::Continue(true) = self.pass(&mut board, &mut cost, random) {}
        }
        before
    }

    /// Tries every thread once; says whether anything lowered the cost, and breaks off when no more
    /// may be tried.
    fn pass(
        &mut self,
        board: &mut Board,
        cost: &mut f64,
        random: &mut Random,
    ) -> ControlFlow<(), bool> {
        let mut threads: Vec<usize> = (0..self.space.threads()).collect();
        threads.shuffle(random);
        let mut improved = false;
        for &thread in &threads {
            for cpu in self.space.moves(board, thread) {
                let mut other = board.clone();
                self.space.shift(&mut other, thread, cpu);
                if self.take_if_lower(board, cost, other)? {
                    improved = true;
                    break;
                }
            }
            for &with in &threads {
                if with <= thread || !self.space.differ(board, thread, with) {
                    continue;
                }
                let mut other = board.clone();
                self.space.swap(&mut other, thread, with);
                improved |= self.take_if_lower(board, cost, other)?;
            }
        }
        ControlFlow::Continue(improved)
    }

    fn take_if_lower(
        &mut self,
        board: &mut Board,
        cost: &mut f64,
        other: Board,
    ) -> ControlFlow<(), bool> {
        if self.tried >= self.most {
            return ControlFlow::Break(());
        }
        let lower = self.try_layout(&other).filter(|&o| is_lower(o, *cost));
        if let Some(lower) = lower {
            (*board, *cost) = (other, lower);
        }
        ControlFlow::Continue(lower.is_some())
    }
}

/// Whether a cost is lower by more than rounding.
pub fn is_lower(cost: f64, than: f64) -> bool {
    cost < than - LOWER * than.abs()
}
