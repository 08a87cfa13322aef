//! Takes the lines of a run in, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_herd::ledger::{Asked, Controlled, PagingTick, Placing};
use numaherd_herd::{Guard, Line, Record};
use numaherd_policy::classes::{Class, ClassRule};
use numaherd_topology::NodeId;
use numaherd_world::{Outcome, Process, ProcessId, Residency, Snapshot, Thread};
use serde::Serializer;

use super::{
    Decision, GroupSums, LastPlacing, MOST_GROUPS, MOST_KEPT, MOST_RULES, NO_GROUP, NodeStatus,
    NodeSums, Now, OTHER_GROUPS, OTHER_RULES, ProcessStatus, RuleSums, Said, Status, ThreadStatus,
};
use crate::dealt::Dealt;
use crate::deeds::{Deed, Did, deeds};
use crate::guests::Guest;
use crate::report::Work;
use crate::totals::{Totals, add};
use crate::words::cut;

/// Most sentences of what could not be seen that are kept.
const MOST_GAPS: usize = 20;

/// What the herd's notice that its ledger cannot be written any more ends in.
const LEDGER_ENDED: &str = "the ledger ends here, herding goes on";

impl Status {
    /// Takes in the next line.
    pub fn fold(&mut self, line: &Line) {
        add(&mut self.more.lines, 1);
        if let Some((time_ns, placing)) = self.fold.pending.take() {
            let outcome = match &line.record {
                Record::Outcome(outcome) => Some(outcome),
                _ => None,
            };
            self.placed(time_ns, &placing, outcome);
        }
        match &line.record {
            Record::Start(start) => self.began(start),
            Record::Snapshot(snapshot) => self.saw(snapshot),
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.fold.pending = Some((line.time_ns, placing.clone()));
            }
            Record::Placing(placing) => self.placed(line.time_ns, placing, None),
            Record::Paging(tick) => self.paged(tick),
            Record::Notice(notice) => self.noticed(line.time_ns, &notice.text),
            Record::End(summary) => {
                self.ended = Some(summary.ending.clone());
                self.totals = Totals::from(summary);
            }
            Record::Control(controlled) => self.asked(line.time_ns, controlled),
            Record::Outcome(_) | Record::Unknown => {}
        }
    }

    /// Says that so many lines were dropped before the next that is taken in.
    pub fn lost(&mut self, lines: u64) {
        if lines == 0 {
            return;
        }
        add(&mut self.more.lines_lost, lines);
        self.is_complete = false;
        self.fold.is_unbroken = false;
        self.fold.pending = None;
    }

    fn saw(&mut self, snapshot: &Snapshot) {
        self.judge_lateness(snapshot);
        let before = self.fold.sequence;
        let passed = before.map_or(1, |before| snapshot.sequence.saturating_sub(before));
        self.totals.saw(snapshot, None);
        add(&mut self.totals.intervals, passed.saturating_sub(1));
        self.fold.sequence = Some(snapshot.sequence);
        self.fold.is_unbroken = true;
        self.fold.page_bytes = snapshot.page_bytes;
        self.time_ns = snapshot.time_ns;
        self.interval_ns = snapshot.interval_ns;
        self.is_complete = self.machine.is_some();
        let gaps = snapshot.gaps.iter().take(MOST_GAPS);
        self.gaps = gaps.map(|gap| cut(gap).to_owned()).collect();
        self.fold
            .threads
            .retain(|&thread, _| snapshot.thread(thread).is_some());
        self.fold
            .processes
            .retain(|&process, _| snapshot.process(process).is_some());

        let mut whole = Work::default();
        let mut works: BTreeMap<ProcessId, Work> = BTreeMap::new();
        self.threads.clear();
        for thread in &snapshot.threads {
            let work = Work::of(
                thread.counts.as_ref(),
                thread.cpu_share,
                snapshot.interval_ns,
            );
            whole.add(&work);
            works.entry(thread.process).or_default().add(&work);
            let shown = self.thread_status(thread, &work);
            self.deal(thread, &shown, snapshot);
            self.threads.push(shown);
        }
        let is_left_alone = |thread: &&Thread| thread.hands_off.is_some();
        self.now = Now {
            threads: snapshot.threads.len() as u64,
            hands_off: snapshot.threads.iter().filter(is_left_alone).count() as u64,
            cpus_used: per_second(whole.cpu_seconds, snapshot.interval_ns).unwrap_or(0.0),
            local_access_ratio: whole.local_access_ratio(),
            miss_rate: whole.miss_rate(),
            uncore_penalty: whole.uncore_penalty(),
            controller_imbalance: self.fold.dealt.as_ref().and_then(Dealt::imbalance),
        };
        self.now.controller_imbalance =
            self.now.controller_imbalance.map(|percent| percent / 100.0);
        let processes = snapshot.processes.iter();
        self.processes = processes
            .map(|process| self.process_status(process, snapshot, works.get(&process.id)))
            .collect();
        self.count_threads();
        self.see_nodes(snapshot);
    }

    /// An interval of which the one before is known is judged, and the first of all.
    fn judge_lateness(&mut self, snapshot: &Snapshot) {
        let Some(usual_ns) = self.cadence_ns else {
            return;
        };
        let passed = match self.fold.sequence {
            Some(before) if self.fold.is_unbroken => snapshot.sequence.saturating_sub(before),
            None if snapshot.sequence == 0 => 1,
            _ => return,
        };
        let first = self.fold.settings.placement_interval(snapshot.sequence);
        let expected_ns = match snapshot.sequence {
            0 => u64::try_from(first.as_nanos()).unwrap_or(u64::MAX),
            _ => usual_ns.saturating_mul(passed),
        };
        self.lateness.add(passed, snapshot.interval_ns, expected_ns);
    }

    fn thread_status(&self, thread: &Thread, work: &Work) -> ThreadStatus {
        let kept = self.fold.threads.get(&thread.id);
        let topology = self.fold.topology.as_ref();
        ThreadStatus {
            id: thread.id,
            process: thread.process,
            name: cut(&thread.name).to_owned(),
            cpu: thread.cpu,
            assigned: thread.assigned,
            node: topology.and_then(|topology| topology.node_of(thread.cpu)),
            cpu_share: share(thread.cpu_share),
            wait_share: share(thread.wait_share),
            class: class(work),
            miss_rate: work.miss_rate(),
            local_access_ratio: work.local_access_ratio(),
            hands_off: thread.hands_off.as_deref().map(|why| cut(why).to_owned()),
            moves: kept.map_or(0, |kept| kept.moves),
            last: kept.and_then(|kept| kept.last.clone()),
        }
    }

    fn deal(&mut self, thread: &Thread, shown: &ThreadStatus, snapshot: &Snapshot) {
        let Some(dealt) = &mut self.fold.dealt else {
            return;
        };
        if let Some(place) = shown.node.and_then(|node| dealt.place(node)) {
            let process = snapshot.process(thread.process);
            let pages = process.and_then(|process| process.residency.as_ref());
            dealt.worked(place, thread, pages);
        }
    }

    fn process_status(
        &self,
        process: &Process,
        snapshot: &Snapshot,
        work: Option<&Work>,
    ) -> ProcessStatus {
        let kept = self.fold.processes.get(&process.id);
        let none = Work::default();
        let work = work.unwrap_or(&none);
        let pages = process.residency.as_ref();
        ProcessStatus {
            id: process.id,
            name: cut(&process.name).to_owned(),
            group: process.group.clone(),
            guest: Guest::of(process, snapshot, self.fold.topology.as_deref()),
            threads: 0,
            hands_off: 0,
            threads_on: Vec::new(),
            pages_on: pages.map(|residency| residency.pages.clone()),
            home: pages.and_then(Residency::home),
            class: class(work),
            cpus_used: per_second(work.cpu_seconds, snapshot.interval_ns).unwrap_or(0.0),
            miss_rate: work.miss_rate(),
            local_access_ratio: work.local_access_ratio(),
            thread_moves: kept.map_or(0, |kept| kept.moves),
            pages_moved: kept.map_or(0, |kept| kept.pages_moved),
            last: kept.and_then(|kept| kept.last.clone()),
        }
    }

    /// Fills in how many threads each process has, and where.
    fn count_threads(&mut self) {
        for thread in &self.threads {
            let at = self
                .processes
                .binary_search_by_key(&thread.process, |process| process.id);
            let Ok(at) = at else { continue };
            let process = &mut self.processes[at];
            process.threads += 1;
            process.hands_off += u64::from(thread.hands_off.is_some());
            let Some(node) = thread.node else { continue };
            match process.threads_on.binary_search_by_key(&node, |on| on.0) {
                Ok(at) => process.threads_on[at].1 += 1,
                Err(at) => process.threads_on.insert(at, (node, 1)),
            }
        }
    }

    fn see_nodes(&mut self, snapshot: &Snapshot) {
        let fold = &mut self.fold;
        let (Some(topology), Some(dealt)) = (&fold.topology, &mut fold.dealt) else {
            return;
        };
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let mut nodes: Vec<NodeStatus> = Vec::with_capacity(dealt.ids.len());
        for (place, &id) in dealt.ids.iter().enumerate() {
            let work = dealt.now[place];
            let mut sums = self
                .nodes
                .get(place)
                .map_or_else(NodeSums::default, |before| before.sums);
            sums.cpu_s += work.cpus * seconds;
            sums.lines += work.lines;
            sums.local_lines += work.local;
            sums.remote_lines += work.known - work.local;
            sums.served_lines += work.served;
            let memory = snapshot.nodes.iter().find(|state| state.id == id);
            let memory = memory.filter(|state| state.total_bytes > 0);
            let cpus = topology.node(id).map(|node| &node.cpus);
            let served = per_second(work.served, snapshot.interval_ns)
                .filter(|_| dealt.is_dealt && dealt.with_memory.contains(&place));
            let capacity = topology.timing().node_gb_per_s.as_ref();
            let capacity = capacity.zip(topology.node_index(id));
            let capacity = capacity.and_then(|(of, at)| of.get(at).copied());
            let load = served.zip(fold.line_bytes).zip(capacity);
            let load = load.map(|((lines, bytes), of)| lines * bytes as f64 / (of * 1e9));
            nodes.push(NodeStatus {
                id,
                cpus: cpus.map_or(0, |cpus| {
                    cpus.iter()
                        .filter(|&cpu| snapshot.online.contains(cpu))
                        .count() as u64
                }),
                cpus_used: work.cpus,
                threads: 0,
                memory_bytes: memory.map(|state| state.total_bytes),
                free_bytes: memory.map(|state| state.free_bytes),
                pages: 0,
                local_access_ratio: (work.known > 0.0).then(|| work.local / work.known),
                fetched_per_s: per_second(work.lines, snapshot.interval_ns)
                    .filter(|_| dealt.is_counted),
                served_per_s: served,
                controller_load: load.filter(|load| load.is_finite()),
                sums,
            });
        }
        for thread in &self.threads {
            if let Some(place) = thread.node.and_then(|node| dealt.place(node)) {
                nodes[place].threads += 1;
            }
        }
        let residencies = snapshot.processes.iter();
        for residency in residencies.filter_map(|process| process.residency.as_ref()) {
            for &(node, pages) in &residency.pages {
                if let Some(place) = dealt.place(node) {
                    add(&mut nodes[place].pages, pages);
                }
            }
        }
        dealt.clear();
        self.nodes = nodes;
    }

    fn placed(&mut self, time_ns: u64, placing: &Placing, outcome: Option<&Outcome>) {
        let threads = std::mem::take(&mut self.threads);
        let cpu_of = |id| {
            let at = threads.binary_search_by_key(&id, |thread| thread.id);
            at.ok().map(|at| threads[at].cpu)
        };
        let deeds = deeds(placing, outcome, cpu_of);
        self.threads = threads;
        for placement in &placing.plan.placements {
            let sums = rule(&mut self.more.rules, &placement.rule);
            add(&mut sums.wanted, 1);
        }
        self.refused(placing.refusals.iter().map(|refusal| refusal.guard));
        let mut moved = 0;
        for deed in &deeds {
            self.totals.ordered(deed);
            moved += u64::from(deed.is_move());
            self.done(time_ns, deed);
        }
        if !placing.plan.placements.is_empty() || moved > 0 {
            self.last_placing = Some(LastPlacing {
                time_ns,
                wanted: placing.plan.placements.len() as u64,
                refused: placing.refusals.len() as u64,
                moved,
            });
        }
    }

    fn done(&mut self, time_ns: u64, deed: &Deed<'_>) {
        let Some(did) = deed.did else { return };
        self.more.failed_orders += u64::from(did == Did::Failed);
        let by_plan = deed.by_plan();
        if let Some(placement) = by_plan.filter(|_| did == Did::Moved) {
            add(&mut rule(&mut self.more.rules, &placement.rule).moved, 1);
        }
        let at = self
            .threads
            .binary_search_by_key(&deed.thread, |thread| thread.id);
        let Ok(at) = at else { return };
        let topology = self.fold.topology.as_ref();
        let node_of = |cpu| topology.and_then(|topology| topology.node_of(cpu));
        let process = self.process(self.threads[at].process);
        let process_name = process.map_or("", |process| match &process.guest {
            Some(guest) => cut(&guest.name),
            None => &process.name,
        });
        let decision = Decision {
            time_ns,
            thread: deed.thread,
            thread_name: self.threads[at].name.clone(),
            process: self.threads[at].process,
            process_name: process_name.to_owned(),
            did,
            from: deed.from,
            to: deed.to,
            from_node: node_of(deed.from),
            to_node: deed.to.and_then(node_of),
            rule: cut(by_plan.map_or("", |placement| &placement.rule)).to_owned(),
            why: cut(deed.why).to_owned(),
            instead_of: cut(by_plan.map_or("", |placement| &placement.instead_of)).to_owned(),
        };
        if self.decisions.len() == MOST_KEPT {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision.clone());
        let decision = Arc::new(decision);
        let moves = u64::from(deed.is_move());
        let thread = &mut self.threads[at];
        thread.moves += moves;
        thread.last = Some(decision.clone());
        let kept = self.fold.threads.entry(deed.thread).or_default();
        kept.moves += moves;
        kept.last = Some(decision.clone());
        let id = decision.process;
        let kept = self.fold.processes.entry(id).or_default();
        kept.moves += moves;
        kept.last = Some(decision.clone());
        if let Some(at) = self.place_of(id) {
            self.processes[at].thread_moves += moves;
            self.processes[at].last = Some(decision);
            self.group(at).thread_moves += moves;
        }
    }

    fn paged(&mut self, tick: &PagingTick) {
        let more = &mut self.more;
        add(&mut more.samples, tick.samples);
        add(&mut more.samples_remote, tick.remote);
        add(&mut self.totals.planned_pages, tick.ordered_pages);
        for outcome in &tick.outcomes {
            self.totals.paged(outcome);
            self.more.page_errors += u64::from(outcome.error.is_some());
            add(&mut self.more.pages_not_tried, outcome.not_tried);
            add(&mut self.more.pages_ns, outcome.took_ns);
            self.more.longest_batch_ns = self.more.longest_batch_ns.max(outcome.longest_batch_ns);
            if outcome.moved == 0 {
                continue;
            }
            let flow = (self.came_from(outcome.process, outcome.to), outcome.to);
            add(self.more.page_flows.entry(flow).or_default(), outcome.moved);
            if let Some(at) = self.place_of(outcome.process) {
                add(&mut self.processes[at].pages_moved, outcome.moved);
                add(&mut self.group(at).pages_moved, outcome.moved);
                let kept = self.fold.processes.entry(outcome.process).or_default();
                add(&mut kept.pages_moved, outcome.moved);
            }
        }
        self.refused(tick.refusals.iter().map(|refusal| refusal.guard));
    }

    /// Where pages that went to a node came from: the only other node with memory, or the only one
    /// that the process was last seen to have pages on; else it cannot be told.
    fn came_from(&self, process: ProcessId, to: NodeId) -> Option<NodeId> {
        fn only(mut nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
            let first = nodes.next()?;
            nodes.next().is_none().then_some(first)
        }
        let dealt = self.fold.dealt.as_ref()?;
        let others = dealt.with_memory.iter().map(|&place| dealt.ids[place]);
        let has_pages = || {
            let pages = self.process(process)?.pages_on.as_ref()?;
            let other = pages.iter().filter(|&&(node, n)| node != to && n > 0);
            only(other.map(|&(node, _)| node))
        };
        only(others.filter(|&node| node != to)).or_else(has_pages)
    }

    fn refused(&mut self, guards: impl Iterator<Item = Guard>) {
        for guard in guards {
            self.totals.refused(guard);
        }
    }

    fn place_of(&self, process: ProcessId) -> Option<usize> {
        let processes = &self.processes;
        processes.binary_search_by_key(&process, |p| p.id).ok()
    }

    /// The sums of the group of the process at this place; groups beyond what there is room for are
    /// one.
    fn group(&mut self, at: usize) -> &mut GroupSums {
        let groups = &mut self.more.groups;
        let name = self.processes[at].group.as_deref().map_or(NO_GROUP, cut);
        let is_room = groups.len() < MOST_GROUPS || groups.contains_key(name);
        let name = if is_room { name } else { OTHER_GROUPS };
        if !groups.contains_key(name) {
            groups.insert(name.to_owned(), GroupSums::default());
        }
        groups.get_mut(name).expect("it was put there just now")
    }

    /// Takes in what was asked of the loop, and what holds since.
    fn asked(&mut self, time_ns: u64, controlled: &Controlled) {
        let word = match controlled.asked {
            Asked::Pause { .. } => "pause",
            Asked::Resume => "resume",
            Asked::Change { .. } => "change",
        };
        let is_done = controlled.refused.is_none();
        add(self.more.requests.entry((word, is_done)).or_default(), 1);
        self.say(time_ns, &crate::controlled::sentence(controlled));
        let changed = controlled.changed();
        if let Some(paused) = changed.paused {
            self.paused = paused;
        }
        if let Some(policy) = changed.policy {
            cut(policy).clone_into(&mut self.policy);
        }
        if let Some(settings) = changed.settings {
            self.used(settings);
            // The interval that is under way had the cadence of before.
            self.fold.is_unbroken = false;
        }
    }

    fn noticed(&mut self, time_ns: u64, text: &str) {
        add(&mut self.more.notices, 1);
        self.more.ledger_ended |= text.ends_with(LEDGER_ENDED);
        self.say(time_ns, text);
    }

    fn say(&mut self, time_ns: u64, text: &str) {
        if self.notices.len() == MOST_KEPT {
            self.notices.pop_front();
        }
        self.notices.push_back(Said {
            time_ns,
            text: cut(text).to_owned(),
        });
    }
}

/// The sums of a rule; rules beyond what there is room for are one.
fn rule<'a>(rules: &'a mut BTreeMap<String, RuleSums>, name: &str) -> &'a mut RuleSums {
    let name = cut(name);
    let is_room = rules.len() < MOST_RULES || rules.contains_key(name);
    let name = if is_room { name } else { OTHER_RULES };
    if !rules.contains_key(name) {
        rules.insert(name.to_owned(), RuleSums::default());
    }
    rules.get_mut(name).expect("it was put there just now")
}

fn class(work: &Work) -> Option<Class> {
    work.miss_rate().map(|rate| ClassRule::PAPER.class_of(rate))
}

fn per_second(sum: f64, interval_ns: u64) -> Option<f64> {
    (interval_ns > 0).then(|| sum * 1e9 / interval_ns as f64)
}

/// A share of a ledger's, which can be anything, as one.
fn share(share: f64) -> f64 {
    if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Writes flows of pages as a list of objects: keys of JSON are strings.
pub(super) fn as_list<S: Serializer>(
    flows: &BTreeMap<(Option<NodeId>, NodeId), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Flow {
        from: Option<NodeId>,
        to: NodeId,
        pages: u64,
    }
    let flows = flows.iter();
    serializer.collect_seq(flows.map(|(&(from, to), &pages)| Flow { from, to, pages }))
}

/// Writes requests as a list of objects.
pub(super) fn requests_as_list<S: Serializer>(
    requests: &BTreeMap<(&'static str, bool), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Requests {
        asked: &'static str,
        done: bool,
        requests: u64,
    }
    let each = requests.iter();
    serializer.collect_seq(each.map(|(&(asked, done), &requests)| Requests {
        asked,
        done,
        requests,
    }))
}
