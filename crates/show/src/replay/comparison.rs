//! Compares a recording with the policies replayed on it, interval by interval.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use numaherd_herd::ledger::Start;
use numaherd_herd::replay::{Basis, Candidate, Decided, Interval};
use numaherd_topology::{CpuId, Topology};
use numaherd_world::Signal;
use serde::Serialize;

use super::agreement::{Agreement, Shares};
use super::decisions::{Choice, Choices, Wanted};
use super::effect::Prediction;
use super::recording::Recording;
use crate::run::Content;
use crate::words::nanoseconds;

/// Most moments of the time line; if there are more, neighbours are merged.
const MOST_MOMENTS: usize = 240;

/// The results of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// The recorded run's policy.
    pub recorded: String,
    /// Whether it only watched.
    pub dry_run: bool,
    /// Whether the policies decided each time from the recorded situation instead of their own.
    pub from_recorded: bool,
    /// Nodes of the machine.
    pub nodes: usize,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Intervals that were replayed.
    pub intervals: u64,
    /// End of the last, in ns since the world began.
    pub duration_ns: u64,
    /// Most threads in an interval.
    pub threads: usize,
    /// How often the recorded policy newly wanted a thread to be elsewhere.
    pub recorded_moves: u64,
    /// Decisions that could not be compared, because the snapshots that they were drawn from were not recorded.
    pub unseen: u64,
    /// What ended the recording before its end.
    pub damage: Option<String>,
    /// Share of thread-intervals with CPU use that have a miss rate.
    pub counted: Option<f64>,
    /// The replayed policies, in the order they were named.
    pub policies: Vec<Policy>,
    /// Every pair of policies, if more than one was replayed.
    pub pairs: Vec<Pair>,
    /// Decisions side by side, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Vec<Choice>>,
    /// What a model predicts.
    pub prediction: Option<Prediction>,
}

/// A policy that was replayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Signals that it needs and the recording does not hold. If there are any, there is no agreement.
    pub missing: Option<Missing>,
    /// The cadence in ns at which it decides by its source, if the source gives one.
    pub cadence_ns: Option<u64>,
    /// The part of its paging that could not be replayed.
    pub unpaged: Option<Unpaged>,
    /// How far it agrees with the recorded policy.
    pub agreement: Option<Shares>,
    /// The same, for threads that one of the two wanted to be elsewhere.
    pub where_moved: Option<Shares>,
    /// The same over time.
    pub over_time: Vec<Moment>,
    /// How often it newly wanted a thread to be elsewhere.
    pub moves: u64,
    /// Wishes that its governor refused; `None` if it had no governor.
    pub refused: Option<u64>,
    /// Page orders that follow from its placement alone.
    pub page_orders: u64,
}

/// Signals that a placement needs and the recording does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Their names.
    pub signals: Vec<String>,
}

/// Signals that a paging needs and that no ledger holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unpaged {
    /// Their names.
    pub signals: Vec<String>,
    /// Page orders in the recording, which were the recorded policy's.
    pub recorded_orders: u64,
}

/// Agreement from the end of the moment before up to a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Its end, in ns since the world began.
    pub until_ns: u64,
    /// Agreement with the recorded policy.
    #[serde(flatten)]
    pub shares: Shares,
}

/// How far two policies agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The first policy; `None` for the recorded one.
    pub one: Option<String>,
    /// The second policy.
    pub other: String,
    /// Their agreement.
    pub agreement: Option<Shares>,
}

/// Takes in a recording together with what each replayed policy decided on it.
#[derive(Clone, Debug)]
pub struct Comparison {
    basis: Basis,
    /// For every pair of policies, the recorded one first: (0, 1), (0, 2), ... (1, 2), ...
    pairs: Vec<Agreement>,
    where_moved: Vec<Agreement>,
    over_time: Vec<OverTime>,
    choices: Option<Choices>,
    moves: Vec<Wishes>,
    refused: Vec<u64>,
    page_orders: Vec<u64>,
}

impl Comparison {
    /// An empty comparison of a recording with `policies` replayed policies.
    pub fn new(policies: usize, basis: Basis) -> Self {
        let all = policies + 1;
        Self {
            basis,
            pairs: vec![Agreement::default(); all * (all - 1) / 2],
            where_moved: vec![Agreement::default(); policies],
            over_time: vec![OverTime::default(); policies],
            choices: None,
            moves: vec![Wishes::default(); all],
            refused: vec![0; policies],
            page_orders: vec![0; policies],
        }
    }

    /// The same with all decisions, side by side.
    #[must_use]
    pub fn with_decisions(self) -> Self {
        Self {
            choices: Some(Choices::default()),
            ..self
        }
    }

    /// Takes in one more interval, with what each replayed policy decided on it.
    pub fn interval(&mut self, topology: &Topology, interval: &Interval, decided: &[Decided]) {
        let snapshot = &interval.snapshot;
        let recorded = match self.basis {
            Basis::Recorded => interval.wanted(),
            Basis::Carried => interval.had(),
        };
        let places: Vec<&[CpuId]> = std::iter::once(&recorded[..])
            .chain(decided.iter().map(|decided| &decided.places[..]))
            .collect();
        let mut now = vec![Agreement::default(); decided.len()];
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if thread.unmanaged.is_some() {
                continue;
            }
            let of_two = (0..places.len()).tuple_combinations().enumerate();
            for (pair, (one, other)) in of_two {
                let agreement = match one {
                    0 => &mut now[other - 1],
                    _ => &mut self.pairs[pair],
                };
                agreement.add(topology, places[one][at], places[other][at]);
            }
            for (policy, decided) in decided.iter().enumerate() {
                let moved = places[0][at] != thread.place()
                    || places[policy + 1][at] != decided.seen.threads[at].place();
                if moved {
                    self.where_moved[policy].add(topology, places[0][at], places[policy + 1][at]);
                }
            }
        }
        for (policy, now) in now.iter().enumerate() {
            self.pairs[policy].extend(now);
            self.over_time[policy].add(snapshot.time_ns, now);
        }
        self.decisions(interval, decided);
    }

    fn decisions(&mut self, interval: &Interval, decided: &[Decided]) {
        let nothing = (&[][..], &[][..]);
        let (placements, refusals) = interval.placing.as_ref().map_or(nothing, |placing| {
            (&placing.plan.placements[..], &placing.refusals[..])
        });
        let replayed = decided.iter().map(|decided| Wanted {
            placements: &decided.placements,
            refusals: &decided.refusals,
        });
        let recorded = Wanted {
            placements,
            refusals,
        };
        let wanted: Vec<Wanted<'_>> = std::iter::once(recorded).chain(replayed).collect();
        for (moves, wanted) in self.moves.iter_mut().zip(&wanted) {
            moves.interval(wanted);
        }
        for (at, decided) in decided.iter().enumerate() {
            self.refused[at] += decided.refusals.len() as u64;
            self.page_orders[at] += decided.pages.len() as u64;
        }
        if let Some(choices) = &mut self.choices {
            choices.interval(&interval.snapshot, &wanted);
        }
    }

    /// The results, once the recording is read. A policy whose signals are not in it has no agreement.
    pub fn finish(self, recording: &Recording, candidates: &[Candidate]) -> Replayed {
        let (start, run): (&Start, _) = (recording.start(), recording.run());
        let missing = |candidate| missing(candidate, &run.more.content);
        let missing: Vec<Option<Missing>> = candidates.iter().map(missing).collect();
        let name = |at: usize| candidates[at].wants().policy.clone();
        let is_there = |at: usize| at.checked_sub(1).is_none_or(|at| missing[at].is_none());
        let all = match candidates.len() {
            0 | 1 => 0..0,
            more => 0..more + 1,
        };
        let of_two = all.tuple_combinations().zip(&self.pairs);
        let pairs = of_two.map(|((one, other), agreement)| {
            let agreement = agreement.shares();
            Pair {
                one: one.checked_sub(1).map(name),
                other: name(other - 1),
                agreement: agreement.filter(|_| is_there(one) && is_there(other)),
            }
        });
        let pairs = pairs.collect();
        let mut policies = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            let missing = missing[at].clone();
            let there = missing.is_none();
            let shares = |agreement: &Agreement| agreement.shares().filter(|_| there);
            policies.push(Policy {
                name: candidate.wants().policy.clone(),
                cadence_ns: candidate.cadence().map(nanoseconds),
                unpaged: unpaged(candidate, recording),
                agreement: shares(&self.pairs[at]),
                where_moved: shares(&self.where_moved[at]),
                over_time: match there {
                    true => self.over_time[at].moments(),
                    false => Vec::new(),
                },
                moves: self.moves[at + 1].moves,
                refused: (self.basis == Basis::Carried).then_some(self.refused[at]),
                page_orders: self.page_orders[at],
                missing,
            });
        }
        Replayed {
            recorded: start.policy.clone(),
            dry_run: start.settings.dry_run,
            from_recorded: self.basis == Basis::Recorded,
            nodes: start.topology.nodes().len(),
            cpus: start.topology.cpus().len(),
            intervals: run.more.snapshots,
            duration_ns: run.time_ns,
            threads: run.more.most_threads,
            recorded_moves: self.moves[0].moves,
            unseen: recording.unseen(),
            damage: recording.damage().map(str::to_owned),
            counted: run.more.content.counted(),
            policies,
            pairs,
            decisions: self.choices.map(Choices::finish),
            prediction: None,
        }
    }
}

/// The signals that a placement needs and the recording does not hold.
fn missing(candidate: &Candidate, content: &Content) -> Option<Missing> {
    let signals = content.lacks_by_name(candidate.wants());
    (!signals.is_empty()).then_some(Missing { signals })
}

fn unpaged(candidate: &Candidate, recording: &Recording) -> Option<Unpaged> {
    let signals = candidate.wants().paging.iter();
    let signals: Vec<String> = signals.map(Signal::to_string).collect();
    (!signals.is_empty()).then(|| Unpaged {
        signals,
        recorded_orders: recording.page_orders(),
    })
}

/// Counts threads that are newly wanted elsewhere.
#[derive(Clone, Debug, Default)]
struct Wishes {
    before: BTreeMap<numaherd_world::ThreadId, CpuId>,
    moves: u64,
}

impl Wishes {
    fn interval(&mut self, wanted: &Wanted<'_>) {
        let moves = wanted.placements.iter().filter(|p| p.from != p.to);
        let now: BTreeMap<_, _> = moves.map(|p| (p.thread, p.to)).collect();
        let is_new = |&(thread, to): &(&numaherd_world::ThreadId, &CpuId)| {
            self.before.get(thread) != Some(to)
        };
        self.moves += now.iter().filter(is_new).count() as u64;
        self.before = now;
    }
}

/// Agreement over time, in moments of equally many intervals.
#[derive(Clone, Debug, Default)]
struct OverTime {
    moments: Vec<(u64, Agreement)>,
    /// Intervals of each moment, and of the last one so far.
    each: u64,
    last: u64,
}

impl OverTime {
    fn add(&mut self, time_ns: u64, now: &Agreement) {
        if self.moments.len() == MOST_MOMENTS && self.last == self.each {
            let pairs = std::mem::take(&mut self.moments);
            let mut pairs = pairs.into_iter();
            while let Some((_, mut one)) = pairs.next()
                && let Some((until_ns, other)) = pairs.next()
            {
                one.extend(&other);
                self.moments.push((until_ns, one));
            }
            self.each *= 2;
            self.last = self.each;
        }
        if self.moments.is_empty() || self.last == self.each {
            self.each = self.each.max(1);
            self.moments.push((time_ns, now.clone()));
            self.last = 1;
            return;
        }
        if let Some((until_ns, moment)) = self.moments.last_mut() {
            *until_ns = time_ns;
            moment.extend(now);
            self.last += 1;
        }
    }

    fn moments(&self) -> Vec<Moment> {
        let shares = |(until_ns, agreement): &(u64, Agreement)| {
            Some(Moment {
                until_ns: *until_ns,
                shares: agreement.shares()?,
            })
        };
        self.moments.iter().filter_map(shares).collect()
    }
}
