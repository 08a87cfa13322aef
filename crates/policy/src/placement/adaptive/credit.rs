//! What actions may cost each process: the budget.
//!
//! Rule: credit begins with `first_credit_ms` and grows by `loss_budget` of the time that the process runs. What an action
//! costs is charged when it begins, and refunded when it has shown a gain.
//!
//! Source: conservative bandits (ICML 2016), where what is lost stays within a share of what doing nothing would have
//! brought.

use std::collections::BTreeMap;

use numaherd_world::ProcessId;

use super::AdaptiveSettings;
use crate::estimate::Picture;
use crate::stage::Stage;

/// The credit of each process, in ns.
pub(super) struct Credit {
    first_ns: f64,
    /// Credit grows by this share of the time that a process runs.
    budget: f64,
    of: BTreeMap<ProcessId, f64>,
}

impl Credit {
    pub(super) fn new(settings: &AdaptiveSettings) -> Self {
        Self {
            first_ns: settings.first_credit_ms * 1e6,
            budget: settings.loss_budget,
            of: BTreeMap::new(),
        }
    }

    /// Takes in an interval, and forgets processes that are gone.
    pub(super) fn accrue(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let mut credit = BTreeMap::new();
        for owner in &picture.processes {
            let ran: f64 = (owner.threads.iter())
                .map(|&at| stage.thread(picture.threads[at].at).cpu_share)
                .sum();
            let ran_ns = ran * stage.snapshot.interval_ns as f64;
            let before = self.of.get(&owner.id).copied().unwrap_or(self.first_ns);
            credit.insert(owner.id, before + ran_ns * self.budget);
        }
        self.of = credit;
    }

    /// The credit of a process, in ns.
    pub(super) fn of(&self, process: ProcessId) -> f64 {
        self.of.get(&process).copied().unwrap_or(0.0)
    }

    /// Whether all processes have credit for these costs, in ns.
    pub(super) fn pays(&self, costs: &[(ProcessId, f64)]) -> bool {
        costs
            .iter()
            .all(|&(process, cost)| self.of(process) >= cost)
    }

    pub(super) fn charge(&mut self, costs: &[(ProcessId, f64)]) {
        for (process, cost) in costs {
            if let Some(credit) = self.of.get_mut(process) {
                *credit -= cost;
            }
        }
    }

    /// Gives back what was charged.
    pub(super) fn refund(&mut self, costs: &[(ProcessId, f64)]) {
        for (process, cost) in costs {
            if let Some(credit) = self.of.get_mut(process) {
                *credit += cost;
            }
        }
    }
}
