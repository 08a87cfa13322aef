//! Carrying out: the journal saves what is about to change, the world changes it; governor, journal and summary take in
//! the outcome. Likewise for giving back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_world::{
    AffinityOutcome, AffinityResult, Bound, Effort, Orders, Outcome, Snapshot, ThreadId,
};

use super::Running;
use crate::governor::ownership::{Held, Judged};
use crate::governor::{Governed, Guard, Refusal, ThreadChange, Verdict};
use crate::heirs;
use crate::journal::{SavedAffinity, within_reach};
use crate::ledger::{Placing, Record};

/// A notice follows after so many passes without an end.
const MANY_PASSES: u32 = 5;

impl Running<'_> {
    /// Leaves alone what someone else has changed since; the journal then owes it nothing. A thread whose mask cannot
    /// be read is given back.
    fn leave_changed_alone(&mut self, snapshot: &Snapshot, governed: &mut Governed) {
        let mut changed = self.governor.may_be_changed(governed);
        for look in 0..heirs::LOOKS {
            if look > 0 && !changed.is_empty() {
                self.world.let_masks_settle();
            }
            changed.retain(|&thread| {
                let now = self.world.bounds_of(thread);
                now.is_some_and(|now| self.governor.is_changed(thread, &now))
            });
        }
        self.governor.leave_alone(governed, &changed);
        self.settling.extend(&governed.left_alone);
        self.keep_within_reach(snapshot, governed);
    }

    /// Gives back only masks that the kernel does not refuse.
    fn keep_within_reach(&mut self, snapshot: &Snapshot, governed: &mut Governed) {
        // A whole mask is never refused.
        let may_be_refused = |change: &&mut ThreadChange| {
            !numaherd_world::is_whole(&change.order.cpus, &snapshot.online)
        };
        let given_back = governed
            .changes
            .iter_mut()
            .filter(|change| change.order.core.is_none());
        for change in given_back.filter(may_be_refused) {
            if let Some(now) = self.world.bounds_of(change.order.thread) {
                change.order.cpus = Arc::new(within_reach(&change.order.cpus, &now.cpus));
            }
        }
    }

    /// Has the changes carried out, once the journal says how threads were found. A dry run changes nothing; but
    /// threads may still be held from before it became one, and the threads they start are held too.
    pub(super) fn carry_out(&mut self, snapshot: &Snapshot, governed: &mut Governed) -> Outcome {
        self.leave_changed_alone(snapshot, governed);
        self.write_down_adopted(&governed.adopted);
        if self.settings.dry_run {
            return Outcome::default();
        }
        self.write_down(snapshot, governed);
        if governed.changes.is_empty() {
            return Outcome::default();
        }
        self.apply(snapshot, governed).0
    }

    /// Has the world carry orders out; returns the outcomes, and how many threads need not be given back any more.
    fn apply(&mut self, snapshot: &Snapshot, governed: &Governed) -> (Outcome, u64) {
        let orders = Orders {
            affinities: governed.orders(),
            pages: Vec::new(),
        };
        let outcome = self.world.apply(&orders);
        let settled = self.note(snapshot.time_ns, &governed.changes, &outcome.affinities);
        (outcome, settled)
    }

    /// Saves in the journal what is about to change; refuses what cannot be saved.
    fn write_down(&mut self, snapshot: &Snapshot, governed: &mut Governed) {
        if !self.governor.holdings().are_masks() {
            // Hints end with their scheduler, and nobody inherits them.
            return;
        }
        if self.journal.is_some() {
            let check = |change: &ThreadChange| self.is_as_observed(snapshot, change.order.thread);
            refuse_placements(governed, check);
        }
        self.note_descent(&mut governed.changes);
        let Some(journal) = &mut self.journal else {
            return;
        };
        let placed = governed
            .changes
            .iter()
            .filter(|change| change.order.core.is_some());
        let placed = placed.map(|change| SavedAffinity::of(change.order.thread, &change.held));
        let Err(error) = journal.record(&placed.collect::<Vec<_>>()) else {
            return;
        };
        self.record.notice(format!(
            "threads are not moved, because their original affinities cannot be saved: {error}"
        ));
        refuse_placements(governed, |_| Err((Guard::Journal, error.to_string())));
    }

    /// The last check before a thread is written down: most threads that live for milliseconds have ended by now, and a
    /// user may have chosen another affinity.
    fn is_as_observed(&self, snapshot: &Snapshot, thread: ThreadId) -> Verdict {
        let observed = snapshot.thread(thread).map(|thread| &*thread.affinity);
        match self.world.affinity_of(thread) {
            None => {
                let why = "it has ended since it was observed".to_owned();
                Err((Guard::UnknownThread, why))
            }
            Some(now) if observed.is_some_and(|observed| now != *observed) => {
                let why =
                    format!("its affinity has changed since it was observed (it is {now} now)");
                Err((Guard::ForeignAffinity, why))
            }
            Some(_) => Ok(()),
        }
    }

    /// Notes what will identify the heirs of threads that are about to be placed.
    fn note_descent(&self, changes: &mut [ThreadChange]) {
        let now = self.world.births_now();
        let mut kin = BTreeMap::new();
        for change in changes.iter_mut().filter(|c| c.order.core.is_some()) {
            let process = change.held.process;
            let kin = kin.entry(process);
            let kin = kin.or_insert_with(|| Arc::new(self.world.kinship(process)));
            change.held.kin = kin.clone();
            change.held.since = now;
        }
    }

    /// The outcomes of orders, as the governor is to see them. A mask that the kernel has narrowed to the thread's
    /// cpuset counts as the one ordered: the kernel keeps that, and sets it when the cpuset is widened.
    fn explained<'o>(
        &mut self,
        changes: &[ThreadChange],
        outcomes: &'o [AffinityOutcome],
    ) -> Cow<'o, [AffinityOutcome]> {
        let mut outcomes = Cow::Borrowed(outcomes);
        for (at, change) in changes.iter().enumerate() {
            let order = &change.order;
            let is_narrowed = |outcome: &AffinityOutcome| {
                matches!(outcome.result, AffinityResult::Narrowed { .. })
            };
            if outcomes.get(at).is_some_and(is_narrowed)
                && let Some(now) = self.world.bounds_of(order.thread)
                && now.is(&order.cpus)
            {
                outcomes.to_mut()[at].result = AffinityResult::Done;
            }
        }
        outcomes
    }

    /// Tells governor, journal and summary the outcomes.
    fn note(&mut self, now_ns: u64, changes: &[ThreadChange], outcomes: &[AffinityOutcome]) -> u64 {
        let outcomes = self.explained(changes, outcomes);
        let done = self.governor.carried_out(now_ns, changes, &outcomes);
        let totals = &mut self.record.summary.totals;
        totals.thread_moves += done.moves;
        totals.undone += done.undone;
        totals.stolen += done.stolen;
        for notice in done.notices {
            self.record.notice(notice);
        }
        // What was never set is not owed, and has no heirs. What may have been is given back.
        let mut never_set = Vec::new();
        for (thread, held) in done.failed {
            match self.world.bounds_of(thread) {
                Some(now) if now.is(&held.mask) => self.governor.may_hold(thread, held),
                _ => never_set.push(thread),
            }
        }
        if let Some(journal) = &mut self.journal {
            let narrowed: Vec<SavedAffinity> = entries(&done.narrowed).collect();
            let written = journal.record(&narrowed);
            if let Err(error) = written.and_then(|()| journal.settle(&never_set)) {
                self.record.notice(error.to_string());
            }
        }
        self.settling.extend(&done.settled);
        done.settled.len() as u64
    }

    /// Saves in the journal that threads were started with a mask of ours, or took another thread's place with its
    /// mask. Only then may the journal drop that other thread's entries.
    pub(super) fn write_down_adopted(&mut self, adopted: &[(ThreadId, Held)]) {
        let Some(journal) = &mut self.journal else {
            self.settled.clear();
            return;
        };
        let entries: Vec<SavedAffinity> = entries(adopted).collect();
        let written = match journal.record(&entries) {
            Ok(()) => journal.settle(&std::mem::take(&mut self.settled)),
            failed => failed,
        };
        if let Err(error) = written {
            self.record.notice(error.to_string());
        }
    }

    /// Gives back every thread that still has a mask of ours, at the end of a run.
    pub(super) fn give_back_at_the_end(&mut self) {
        self.give_back_last();
        self.write_down_adopted(&[]);
    }

    fn give_back_last(&mut self) {
        let holdings = self.governor.holdings();
        if holdings.donors().is_empty() && holdings.iter().next().is_none() {
            // What ended just before it was to be placed is not owed.
            self.find_heirs(Effort::Quick);
            return;
        }
        // Masks may have changed since the last interval; if the world can no longer be observed, the last snapshot
        // must do. What is observed now is no interval and is not recorded.
        let fresh = self.world.observe().ok().map(Arc::new);
        if let Some(snapshot) = fresh.or_else(|| self.last.clone()) {
            self.give_back_all(&snapshot, Effort::Thorough);
        }
    }

    /// Takes in the heirs of threads that we placed, anywhere on the machine; they are given back with the threads that
    /// have left the selection. Returns whether there are none. After a complete search, the journal no longer needs
    /// the threads given back before, nor the governor what was set in processes that have ended.
    pub(super) fn find_heirs(&mut self, effort: Effort) -> bool {
        let holdings = self.governor.holdings();
        let donors = holdings.donors();
        let (mut found, mut judged) = (Vec::new(), Judged::default());
        if !donors.is_empty() {
            let (masks, since) = (heirs::masks(&donors), heirs::since(&donors));
            let search = self.world.bound_to(&masks, since, effort);
            let there: BTreeSet<ThreadId> = search.found.iter().map(|bound| bound.thread).collect();
            self.done_with.extend(&self.settling);
            self.done_with.retain(|thread| there.contains(thread));
            found = self.heirs(&donors, search.found);
            judged = Judged {
                is_complete: search.is_complete,
                since,
                found: there,
            };
        }
        self.write_down_adopted(&found);
        let is_complete = judged.is_complete;
        if is_complete {
            self.settled.append(&mut self.settling);
        }
        let are_none = is_complete && found.is_empty();
        self.governor.adopt(found, judged);
        are_none
    }

    /// The heirs of these donors among threads with masks like ours, as far as they are not known yet.
    pub(super) fn heirs(&self, donors: &[Held], mut bound: Vec<Bound>) -> Vec<(ThreadId, Held)> {
        let holdings = self.governor.holdings();
        bound.retain(|Bound { thread, .. }| {
            let is_known = holdings.get(*thread).is_some() || holdings.has_seen(*thread);
            let is_over = self.done_with.contains(thread) || self.refused.contains(thread);
            !is_known && !is_over
        });
        heirs::heirs(donors, bound)
    }

    /// Gives back every thread that has a mask of ours, then their heirs, until none is found; returns how many got
    /// theirs back.
    pub(super) fn give_back_all(&mut self, snapshot: &Snapshot, mut effort: Effort) -> u64 {
        let begun = self.world.now();
        let mut given_back = 0;
        let mut passes = 0;
        loop {
            // One pass may take long on a busy machine: one always begins after the last giving back.
            let is_last = self.world.now() - begun >= heirs::LONGEST;
            let are_none = self.find_heirs(effort);
            if are_none && self.governor.holdings().iter().next().is_none() {
                break;
            }
            let governed = self.governor.release(snapshot);
            let (number, refused) = self.give_back(snapshot, governed);
            given_back += number;
            *self.record.summary.totals.restored.get_or_insert(0) += number;
            self.refused.extend(refused);
            if is_last {
                self.record.notice(heirs::still_started(given_back));
                break;
            }
            effort = Effort::Thorough;
            passes += 1;
            if passes == MANY_PASSES {
                self.record.notice(heirs::waiting());
            }
        }
        self.refused.clear();
        given_back
    }

    /// Gives threads back; returns how many got theirs back, and those to which the kernel refused it.
    pub(super) fn give_back(
        &mut self,
        snapshot: &Snapshot,
        mut governed: Governed,
    ) -> (u64, Vec<ThreadId>) {
        self.write_down_adopted(&governed.adopted);
        self.leave_changed_alone(snapshot, &mut governed);
        for notice in &governed.notices {
            self.record.notice(notice.clone());
        }
        if governed.changes.is_empty() {
            return (0, Vec::new());
        }
        let (outcome, given_back) = self.apply(snapshot, &governed);
        let refused = outcome.affinities.iter().filter(|outcome| {
            let result = &outcome.result;
            matches!(result, AffinityResult::Failed { .. })
        });
        let refused = refused.map(|outcome| outcome.thread).collect();
        let recorded = self.record.last_recorded();
        self.record.add(|| {
            Record::Placing(Placing {
                snapshot: recorded,
                affinities: governed.orders(),
                carried_out: true,
                ..Placing::default()
            })
        });
        self.record.add(|| Record::Outcome(outcome));
        (given_back, refused)
    }
}

/// Refuses to give a core to threads that fail this check.
fn refuse_placements(governed: &mut Governed, check: impl Fn(&ThreadChange) -> Verdict) {
    let Governed {
        changes, refusals, ..
    } = governed;
    changes.retain(|change| {
        let Err((guard, why)) = change.order.core.map_or(Ok(()), |_| check(change)) else {
            return true;
        };
        refusals.push(Refusal {
            entry: change.entry(),
            thread: change.order.thread,
            guard,
            why,
        });
        false
    });
    let kept: BTreeSet<ThreadId> = changes.iter().map(|c| c.order.thread).collect();
    governed.undone.retain(|undo| kept.contains(&undo.thread));
    governed.stolen.retain(|steal| kept.contains(&steal.thread));
}

/// The journal's entries of threads with masks of ours.
fn entries(held: &[(ThreadId, Held)]) -> impl Iterator<Item = SavedAffinity> {
    held.iter()
        .map(|(thread, held)| SavedAffinity::of(*thread, held))
}
