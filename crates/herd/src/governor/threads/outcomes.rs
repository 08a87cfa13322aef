//! What was done: takes in the outcomes of the changes, so that limits count what was done, not what was wanted.

use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::{AffinityOutcome, AffinityResult, ThreadId};

use super::{Cause, Change, ThreadGovernor};
use crate::governor::ownership::Held;
use crate::governor::shown;

/// What was done, once the world has carried out the changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Threads that had to leave their CPU.
    pub moves: u64,
    /// Moves that were undone.
    pub undone: u64,
    /// Threads given to idle nodes.
    pub stolen: u64,
    /// Masks that the kernel narrowed, to be written down as ours.
    pub narrowed: Vec<(ThreadId, Held)>,
    /// Threads that need not be given back any more: they are back, or gone.
    pub settled: Vec<ThreadId>,
    /// Threads that had no mask of ours, and what is held of them if theirs was set although the world reports a
    /// failure.
    pub failed: Vec<(ThreadId, Held)>,
    /// What a person should know.
    pub notices: Vec<String>,
}

impl ThreadGovernor {
    /// Takes in what became of the changes, in order.
    pub fn carried_out(
        &mut self,
        now_ns: u64,
        changes: &[Change],
        outcomes: &[AffinityOutcome],
    ) -> Done {
        let mut done = Done::default();
        for (change, outcome) in changes.iter().zip(outcomes) {
            match &outcome.result {
                AffinityResult::Done => self.took(change, change.held.clone(), now_ns, &mut done),
                AffinityResult::Narrowed { now } => {
                    let mask = Arc::new(now.clone());
                    let held = Held {
                        mask,
                        ..change.held.clone()
                    };
                    if change.order.core.is_some() {
                        done.narrowed.push((change.order.thread, held.clone()));
                    }
                    self.took(change, held, now_ns, &mut done);
                }
                AffinityResult::Gone => {
                    // It may have been set, and inherited, before the end.
                    if change.order.core.is_some() {
                        self.holdings.was_set(&change.held);
                    }
                    self.holdings.drop_thread(change.order.thread);
                    done.settled.push(change.order.thread);
                }
                AffinityResult::Failed { error } => {
                    let thread = change.order.thread;
                    if change.cause == Cause::GiveBack {
                        self.holdings.drop_thread(thread);
                    } else if self.holdings.get(thread).is_none() {
                        done.failed.push((thread, change.held.clone()));
                    }
                    if self.said.insert((change.held.process, "failed")) {
                        let who =
                            shown(change.order.thread, change.held.process, &change.held.name);
                        done.notices.push(format!(
                            "the affinity of {who} could not be set: {error}; further failures in \
                             this process are in the ledger only"
                        ));
                    }
                }
            }
        }
        done
    }

    fn took(&mut self, change: &Change, held: Held, now_ns: u64, done: &mut Done) {
        let thread = change.order.thread;
        let Some(to) = change.order.core else {
            // Given back: a thread that was undone stays in the snapshot, one that left is forgotten.
            self.holdings.drop_thread(thread);
            done.settled.push(thread);
            let undone = change.cause == Cause::Undo;
            if let (Cause::Release(_), Some(judge)) = (change.cause, &mut self.judge) {
                judge.disturbed(thread);
            }
            done.moves += u64::from(undone && change.leaves);
            done.undone += u64::from(undone);
            return;
        };
        done.moves += u64::from(change.leaves);
        done.undone += u64::from(change.cause == Cause::Undo);
        done.stolen += u64::from(change.cause == Cause::Steal);
        self.holdings.hold(thread, held);
        if let Some(places) = &mut self.places {
            places.went(change.from, to);
        }
        let domain = |cpu: CpuId| self.topology.cpu(cpu).map(|cpu| cpu.domain);
        let (Some(from), Some(domain)) = (change.from.and_then(domain), domain(to)) else {
            return;
        };
        if matches!(change.cause, Cause::Return(_)) {
            // Its earlier moves are undone, and say nothing about where it may go.
            self.bounces.forget(thread);
            return;
        }
        if from == domain {
            return;
        }
        self.bounces.moved(thread, from, domain, now_ns);
        match (change.cause, &mut self.judge) {
            (_, None) => {}
            (Cause::Placement(_), Some(judge)) => {
                judge.moved(thread, change.assigned_before, to, domain);
            }
            (_, Some(judge)) => judge.disturbed(thread),
        }
    }
}
