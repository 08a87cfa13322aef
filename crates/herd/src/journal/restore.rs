//! Gives back what an instance could not give back itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use numaherd_topology::CpuSet;
use numaherd_world::{Affinities, AffinityOrder, AffinityResult, Bounds, ProcessId, ThreadId};

use super::{Journal, Owed, SavedAffinity, owe};
use crate::error::HerdError;
use crate::governor::ownership::{Held, is_first};
use crate::heirs::{LONGEST, LOOKS, heirs, masks, since, still_started};

/// What became of the threads of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Given back.
    pub restored: Vec<ThreadId>,
    /// How many of these were heirs, in no journal.
    pub heirs: u64,
    /// Had already what was found.
    pub as_found: Vec<ThreadId>,
    /// Ended meanwhile.
    pub gone: u64,
    /// Left alone because someone else has changed the mask; thread, name, mask.
    pub left_alone: Vec<(ThreadId, String, CpuSet)>,
    /// Could not be given back; thread, name, error. They stay in the journal.
    pub failed: Vec<(ThreadId, String, String)>,
    /// What is wrong with the journal: a sentence each.
    pub problems: Vec<String>,
    /// What else is to be said.
    pub messages: Vec<String>,
}

impl Journal {
    /// Gives back every thread that is owed, by the rules of the [module](super). A journal that cannot be written
    /// keeps no thread bound; the report's problems say so.
    pub fn restore(&mut self, affinities: &mut dyn Affinities) -> Restored {
        let mut restoring = Restoring {
            affinities,
            report: Restored {
                problems: self.problems.clone(),
                messages: self.messages.clone(),
                ..Restored::default()
            },
            settled: Vec::new(),
        };
        restoring.restore_owed(&self.owed);
        let is_through = self.restore_heirs(&mut restoring);
        let Restoring {
            mut report,
            settled,
            ..
        } = restoring;
        // The next attempt finds the remaining heirs by these entries.
        if is_through && let Err(error) = self.settle(&settled) {
            report.problems.push(error.to_string());
        }
        report.problems.dedup();
        report
    }

    /// Gives the heirs of all threads that are owed back, until none is found. Says whether that was so.
    fn restore_heirs(&mut self, restoring: &mut Restoring<'_>) -> bool {
        let mut donors: Vec<Held> = self.owed.values().flat_map(Owed::held).collect();
        let mut known: BTreeSet<ThreadId> = self.owed.keys().copied().collect();
        let mut unwritten = None;
        let begun = restoring.affinities.now();
        let mut is_last = false;
        while !donors.is_empty() && !is_last {
            is_last = restoring.affinities.now() - begun >= LONGEST;
            let masks = masks(&donors);
            let mut search = restoring.affinities.bound_to(&masks, since(&donors));
            search.found.retain(|bound| !known.contains(&bound.thread));
            let found = heirs(&donors, search.found);
            if found.is_empty() && search.is_complete {
                is_last = false;
                break;
            }
            let entry = |(thread, held): &(ThreadId, Held)| SavedAffinity::of(*thread, held);
            let entries: Vec<SavedAffinity> = found.iter().map(entry).collect();
            // After a kill, the next attempt finds by these entries what the heirs have started.
            unwritten = self.record(&entries).err().or(unwritten);
            for entry in entries {
                // A thread that looks like no heir may have been seen while its cpuset changed; the next search looks
                // again.
                known.insert(entry.thread);
                match restoring.restore_heir(&entry, &masks) {
                    Heir::Settled => {}
                    Heir::NotYet => drop(known.remove(&entry.thread)),
                    Heir::Refused => owe(&mut self.owed, entry),
                }
            }
            donors.extend(found.into_iter().map(|(_, held)| held));
        }
        let report = &mut restoring.report;
        if is_last {
            report.problems.push(still_started(report.heirs));
        }
        // Where all are back, nobody needs what could not be written.
        let unwritten = unwritten.filter(|_| is_last || !report.failed.is_empty());
        let unwritten = unwritten.map(|error| error.to_string());
        report.problems.extend(unwritten);
        !is_last
    }
}

/// A restoration under way.
struct Restoring<'a> {
    affinities: &'a mut dyn Affinities,
    report: Restored,
    /// Threads that need not be looked at again.
    settled: Vec<ThreadId>,
}

/// What became of an heir.
enum Heir {
    /// It is back, or gone.
    Settled,
    /// Its mask is none of ours, or is yet to be set again: if it is an heir, it is found again.
    NotYet,
    /// The kernel refuses it.
    Refused,
}

impl Restoring<'_> {
    /// Gives back what is owed. A thread whose mask is none of ours is looked at [`LOOKS`] times, then left alone.
    fn restore_owed(&mut self, owed: &BTreeMap<ThreadId, Owed>) {
        let mut set_in: BTreeMap<ProcessId, Vec<&CpuSet>> = BTreeMap::new();
        for owed in owed.values() {
            let set = set_in.entry(owed.entry.process).or_default();
            set.extend(&owed.masks);
        }
        // The first thread goes last: one that takes its place has then been given back.
        let mut waiting: Vec<&Owed> = owed.values().collect();
        waiting.sort_by_key(|owed| is_first(owed.entry.thread, owed.entry.process));
        for look in 1..=LOOKS {
            waiting.retain(|owed| {
                let Some(now) = self.look_at(owed, &set_in) else {
                    return false;
                };
                if look == LOOKS {
                    self.leave_alone(&owed.entry, now);
                }
                look < LOOKS
            });
            if waiting.is_empty() {
                break;
            }
            self.affinities.let_masks_settle();
        }
        self.report.restored.sort_unstable();
    }

    /// Gives a thread back if its mask is one of ours; `set_in` holds those set in each process. Otherwise returns what
    /// the thread may use.
    fn look_at(
        &mut self,
        owed: &Owed,
        set_in: &BTreeMap<ProcessId, Vec<&CpuSet>>,
    ) -> Option<Bounds> {
        let (thread, process) = (owed.entry.thread, owed.entry.process);
        let now = match self.affinities.bounds_of(thread) {
            Ok(Some(now)) => now,
            Ok(None) => {
                self.report.gone += 1;
                self.settled.push(thread);
                return None;
            }
            Err(error) => {
                let name = owed.entry.name.clone();
                self.report.failed.push((thread, name, error));
                return None;
            }
        };
        // Another thread may have taken its place, with its own mask, and an heir any (`ownership`).
        let is_inherited = owed.entry.since == thread.born;
        let may_be = |of: &ProcessId| is_inherited || *of == process && is_first(thread, process);
        let others = set_in.iter().filter(|(of, _)| may_be(of));
        let others = others.flat_map(|(_, masks)| masks.iter().copied());
        if !owed.masks.iter().chain(others).any(|mask| now.is(mask)) {
            return Some(now);
        }
        self.give_back(&owed.entry, &now);
        None
    }

    /// Gives back an heir that has one of these masks.
    fn restore_heir(&mut self, entry: &SavedAffinity, masks: &[Arc<CpuSet>]) -> Heir {
        let thread = entry.thread;
        let now = match self.affinities.bounds_of(thread) {
            // Which of several masks it has may not have shown when it was found.
            Ok(Some(now)) if masks.iter().any(|mask| now.is(mask)) => now,
            answer => {
                self.settled.push(thread);
                return match answer {
                    Ok(Some(_)) => Heir::NotYet,
                    Ok(None) | Err(_) => Heir::Settled,
                };
            }
        };
        let before = self.report.restored.len();
        let is_settled = self.give_back(entry, &now);
        self.report.heirs += (self.report.restored.len() - before) as u64;
        if is_settled {
            return Heir::Settled;
        }
        self.settled.retain(|settled| *settled != thread);
        Heir::Refused
    }

    /// Gives one thread back whose mask is one of ours; returns whether it is done with.
    fn give_back(&mut self, entry: &SavedAffinity, now: &Bounds) -> bool {
        let thread = entry.thread;
        let order = AffinityOrder {
            thread,
            core: None,
            cpus: Arc::new(within_reach(&entry.back, &now.cpus)),
        };
        match self.affinities.set(&order) {
            // Narrowed to its cpuset: giving back to the kernel means just that.
            AffinityResult::Done | AffinityResult::Narrowed { .. } => {
                self.report.restored.push(thread);
            }
            AffinityResult::Gone => self.report.gone += 1,
            AffinityResult::Failed { error } => {
                let name = entry.name.clone();
                self.report.failed.push((thread, name, error));
                return false;
            }
        }
        self.settled.push(thread);
        true
    }

    /// Leaves a thread alone; its mask `now` is none of ours.
    fn leave_alone(&mut self, entry: &SavedAffinity, now: Bounds) {
        let thread = entry.thread;
        if now.mask == entry.found || now.is(&entry.back) {
            self.report.as_found.push(thread);
        } else {
            let name = entry.name.clone();
            self.report.left_alone.push((thread, name, now.mask));
        }
        self.settled.push(thread);
    }
}

/// The mask that gives back a thread whose cpuset has these CPUs. The kernel refuses a mask with none of them: then the
/// thread may run anywhere in its cpuset, and on its due CPUs once it has them again.
pub(crate) fn within_reach(back: &CpuSet, cpus: &CpuSet) -> CpuSet {
    match back.intersects(cpus) {
        true => back.clone(),
        false => back.iter().chain(cpus.iter()).collect(),
    }
}

/// Opens the journal at `path`, gives back all that is owed and closes it: `release` after a kill. Works even where
/// nothing can be written.
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
