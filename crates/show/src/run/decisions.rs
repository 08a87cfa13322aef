//! Takes in what was decided and its outcome: sums, the latest decisions, and the last of each
//! thread and process.

use std::sync::Arc;

use numaherd_herd::ledger::PagingTick;
use numaherd_herd::{Line, Record, Refusal};
use numaherd_policy::losses::Losses;
use numaherd_topology::NodeId;
use numaherd_world::{Outcome, PageOutcome, ProcessId, ThreadId};

use super::decision::{PageDecision, ThreadDecision};
use super::sums::{GroupSums, named, rule};
use super::{
    Decision, DecisionOutcome, History, LastPlacing, MOST_GROUPS, MOST_KEPT, NO_GROUP,
    OTHER_GROUPS, RunModel, Subject, add, snapshot_of,
};
use crate::words::cut;

impl RunModel {
    /// A placing with its outcome, where that is recorded.
    pub(super) fn placed(
        &mut self,
        line: &Line,
        outcome: Option<(u64, &Outcome)>,
        history: &mut impl History,
    ) {
        let Record::Placing(placing) = &line.record else {
            return;
        };
        history.placed(placing, outcome.map(|(_, outcome)| outcome));
        for wish in &placing.plan.placements {
            rule(&mut self.more.rules, &wish.rule, &wish.why).wanted += 1;
        }
        self.totals.add_refusals(&placing.refusals);
        let latest = self.latest.clone();
        let snapshot = latest.as_deref().and_then(snapshot_of);
        let mut moved = 0;
        for decision in ThreadDecision::of(line, placing, outcome, snapshot) {
            moved += u64::from(decision.is_move());
            match decision.refusal {
                Some(refusal) => self.refused(&decision, refusal),
                None => self.ordered(&decision),
            }
            history.decided(self, &decision);
        }
        if !placing.plan.placements.is_empty() || moved > 0 {
            self.last_placing = Some(LastPlacing {
                time_ns: line.time_ns,
                wanted: placing.plan.placements.len() as u64,
                refused: placing.refusals.len() as u64,
                moved,
            });
        }
    }

    fn refused(&mut self, decision: &ThreadDecision<'_>, refusal: &Refusal) {
        self.first_refusal(refusal);
        let Some(wish) = decision.placement else {
            return;
        };
        rule(&mut self.more.rules, &wish.rule, &wish.why).refused += 1;
        let refused = (DecisionOutcome::Refused(refusal.guard), wish.to);
        let Some(track) = self.threads.get_mut(decision.thread) else {
            return;
        };
        if track.refused.replace(refused) != Some(refused) {
            self.log(decision);
        }
    }

    fn first_refusal(&mut self, refusal: &Refusal) {
        let first = &mut self.more.first_refusals;
        first
            .entry(refusal.guard)
            .or_insert_with(|| cut(&refusal.why).to_owned());
    }

    fn ordered(&mut self, decision: &ThreadDecision<'_>) {
        let leaves = decision.leaves() && !decision.is_release();
        let (is_done, is_move) = (decision.is_done(), decision.is_move());
        self.totals.planned_thread_moves += u64::from(leaves);
        self.totals.thread_moves += u64::from(is_move);
        self.totals.undone += u64::from(is_done && decision.undone.is_some());
        self.totals.stolen += u64::from(is_done && decision.stolen.is_some());
        let outcome = decision.outcome();
        self.more.failed_orders += u64::from(outcome == Some(DecisionOutcome::Failed));
        if let Some(wish) = decision.by_plan().filter(|_| is_move) {
            rule(&mut self.more.rules, &wish.rule, &wish.why).moved += 1;
        }
        let Some(logged) = self.log(decision) else {
            return;
        };
        let Some(process) = logged.process else {
            return;
        };
        if self.decisions.len() == MOST_KEPT {
            self.decisions.pop_front();
        }
        self.decisions.push_back(logged.clone());
        if let Some(track) = self.threads.get_mut(decision.thread) {
            track.refused = None;
            track.moves += u64::from(is_move);
        }
        if let Some(track) = self.processes.get_mut(process) {
            track.thread_moves += u64::from(is_move);
            track.last = Some(logged.clone());
        }
        if is_move && let Some(sums) = self.group_of(process) {
            sums.thread_moves += 1;
        }
        self.note_move(&logged);
    }

    /// Adds a decision to the log, unless nothing happened to the thread.
    fn log(&mut self, decision: &ThreadDecision<'_>) -> Option<Arc<Decision>> {
        let decision = self.decision(decision)?;
        Some(self.log.add(decision))
    }

    /// A decision to be kept; `None` where nothing happened to the thread.
    pub(crate) fn decision(&self, decision: &ThreadDecision<'_>) -> Option<Decision> {
        let outcome = decision.outcome()?;
        let (from, to) = decision.way()?;
        let plan = decision.by_plan();
        let subject = Subject::Thread {
            from,
            from_node: self.node_of(from),
            to,
            to_node: to.and_then(|cpu| self.node_of(cpu)),
        };
        let about = (decision.time_ns, decision.thread, None);
        Some(Decision {
            rule: plan.map_or("", |plan| cut(&plan.rule)).to_owned(),
            why: cut(decision.why()).to_owned(),
            instead_of: plan.map_or("", |plan| cut(&plan.instead_of)).to_owned(),
            answer: cut(&decision.answer()).to_owned(),
            ..self.about(about, subject, outcome)
        })
    }

    /// A decision about a thread, or about its process's pages, whose rule and reasons are not known.
    fn about(
        &self,
        (time_ns, thread, process): (u64, ThreadId, Option<ProcessId>),
        subject: Subject,
        outcome: DecisionOutcome,
    ) -> Decision {
        let seen = self.snapshot().and_then(|snapshot| snapshot.thread(thread));
        let process = process.or(seen.map(|seen| seen.process));
        let known = process.and_then(|id| self.process(id));
        let process_name = known.map_or("", |known| match &known.guest {
            Some(guest) => cut(&guest.name),
            None => &known.name,
        });
        Decision {
            number: 0,
            time_ns,
            thread,
            thread_name: seen.map_or("", |seen| cut(&seen.name)).to_owned(),
            process,
            process_name: process_name.to_owned(),
            subject,
            outcome,
            rule: String::new(),
            why: String::new(),
            instead_of: String::new(),
            answer: String::new(),
        }
    }

    /// The decision is the last of its thread and process, if it moved something.
    fn note_move(&mut self, decision: &Arc<Decision>) {
        if !decision.is_move() {
            return;
        }
        if let Subject::Thread { .. } = decision.subject
            && let Some(track) = self.threads.get_mut(decision.thread)
        {
            track.last_move = Some(decision.clone());
        }
        let process = decision.process.and_then(|id| self.processes.get_mut(id));
        if let Some(track) = process {
            track.last_move = Some(decision.clone());
        }
    }

    /// What the machine lost in the latest interval, by group.
    pub(super) fn lost_by_group(&mut self, losses: &Losses) {
        let seconds = self.interval_ns as f64 / 1e9;
        for process in losses.processes.iter().flatten() {
            if let Some(group) = self.group_of(process.id) {
                group.lost_cpu_s += process.lost * seconds;
            }
        }
    }

    /// The sums of the group of a process that is there. Where there are too many, those of groups that have gone make
    /// room.
    fn group_of(&mut self, process: ProcessId) -> Option<&mut GroupSums> {
        let group = self.process(process)?.group.clone();
        let name = group.as_deref().unwrap_or(NO_GROUP);
        if self.more.groups.len() >= MOST_GROUPS && !self.more.groups.contains_key(name) {
            let mut groups = std::mem::take(&mut self.more.groups);
            let here = self.groups_now();
            groups.retain(|name, _| name == OTHER_GROUPS || here.contains_key(name.as_str()));
            self.more.groups = groups;
        }
        let limits = (MOST_GROUPS, OTHER_GROUPS);
        Some(named(&mut self.more.groups, name, limits))
    }

    /// A tick of the paging.
    pub(super) fn paged(&mut self, line: &Line, tick: &PagingTick, history: &mut impl History) {
        add(&mut self.more.samples, tick.samples);
        add(&mut self.more.samples_remote, tick.remote);
        self.totals.add_paging(tick);
        for refusal in &tick.refusals {
            self.first_refusal(refusal);
        }
        let waited = std::mem::take(&mut self.waiting);
        let decisions = PageDecision::of(line, tick, &waited);
        let mut waiting = super::decision::WaitingOrders::new();
        for decision in &decisions {
            if let Some(order) = decision.order.filter(|_| decision.is_planned) {
                let sums = rule(&mut self.more.page_rules, &order.rule, &order.why);
                sums.wanted += 1;
                sums.refused += u64::from(decision.refusal.is_some());
                if decision.is_waiting {
                    waiting.insert((order.process, order.thread), order.clone());
                }
            }
            let is_planned = decision.outcome() == DecisionOutcome::Planned;
            self.more.planned_page_orders += u64::from(is_planned);
            if let Some(outcome) = decision.outcome {
                self.moved_pages(outcome);
            }
            self.log_pages(decision);
            history.paged(self, decision);
        }
        let over = decisions.iter().filter(|decision| !decision.is_planned);
        let over = over.filter_map(|decision| Some((decision.process?, decision.thread)));
        let over: Vec<_> = over.collect();
        drop(decisions);
        self.waiting = waited;
        self.waiting.retain(|key, _| !over.contains(key));
        self.waiting.extend(waiting);
    }

    fn moved_pages(&mut self, outcome: &PageOutcome) {
        let more = &mut self.more;
        more.page_errors += u64::from(outcome.error.is_some());
        add(&mut more.pages_not_tried, outcome.not_tried);
        add(&mut more.pages_ns, outcome.took_ns);
        more.longest_batch_ns = more.longest_batch_ns.max(outcome.longest_batch_ns);
        if outcome.moved == 0 {
            return;
        }
        let flow = (self.source_of(outcome.process, outcome.to), outcome.to);
        let pages = self.more.page_flows.entry(flow).or_default();
        add(pages, outcome.moved);
        if let Some(track) = self.processes.get_mut(outcome.process) {
            add(&mut track.pages_moved, outcome.moved);
        }
        if let Some(sums) = self.group_of(outcome.process) {
            add(&mut sums.pages_moved, outcome.moved);
        }
    }

    /// Where pages that went to a node came from: the only other node with memory, or the only one
    /// that the process was last seen to have pages on; else it cannot be told.
    fn source_of(&self, process: ProcessId, to: NodeId) -> Option<NodeId> {
        fn only(mut nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
            let first = nodes.next()?;
            nodes.next().is_none().then_some(first)
        }
        let traffic = self.traffic.as_ref()?;
        let others = traffic.with_memory.iter().map(|&place| traffic.ids[place]);
        let has_pages = || {
            let pages = self.process(process)?.pages_on.as_ref()?;
            let other = pages.iter().filter(|&&(node, n)| node != to && n > 0);
            only(other.map(|&(node, _)| node))
        };
        only(others.filter(|&node| node != to)).or_else(has_pages)
    }

    /// Adds a page decision to the log, or to that of the same process and node since the snapshot.
    fn log_pages(&mut self, decision: &PageDecision<'_>) {
        let (Some(process), Some(to)) = (decision.process, decision.to()) else {
            return;
        };
        if decision.refusal.is_some() && !decision.is_planned {
            return;
        }
        let key = (process, to, decision.refusal.is_some());
        let mut number = self.paged.get(&key).copied();
        if number.is_none() {
            let refusal = decision.refusal;
            let answer = refusal.map(|refusal| format!("{}: {}", refusal.guard, refusal.why));
            let (rule, why) = match decision.order {
                Some(order) => (cut(&order.rule), cut(&order.why)),
                None => ("", "an order that had waited for bandwidth"),
            };
            let about = (decision.time_ns, decision.thread, Some(process));
            let (moved, left) = (0, 0);
            let subject = Subject::Pages { to, moved, left };
            let logged = self.log.add(Decision {
                rule: rule.to_owned(),
                why: why.to_owned(),
                answer: cut(&answer.unwrap_or_default()).to_owned(),
                ..self.about(about, subject, decision.outcome())
            });
            self.note_move(&logged);
            self.paged.insert(key, logged.number);
            number = Some(logged.number);
        }
        let (Some(number), Some(outcome)) = (number, decision.outcome) else {
            return;
        };
        let failed = outcome.failed.values().copied();
        let failed = failed.fold(outcome.not_tried, u64::saturating_add);
        let changed = self.log.change(number, |logged| {
            let Subject::Pages { moved, left, .. } = &mut logged.subject else {
                return;
            };
            add(moved, outcome.moved);
            add(left, failed);
            logged.outcome = match *moved == 0 && outcome.error.is_some() {
                true => DecisionOutcome::Failed,
                false => DecisionOutcome::Moved,
            };
            if let Some(error) = &outcome.error {
                cut(error).clone_into(&mut logged.answer);
            }
        });
        if let Some(changed) = changed {
            self.note_move(&changed);
        }
    }
}
