//! What an explanation keeps of the past: each thread's intervals and decisions, where each process's
//! pages were, and what else was moved meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_herd::ledger::Controlled;
use numaherd_herd::{Line, Refusal};
use numaherd_topology::CpuId;
use numaherd_world::{
    AffinityResult, PageOrder, PageOutcome, Pages, Placement, ProcessId, Residency, Snapshot,
    Thread, ThreadId,
};

use super::alternative::{Alternative, Layout};
use super::choice::Chosen;
use super::story::Track;
use super::{
    Asked, CitedRule, Decision, Gap, Happened, Homes, PagesMoved, Sampled, Seen, Sentence, Verdict,
    Wanted, Way, cited,
};
use crate::guards::{meaning, settings};
use crate::guests::Guest;
use crate::requests;
use crate::run::decision::{PageDecision, ThreadDecision};
use crate::run::{History, RunModel};

/// A process that was ever observed.
#[derive(Debug, Default)]
pub(super) struct ProcessTrack {
    pub(super) name: String,
    pub(super) guest: Option<Arc<Guest>>,
    pub(super) group: Option<Arc<str>>,
    /// The memory policy that its user gave it, as last seen.
    pub(super) memory_policy: Option<Arc<str>>,
    pub(super) pages: Option<Homes>,
    /// Where its pages were, by the end of the interval in ns.
    pub(super) residencies: Vec<(u64, Arc<Residency>)>,
}

/// What an explanation keeps of the past.
#[derive(Debug, Default)]
pub struct Stories {
    pub(super) chosen: Chosen,
    pub(super) asked: Vec<Asked>,
    pub(super) threads: BTreeMap<ThreadId, Track>,
    pub(super) processes: BTreeMap<ProcessId, ProcessTrack>,
    /// When each move happened, and of which thread.
    pub(super) moved: Vec<(u64, ThreadId)>,
    /// Lines whose node was counted, by interval: local lines, and all.
    pub(super) accesses: Vec<(u64, u64)>,
    pub(super) notices: Vec<Sentence>,
    pub(super) gaps: Vec<Gap>,
    gap_at: BTreeMap<String, usize>,
    /// The latest layout, with the number of the record that it was made for: a placing, or a snapshot for its pages.
    layout: Option<(u64, Layout)>,
}

impl History for Stories {
    fn line(&mut self, line: &Line) {
        self.chosen.saw(line);
    }

    fn interval(&mut self, run: &RunModel, snapshot: &Snapshot) {
        for thread in &snapshot.threads {
            let track = self.threads.entry(thread.id).or_default();
            track.saw(thread, snapshot.time_ns, snapshot.interval_ns);
        }
        self.accesses
            .push((run.work.counted.local, run.work.counted.known_lines()));
        for (process, now) in snapshot.processes.iter().zip(run.processes.iter()) {
            let track = self.processes.entry(process.id).or_default();
            track.name.clone_from(&process.name);
            track.group.clone_from(&process.group);
            track.memory_policy.clone_from(&process.memory_policy);
            if now.guest.is_some() {
                track.guest.clone_from(&now.guest);
            }
            if let Some(residency) = &process.residency {
                track.resided(snapshot.time_ns, residency);
            }
        }
        for gap in &snapshot.gaps {
            if let Some(&place) = self.gap_at.get(gap) {
                self.gaps[place].intervals += 1;
                continue;
            }
            self.gap_at.insert(gap.clone(), self.gaps.len());
            self.gaps.push(Gap {
                intervals: 1,
                text: gap.clone(),
            });
        }
    }

    fn decided(&mut self, run: &RunModel, decision: &ThreadDecision<'_>) {
        let snapshot_record = run.latest().map(|line| line.sequence);
        let snapshot_record = snapshot_record.filter(|_| decision.snapshot.is_some());
        let records = [
            Some(decision.record),
            snapshot_record,
            decision.outcome_record,
        ];
        let is_chosen = self.chosen.takes(records, decision.time_ns);
        let is_nothing = decision.placement.is_none() && decision.release.is_none();
        if decision.refusal.is_some() && is_nothing {
            return;
        }
        let (governor, happened) = match decision.refusal {
            Some(refusal) => (refused(refusal), None),
            None => {
                let cpus = decision.order.map(|order| (*order.cpus).clone());
                (Verdict::Ordered { cpus }, Some(happened(decision)))
            }
        };
        let story = Decision {
            governor,
            happened,
            ..self.wanted(run, decision, is_chosen)
        };
        let is_move = decision.is_move();
        if is_move {
            self.moved.push((decision.time_ns, decision.thread));
        }
        let process = decision.seen.map(|thread| thread.process);
        self.add(decision.thread, process, story, is_move, is_chosen);
    }

    fn paged(&mut self, run: &RunModel, decision: &PageDecision<'_>) {
        let records = [Some(decision.record), None, None];
        let is_chosen = self.chosen.takes(records, decision.time_ns);
        let snapshot = run.snapshot();
        let thread = snapshot.and_then(|snapshot| snapshot.thread(decision.thread));
        let order = decision.order;
        let wanted_pages = order.and_then(|order| match order.pages {
            Pages::All | Pages::OfKind { .. } => None,
            Pages::Window { count, .. } => Some(count),
        });
        let alternative = order
            .filter(|_| is_chosen)
            .and_then(|order| self.alternative_of_pages(run, order, wanted_pages));
        let tick = decision.tick;
        let is_ordered = decision.refusal.is_none() && !decision.is_waiting;
        let happened = match decision.outcome {
            Some(outcome) => Some(Happened::Pages(pages_moved(outcome))),
            None if !is_ordered => None,
            None if tick.carried_out => Some(Happened::NotRecorded),
            None => Some(Happened::DryRun),
        };
        let late = decision.outcome.filter(|_| !decision.is_planned);
        let named = late.map(|outcome| outcome.pages);
        let named = named.or(order.map(|order| order.pages));
        let story = Decision {
            wanted: Wanted::Pages {
                to: late.map(|o| o.to).or(order.map(|order| order.to)),
                all: named.is_none_or(|pages| pages == Pages::All),
                kind: match named {
                    Some(Pages::OfKind { kind, .. }) => Some(kind),
                    _ => None,
                },
            },
            wanted_pages,
            alternative,
            rule: order.map(|order| cited(&order.rule)),
            seen: seen(thread, snapshot),
            sampled: (decision.is_planned && tick.samples > 0).then_some(Sampled {
                accesses: tick.samples,
                remote: tick.remote,
            }),
            why: order.map(|order| order.why.clone()),
            governor: match decision.refusal {
                Some(refusal) => refused(refusal),
                None if decision.is_waiting => Verdict::Waiting,
                None => Verdict::Ordered { cpus: None },
            },
            happened,
            ..plain(decision.record, decision.time_ns)
        };
        self.add(decision.thread, decision.process, story, false, is_chosen);
    }

    fn noticed(&mut self, time_ns: u64, text: &str) {
        let text = text.to_owned();
        self.notices.push(Sentence { time_ns, text });
    }

    fn asked(&mut self, line: &Line, controlled: &Controlled) {
        self.asked.push(Asked {
            record: line.sequence,
            time_ns: line.time_ns,
            refused: controlled.refused.is_some(),
            text: requests::sentence(controlled),
        });
    }
}

impl ProcessTrack {
    fn resided(&mut self, time_ns: u64, residency: &Residency) {
        let same = self.residencies.last().map(|(_, last)| last.clone());
        let same = same.filter(|last| **last == *residency);
        let shared = same.unwrap_or_else(|| Arc::new(residency.clone()));
        self.residencies.push((time_ns, shared));
        Homes::note(&mut self.pages, residency);
    }
}

impl Stories {
    pub(super) fn of(chosen: Chosen) -> Self {
        Self {
            chosen,
            ..Self::default()
        }
    }

    fn add(
        &mut self,
        thread: ThreadId,
        process: Option<ProcessId>,
        decision: Decision,
        is_move: bool,
        is_chosen: bool,
    ) {
        let track = self.threads.entry(thread).or_default();
        track.process = track.process.or(process);
        track.decided(decision, is_move, is_chosen);
    }

    /// What was wanted of a thread and why, either by the plan or by the governor, which undoes moves and gives threads
    /// to idle nodes.
    fn wanted(
        &mut self,
        run: &RunModel,
        decision: &ThreadDecision<'_>,
        is_chosen: bool,
    ) -> Decision {
        let base = Decision {
            seen: seen(decision.seen, decision.snapshot),
            why: Some(decision.why().to_owned()),
            ..plain(decision.record, decision.time_ns)
        };
        if let Some(undone) = decision.undone {
            let (from, to) = (undone.from, undone.to);
            Decision {
                wanted: Wanted::Undo { from, to },
                ..base
            }
        } else if let Some(stolen) = decision.stolen {
            Decision {
                wanted: Wanted::Steal(way(run, stolen.from, stolen.to)),
                rule: Some(CitedRule {
                    name: "governor: suspended steal".to_owned(),
                    source: Some("BRM 4.4"),
                    what: Some(
                        "A held thread that waits is moved to an idle node if the kernel cannot move any \
                         thread there",
                    ),
                }),
                ..base
            }
        } else if let Some(wish) = decision.placement {
            let leaves = decision.refusal.is_some() || decision.leaves();
            let moves = leaves && wish.from != wish.to;
            let (node, cpu) = (run.node_of(wish.to), wish.to);
            Decision {
                wanted: match moves {
                    true => Wanted::Move(way(run, wish.from, wish.to)),
                    false => Wanted::Hold { cpu, node },
                },
                rule: Some(cited(&wish.rule)),
                instead_of: Some(wish.instead_of.clone()).filter(|text| !text.is_empty()),
                alternative: match is_chosen && moves {
                    true => self.alternative(run, decision, wish),
                    false => None,
                },
                ..base
            }
        } else {
            let release = decision.release;
            Decision {
                rule: release.map(|release| cited(&release.rule)),
                why: release.map(|release| release.why.clone()),
                seen: None,
                ..base
            }
        }
    }

    fn alternative(
        &mut self,
        run: &RunModel,
        decision: &ThreadDecision<'_>,
        wish: &Placement,
    ) -> Option<Alternative> {
        let scene = (run.topology()?, decision.snapshot?);
        let plan = decision.placing.plan.placements.iter();
        let layout = self.layout(decision.record, || Layout::of(scene, plan));
        layout.of_move(scene, wish)
    }

    fn alternative_of_pages(
        &mut self,
        run: &RunModel,
        order: &PageOrder,
        pages: Option<u64>,
    ) -> Option<Alternative> {
        let scene = (run.topology()?, run.snapshot()?);
        let record = run.latest()?.sequence;
        let layout = self.layout(record, || Layout::of(scene, std::iter::empty()));
        layout.of_pages(scene, order.thread, order.to, pages)
    }

    fn layout(&mut self, record: u64, of: impl FnOnce() -> Layout) -> &Layout {
        if self.layout.as_ref().is_none_or(|(for_, _)| *for_ != record) {
            self.layout = None;
        }
        &self.layout.get_or_insert_with(|| (record, of())).1
    }
}

/// A decision with nothing but its record and time, which as it stands gives a thread back.
fn plain(record: u64, time_ns: u64) -> Decision {
    Decision {
        first_record: record,
        last_record: record,
        first_ns: time_ns,
        last_ns: time_ns,
        times: 1,
        ..Decision::default()
    }
}

fn way(run: &RunModel, from: CpuId, to: CpuId) -> Way {
    Way {
        from,
        from_node: run.node_of(from),
        to,
        to_node: run.node_of(to),
    }
}

/// The outcome of an order.
fn happened(decision: &ThreadDecision<'_>) -> Happened {
    match decision.result {
        _ if !decision.placing.carried_out => Happened::DryRun,
        None => Happened::NotRecorded,
        Some(AffinityResult::Done) => Happened::Done,
        Some(AffinityResult::Gone) => Happened::Gone,
        Some(AffinityResult::Narrowed { now }) => Happened::Narrowed { now: now.clone() },
        Some(AffinityResult::Failed { error }) => Happened::Failed {
            error: error.clone(),
        },
    }
}

fn seen(thread: Option<&Thread>, snapshot: Option<&Snapshot>) -> Option<Seen> {
    let thread = thread?;
    let process = snapshot.and_then(|snapshot| snapshot.process(thread.process));
    let residency = process.and_then(|process| process.residency.as_ref());
    let counts = thread.counts.as_ref();
    Some(Seen {
        miss_rate: counts.and_then(|counts| counts.miss_rate()),
        local_access_ratio: counts.and_then(|counts| counts.local_access_ratio()),
        uncore_penalty: counts.and_then(|counts| counts.uncore_penalty()),
        cpu_share: thread.cpu_share,
        home: residency.and_then(Residency::home),
    })
}

fn refused(refusal: &Refusal) -> Verdict {
    Verdict::Refused {
        guard: refusal.guard,
        why: refusal.why.clone(),
        meaning: meaning(refusal.guard),
        settings: settings(refusal.guard),
    }
}

fn pages_moved(outcome: &PageOutcome) -> PagesMoved {
    PagesMoved {
        moved: outcome.moved,
        already_there: outcome.already_there,
        failed: outcome.failed.clone(),
        not_tried: outcome.not_tried,
        took_ns: outcome.took_ns,
        longest_batch_ns: outcome.longest_batch_ns,
        error: outcome.error.clone(),
    }
}
