//! What pairs of threads have shared, and how that fades.
//!
//! The unit of an amount is whatever the signal gives: cycles of TLB residency shared (IPM's Sharing
//! Matrix), samples, misses. All amounts fade to a share of what they are once an interval, rounded
//! down (IPM §4.4.4: 0.75; 0.6 to 0.95 made no difference to the authors). Pairs that have faded to
//! nothing, or of which a thread has ended, are forgotten (§4.4.3), and there is room for any number of
//! threads (§4.4.2).

use std::collections::BTreeMap;

use numaherd_world::{Snapshot, ThreadId};

use crate::mapping::Communication;

/// See the top of this file. Each pair is there in both directions.
#[derive(Debug, Default)]
pub(super) struct Pairs(BTreeMap<(ThreadId, ThreadId), u64>);

impl Pairs {
    /// Takes in what threads shared in an interval. Of what was known before, `kept` is left, 0 to 1.
    pub(super) fn learn(&mut self, snapshot: &Snapshot, kept: f64) {
        // In parts of 2^32, in which a quarter is exact.
        let kept = (kept.clamp(0.0, 1.0) * 4_294_967_296.0) as u128;
        let lives = |thread| snapshot.thread(thread).is_some();
        self.0.retain(|&(one, other), amount| {
            *amount = ((u128::from(*amount) * kept) >> 32) as u64;
            *amount > 0 && lives(one) && lives(other)
        });
        let processes = snapshot.processes.iter();
        for sharing in processes.filter_map(|process| process.sharing.as_ref()) {
            for &(one, other, amount) in &sharing.pairs {
                if amount > 0 && one != other && lives(one) && lives(other) {
                    for pair in [(one, other), (other, one)] {
                        let known = self.0.entry(pair).or_default();
                        *known = known.saturating_add(amount);
                    }
                }
            }
        }
    }

    /// What a thread shares with each other, ascending.
    pub(super) fn of(&self, thread: ThreadId) -> impl Iterator<Item = (ThreadId, u64)> {
        let least = ThreadId { tid: 0, born: 0 };
        let own = self.0.range((thread, least)..);
        let own = own.take_while(move |((one, _), _)| *one == thread);
        own.map(|(&(_, other), &amount)| (other, amount))
    }

    /// What these threads share with each other, in their order, which is ascending.
    pub(super) fn among(&self, threads: &[ThreadId]) -> Communication {
        let mut sharing = Communication::new(threads.len());
        for (at, &thread) in threads.iter().enumerate() {
            for (other, amount) in self.of(thread) {
                if let Ok(other) = threads[..at].binary_search(&other) {
                    sharing.add(at, other, amount);
                }
            }
        }
        sharing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::Scene;
    use numaherd_world::Sharing;
    use std::sync::Arc;

    #[test]
    fn three_quarters_are_left_rounded_down_and_amounts_stop_at_the_largest() {
        let mut scene = Scene::uniform(1, 3);
        let ids: Vec<ThreadId> = (0..3).map(|cpu| scene.thread(1, 1.0, cpu).id).collect();
        scene.home(1, "p", 0);
        let mut pairs = Pairs::default();
        let mut learn = |cells: &[(ThreadId, ThreadId, u64)]| {
            scene.snapshot.processes[0].sharing =
                Some(Arc::new(Sharing::of(cells.iter().copied())));
            pairs.learn(&scene.snapshot, 0.75);
            let among = pairs.among(&ids);
            [among.between(0, 1), among.between(1, 2)]
        };
        assert_eq!(
            learn(&[(ids[0], ids[1], 103), (ids[1], ids[2], u64::MAX)]),
            [103, u64::MAX]
        );
        // 0.75 * (2^64 - 1) = 3 * 2^62 - 0.75
        assert_eq!(learn(&[]), [77, 3 * (1 << 62) - 1]);
        assert_eq!(learn(&[(ids[1], ids[2], u64::MAX)]), [57, u64::MAX]);
    }
}
