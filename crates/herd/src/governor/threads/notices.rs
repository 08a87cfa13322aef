//! What a person should know of a plan that cannot be followed: once per process, where the user can
//! help it.

use numaherd_world::{Placement, Snapshot};

use super::guards::allowed;
use super::{Pass, ThreadGovernor};
use crate::governor::{Guard, shown};

impl ThreadGovernor {
    /// Reports once per process that none of its CPUs may be used.
    pub(super) fn name_the_confined(&mut self, snapshot: &Snapshot, notices: &mut Vec<String>) {
        for thread in snapshot.threads.iter().filter(|t| t.unmanaged.is_none()) {
            let limits = self.limits.cpus.as_ref();
            if !allowed(thread, &snapshot.online, limits).is_empty()
                || !self.said.insert((thread.process, "confined"))
            {
                continue;
            }
            let who = shown(thread.id, thread.process, &thread.name);
            let limits =
                limits.map_or(String::new(), |cpus| format!(" and the limits name {cpus}"));
            notices.push(format!(
                "{who} has no CPU that may be given to it: its cpuset is {}, online are {}{limits}; \
                 its process is left alone until that changes",
                thread.cpuset, snapshot.online
            ));
        }
    }

    /// Reports once per process that its plan cannot be followed, where the user can help it.
    pub(super) fn name_the_reason(
        &mut self,
        pass: &Pass<'_>,
        placement: &Placement,
        guard: Guard,
        why: &str,
        notices: &mut Vec<String>,
    ) {
        let (kind, help) = match guard {
            Guard::ForeignAffinity => ("foreign", "to place it anyway, allow taking over"),
            Guard::Cpuset => ("cpuset", "widen its cpuset to let it spread"),
            _ => return,
        };
        let Some(thread) = pass.snapshot.thread(placement.thread) else {
            return;
        };
        if self.said.insert((thread.process, kind)) {
            let who = shown(thread.id, thread.process, &thread.name);
            notices.push(format!(
                "{who} is not moved: {why}; {help}. Further refusals of this kind in its process \
                 are in the ledger only"
            ));
        }
    }
}
