//! The half of the governor that lets threads move.
//!
//! Input: a snapshot and the placements of a plan. Output: affinity orders, what to write down before they are carried
//! out, and the refusals. [`ThreadGovernor::carried_out`] then takes in what became of the orders; limits count what
//! was done, not what was wished.
//!
//! Submodules: guards that look only at thread and machine (`guards`), how many may move (`moves`), what is undone
//! (`undo`), what is given to idle nodes (`steal`), what was done (`outcomes`), what a person should know (`notices`).

mod guards;
mod moves;
mod notices;
mod outcomes;
mod steal;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, DomainId, Topology};
use numaherd_world::{
    AffinityOrder, Bounds, Enforcement, Placement, Plan, ProcessId, Release, Snapshot, Thread,
    ThreadId,
};

use super::bounce::{BounceLimit, Bounces};
use super::ownership::{Held, Holdings, Judged, MachineCpus, Owner, all_cpus, is_first};
use super::worse::Judge;
use super::{Guard, Objection, Refusal, Stolen, Undone, Verdict, shown, unless};
use crate::settings::{AffinityScope, Limits};
use guards::{
    affinity_is_not_foreign, allowed, is_a_change, is_online, known_cpu, known_thread,
    may_be_touched, not_named_twice, reach, within_cpuset, within_limits, within_own_affinity,
};

use moves::Moves;
pub use outcomes::Done;
use steal::Places;

/// Why an affinity is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The placement at this index of the plan's entries.
    Placement(usize),
    /// A move that made things worse is undone.
    Undo,
    /// A thread that waits where it is held is given to an idle node.
    Steal,
    /// The release at this index of the plan's entries gives the thread back.
    Release(usize),
    /// The entry at this index takes the thread back to where it was found, as a request asked.
    Return(usize),
    /// The thread is no longer among those to be steered, or herding ends.
    GiveBack,
}

/// An affinity order, with what the governor must remember of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The order.
    pub order: AffinityOrder,
    /// Why.
    pub cause: Cause,
    /// What is held of the thread once this is done.
    pub held: Held,
    /// The core that it had been given before.
    pub assigned_before: Option<CpuId>,
    /// Where the thread was, for policies; `None` when it was not in the snapshot.
    pub from: Option<CpuId>,
    /// Whether it must leave the CPU that it last ran on.
    pub leaves: bool,
}

/// What came of the placements of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Governed {
    /// What to carry out.
    pub changes: Vec<Change>,
    /// What was refused.
    pub refusals: Vec<Refusal>,
    /// Moves that are undone; their orders are among `changes`.
    pub undone: Vec<Undone>,
    /// Threads that are given to idle nodes; their orders are among `changes`.
    pub stolen: Vec<Stolen>,
    /// Threads that were started with a mask of ours, to be written down as ours.
    pub adopted: Vec<(ThreadId, Held)>,
    /// Threads to give back although the snapshot showed no mask of ours: their cpuset may just have changed, or the
    /// snapshot may have seen the mask before that.
    pub doubted: BTreeSet<ThreadId>,
    /// Threads that were to be given back, but whose mask someone else has changed.
    pub left_alone: Vec<ThreadId>,
    /// What a person should know; each sentence is given once.
    pub notices: Vec<String>,
}

impl Change {
    /// The index in the plan of the entry that asked for it, if any.
    pub fn entry(&self) -> Option<usize> {
        match self.cause {
            Cause::Placement(entry) | Cause::Release(entry) | Cause::Return(entry) => Some(entry),
            Cause::Undo | Cause::Steal | Cause::GiveBack => None,
        }
    }

    /// Whether it counts as a move: the thread must leave its CPU, and is not being given back.
    pub fn is_move(&self) -> bool {
        self.leaves && !matches!(self.cause, Cause::GiveBack | Cause::Release(_))
    }
}

impl Governed {
    /// Adds the result of an entry of the plan.
    fn take(&mut self, entry: usize, thread: ThreadId, change: Result<Change, Objection>) {
        match change {
            Ok(change) => self.changes.push(change),
            Err((guard, why)) => self.refusals.push(Refusal {
                entry: Some(entry),
                thread,
                guard,
                why,
            }),
        }
    }

    /// The orders of the changes, in their order.
    pub fn orders(&self) -> Vec<AffinityOrder> {
        self.changes.iter().map(|c| c.order.clone()).collect()
    }
}

/// Lets threads move, within the limits.
#[derive(Debug)]
pub struct ThreadGovernor {
    limits: Limits,
    topology: Arc<Topology>,
    all: Arc<CpuSet>,
    masks: BTreeMap<(CpuId, AffinityScope), Arc<CpuSet>>,
    holdings: Holdings,
    /// The last search for heirs.
    search: Judged,
    moves: Moves,
    bounces: Bounces<ThreadId, DomainId>,
    judge: Option<Judge>,
    frozen_until_ns: BTreeMap<ThreadId, u64>,
    places: Option<Places>,
    said: BTreeSet<(ProcessId, &'static str)>,
}

/// One pass over a plan.
struct Pass<'a> {
    snapshot: &'a Snapshot,
    ordered: BTreeSet<ThreadId>,
}

impl ThreadGovernor {
    /// A governor that has let nothing through yet.
    pub fn new(limits: &Limits, topology: &Arc<Topology>) -> Self {
        Self {
            limits: limits.clone(),
            topology: topology.clone(),
            all: all_cpus(topology),
            masks: BTreeMap::new(),
            holdings: Holdings::default(),
            search: Judged::default(),
            moves: Moves::new(limits),
            bounces: Bounces::new(bounce_limit(limits)),
            judge: limits.worse.undo.then(|| Judge::new(limits.worse)),
            frozen_until_ns: BTreeMap::new(),
            places: Places::of(limits, topology),
            said: BTreeSet::new(),
        }
    }

    /// Sets how placements are carried out; by masks unless told otherwise.
    pub fn enforced(mut self, enforcement: Enforcement) -> Self {
        self.holdings = Holdings::new(enforcement);
        self
    }

    /// The threads that have a mask or hint of ours.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Adds heirs that were not found in a snapshot. If the search was not complete, the next one may still find heirs
    /// of processes that have ended.
    pub(crate) fn adopt(&mut self, heirs: Vec<(ThreadId, Held)>, search: Judged) {
        self.search = search;
        for (thread, held) in heirs {
            self.holdings.hold(thread, held);
        }
    }

    /// Notes that a thread may have a mask of ours although setting it failed.
    pub(crate) fn may_hold(&mut self, thread: ThreadId, held: Held) {
        self.holdings.hold(thread, held);
    }

    /// Sets other limits. Threads stay held, and nothing that limits count is forgotten: budgets are not refilled, and
    /// what went to and fro stays frozen.
    pub fn set_limits(&mut self, limits: &Limits) {
        let before = std::mem::replace(&mut self.limits, limits.clone());
        self.masks.clear();
        self.moves.set(limits);
        self.bounces.set_limit(bounce_limit(limits));
        if before.worse != limits.worse {
            let judged = self.judge.take().map(Judge::into_judged);
            self.judge = (limits.worse.undo)
                .then(|| Judge::with_judged(limits.worse, judged.unwrap_or_default()));
        }
        if (before.steal, before.scope, before.groups)
            != (limits.steal, limits.scope, limits.groups.clone())
        {
            self.places = Places::of(limits, &self.topology);
        }
    }

    /// Takes in an interval in which nothing is decided. Returns the threads that were started with a mask of ours, to
    /// be written down.
    pub fn watch(&mut self, snapshot: &Snapshot) -> Vec<(ThreadId, Held)> {
        self.forget_the_gone(snapshot);
        let adopted = self.holdings.adopt(snapshot, &self.search);
        self.forget_processes(snapshot);
        adopted
    }

    /// Notes that decisions go on after a break: what was measured before it no longer tells anything.
    pub fn resume(&mut self) {
        if let Some(judge) = &mut self.judge {
            judge.forget_speeds();
        }
        self.places = Places::of(&self.limits, &self.topology);
    }

    /// Turns each placement and release of a plan into a change or a refusal. Entries are numbered consecutively,
    /// placements first.
    pub fn govern(&mut self, snapshot: &Snapshot, plan: &Plan) -> Governed {
        self.forget_the_gone(snapshot);
        self.moves.begin(snapshot);
        let mut governed = Governed {
            adopted: self.holdings.adopt(snapshot, &self.search),
            changes: self.leavers(snapshot),
            ..Governed::default()
        };
        // Only now: a process that left its mask to a child may have ended.
        self.forget_processes(snapshot);
        self.name_the_confined(snapshot, &mut governed.notices);
        let mut pass = Pass {
            snapshot,
            ordered: BTreeSet::new(),
        };
        self.undo_what_worsened(&mut pass, &mut governed);
        for (entry, placement) in plan.placements.iter().enumerate() {
            let change = self.check(&mut pass, entry, placement);
            if let Err((guard, why)) = &change {
                self.name_the_reason(&pass, placement, *guard, why, &mut governed.notices);
            }
            governed.take(entry, placement.thread, change);
        }
        for (entry, release) in (plan.placements.len()..).zip(&plan.releases) {
            let change = self.check_release(&mut pass, entry, release);
            governed.take(entry, release.thread, change);
        }
        self.steal(&mut pass, &mut governed);
        governed
    }

    /// Changes that give back every held thread. Those that someone else may have changed since are *doubted*
    /// ([`Self::may_be_changed`]).
    pub fn release(&mut self, snapshot: &Snapshot) -> Governed {
        let mut governed = Governed {
            adopted: self.holdings.adopt(snapshot, &self.search),
            ..Governed::default()
        };
        for (id, held) in self.holdings.iter() {
            let thread = snapshot.thread(id);
            let owner = thread.map(|thread| self.holdings.owner(thread, &snapshot.online));
            // A hint is none of the affinity, whoever has changed that.
            if owner == Some(Owner::Other) && self.holdings.are_masks() {
                governed.doubted.insert(id);
            }
            governed.changes.push(give_back(id, held, thread));
        }
        // The first thread goes last: one that takes its place has then been given back.
        governed
            .changes
            .sort_by_key(|change| is_first(change.order.thread, change.held.process));
        governed
    }

    /// Gives heirs back what they are due, as soon as they are found.
    pub(crate) fn free(&mut self, heirs: Vec<(ThreadId, Held)>) -> Governed {
        for (thread, held) in &heirs {
            self.holdings.hold(*thread, held.clone());
        }
        let changes = heirs.iter();
        Governed {
            changes: changes
                .map(|(id, held)| give_back(*id, held, None))
                .collect(),
            adopted: heirs,
            ..Governed::default()
        }
    }

    /// Changes that take held threads back to the CPUs on which they were `found`, and their plan. They come before a
    /// giving back: each mask is that one CPU, and they count against no limit of moves, since no policy asked for
    /// them.
    pub fn take_back(
        &self,
        snapshot: &Snapshot,
        found: &BTreeMap<ThreadId, CpuId>,
    ) -> (Plan, Governed) {
        let (mut plan, mut governed) = (Plan::default(), Governed::default());
        for (id, held) in self.holdings.iter() {
            let (Some(thread), Some(&to)) = (snapshot.thread(id), found.get(&id)) else {
                continue;
            };
            let is_ours = self.holdings.holds(thread, &snapshot.online);
            let may_be_there =
                allowed(thread, &snapshot.online, None).contains(to) && held.back.contains(to);
            if thread.cpu == to || !is_ours || !may_be_there || thread.unmanaged.is_some() {
                continue;
            }
            let (cause, mask) = (
                Cause::Return(plan.placements.len()),
                CpuSet::from_iter([to]),
            );
            let change = self.change(snapshot, thread, Some(to), Arc::new(mask), cause);
            governed.changes.push(change);
            plan.placements.push(Placement {
                thread: id,
                from: thread.place(),
                to,
                rule: "trial: take back".into(),
                why: format!("it was on CPU {to} when decisions began, and is given back there"),
                instead_of: String::new(),
            });
        }
        (plan, governed)
    }

    /// The threads to be given back that are no longer in the snapshot, or are doubted: someone else may have changed
    /// their masks since.
    pub fn may_be_changed(&self, governed: &Governed) -> BTreeSet<ThreadId> {
        let may_be = |change: &&Change| {
            let unseen = change.cause == Cause::GiveBack && change.from.is_none();
            let is_doubted = governed.doubted.contains(&change.order.thread);
            unseen && self.holdings.are_masks() || is_doubted
        };
        let changes = governed.changes.iter().filter(may_be);
        changes.map(|change| change.order.thread).collect()
    }

    /// Whether a held thread with these bounds `now` has a mask that we did not set.
    pub fn is_changed(&self, thread: ThreadId, now: &Bounds) -> bool {
        let held = self.holdings.get(thread);
        let is_ours = |held| self.holdings.is_ours(thread, held, |mask| now.is(mask));
        held.is_some_and(|held| !is_ours(held))
    }

    /// Removes the threads that someone else has `changed` from the changes. They are forgotten and named in
    /// `left_alone`.
    pub fn leave_alone(&mut self, governed: &mut Governed, changed: &BTreeSet<ThreadId>) {
        governed.doubted.clear();
        let is_changed = |change: &mut Change| changed.contains(&change.order.thread);
        let changed: Vec<Change> = governed.changes.extract_if(.., is_changed).collect();
        for change in changed {
            let id = change.order.thread;
            self.holdings.drop_thread(id);
            governed.left_alone.push(id);
            governed.notices.push(changed_since(id, &change.held));
        }
    }

    /// The guards, in their order.
    fn check(
        &mut self,
        pass: &mut Pass<'_>,
        entry: usize,
        placement: &Placement,
    ) -> Result<Change, Objection> {
        let (snapshot, to) = (pass.snapshot, placement.to);
        let thread = known_thread(snapshot, placement.thread)?;
        not_named_twice(&pass.ordered, thread)?;
        may_be_touched(thread)?;
        let owner = self.holdings.owner(thread, &snapshot.online);
        if !self.limits.take_over {
            affinity_is_not_foreign(thread, owner)?;
        }
        let domain = known_cpu(&self.topology, to)?;
        is_online(&snapshot.online, to)?;
        within_cpuset(thread, to)?;
        within_limits(self.limits.cpus.as_ref(), to)?;
        let mask = self.mask(snapshot, thread, to);
        match self.holdings.are_masks() {
            true => is_a_change(thread, to, &mask)?,
            false => {
                within_own_affinity(thread, to)?;
                is_a_change(thread, to, &thread.affinity)?;
            }
        }
        self.is_not_frozen(thread, snapshot.time_ns)?;
        let from = self.topology.cpu(thread.place()).map(|cpu| cpu.domain);
        if let Some(from) = from.filter(|&from| from != domain) {
            self.does_not_bounce(snapshot, thread, from, domain)?;
        }
        let leaves = !mask.contains(thread.cpu);
        if leaves {
            self.moves.take(snapshot, thread)?;
        }
        pass.ordered.insert(thread.id);
        Ok(self.change(snapshot, thread, Some(to), mask, Cause::Placement(entry)))
    }

    /// The guards of a release: a thread in the snapshot that has a mask of ours, named once.
    fn check_release(
        &self,
        pass: &mut Pass<'_>,
        entry: usize,
        release: &Release,
    ) -> Result<Change, Objection> {
        let thread = known_thread(pass.snapshot, release.thread)?;
        not_named_twice(&pass.ordered, thread)?;
        may_be_touched(thread)?;
        let held = self.holdings.get(thread.id).ok_or_else(|| {
            let why = "it has no core to give back".to_owned();
            (Guard::Unchanged, why)
        })?;
        let owner = self.holdings.owner(thread, &pass.snapshot.online);
        affinity_is_not_foreign(thread, owner)?;
        pass.ordered.insert(thread.id);
        Ok(Change {
            cause: Cause::Release(entry),
            ..give_back(thread.id, held, Some(thread))
        })
    }

    fn change(
        &self,
        snapshot: &Snapshot,
        thread: &Thread,
        core: Option<CpuId>,
        mask: Arc<CpuSet>,
        cause: Cause,
    ) -> Change {
        let machine = MachineCpus {
            online: &snapshot.online,
            all: self.all.clone(),
        };
        Change {
            leaves: !mask.contains(thread.cpu),
            held: self.holdings.to_be_held(thread, mask.clone(), &machine),
            order: AffinityOrder {
                thread: thread.id,
                core,
                cpus: mask,
            },
            cause,
            assigned_before: thread.assigned,
            from: Some(thread.place()),
        }
    }

    /// The CPUs that a thread gets with a core: its affinity scope, restricted to what it may use.
    fn mask(&mut self, snapshot: &Snapshot, thread: &Thread, to: CpuId) -> Arc<CpuSet> {
        let scope = self.limits.scope_of(group_of(snapshot, thread));
        let topology = &self.topology;
        let reach = self
            .masks
            .entry((to, scope))
            .or_insert_with(|| Arc::new(reach(topology, scope, to)));
        let allowed = allowed(thread, &snapshot.online, self.limits.cpus.as_ref());
        let mask = reach.intersection(&allowed);
        // Most threads share masks; one allocation per mask is enough.
        if mask == **reach {
            reach.clone()
        } else {
            Arc::new(mask)
        }
    }

    fn is_not_frozen(&self, thread: &Thread, now_ns: u64) -> Verdict {
        let until = self.frozen_until_ns.get(&thread.id).copied().unwrap_or(0);
        unless(now_ns >= until, Guard::Worse, || {
            format!(
                "its last move made things worse and was undone; it stays for another {:.0} s",
                seconds(until - now_ns)
            )
        })
    }

    fn does_not_bounce(
        &mut self,
        snapshot: &Snapshot,
        thread: &Thread,
        from: DomainId,
        to: DomainId,
    ) -> Verdict {
        let window = self.limits.bounce_window_s;
        let freeze = self.limits.freeze_s;
        let limit = self.limits.thread_bounces_of(group_of(snapshot, thread));
        self.bounces
            .may_move_within(limit as usize, thread.id, from, to, snapshot.time_ns)
            .map_err(|times| {
                let why = match times {
                    Some(times) => format!(
                        "it went between memory domains {from} and {to} {times} times within \
                         {window} s; it stays for {freeze} s"
                    ),
                    None => format!("it is frozen for {freeze} s because it went to and fro"),
                };
                (Guard::Bounce, why)
            })
    }

    /// Held threads that are no longer to be steered: they are no longer seen (they ended or left the selection), or
    /// must be left alone now (their group has lost its policy). They are given back while we still know their
    /// affinities.
    fn leavers(&self, snapshot: &Snapshot) -> Vec<Change> {
        let leaves = |thread: &Thread| {
            let ours = self.holdings.holds(thread, &snapshot.online);
            thread.unmanaged.is_some() && ours
        };
        self.holdings
            .iter()
            .map(|(id, held)| (id, held, snapshot.thread(id)))
            .filter(|(.., thread)| thread.is_none_or(leaves))
            .map(|(id, held, thread)| give_back(id, held, thread))
            .collect()
    }

    /// Forgets what was set in processes that have ended, unless heirs of theirs may have been missed.
    fn forget_processes(&mut self, snapshot: &Snapshot) {
        if self.search.is_complete {
            self.holdings.keep_processes(snapshot);
        }
    }

    fn forget_the_gone(&mut self, snapshot: &Snapshot) {
        let there = |thread| snapshot.thread(thread).is_some();
        self.bounces.keep(snapshot.time_ns, there);
        self.frozen_until_ns
            .retain(|&thread, &mut until| there(thread) && until > snapshot.time_ns);
        self.said
            .retain(|&(process, _)| snapshot.process(process).is_some());
    }
}

fn group_of<'s>(snapshot: &'s Snapshot, thread: &Thread) -> Option<&'s str> {
    snapshot.process(thread.process)?.group.as_deref()
}

fn bounce_limit(limits: &Limits) -> BounceLimit {
    BounceLimit {
        limit: limits.thread_bounces() as usize,
        window_ns: nanoseconds(limits.bounce_window_s),
        freeze_ns: nanoseconds(limits.freeze_s),
    }
}

fn changed_since(id: ThreadId, held: &Held) -> String {
    format!(
        "someone else has changed the affinity of {} in the meantime; it is left unchanged",
        shown(id, held.process, &held.name)
    )
}

fn give_back(id: ThreadId, held: &Held, thread: Option<&Thread>) -> Change {
    Change {
        order: AffinityOrder {
            thread: id,
            core: None,
            cpus: held.back.clone(),
        },
        cause: Cause::GiveBack,
        held: held.clone(),
        assigned_before: thread.and_then(|thread| thread.assigned),
        from: thread.map(Thread::place),
        leaves: thread.is_some_and(|thread| !held.back.contains(thread.cpu)),
    }
}

/// A time in seconds as whole nanoseconds, clamped to the range.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    // A cast from float saturates, and NaN (which the settings' check refuses) becomes 0.
    (seconds * 1e9) as u64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
