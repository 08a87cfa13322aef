//! Which signals a recording really holds: what a machine could have measured and what was asked of it
//! are two things, and only the latter is in the ledger.

use numaherd_herd::replay::Wants;
use numaherd_world::{Signal, Snapshot};
use serde::Serialize;

/// How often each signal was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Content {
    /// Threads in an interval, added up.
    pub threads: u64,
    /// Of those, that ran in it.
    pub ran: u64,
    /// Of those, with a miss rate.
    pub miss_rate: u64,
    /// Of those, with local and remote lines.
    pub local_remote: u64,
    /// Of those, with the two counts of the uncore penalty.
    pub uncore_penalty: u64,
    /// Processes in an interval, added up.
    pub processes: u64,
    /// Of those, with the nodes of their pages.
    pub residency: u64,
    /// Of those, with how much their threads shared pages.
    pub sharing: u64,
}

impl Content {
    /// Looks at one more snapshot.
    pub(super) fn saw(&mut self, snapshot: &Snapshot) {
        self.threads += snapshot.threads.len() as u64;
        for thread in snapshot.threads.iter().filter(|t| t.cpu_share > 0.0) {
            self.ran += 1;
            let Some(counts) = &thread.counts else {
                continue;
            };
            let both =
                |one: Option<u64>, other: Option<u64>| u64::from(one.is_some() && other.is_some());
            self.miss_rate += u64::from(counts.instructions > 0);
            self.local_remote += both(counts.local, counts.remote);
            self.uncore_penalty += both(counts.uncore_busy_cycles, counts.uncore_requests);
        }
        for process in &snapshot.processes {
            self.processes += 1;
            self.residency += u64::from(process.residency.is_some());
            self.sharing += u64::from(process.sharing.is_some());
        }
    }

    /// Whether a placement that goes by the signal finds it. Of [`Signal::TlbResidency`] a placement sees
    /// who shares pages. Single accesses (samples, TLB misses, faults) are in no ledger.
    pub fn holds(&self, signal: Signal) -> bool {
        let times = match signal {
            Signal::CpuUse => self.threads,
            Signal::MissRate => self.miss_rate,
            Signal::LocalRemote => self.local_remote,
            Signal::UncorePenalty => self.uncore_penalty,
            Signal::Residency => self.residency,
            Signal::TlbResidency => self.sharing,
            Signal::MemorySamples | Signal::TlbMisses | Signal::HintFaults => 0,
        };
        times > 0
    }

    /// Whether a ledger can hold a signal at all.
    pub fn can_hold(signal: Signal) -> bool {
        !is_single_accesses(signal)
    }

    /// Which of the signals that a placement goes by are not there. Where it goes by who shares pages, the
    /// accesses that this is found out from are its paging's affair.
    pub(crate) fn lacks(&self, wants: &Wants) -> Vec<Signal> {
        let of_paging = |signal| wants.sharing && is_single_accesses(signal);
        let is_lacking = |signal: &Signal| !of_paging(*signal) && !self.holds(*signal);
        wants.placement.iter().copied().filter(is_lacking).collect()
    }

    /// Those by their names, who shares pages among them.
    pub(crate) fn lacks_by_name(&self, wants: &Wants) -> Vec<String> {
        let unshared = wants.sharing && self.sharing == 0;
        let unshared = unshared.then_some("which threads share pages");
        let lacks = self.lacks(wants);
        let names = lacks.iter().map(Signal::to_string);
        names.chain(unshared.map(str::to_owned)).collect()
    }

    /// Share of thread-intervals with CPU use that have a miss rate; `None` where no thread ran.
    pub fn counted(&self) -> Option<f64> {
        (self.ran > 0).then(|| self.miss_rate as f64 / self.ran as f64)
    }
}

/// Whether a signal is single accesses, which no ledger holds.
pub(crate) fn is_single_accesses(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::MemorySamples | Signal::TlbMisses | Signal::HintFaults
    )
}
