//! Freezes what goes to and fro, for a while.
//!
//! Rule: a thing (a thread, a piece of a process's memory) that went between the same two places
//! `limit` times within `window`, in either direction, stays where it is for `freeze`.
//! Source: Clavis's `BOUNCING_LIMIT` (FACTS §4.3), which had no time window; with one, a thread that
//! moves once a minute for good reason is never frozen.
//! Property: in any span of `window`, no thing goes between the same two places more than `limit`
//! times.

use std::collections::{BTreeMap, VecDeque};

/// When bouncing is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BounceLimit {
    /// Most moves between the same two places within the window.
    pub limit: usize,
    /// The window in ns.
    pub window_ns: u64,
    /// How long it then stays, in ns.
    pub freeze_ns: u64,
}

/// One thing's recent moves between two places.
#[derive(Clone, Debug, Default)]
struct History<P> {
    moves: VecDeque<(u64, P, P)>,
    frozen_until_ns: u64,
}

/// The recent moves of things `K` between places `P`.
#[derive(Clone, Debug)]
pub struct Bounces<K, P> {
    limit: BounceLimit,
    things: BTreeMap<K, History<P>>,
}

impl<K: Ord + Copy, P: Ord + Copy> Bounces<K, P> {
    /// Nothing has moved yet.
    pub fn new(limit: BounceLimit) -> Self {
        Self {
            limit,
            things: BTreeMap::new(),
        }
    }

    /// Sets another limit. Past moves still count, and what is frozen stays so.
    pub fn set_limit(&mut self, limit: BounceLimit) {
        self.limit = limit;
    }

    /// Whether the thing may go from one place to the other now. One move too many freezes it.
    ///
    /// # Errors
    /// How many times it went between them, or `None` when it is still frozen.
    pub fn may_move(&mut self, thing: K, from: P, to: P, now_ns: u64) -> Result<(), Option<usize>> {
        self.may_move_within(self.limit.limit, thing, from, to, now_ns)
    }

    /// The same with another limit of moves for this thing.
    ///
    /// # Errors
    /// As [`Self::may_move`].
    pub fn may_move_within(
        &mut self,
        limit: usize,
        thing: K,
        from: P,
        to: P,
        now_ns: u64,
    ) -> Result<(), Option<usize>> {
        let Some(history) = self.things.get_mut(&thing) else {
            return Ok(());
        };
        if now_ns < history.frozen_until_ns {
            return Err(None);
        }
        let since = now_ns.saturating_sub(self.limit.window_ns);
        while history.moves.front().is_some_and(|&(at, ..)| at < since) {
            history.moves.pop_front();
        }
        let same = |&&(_, a, b): &&(u64, P, P)| (a, b) == (from, to) || (a, b) == (to, from);
        let times = history.moves.iter().filter(same).count();
        if times >= limit {
            history.frozen_until_ns = now_ns.saturating_add(self.limit.freeze_ns);
            return Err(Some(times));
        }
        Ok(())
    }

    /// Notes that the thing went from one place to another.
    pub fn moved(&mut self, thing: K, from: P, to: P, now_ns: u64) {
        let history = self.things.entry(thing).or_insert_with(|| History {
            moves: VecDeque::new(),
            frozen_until_ns: 0,
        });
        history.moves.push_back((now_ns, from, to));
    }

    /// Forgets where the thing has gone, and that it is frozen.
    pub fn forget(&mut self, thing: K) {
        self.things.remove(&thing);
    }

    /// The place that the thing last went to, as far as is remembered.
    pub fn last_place(&self, thing: K) -> Option<P> {
        self.things.get(&thing)?.moves.back().map(|&(.., to)| to)
    }

    /// Forgets what the predicate rejects, and what is too old to count.
    pub fn keep(&mut self, now_ns: u64, mut wanted: impl FnMut(K) -> bool) {
        let since = now_ns.saturating_sub(self.limit.window_ns);
        self.things.retain(|&thing, history| {
            let recent = history.moves.back().is_some_and(|&(at, ..)| at >= since);
            wanted(thing) && (recent || now_ns < history.frozen_until_ns)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: BounceLimit = BounceLimit {
        limit: 2,
        window_ns: 100,
        freeze_ns: 50,
    };

    #[test]
    fn a_thing_that_went_to_and_fro_too_often_is_frozen_for_a_while() {
        let mut bounces = Bounces::new(LIMIT);
        assert_eq!(bounces.may_move('t', 0, 1, 10), Ok(()));
        bounces.moved('t', 0, 1, 10);
        assert_eq!(bounces.may_move('t', 1, 0, 20), Ok(()));
        bounces.moved('t', 1, 0, 20);
        assert_eq!(bounces.may_move('t', 0, 1, 30), Err(Some(2)));
        assert_eq!(bounces.may_move('t', 0, 2, 79), Err(None), "frozen whole");
        assert_eq!(bounces.may_move('t', 0, 2, 80), Ok(()), "thawed");
        assert_eq!(bounces.may_move('u', 0, 1, 30), Ok(()), "others go on");
    }

    #[test]
    fn old_moves_do_not_count() {
        let mut bounces = Bounces::new(LIMIT);
        bounces.moved('t', 0, 1, 10);
        bounces.moved('t', 1, 0, 20);
        assert_eq!(bounces.may_move('t', 0, 1, 111), Ok(()));
        bounces.keep(200, |_| true);
        assert_eq!(bounces.last_place('t'), None, "forgotten");
    }

    proptest! {
        #[test]
        fn no_window_sees_more_moves_between_two_places_than_the_limit(
            wishes in proptest::collection::vec((0u64..40, 0u8..3), 0..200),
        ) {
            let mut bounces = Bounces::new(LIMIT);
            let (mut now, mut place) = (0, 0);
            let mut done: Vec<(u64, u8, u8)> = Vec::new();
            for (pass, to) in wishes {
                now += pass;
                if to != place && bounces.may_move('t', place, to, now).is_ok() {
                    bounces.moved('t', place, to, now);
                    done.push((now, place.min(to), place.max(to)));
                    place = to;
                }
            }
            for &(at, a, b) in &done {
                let within = |&&(t, x, y): &&(u64, u8, u8)| (x, y) == (a, b) && t >= at && t <= at + 100;
                prop_assert!(done.iter().filter(within).count() <= LIMIT.limit);
            }
        }
    }
}
