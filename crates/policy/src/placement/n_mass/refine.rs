//! N-MASS Algorithm 3: threads leave processors under high pressure while that helps.
//!
//! What is printed cannot be run as it stands, and is read with the help of the text (§3.1, §3.3):
//!
//! 1. *When it ends.* Printed: `until decision != CURRENT`. That stops after the first move, and
//!    never when none can be made, since a refused try changes nothing (but adds to the pressure
//!    once more, see 2). The text refines until pressures are balanced. Here: until no move helps;
//!    with [`MostMoved::One`] after the first move, as printed.
//! 2. *Pressure.* Printed: changed before it is decided whether to move (lines 11 and 12), and not
//!    changed back. Here: what it would be is compared with the threshold, and it is changed with
//!    the move.
//! 3. *Whether it helps.* Printed: the difference `D` of the pressures is worked out (line 6) and
//!    used nowhere, so that threads would move from the lower pressure to the higher. The text: "the
//!    amount of cache pressure transferred is less than D/2" (§3.1, Figure 6). Here: a move must go
//!    from the higher pressure to the lower, its miss rate must be less than `D/2` if it makes a
//!    thread remote, and both processors must end strictly between where they began. So of four
//!    equal threads one leaves and not two (`2m = D/2` would be even in an SMP, and with the penalty
//!    it would be too much), which is the optimum of the paper's Figure 5; and of two threads, one
//!    that has more than half of their pressure stays. The other reading, [`MostMoved::Difference`],
//!    asks only that both end between where they began: it moves two of four, and one of two (the
//!    paper's section 2 finds that best for mcf and lbm). Only [`MostMoved::One`] gives both of the
//!    paper's examples: it asks no more than that, but moves one thread. `numaherd reproduce n-mass`
//!    measures the paper's workloads under all three.
//! 4. *Which way.* Printed: the cheaper of the two moves is tried first, then the other, but that
//!    only if the first was from processor 0 (line 24). By 3 only one of them can help; both are
//!    tried, so the order does not count.
//! 5. *Weights.* Printed: every move multiplies by the penalty what is added, and never what is
//!    taken away. The text multiplies "the MPKI of remotely mapped processes". Here: a thread weighs
//!    its miss rate at home, and its miss rate times its penalty elsewhere, wherever it comes from.
//!    This includes the threads that Algorithm 2 had to map away from home (lines 3 and 4). If all
//!    are at home and none comes back, both readings agree.
//! 6. *A free core.* Comment on line 14: "Could be on Processor 0 if there is a free core on
//!    Processor 1" must be "no free core". Without one, nothing is moved.
//! 7. *Threshold.* Line 16 for every move; the text for moves to "the remote cache". Here: for moves
//!    that make a thread remote.
//! 8. *The front.* What has moved is put to the front of its new list (line 18), the list of those
//!    that stay longest. Here: it is not moved again, so there are at most as many moves as threads.
//!
//! More than two processors: the one of the highest pressure gives its last thread to the one of
//! the lowest pressure that has a free core and where it helps, at home before elsewhere; if that
//! helps nowhere, the one of the next lower pressure gives, and so on until none can. With two that
//! is the algorithm above, since only the higher can give and only the lower can take.
//!
//! With [`NMassSettings::exchange`] a thread may also change places with the last one of a processor
//! that has no free core. The algorithm as printed cannot, and is idle on a full machine; the
//! paper's figures for eight programs on eight cores (§4.4, WL11) show gains that it could not have
//! had.
//!
//! Properties: the two pressures of a move end strictly between where they began, so the highest
//! never rises, the lowest never falls, and the two never get further apart; a thread that becomes
//! remote never lifts its processor to the threshold; at most one move per thread.

use std::cmp::Ordering;

use crate::placement::n_mass::maximum_local::Mapping;
use crate::placement::n_mass::processors::{Item, Processors};
use crate::settings::{MostMoved, NMassSettings};

/// Why a thread was moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The processor it left.
    pub from: usize,
    /// The processor it was moved to.
    pub to: usize,
    /// Pressure of the two before, in lines per 1000 instructions.
    pub before: (f64, f64),
    /// Pressure of the two after.
    pub after: (f64, f64),
    /// The thread that it changed places with.
    pub exchanged: Option<usize>,
}

/// Refines a mapping; returns the move of each thread that was moved.
pub fn refine(
    items: &[Item],
    mapping: &mut Mapping,
    processors: &mut Processors,
    settings: &NMassSettings,
) -> Vec<Option<Move>> {
    let mut moves = vec![None; items.len()];
    // For each processor, the threads that have not been moved; the lowest penalty last.
    let mut lists: Vec<Vec<usize>> = vec![Vec::new(); processors.all.len()];
    for &thread in &mapping.order {
        lists[mapping.processor[thread]].push(thread);
    }
    let mut ranked: Vec<usize> = (0..processors.all.len()).collect();
    ranked.sort_by(|&a, &b| by_pressure(processors, a, b));
    let mut stuck = vec![false; processors.all.len()];
    loop {
        let board = Board {
            items,
            processors,
            lists: &lists,
            ranked: &ranked,
            settings,
        };
        let next = ranked.iter().rev().find_map(|&from| {
            let best = (!stuck[from]).then(|| board.best(from)).flatten();
            stuck[from] = best.is_none();
            best
        });
        let Some((thread, made)) = next else {
            return moves;
        };
        lists[made.from].pop();
        processors.take(&items[thread], made.from);
        if let Some(other) = made.exchanged {
            lists[made.to].pop();
            processors.take(&items[other], made.to);
            processors.put(&items[other], made.from);
            mapping.processor[other] = made.from;
            moves[other] = Some(Move {
                from: made.to,
                to: made.from,
                before: (made.before.1, made.before.0),
                after: (made.after.1, made.after.0),
                exchanged: Some(thread),
            });
        }
        processors.put(&items[thread], made.to);
        mapping.processor[thread] = made.to;
        moves[thread] = Some(made);
        if settings.most_moved == MostMoved::One {
            return moves;
        }
        // Both out before either goes in: what is searched for a place must be in order.
        ranked.retain(|&at| at != made.from && at != made.to);
        for at in [made.from, made.to] {
            let place = ranked.partition_point(|&o| by_pressure(processors, o, at).is_lt());
            ranked.insert(place, at);
        }
        // A processor that was stuck can give now only if it is one of the two, or if its last
        // thread is at home where there is more room now: all else is no better for it than before.
        let roomier = processors.all[made.from].node;
        for at in 0..stuck.len() {
            let homeward = || lists[at].last().is_some_and(|&t| items[t].home == roomier);
            let one_of_them = at == made.from || at == made.to;
            stuck[at] &= !(settings.exchange || one_of_them || homeward());
        }
    }
}

fn by_pressure(processors: &Processors, a: usize, b: usize) -> Ordering {
    let pressure = |at: usize| processors.all[at].pressure;
    pressure(a).total_cmp(&pressure(b)).then(a.cmp(&b))
}

/// What a move is chosen from.
struct Board<'a> {
    items: &'a [Item],
    processors: &'a Processors,
    lists: &'a [Vec<usize>],
    /// Processors, ascending by pressure.
    ranked: &'a [usize],
    settings: &'a NMassSettings,
}

impl Board<'_> {
    /// The move of a processor's last thread, if one helps. If a lower pressure does not take it, a
    /// higher does not either, so only the first processor with a core is tried, among those at home
    /// and among the others.
    fn best(&self, from: usize) -> Option<(usize, Move)> {
        let thread = *self.lists[from].last()?;
        let item = &self.items[thread];
        let at_home = |at: usize| self.processors.all[at].is_home(item);
        let with_core = |home: bool| {
            let others = self.ranked.iter().copied().filter(|&to| to != from);
            let mut fit = others.filter(|&to| at_home(to) == home);
            fit.find(|&to| self.processors.has_core(from, to))
        };
        let moved = |home: bool| self.try_move(thread, from, with_core(home)?, None);
        let exchanged = |home: bool| {
            let others = self.ranked.iter().copied();
            let full = others.filter(|&to| to != from && !self.processors.has_core(from, to));
            full.filter(|&to| at_home(to) == home)
                .find_map(|to| self.try_move(thread, from, to, Some(*self.lists[to].last()?)))
        };
        let mut made = moved(true).or_else(|| moved(false));
        if made.is_none() && self.settings.exchange {
            made = exchanged(true).or_else(|| exchanged(false));
        }
        made.map(|made| (thread, made))
    }

    /// The move, if it helps and is allowed.
    fn try_move(
        &self,
        thread: usize,
        from: usize,
        to: usize,
        exchanged: Option<usize>,
    ) -> Option<Move> {
        let item = &self.items[thread];
        let (giver, taker) = (&self.processors.all[from], &self.processors.all[to]);
        let before = (giver.pressure, taker.pressure);
        let mut after = (before.0 - giver.weight(item), before.1 + taker.weight(item));
        let mut moved = item.miss_rate;
        let other = exchanged.map(|other| &self.items[other]);
        if let Some(other) = other {
            after = (after.0 + giver.weight(other), after.1 - taker.weight(other));
            moved -= other.miss_rate;
        }
        let below = |pressure: f64| pressure < self.settings.threshold;
        let within_threshold = (taker.is_home(item) || below(after.1))
            && other.is_none_or(|other| giver.is_home(other) || below(after.0));
        let difference = before.0 - before.1;
        let between = |pressure: f64| before.1 < pressure && pressure < before.0;
        let little_enough = taker.is_home(item)
            || match self.settings.most_moved {
                MostMoved::Half => moved < difference / 2.0,
                MostMoved::Difference | MostMoved::One => true,
            };
        let helps = between(after.0) && between(after.1) && little_enough;
        (helps && within_threshold).then_some(Move {
            from,
            to,
            before,
            after,
            exchanged,
        })
    }
}
