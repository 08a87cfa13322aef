//! Gives back what an instance left that could not do it itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, Bounds, ProcessId, Search, ThreadId};

use super::{Journal, Owed, SavedAffinity, owe};
use crate::error::HerdError;
use crate::governor::ownership::{Held, is_first};
use crate::heirs::{LONGEST, LOOKS, heirs, masks, since, still_started};

/// The affinities of a machine's threads.
pub trait Affinities {
    /// What a thread of that number and birth may use now; `None` when there is none any more.
    ///
    /// # Errors
    /// It cannot be read: a sentence with what was tried, why it failed, what to do.
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String>;

    /// The threads of the whole machine that were born at `since` or later, in clock ticks since boot, and have
    /// one of these masks, or what the kernel has left of one.
    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search;

    /// Sets one.
    fn set(&mut self, order: &AffinityOrder) -> AffinityResult;

    /// Lets some time pass in which the kernel sets masks anew whose cpuset has just changed.
    fn let_masks_settle(&mut self) {}

    /// Now on a clock that does not jump, by which the search for heirs is bounded.
    fn now(&self) -> Duration;
}

/// What became of the threads of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Given back.
    pub restored: Vec<ThreadId>,
    /// How many of these stood in no journal: heirs.
    pub heirs: u64,
    /// Had already what was found.
    pub as_found: Vec<ThreadId>,
    /// Ended meanwhile.
    pub gone: u64,
    /// Left alone because someone else has changed the mask since; thread, name, mask.
    pub left_alone: Vec<(ThreadId, String, CpuSet)>,
    /// Could not be given back; thread, name, error. They stay in the journal.
    pub failed: Vec<(ThreadId, String, String)>,
    /// What is wrong with the journal: a sentence each.
    pub problems: Vec<String>,
    /// What else is to be said.
    pub messages: Vec<String>,
}

impl Journal {
    /// Gives back every thread that is owed, by the rules of the [module](super). A journal that cannot be
    /// written keeps nobody bound: that is among the report's problems.
    pub fn restore(&mut self, affinities: &mut dyn Affinities) -> Restored {
        let mut report = Restored {
            problems: self.problems.clone(),
            messages: self.messages.clone(),
            ..Restored::default()
        };
        let mut settled = Vec::new();
        let mut set_in: BTreeMap<ProcessId, Vec<&CpuSet>> = BTreeMap::new();
        for owed in self.owed.values() {
            let set = set_in.entry(owed.entry.process).or_default();
            set.extend(&owed.masks);
        }
        // A thread that takes the place of a process's first one has been given back before it.
        let mut owed: Vec<(&ThreadId, &Owed)> = self.owed.iter().collect();
        owed.sort_by_key(|(thread, owed)| is_first(**thread, owed.entry.process));
        for look in 1..=LOOKS {
            owed.retain(|&(&thread, owed)| {
                let process = owed.entry.process;
                match affinities.bounds_of(thread) {
                    Ok(None) => {
                        report.gone += 1;
                        settled.push(thread);
                    }
                    Ok(Some(now)) => {
                        // Another thread may have taken its place, with its own mask, and an heir any (`ownership`).
                        let is_inherited = owed.entry.since == thread.born;
                        let may_be = |of: &ProcessId| {
                            is_inherited || *of == process && is_first(thread, process)
                        };
                        let others = set_in.iter().filter(|(of, _)| may_be(of));
                        let others = others.flat_map(|(_, masks)| masks.iter().copied());
                        let is_ours = owed.masks.iter().chain(others).any(|mask| now.is(mask));
                        if !is_ours && look < LOOKS {
                            return true;
                        }
                        if give_back(thread, &owed.entry, is_ours, now, affinities, &mut report) {
                            settled.push(thread);
                        }
                    }
                    Err(error) => {
                        let name = owed.entry.name.clone();
                        report.failed.push((thread, name, error));
                    }
                }
                false
            });
            if owed.is_empty() {
                break;
            }
            affinities.let_masks_settle();
        }
        report.restored.sort_unstable();
        if !self.restore_heirs(affinities, &mut settled, &mut report) {
            // Whoever tries again needs to know whose heirs they are.
            return report;
        }
        if let Err(error) = self.settle(&settled) {
            report.problems.push(error.to_string());
        }
        report.problems.dedup();
        report
    }

    /// Gives the heirs of all threads that are owed back, until none is found. Says whether that was so.
    fn restore_heirs(
        &mut self,
        affinities: &mut dyn Affinities,
        settled: &mut Vec<ThreadId>,
        report: &mut Restored,
    ) -> bool {
        let mut donors: Vec<Held> = self.owed.values().flat_map(Owed::held).collect();
        let mut known: BTreeSet<ThreadId> = self.owed.keys().copied().collect();
        let mut unwritten = None;
        let begun = affinities.now();
        while !donors.is_empty() {
            let is_last = affinities.now() - begun >= LONGEST;
            let mut search = affinities.bound_to(&masks(&donors), since(&donors));
            search.found.retain(|bound| !known.contains(&bound.thread));
            let found = heirs(&donors, search.found);
            // Who is none may have been seen while its cpuset changed.
            known.extend(found.iter().map(|(thread, _)| *thread));
            if found.is_empty() && search.is_complete {
                break;
            }
            // Whoever goes on after a kill finds those that they have started by them.
            let entries = found
                .iter()
                .map(|(thread, held)| SavedAffinity::of(*thread, held));
            if let Err(error) = self.record(&entries.collect::<Vec<_>>()) {
                unwritten = Some(error);
            }
            let held_masks = masks(&donors);
            for (thread, held) in found {
                let entry = SavedAffinity::of(thread, &held);
                let before = report.restored.len();
                let is_settled = match affinities.bounds_of(thread) {
                    // Which of several masks it has may not have shown when it was found.
                    Ok(Some(now)) if held_masks.iter().any(|mask| now.is(mask)) => {
                        give_back(thread, &entry, true, now, affinities, report)
                    }
                    Ok(Some(_)) => {
                        // Or it is still to be set anew. If it is ours, it is found again.
                        known.remove(&thread);
                        true
                    }
                    Ok(None) | Err(_) => true,
                };
                report.heirs += (report.restored.len() - before) as u64;
                if is_settled {
                    settled.push(thread);
                } else {
                    settled.retain(|settled| *settled != thread);
                    owe(&mut self.owed, entry);
                }
                donors.push(held);
            }
            if is_last {
                report.problems.push(still_started(report.heirs));
                report
                    .problems
                    .extend(unwritten.map(|error| error.to_string()));
                return false;
            }
        }
        // Where all are back, nobody needs what could not be written.
        let unwritten = unwritten.filter(|_| !report.failed.is_empty());
        report
            .problems
            .extend(unwritten.map(|error| error.to_string()));
        true
    }
}

/// The mask that gives a thread back whose cpuset has these CPUs. The kernel refuses one of which the cpuset has none: then
/// the thread may run anywhere in it, and on the CPUs that it is due once it has them again.
pub(crate) fn within_reach(back: &CpuSet, cpus: &CpuSet) -> CpuSet {
    match back.intersects(cpus) {
        true => back.clone(),
        false => back.iter().chain(cpus.iter()).collect(),
    }
}

/// Gives one thread back, if the mask that it has now is one of ours; returns whether it need not be looked at
/// again.
fn give_back(
    thread: ThreadId,
    entry: &SavedAffinity,
    is_ours: bool,
    now: Bounds,
    affinities: &mut dyn Affinities,
    report: &mut Restored,
) -> bool {
    if !is_ours {
        if now.mask == entry.found || now.is(&entry.back) {
            report.as_found.push(thread);
        } else {
            let name = entry.name.clone();
            report.left_alone.push((thread, name, now.mask));
        }
        return true;
    }
    let order = AffinityOrder {
        thread,
        core: None,
        cpus: Arc::new(within_reach(&entry.back, &now.cpus)),
    };
    match affinities.set(&order) {
        // Narrowed to its cpuset, which is what giving back to the kernel means.
        AffinityResult::Done | AffinityResult::Narrowed { .. } => report.restored.push(thread),
        AffinityResult::Gone => report.gone += 1,
        AffinityResult::Failed { error } => {
            report.failed.push((thread, entry.name.clone(), error));
            return false;
        }
    }
    true
}

/// Opens the journal at `path`, gives back all that is owed and closes it: `release` after a kill. It does so
/// even where nothing can be written.
///
/// # Errors
/// As [`Journal::open`].
pub fn restore(
    path: &Path,
    boot: &str,
    owner: &str,
    affinities: &mut dyn Affinities,
) -> Result<Restored, HerdError> {
    let mut journal = Journal::open_to_restore(path, boot, owner)?;
    let mut report = journal.restore(affinities);
    if let Err(error) = journal.close() {
        report.problems.push(error.to_string());
    }
    report.problems.dedup();
    Ok(report)
}
