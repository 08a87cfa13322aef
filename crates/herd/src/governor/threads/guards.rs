//! The guards of thread placements that look only at the thread and the machine, and the CPUs that
//! come with a core. The governor itself has the guards that remember (bounce, rate, worse).

use std::collections::BTreeSet;

use numaherd_topology::{CpuId, CpuSet, DomainId, Topology};
use numaherd_world::{Snapshot, Thread, ThreadId};

use super::super::ownership::Owner;
use super::super::{Guard, Objection, Verdict, unless};
use crate::settings::AffinityScope;

pub(super) fn known_thread(snapshot: &Snapshot, id: ThreadId) -> Result<&Thread, Objection> {
    snapshot.thread(id).ok_or_else(|| {
        let why = format!("{id} is not among the threads that were observed");
        (Guard::UnknownThread, why)
    })
}

pub(super) fn not_named_twice(ordered: &BTreeSet<ThreadId>, thread: &Thread) -> Verdict {
    unless(!ordered.contains(&thread.id), Guard::Duplicate, || {
        "it has been given a core in this interval already".to_owned()
    })
}

pub(super) fn may_be_touched(thread: &Thread) -> Verdict {
    match &thread.unmanaged {
        None => Ok(()),
        Some(reason) => Err((Guard::HandsOff, format!("it must be left alone: {reason}"))),
    }
}

pub(super) fn affinity_is_not_foreign(thread: &Thread, owner: Owner) -> Verdict {
    unless(owner != Owner::Other, Guard::ForeignAffinity, || {
        format!("it has an affinity of its own ({})", thread.affinity)
    })
}

pub(super) fn known_cpu(topology: &Topology, cpu: CpuId) -> Result<DomainId, Objection> {
    match topology.cpu(cpu) {
        Some(cpu) => Ok(cpu.domain),
        None => Err((Guard::UnknownCpu, format!("the machine has no CPU {cpu}"))),
    }
}

pub(super) fn is_online(online: &CpuSet, cpu: CpuId) -> Verdict {
    unless(online.contains(cpu), Guard::Offline, || {
        format!("CPU {cpu} is offline")
    })
}

pub(super) fn within_cpuset(thread: &Thread, cpu: CpuId) -> Verdict {
    unless(thread.cpuset.contains(cpu), Guard::Cpuset, || {
        format!("CPU {cpu} is beyond its cpuset ({})", thread.cpuset)
    })
}

pub(super) fn within_limits(limits: Option<&CpuSet>, cpu: CpuId) -> Verdict {
    let within = limits.is_none_or(|cpus| cpus.contains(cpu));
    unless(within, Guard::Limits, || {
        format!("CPU {cpu} is beyond the CPUs that may be used")
    })
}

/// For hints, which leave the user's affinity in place.
pub(super) fn within_own_affinity(thread: &Thread, cpu: CpuId) -> Verdict {
    let within = thread.affinity.contains(cpu);
    unless(within, Guard::ForeignAffinity, || {
        let affinity = &thread.affinity;
        format!("CPU {cpu} is beyond its own affinity ({affinity}), which hints leave unchanged")
    })
}

pub(super) fn is_a_change(thread: &Thread, to: CpuId, mask: &CpuSet) -> Verdict {
    let same = thread.assigned == Some(to) && *thread.affinity == *mask;
    unless(!same, Guard::Unchanged, || {
        format!("CPU {to} is given to it already")
    })
}

/// The CPUs that a thread may have: its cpuset, online, within the user's limits.
pub(super) fn allowed(thread: &Thread, online: &CpuSet, limits: Option<&CpuSet>) -> CpuSet {
    let there = thread.cpuset.intersection(online);
    match limits {
        Some(limits) => there.intersection(limits),
        None => there,
    }
}

/// The CPUs that a thread with this core may run on. The CPU is in the machine.
pub(super) fn reach(topology: &Topology, scope: AffinityScope, cpu: CpuId) -> CpuSet {
    let Some(cpu) = topology.cpu(cpu) else {
        return CpuSet::new();
    };
    match scope {
        AffinityScope::Core => topology.cores()[cpu.core.index()].cpus.clone(),
        AffinityScope::Domain => topology.domains()[cpu.domain.index()].cpus.clone(),
        AffinityScope::Node => topology
            .cpus()
            .iter()
            .filter(|other| other.node == cpu.node)
            .map(|other| other.id)
            .collect(),
    }
}
