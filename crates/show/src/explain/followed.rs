//! What followed a decision: the thread's figures before and after, and whether it became faster.
//!
//! Speed is instructions per second of CPU time, as the governor's own judge measures it, so that a
//! thread that merely waits does not count as slow. A change counts as faster or slower only when it
//! is 2 % or more and lies beyond what the thread varied by before.

use std::collections::BTreeSet;

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Residency, ThreadId};

use super::alternative::remote_share;
use super::story::{Interval, ran};
use super::{Change, Decision, Followed, Happened, SIDE, Side, SpeedChange, Verdict, Wanted};
use crate::totals::sum;

/// Of its time, a thread must have run and been counted for this share to tell its speed.
const LEAST_SHARE: f64 = 0.1;

/// A change of less than this share is none.
pub(super) const LEAST_CHANGE: f64 = 0.02;

/// What is around a thread's intervals.
pub(super) struct Around<'r> {
    pub(super) topology: Option<&'r Topology>,
    pub(super) me: ThreadId,
    /// Where its process's pages were, at the end of which interval.
    pub(super) residencies: &'r [(u64, &'r Residency)],
    /// When which thread was moved, in time order.
    pub(super) moved: &'r [(u64, ThreadId)],
}

impl Around<'_> {
    /// Share of the pages that were on a node when last read in a span of time.
    fn share_on(&self, node: NodeId, intervals: &[Interval]) -> Option<f64> {
        let (first, last) = (intervals.first()?.time_ns, intervals.last()?.time_ns);
        let end = self.residencies.partition_point(|(at, _)| *at <= last);
        let (at, residency) = self.residencies[..end].last()?;
        let share = 1.0 - remote_share(residency, node)?;
        (*at >= first).then_some(share)
    }

    /// Other threads that were moved in a span of time.
    fn others_moved(&self, from_ns: u64, to_ns: u64) -> u64 {
        let begin = self.moved.partition_point(|(at, _)| *at < from_ns);
        let end = self.moved.partition_point(|(at, _)| *at <= to_ns);
        let threads = self.moved[begin.min(end)..end].iter().map(|(_, id)| *id);
        let others: BTreeSet<ThreadId> = threads.filter(|id| *id != self.me).collect();
        others.len() as u64
    }
}

/// What followed a decision; `None` when nothing was carried out, or a side has no interval.
pub(super) fn followed(
    decision: &Decision,
    intervals: &[Interval],
    moved_at: &[u64],
    around: &Around<'_>,
) -> Option<Followed> {
    let carried_out = match (&decision.wanted, &decision.happened) {
        (Wanted::Move { .. } | Wanted::Undo { .. } | Wanted::Steal { .. }, _) => decision.is_done(),
        (_, Some(Happened::Pages(pages))) => pages.moved > 0,
        _ => false,
    };
    if !carried_out {
        return None;
    }
    let (first, last) = (decision.first_ns, decision.last_ns);
    let earlier = moved_at
        .iter()
        .copied()
        .rfind(|&at| at < first)
        .unwrap_or(0);
    let later = moved_at
        .iter()
        .copied()
        .find(|&at| at > last)
        .unwrap_or(u64::MAX);
    let begin = intervals.partition_point(|i| i.time_ns <= earlier);
    let middle = intervals.partition_point(|i| i.time_ns <= first);
    // What the pages of an interval did is seen in the next one; so it is with threads, which are
    // moved at its very end.
    let after = intervals.partition_point(|i| i.time_ns <= last);
    let end = intervals.partition_point(|i| i.time_ns <= later);
    let before = &intervals[begin.max(middle.saturating_sub(SIDE))..middle];
    let rest = &intervals[after.min(end)..end];
    let after = &rest[..rest.len().min(SIDE)];
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let settled = rest.get(SIDE..).filter(|more| !more.is_empty());
    let settled = settled.map(|more| &more[more.len().saturating_sub(SIDE)..]);
    let node = match &decision.wanted {
        Wanted::Move { to_node, .. } | Wanted::Steal { to_node, .. } => *to_node,
        Wanted::Pages { to, .. } => *to,
        _ => None,
    };
    let side = |intervals: &[Interval]| Side {
        ran: ran(intervals, around.topology),
        pages_on_node: node.and_then(|node| around.share_on(node, intervals)),
        ..side(intervals)
    };
    let as_ordered = match &decision.governor {
        Verdict::Ordered { cpus: Some(cpus) } => Some(
            after
                .iter()
                .filter(|interval| cpus.contains(interval.cpu))
                .count() as u64,
        ),
        _ => None,
    };
    let span = before.first().zip(after.last());
    Some(Followed {
        before: side(before),
        after: side(after),
        as_ordered,
        node,
        others_moved: span.map_or(0, |(first, last)| {
            around.others_moved(
                first.time_ns.saturating_sub(first.length_ns),
                last.time_ns.saturating_sub(1),
            )
        }),
        speed: speed_change(before, after),
        settled: settled.map(side),
        settled_speed: settled.and_then(|settled| speed_change(before, settled)),
    })
}

fn side(intervals: &[Interval]) -> Side {
    let counts = || intervals.iter().filter_map(|interval| interval.counts);
    let instructions = sum(counts().map(|counts| counts.instructions));
    let lines = sum(counts().map(|counts| counts.lines));
    let known = || counts().filter_map(|counts| Some((counts.local?, counts.remote?)));
    let local = sum(known().map(|(local, _)| local));
    let all = sum(known().map(|(local, remote)| local.saturating_add(remote)));
    let uncore =
        || counts().filter_map(|counts| counts.uncore_busy_cycles.zip(counts.uncore_requests));
    let busy = sum(uncore().map(|(busy, _)| busy));
    let requests = sum(uncore().map(|(_, requests)| requests));
    Side {
        intervals: intervals.len() as u64,
        miss_rate: (instructions > 0).then(|| lines as f64 * 1000.0 / instructions as f64),
        local_access_ratio: (all > 0).then(|| local as f64 / all as f64),
        uncore_penalty: (requests > 0).then(|| busy as f64 / requests as f64),
        instructions_per_second: mean_speed(intervals),
        slowest: speeds(intervals).reduce(f64::min),
        fastest: speeds(intervals).reduce(f64::max),
        ran: Vec::new(),
        pages_on_node: None,
    }
}

/// The speeds of the intervals that tell one.
fn speeds(intervals: &[Interval]) -> impl Iterator<Item = f64> {
    let work = intervals.iter().filter_map(work);
    work.map(|(instructions, seconds)| instructions / seconds)
}

/// An interval's instructions and seconds of CPU time, where they tell a speed.
fn work(interval: &Interval) -> Option<(f64, f64)> {
    let counts = interval.counts?;
    let enough = interval.cpu_share >= LEAST_SHARE && counts.counted_share >= LEAST_SHARE;
    let seconds = interval.cpu_share * interval.length_ns as f64 / 1e9;
    (enough && seconds > 0.0 && counts.instructions > 0)
        .then_some((counts.instructions as f64, seconds))
}

fn mean_speed(intervals: &[Interval]) -> Option<f64> {
    let work: Vec<(f64, f64)> = intervals.iter().filter_map(work).collect();
    let instructions: f64 = work.iter().map(|(instructions, _)| instructions).sum();
    let seconds: f64 = work.iter().map(|(_, seconds)| seconds).sum();
    (seconds > 0.0).then(|| instructions / seconds)
}

fn speed_change(before: &[Interval], after: &[Interval]) -> Option<SpeedChange> {
    let (was, is) = (mean_speed(before)?, mean_speed(after)?);
    let fastest = speeds(before).fold(0.0, f64::max);
    let slowest = speeds(before).fold(f64::INFINITY, f64::min);
    let gain = is / was - 1.0;
    let change = if gain >= LEAST_CHANGE && is > fastest {
        Change::Faster
    } else if gain <= -LEAST_CHANGE && is < slowest {
        Change::Slower
    } else {
        Change::Unchanged
    };
    Some(SpeedChange {
        change,
        percent: gain * 100.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::CpuId;
    use numaherd_world::Counts;

    fn intervals(millions: &[u64]) -> Vec<Interval> {
        let interval = |(at, &millions): (usize, &u64)| Interval {
            time_ns: (at as u64 + 1) * 1_000_000_000,
            length_ns: 1_000_000_000,
            cpu: CpuId(0),
            cpu_share: 0.5,
            counts: Some(Counts {
                instructions: millions * 1_000_000,
                lines: millions * 1_000,
                uncore_busy_cycles: None,
                uncore_requests: None,
                counted_share: 1.0,
                ..Counts::default()
            }),
        };
        millions.iter().enumerate().map(interval).collect()
    }

    fn change(before: &[u64], after: &[u64]) -> Change {
        speed_change(&intervals(before), &intervals(after))
            .unwrap()
            .change
    }

    #[test]
    fn speed_is_per_second_of_cpu_time() {
        assert_eq!(mean_speed(&intervals(&[100, 300])), Some(400e6));
    }

    #[test]
    fn what_a_thread_varies_by_itself_is_no_change() {
        assert_eq!(change(&[100, 100], &[120, 120]), Change::Faster);
        assert_eq!(change(&[100, 100], &[80, 80]), Change::Slower);
        assert_eq!(change(&[100, 100], &[101, 101]), Change::Unchanged);
        assert_eq!(change(&[50, 150], &[120, 120]), Change::Unchanged);
        assert_eq!(change(&[50, 150], &[80, 80]), Change::Unchanged);
    }

    #[test]
    fn a_thread_that_hardly_ran_tells_no_speed() {
        let mut idle = intervals(&[100]);
        idle[0].cpu_share = 0.05;
        assert_eq!(mean_speed(&idle), None);
        assert_eq!(speed_change(&intervals(&[100]), &idle), None);
        let mut uncounted = intervals(&[100]);
        uncounted[0].counts = None;
        assert_eq!(side(&uncounted).miss_rate, None);
        assert_eq!(speed_change(&uncounted, &intervals(&[100])), None);
    }
}
