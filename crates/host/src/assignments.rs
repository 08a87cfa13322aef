//! Which masks are ours: tells threads placed by this program from threads placed by their user.
//!
//! The threads and processes that a thread starts inherit its mask. An inherited mask of ours is ours too,
//! although no order named the new thread: it counts as assigned to the core of its origin, which is where it
//! runs. A thread that was there before the mask was given has it from someone else, and so has a thread that is
//! seen with it only later in its life.
//!
//! A thread whose user set its mask stays *pinned* when it is given one of ours: its user cares where it runs
//! (`taskset` and `numactl` in BRM §4.3), until its mask is opened wide. The mask's heirs inherit the pinning.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{ProcessId, ThreadId, is_mask};

#[derive(Clone, Debug)]
struct Assignment {
    core: Option<CpuId>,
    cpus: Arc<CpuSet>,
    /// Whether a thread that has it was pinned before, all of them where several got it.
    pinned: bool,
    /// When its process was first given it, on the clock of births.
    since: u64,
}

/// Who set a thread's mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No one: it may run on all of its cpuset.
    Nobody,
    /// Ours, with the core that the order named.
    Ours(Option<CpuId>),
    /// Its user, or some other program.
    Foreign,
}

/// All masks given out.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    by_thread: HashMap<ThreadId, Assignment>,
    /// Masks given to threads of a process, kept after a thread has ended.
    by_process: HashMap<u32, Vec<Assignment>>,
    /// Threads whose mask is, or was before ours, their user's.
    pinned: HashSet<ThreadId>,
}

impl Assignments {
    /// Whether the thread's mask is its user's, or was before it was ours.
    pub(crate) fn is_pinned(&self, thread: ThreadId) -> bool {
        self.pinned.contains(&thread)
    }

    /// A thread was given a mask, no earlier than `since`.
    pub(crate) fn give(
        &mut self,
        thread: ThreadId,
        pid: Option<u32>,
        core: Option<CpuId>,
        cpus: &Arc<CpuSet>,
        since: u64,
    ) {
        if core.is_none() {
            self.by_thread.remove(&thread);
            return;
        }
        let assignment = Assignment {
            core,
            cpus: cpus.clone(),
            pinned: self.is_pinned(thread),
            since,
        };
        if let Some(pid) = pid {
            let given = self.by_process.entry(pid).or_default();
            match given.iter_mut().find(|given| given.cpus == *cpus) {
                Some(given) => {
                    given.core = core;
                    given.pinned &= assignment.pinned;
                }
                None => given.push(assignment.clone()),
            }
        }
        self.by_thread.insert(thread, assignment);
    }

    /// Who set the mask of a thread. An inherited mask is recognized when the thread is first seen (`is_new`).
    pub(crate) fn owner(
        &mut self,
        thread: ThreadId,
        process: ProcessId,
        parent: u32,
        mask: &Arc<CpuSet>,
        cpuset: &CpuSet,
        is_new: bool,
    ) -> Owner {
        // A mask that has no CPU of the cpuset names no core that still counts.
        let same = |given: &CpuSet| {
            given == &**mask || given.intersects(cpuset) && is_mask(mask, given, cpuset)
        };
        let own = self.by_thread.get(&thread);
        let own = own.map(|own| same(&own.cpus).then_some(own.core));
        let owner = match own {
            // An order may give a thread all its CPUs; the core still counts.
            Some(Some(core)) => Owner::Ours(core),
            _ if cpuset.is_subset(mask) => {
                self.by_thread.remove(&thread);
                Owner::Nobody
            }
            None if is_new => self.inherit(thread, process, parent, same),
            Some(None) | None => Owner::Foreign,
        };
        match owner {
            Owner::Nobody => self.pinned.remove(&thread),
            Owner::Foreign => self.pinned.insert(thread),
            // As it was before the mask was ours.
            Owner::Ours(_) => false,
        };
        owner
    }

    /// The owner of a mask that no order gave the thread: ours, if it was inherited.
    fn inherit(
        &mut self,
        thread: ThreadId,
        process: ProcessId,
        parent: u32,
        same: impl Fn(&CpuSet) -> bool,
    ) -> Owner {
        let mut given = [process.pid, parent]
            .into_iter()
            .filter_map(|pid| self.by_process.get(&pid))
            .flatten();
        let is_from = |given: &&Assignment| thread.born >= given.since && same(&given.cpus);
        let Some(assignment) = given.find(is_from).cloned() else {
            return Owner::Foreign;
        };
        let core = assignment.core;
        if assignment.pinned {
            self.pinned.insert(thread);
        }
        self.by_thread.insert(thread, assignment.clone());
        // What it starts inherits in turn.
        let given = self.by_process.entry(process.pid).or_default();
        if !given.iter().any(|given| given.cpus == assignment.cpus) {
            given.push(assignment);
        }
        Owner::Ours(core)
    }

    /// Forgets threads and processes that have ended.
    pub(crate) fn retain(
        &mut self,
        thread: impl Fn(ThreadId) -> bool,
        process: impl Fn(u32) -> bool,
    ) {
        self.by_thread.retain(|id, _| thread(*id));
        self.pinned.retain(|id| thread(*id));
        self.by_process.retain(|pid, _| process(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId { pid: 5, born: 50 };
    const CHILD: ProcessId = ProcessId { pid: 6, born: 60 };

    fn thread(tid: u32) -> ThreadId {
        ThreadId {
            tid,
            born: u64::from(tid) * 10,
        }
    }

    fn cpus(list: &str) -> Arc<CpuSet> {
        Arc::new(list.parse().unwrap())
    }

    fn given() -> Assignments {
        let mut assignments = Assignments::default();
        give(&mut assignments, 5, Some(2), "2-3");
        assignments
    }

    /// Gives a thread of process 5 a mask, when all threads of these tests exist or are about to start.
    fn give(assignments: &mut Assignments, id: u32, core: Option<u32>, mask: &str) {
        assignments.give(thread(id), Some(5), core.map(CpuId), &cpus(mask), 50);
    }

    /// What is found of a thread that is seen first.
    fn owner(assignments: &mut Assignments, id: u32, of: ProcessId, mask: &str) -> Owner {
        assignments.owner(thread(id), of, 5, &cpus(mask), &cpus("0-7"), true)
    }

    #[test]
    fn ours_foreign_and_nobodys() {
        let mut assignments = given();
        assert_eq!(
            owner(&mut assignments, 5, PROCESS, "2-3"),
            Owner::Ours(Some(CpuId(2)))
        );
        assert_eq!(owner(&mut assignments, 9, PROCESS, "0-7"), Owner::Nobody);
        assert_eq!(owner(&mut assignments, 9, PROCESS, "1"), Owner::Foreign);
    }

    #[test]
    fn a_mask_changed_by_someone_else_is_foreign_until_it_is_wide_open() {
        let mut assignments = given();
        assert_eq!(owner(&mut assignments, 5, PROCESS, "7"), Owner::Foreign);
        assert_eq!(owner(&mut assignments, 5, PROCESS, "0-7"), Owner::Nobody);
    }

    #[test]
    fn threads_and_processes_inherit_through_generations() {
        let mut assignments = given();
        let ours = Owner::Ours(Some(CpuId(2)));
        assert_eq!(owner(&mut assignments, 51, PROCESS, "2-3"), ours);
        assert_eq!(owner(&mut assignments, 6, CHILD, "2-3"), ours);
        let grandchild = ProcessId { pid: 7, born: 70 };
        let of = |assignments: &mut Assignments, id, process, parent| {
            let mask = cpus("2-3");
            assignments.owner(thread(id), process, parent, &mask, &cpus("0-7"), true)
        };
        let inherited = of(&mut assignments, 7, grandchild, 6);
        assert_eq!(inherited, ours);
        let stranger = ProcessId { pid: 8, born: 80 };
        let other = of(&mut assignments, 8, stranger, 1);
        assert_eq!(other, Owner::Foreign);
    }

    #[test]
    fn who_was_there_before_or_is_seen_with_it_only_later_has_inherited_nothing() {
        let mut assignments = given();
        let old = ThreadId { tid: 6, born: 49 };
        let mask = cpus("2-3");
        let of_old = assignments.owner(old, CHILD, 5, &mask, &cpus("0-7"), true);
        assert_eq!(of_old, Owner::Foreign);
        let of_later = assignments.owner(thread(51), PROCESS, 1, &mask, &cpus("0-7"), false);
        assert_eq!(of_later, Owner::Foreign);
        // Nor do threads that they start have a mask of ours.
        let grandchild = ProcessId { pid: 7, born: 70 };
        let inherited = assignments.owner(thread(7), grandchild, 6, &mask, &cpus("0-7"), true);
        assert_eq!(inherited, Owner::Foreign);
    }

    #[test]
    fn a_thread_given_back_is_nobodys() {
        let mut assignments = given();
        give(&mut assignments, 5, None, "0-7");
        assert_eq!(owner(&mut assignments, 5, PROCESS, "0-7"), Owner::Nobody);
    }

    #[test]
    fn an_order_cut_by_the_cpuset_is_still_ours() {
        let mut assignments = given();
        let narrowed = assignments.owner(thread(5), PROCESS, 1, &cpus("3"), &cpus("3-6"), false);
        assert_eq!(narrowed, Owner::Ours(Some(CpuId(2))));
    }

    #[test]
    fn a_pinned_thread_stays_pinned_under_our_mask_until_it_may_run_anywhere() {
        let mut assignments = Assignments::default();
        owner(&mut assignments, 5, PROCESS, "1");
        owner(&mut assignments, 9, PROCESS, "0-7");
        assert!(assignments.is_pinned(thread(5)) && !assignments.is_pinned(thread(9)));
        give(&mut assignments, 5, Some(2), "2-3");
        let ours = Owner::Ours(Some(CpuId(2)));
        assert_eq!(owner(&mut assignments, 5, PROCESS, "2-3"), ours);
        assert!(assignments.is_pinned(thread(5)));
        // A node that is the whole machine.
        give(&mut assignments, 5, Some(2), "0-7");
        assert_eq!(owner(&mut assignments, 5, PROCESS, "0-7"), ours);
        assert!(assignments.is_pinned(thread(5)));
        give(&mut assignments, 5, None, "1");
        assert_eq!(owner(&mut assignments, 5, PROCESS, "1"), Owner::Foreign);
        assert_eq!(owner(&mut assignments, 5, PROCESS, "0-7"), Owner::Nobody);
        assert!(!assignments.is_pinned(thread(5)));
        owner(&mut assignments, 5, PROCESS, "1");
        assignments.retain(|_| false, |_| false);
        assert!(!assignments.is_pinned(thread(5)));
    }

    #[test]
    fn pinning_is_inherited_with_the_mask_unless_an_unpinned_thread_may_have_handed_it_on() {
        let mut assignments = Assignments::default();
        owner(&mut assignments, 5, PROCESS, "1");
        give(&mut assignments, 5, Some(2), "2-3");
        owner(&mut assignments, 51, PROCESS, "2-3");
        owner(&mut assignments, 6, CHILD, "2-3");
        assert!(assignments.is_pinned(thread(51)) && assignments.is_pinned(thread(6)));
        give(&mut assignments, 9, Some(3), "2-3");
        owner(&mut assignments, 52, PROCESS, "2-3");
        assert!(!assignments.is_pinned(thread(52)));
    }
}
