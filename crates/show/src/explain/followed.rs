//! What followed a decision: the thread's figures before and after, and whether it became faster.
//!
//! Speed is instructions per second of CPU time, as the governor's own judge measures it, so that a thread that merely
//! waits does not count as slow. A change counts as faster or slower only if it is 2 % or more and exceeds the thread's
//! own variation before.

use std::collections::BTreeSet;
use std::sync::Arc;

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Residency, ThreadId};

use super::alternative::remote_share;
use super::story::{Interval, ran, work};
use super::{Change, Decision, Followed, Happened, SIDE, Side, SpeedChange, Verdict, Wanted};

/// A change of less than this share counts as none.
pub(super) const LEAST_CHANGE: f64 = 0.02;

/// What surrounds a thread's intervals.
pub(super) struct Around<'r> {
    pub(super) topology: Option<&'r Topology>,
    pub(super) me: ThreadId,
    /// Where its process's pages were, by the end of the interval in ns.
    pub(super) residencies: &'r [(u64, Arc<Residency>)],
    /// When each move happened and of which thread, in time order.
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
        (Wanted::Move(_) | Wanted::Undo { .. } | Wanted::Steal(_), _) => decision.is_done(),
        (_, Some(Happened::Pages(pages))) => pages.moved > 0,
        _ => false,
    };
    if !carried_out {
        return None;
    }
    let (first, last) = (decision.first_ns, decision.last_ns);
    let mut moves = moved_at.iter().copied();
    let earlier = moves.clone().rfind(|&at| at < first).unwrap_or(0);
    let later = moves.find(|&at| at > last).unwrap_or(u64::MAX);
    let begin = intervals.partition_point(|i| i.time_ns <= earlier);
    let middle = intervals.partition_point(|i| i.time_ns <= first);
    // A page move takes effect in the next interval; so does a thread move, at the very end of an interval.
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
        Wanted::Move(way) | Wanted::Steal(way) => way.to_node,
        Wanted::Pages { to, .. } => *to,
        _ => None,
    };
    let side = |intervals: &[Interval]| Side {
        ran: ran(intervals, around.topology),
        pages_on_node: node.and_then(|node| around.share_on(node, intervals)),
        ..side(intervals)
    };
    let as_ordered = match &decision.governor {
        Verdict::Ordered { cpus: Some(cpus) } => {
            let there = after.iter().filter(|interval| cpus.contains(interval.cpu));
            Some(there.count() as u64)
        }
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
    let all = work(intervals);
    Side {
        intervals: intervals.len() as u64,
        miss_rate: all.counted.miss_rate(),
        local_access_ratio: all.counted.local_access_ratio(),
        uncore_penalty: all.counted.uncore_penalty(),
        instructions_per_second: all.speed(),
        slowest: speeds(intervals).reduce(f64::min),
        fastest: speeds(intervals).reduce(f64::max),
        ran: Vec::new(),
        pages_on_node: None,
    }
}

/// The speeds of the intervals that have one.
fn speeds(intervals: &[Interval]) -> impl Iterator<Item = f64> {
    intervals
        .iter()
        .filter_map(|interval| interval.work.speed())
}

fn speed_change(before: &[Interval], after: &[Interval]) -> Option<SpeedChange> {
    let (was, is) = (work(before).speed()?, work(after).speed()?);
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

    use crate::run::Work;

    fn worked(millions: u64, cpu_share: f64) -> Work {
        let counts = Counts {
            instructions: millions * 1_000_000,
            lines: millions * 1_000,
            counted_share: 1.0,
            ..Counts::default()
        };
        Work::of(Some(&counts), cpu_share, 1_000_000_000)
    }

    fn intervals(millions: &[u64]) -> Vec<Interval> {
        let interval = |(at, &millions): (usize, &u64)| Interval {
            time_ns: (at as u64 + 1) * 1_000_000_000,
            length_ns: 1_000_000_000,
            cpu: CpuId(0),
            work: worked(millions, 0.5),
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
        assert_eq!(work(&intervals(&[100, 300])).speed(), Some(400e6));
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
        idle[0].work = worked(100, 0.05);
        assert_eq!(work(&idle).speed(), None);
        assert_eq!(speed_change(&intervals(&[100]), &idle), None);
        let mut uncounted = intervals(&[100]);
        uncounted[0].work = Work::of(None, 0.5, 1_000_000_000);
        assert_eq!(side(&uncounted).miss_rate, None);
        assert_eq!(speed_change(&uncounted, &intervals(&[100])), None);
    }
}
