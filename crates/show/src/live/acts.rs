//! What was done to threads since the last line, as the parts of the next.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_herd::ledger::Placing;
use numaherd_world::{AffinityResult, Outcome, ThreadId};

use super::Known;
use crate::words::{count, counted, listed};

/// Most threads that a line names.
const MOST_NAMED: usize = 4;

/// What was done to threads, each with how it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts {
    dry_run: bool,
    moved: Vec<(ThreadId, String)>,
    undone: Vec<(ThreadId, String)>,
    stolen: Vec<(ThreadId, String)>,
    failed: Vec<(ThreadId, String)>,
    held: u64,
    given_back: u64,
    gone: u64,
}

impl Acts {
    /// Adds what became of the orders of an interval.
    pub(super) fn add(
        &mut self,
        placing: &Placing,
        outcome: Option<&Outcome>,
        threads: &BTreeMap<ThreadId, Known>,
    ) {
        self.dry_run |= !placing.carried_out && !placing.affinities.is_empty();
        let shown = |thread: ThreadId| match threads.get(&thread) {
            Some(known) => format!("{} {}", known.name, thread.tid),
            None => thread.tid.to_string(),
        };
        for (place, order) in placing.affinities.iter().enumerate() {
            let id = order.thread;
            let result = outcome.and_then(|outcome| outcome.affinities.get(place));
            match result.map(|outcome| &outcome.result) {
                Some(AffinityResult::Gone) => self.gone += 1,
                Some(AffinityResult::Failed { .. }) => self.failed.push((id, shown(id))),
                Some(AffinityResult::Done | AffinityResult::Narrowed { .. }) | None => {
                    let known = threads.get(&id);
                    let leaves = known.filter(|known| !order.cpus.contains(known.cpu));
                    let is_undo = placing.undone.iter().any(|u| u.thread == id);
                    let is_stolen = placing.stolen.iter().any(|s| s.thread == id);
                    match (order.core, leaves) {
                        _ if is_undo => self.undone.push((id, shown(id))),
                        (None, _) => self.given_back += 1,
                        (Some(core), Some(known)) => {
                            let went = format!("{} {}>{core}", shown(id), known.cpu);
                            let acts = if is_stolen {
                                &mut self.stolen
                            } else {
                                &mut self.moved
                            };
                            acts.push((id, went));
                        }
                        (Some(_), None) => self.held += 1,
                    }
                }
            }
        }
    }

    /// The parts of the line.
    pub(super) fn said(self) -> Vec<String> {
        let would = if self.dry_run { "would have " } else { "" };
        let mut said = Vec::new();
        let mut named = |verb: &str, acts: &[(ThreadId, String)], why: &str| {
            if acts.is_empty() {
                return;
            }
            let threads: BTreeSet<ThreadId> = acts.iter().map(|&(id, _)| id).collect();
            let mut number = counted(threads.len() as u64, "thread");
            if acts.len() > threads.len() {
                number += &format!(" {} times", count(acts.len() as u64));
            }
            said.push(format!("{would}{verb} {number}{why} ({})", some(acts)));
        };
        named("moved", &self.moved, "");
        named("gave", &self.stolen, " to idle nodes");
        named("undone a move of", &self.undone, "");
        named("failed to set", &self.failed, "");
        let mut numbered = |verb: &str, number: u64| {
            if number > 0 {
                said.push(format!("{would}{verb} {}", counted(number, "thread")));
            }
        };
        numbered("held", self.held);
        numbered("given back", self.given_back);
        numbered("came too late for", self.gone);
        said
    }
}

/// The first few of these, and how many more there are.
fn some(acts: &[(ThreadId, String)]) -> String {
    let shown: Vec<&str> = acts.iter().map(|(_, shown)| shown.as_str()).collect();
    match shown.len() {
        many if many > MOST_NAMED => {
            let more = many - MOST_NAMED;
            format!("{} and {more} more", shown[..MOST_NAMED].join(", "))
        }
        _ => listed(&shown),
    }
}
