//! What is undone of an action that did not gain.
//!
//! Rule: threads go back where they were, and so does memory that went to one node, was dealt or was spread. Memory that followed the
//! use of its threads to several nodes does not: each block went beside its user, wherever it had been. Its process's threads
//! stay beside it, and are held there.

use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::{Pages, Part, ProcessId, ThreadId};

use super::action::{Action, Ordered};
use super::gate::Fruitless;
use super::orders::{order, own};
use super::search::may_have;
use super::{Adaptive, UNDO, cores};
use crate::estimate::{Picture, Rough};
use crate::losses::Withheld;
use crate::stage::{Seat, Stage};
use crate::words;

impl Adaptive {
    /// After an action that shows no gain, nothing is tried for a while.
    pub(super) fn rest(&mut self, stage: &Stage<'_>, action: &Action) {
        if self.failed > 0 {
            // The second time: not before something has changed.
            self.fruitless = Some(Fruitless {
                lost: Rough::of(&action.before.lost_now()).mean(),
                since_ns: u64::MAX,
                awaits: Vec::new(),
                why: Withheld::Resting,
            });
        }
        self.failed += 1;
        let wait_ns = self.settings.wait_s * 1e9 * 2f64.powi(self.failed - 1);
        // A cast from float saturates.
        self.wait_until_ns = stage.snapshot.time_ns.saturating_add(wait_ns as u64);
    }

    /// Puts back what did not gain.
    pub(super) fn undo(
        &mut self,
        stage: &Stage<'_>,
        picture: &Picture,
        action: Action,
        why: &str,
    ) -> Vec<Seat> {
        self.rest(stage, &action);
        self.past.touch();
        let why: Arc<str> = why.into();
        let because = || UNDO.because(words!("{why}", why = Arc::clone(&why)));
        let by_use = (action.followed.iter()).filter(|follow| {
            follow.memory.follows > 0 && matches!(follow.ordered, Ordered::AsUsed(_))
        });
        let by_use: Vec<ProcessId> = by_use.map(|follow| follow.process).collect();
        let is_beside = |thread: ThreadId| {
            let process = picture
                .thread(thread)
                .map(|load| picture.processes[load.process].id);
            process.is_some_and(|process| by_use.contains(&process))
        };
        let held = action.held.iter().copied();
        self.letting_go
            .extend(held.filter(|&thread| !is_beside(thread)));
        let back = action.moved.iter().filter_map(|&(thread, cpu)| {
            let at = picture.place(thread).filter(|_| !is_beside(thread))?;
            // A thread that was let go since and is elsewhere is the kernel's.
            let put = action
                .before
                .place(thread)
                .map(|at| action.layout.cpus[at])?;
            if picture.is_move(&picture.threads[at], put) {
                return None;
            }
            may_have(stage, picture.threads[at].at, cpu).then_some((at, cpu))
        });
        let back: Vec<(usize, CpuId)> = back.collect();
        let mut seats = Vec::new();
        for (at, cpu, fits) in cores::fitting(picture, &back) {
            let load = &picture.threads[at];
            if fits {
                seats.push(stage.seat(load.at, cpu, because()));
                self.let_go.push(load.id);
            } else {
                self.letting_go.insert(load.id);
            }
        }
        if !action.followed.is_empty() {
            self.past.forget();
        }
        for follow in &action.followed {
            let mut owners = picture.processes.iter();
            let Some(owner) = owners.find(|owner| owner.id == follow.process) else {
                continue;
            };
            let thread = picture.threads[owner.threads[0]].id;
            let mut back = |pages, from: usize| {
                if owner.fits[from] {
                    let why = because().why.to_string();
                    let order = order(stage, (owner.id, thread), pages, from, UNDO, why);
                    self.pages.push(order);
                }
            };
            let part = Part::WHOLE;
            match follow.ordered {
                Ordered::ToOne(pages) => {
                    self.followed.remove(&follow.process);
                    back(pages, follow.from);
                }
                Ordered::Dealt => back(own(part), follow.from),
                Ordered::AsUsed(_) => {}
            }
            if follow.memory.spreads {
                for &kind in &owner.common_kinds {
                    back(Pages::OfKind { kind, part }, follow.common_from);
                }
            }
        }
        seats
    }
}
