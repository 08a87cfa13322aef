//! What was decided from a snapshot and what came of it: the lines between it and the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_herd::Record;
use numaherd_herd::ledger::{PagingTick, Placing};
use numaherd_world::{Outcome, PageOutcome, ProcessId, ThreadId};

use super::State;
use crate::Did;
use crate::deeds::deeds;
use crate::top::acts::{Act, Came, What};
use crate::totals::add;

impl State {
    /// What a thread is called, and whose it is, as last seen.
    fn known(&self, thread: ThreadId) -> (String, Option<ProcessId>) {
        let seen = self.snapshot().and_then(|snapshot| snapshot.thread(thread));
        seen.map_or_else(Default::default, |seen| {
            (seen.name.clone(), Some(seen.process))
        })
    }

    pub(super) fn placed(&mut self, time_ns: u64, placing: &Placing, outcome: Option<&Outcome>) {
        for refusal in &placing.refusals {
            self.totals.refused(refusal.guard);
            let entry = refusal.entry;
            let Some(wish) = entry.and_then(|entry| placing.plan.placements.get(entry)) else {
                continue;
            };
            let came = Came::Refused(refusal.guard);
            let Some(track) = self.threads.get_mut(wish.thread) else {
                continue;
            };
            if track.refused.replace((came, Some(wish.to))) == Some((came, Some(wish.to))) {
                continue;
            }
            let (name, process) = self.known(wish.thread);
            self.acts.add(Act {
                number: 0,
                time_ns,
                thread: wish.thread,
                name,
                process,
                what: What::Thread {
                    from: wish.from,
                    to: Some(wish.to),
                    did: came,
                },
                rule: wish.rule.to_string(),
                why: wish.why.clone(),
                instead_of: wish.instead_of.clone(),
                said: format!("{}: {}", refusal.guard, refusal.why),
            });
        }
        let latest = self.latest.clone();
        let snapshot = latest.as_ref().and_then(|line| match &line.record {
            Record::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        });
        let cpu_of = |thread| Some(snapshot?.thread(thread)?.cpu);
        for deed in deeds(placing, outcome, cpu_of) {
            self.totals.ordered(&deed);
            let Some(did) = deed.did else {
                continue;
            };
            let (name, process) = self.known(deed.thread);
            let plan = deed.by_plan();
            let failed = did == Did::Failed;
            let why = plan.map_or(deed.why, |plan| plan.why.as_str());
            let act = self.acts.add(Act {
                number: 0,
                time_ns,
                thread: deed.thread,
                name,
                process,
                what: What::Thread {
                    from: deed.from,
                    to: deed.to,
                    did: Came::Did(did),
                },
                rule: plan.map(|plan| plan.rule.to_string()).unwrap_or_default(),
                why: why.to_owned(),
                instead_of: plan.map(|plan| plan.instead_of.clone()).unwrap_or_default(),
                said: if failed { deed.why } else { "" }.to_owned(),
            });
            self.happened(&act);
            if let Some(track) = self.threads.get_mut(deed.thread) {
                track.refused = None;
            }
        }
    }

    /// The act is the last of its thread and process, if it moved something.
    fn happened(&mut self, act: &Arc<Act>) {
        if !act.is_move() {
            return;
        }
        if let What::Thread { .. } = act.what
            && let Some(track) = self.threads.get_mut(act.thread)
        {
            track.last = Some(act.clone());
        }
        let process = act.process.and_then(|id| self.processes.get_mut(id));
        if let Some(track) = process {
            track.last = Some(act.clone());
        }
    }

    pub(super) fn paging(&mut self, time_ns: u64, tick: &PagingTick) {
        add(&mut self.totals.planned_pages, tick.ordered_pages);
        let refused: BTreeMap<usize, &numaherd_herd::Refusal> = tick
            .refusals
            .iter()
            .filter_map(|refusal| Some((refusal.entry?, refusal)))
            .collect();
        for refusal in &tick.refusals {
            self.totals.refused(refusal.guard);
        }
        for (entry, order) in tick.plan.iter().enumerate() {
            let refusal = refused.get(&entry);
            let did = match refusal {
                Some(refusal) => Came::Refused(refusal.guard),
                None if tick.waiting.contains(&entry) => Came::Waits,
                None if !tick.carried_out => Came::Did(Did::Planned),
                None => Came::Did(Did::Moved),
            };
            let said = refusal.map(|refusal| format!("{}: {}", refusal.guard, refusal.why));
            let is_refused = refusal.is_some();
            let key = (order.process, order.to, is_refused);
            if self.paged.contains_key(&key) {
                continue;
            }
            let (name, _) = self.known(order.thread);
            let act = self.acts.add(Act {
                number: 0,
                time_ns,
                thread: order.thread,
                name,
                process: Some(order.process),
                what: What::Pages {
                    to: order.to,
                    moved: 0,
                    left: 0,
                    did,
                },
                rule: order.rule.to_string(),
                why: order.why.clone(),
                instead_of: String::new(),
                said: said.unwrap_or_default(),
            });
            self.paged.insert(key, act.number);
            self.happened(&act);
        }
        for outcome in &tick.outcomes {
            self.totals.paged(outcome);
            let number = self.paged_for(time_ns, outcome);
            let failed = outcome
                .failed
                .values()
                .fold(outcome.not_tried, |sum, &n| sum.saturating_add(n));
            let act = self.acts.change(number, |act| {
                if let What::Pages {
                    moved, left, did, ..
                } = &mut act.what
                {
                    add(moved, outcome.moved);
                    add(left, failed);
                    *did = Came::Did(if *moved == 0 && outcome.error.is_some() {
                        Did::Failed
                    } else {
                        Did::Moved
                    });
                }
                if let Some(error) = &outcome.error {
                    act.said.clone_from(error);
                }
            });
            if let Some(act) = act {
                self.happened(&act);
            }
        }
    }

    /// The act of pages that went to a node for a process in this moment. An order that had waited
    /// comes without its plan.
    fn paged_for(&mut self, time_ns: u64, outcome: &PageOutcome) -> u64 {
        let key = (outcome.process, outcome.to, false);
        if let Some(&number) = self.paged.get(&key) {
            return number;
        }
        let (name, _) = self.known(outcome.thread);
        let act = self.acts.add(Act {
            number: 0,
            time_ns,
            thread: outcome.thread,
            name,
            process: Some(outcome.process),
            what: What::Pages {
                to: outcome.to,
                moved: 0,
                left: 0,
                did: Came::Did(Did::Moved),
            },
            rule: String::new(),
            why: "an order that had waited for bandwidth".to_owned(),
            instead_of: String::new(),
            said: String::new(),
        });
        self.paged.insert(key, act.number);
        act.number
    }
}
