//! Which core of its domain a thread is seated on, and whether there is one for it.
//!
//! Problem: within its domain a thread runs where the kernel likes. At the moment of a look, it may happen to share a core
//! with another. Rule: a thread that would be seated on a shared core gets an idle core of its domain, if there is one.

use numaherd_topology::CpuId;

use super::search::{ROOM, may_have};
use crate::estimate::Picture;
use crate::stage::Stage;

/// Gives seated threads that would share a core an idle core of their domain.
pub(super) fn part(
    stage: &Stage<'_>,
    picture: &Picture,
    cpus: &mut [CpuId],
    is_seated: impl Fn(usize, CpuId) -> bool,
) {
    // Threads that are not seated stay where they are.
    for (at, load) in picture.threads.iter().enumerate() {
        if !is_seated(at, cpus[at]) {
            cpus[at] = load.cpu;
        }
    }
    let mut on = vec![0usize; stage.topology.cores().len()];
    for core in cpus.iter().filter_map(|&cpu| picture.core(cpu)) {
        on[core] += 1;
    }
    let domains = stage.topology.domains().iter();
    let is_idle = |core: &usize| on[*core] == 0;
    let idle = domains.map(|domain| domain.cores.iter().map(|core| core.index()).filter(is_idle));
    let mut idle: Vec<Vec<usize>> = idle.map(Iterator::collect).collect();
    for (at, place) in cpus.iter_mut().enumerate() {
        let cpu = *place;
        let (Some(core), Some(seat)) = (picture.core(cpu), picture.seat(cpu)) else {
            continue;
        };
        let idle = &mut idle[seat.domain];
        if on[core] < 2 || idle.is_empty() || !is_seated(at, cpu) {
            continue;
        }
        let allowed = |&cpu: &CpuId| may_have(stage, picture.threads[at].at, cpu);
        let cores = stage.topology.cores();
        let found = idle.iter().enumerate().find_map(|(nth, &core)| {
            let cpu = cores[core].cpus.iter().find(allowed)?;
            Some((nth, core, cpu))
        });
        if let Some((nth, to, cpu)) = found {
            idle.remove(nth);
            (on[core], on[to], *place) = (on[core] - 1, 1, cpu);
        }
    }
}

/// Whether the kernel is about to move a thread in this layout: the threads of a domain that ran in the interval want more
/// cores at their busiest than it has, while another domain has one for a thread that is not held. Which thread moves is
/// not known; where the others are held, it is one that should have stayed.
pub(super) fn are_short(stage: &Stage<'_>, picture: &Picture, cpus: &[CpuId]) -> bool {
    let cores = picture.cores.cores();
    let mut peaks = vec![0.0; cores.len()];
    let ran = |at: &usize| picture.threads[*at].wanted > 0.0;
    let ran: Vec<usize> = (0..cpus.len()).filter(ran).collect();
    let domain = |at: usize| picture.seat(cpus[at]).map(|seat| seat.domain);
    for &at in &ran {
        if let Some(domain) = domain(at) {
            peaks[domain] += picture.threads[at].peak;
        }
    }
    let has_room = |to: usize, peak: f64| peaks[to] + peak <= cores[to] + ROOM;
    let roomy: Vec<usize> = (0..cores.len()).filter(|&to| has_room(to, 0.0)).collect();
    ran.into_iter().any(|at| {
        let load = &picture.threads[at];
        let is_short = domain(at).is_some_and(|domain| peaks[domain] > cores[domain] + ROOM);
        is_short
            && stage.thread(load.at).assigned.is_none()
            && roomy.iter().any(|&to| {
                let mut there = stage.topology.domains()[to].cpus.iter();
                has_room(to, load.peak) && there.any(|cpu| may_have(stage, load.at, cpu))
            })
    })
}

/// For each thread that is to go back to a CPU, whether it can do so without sharing a core while another domain has an
/// idle one.
pub(super) fn fitting(picture: &Picture, back: &[(usize, CpuId)]) -> Vec<(usize, CpuId, bool)> {
    let mut cpus = picture.now();
    for &(at, cpu) in back {
        cpus[at] = cpu;
    }
    let (wanted, cores) = (picture.wanted_in(&cpus), picture.cores.cores());
    let any_idle = (0..cores.len()).any(|domain| wanted[domain] + 1.0 <= cores[domain] + ROOM);
    let fits = |&(at, cpu): &(usize, CpuId)| {
        let domain = picture.seat(cpu).map(|seat| seat.domain);
        let is_full = domain.is_some_and(|domain| wanted[domain] > cores[domain] + ROOM);
        (at, cpu, !(is_full && any_idle))
    };
    back.iter().map(fits).collect()
}
