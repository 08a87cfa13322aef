//! The published rules, each with the CPUs of a machine busy and idle.

use std::collections::BTreeSet;

use numaherd_topology::Machine;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// BRM's machine, two sockets of four cores, with `threads_per_core` CPUs per core; siblings have adjacent numbers.
fn machine(threads_per_core: u32) -> Topology {
    let mut machine = Machine::preset("xeon-e5620-2s").unwrap();
    machine.shape.threads_per_core = threads_per_core;
    machine.topology().unwrap()
}

/// Siblings of a core, by the cores of a socket.
fn cores(topology: &Topology, socket: usize) -> Vec<Vec<CpuId>> {
    let of_socket = &topology.domains()[socket].cpus;
    let cores = topology.cores().iter();
    let cores = cores.map(|core| core.cpus.iter().collect::<Vec<_>>());
    cores.filter(|cpus| of_socket.contains(cpus[0])).collect()
}

fn busy(topology: &Topology, cpus: &[CpuId]) -> Loads {
    let mut loads = Loads::new(topology);
    for &cpu in cpus {
        loads.add(cpu, 1.0);
    }
    loads
}

/// What comes of a draw, over many seeds.
fn drawn<T: Ord>(draw: impl Fn(&mut Xoshiro256PlusPlus) -> T) -> BTreeSet<T> {
    let seeds = 0..200;
    seeds
        .map(|seed| draw(&mut Xoshiro256PlusPlus::seed_from_u64(seed)))
        .collect()
}

/// Where a vCPU on `from` goes at a tick, over many seeds.
fn ticks(topology: &Topology, on: &[CpuId], from: CpuId) -> BTreeSet<Option<CpuId>> {
    let (loads, all) = (busy(topology, on), topology.online_cpus());
    drawn(|random| loads.idler_neighbours(topology, from, &all, random))
}

fn to(cpus: &[CpuId]) -> BTreeSet<Option<CpuId>> {
    cpus.iter().copied().map(Some).collect()
}

fn stays() -> BTreeSet<Option<CpuId>> {
    [None].into()
}

#[test]
fn a_thread_starts_on_any_idle_cpu_of_either_socket() {
    let topology = machine(1);
    let all = topology.online_cpus();
    let on: Vec<CpuId> = all.iter().take(3).collect();
    let starts = drawn(|random| busy(&topology, &on).any_idle(&all, random));
    assert_eq!(starts, all.iter().skip(3).collect());
    // Where none is idle, the least loaded.
    let mut full: Vec<CpuId> = all.iter().collect();
    full.extend(&on);
    let starts = drawn(|random| busy(&topology, &full).any_idle(&all, random));
    assert_eq!(starts, all.iter().skip(3).collect());
}

#[test]
fn a_vcpu_leaves_a_busy_sibling_for_an_idle_core_of_its_socket() {
    let topology = machine(2);
    let near = cores(&topology, 0);
    let free = near[1..].concat();
    assert_eq!(ticks(&topology, &near[0], near[0][0]), to(&free));
    // A core with one idle sibling is no better than the vCPU's own core, whose CPU counts as idle.
    let mut on = near[0].clone();
    on.extend(near[1..].iter().map(|core| core[0]));
    assert_eq!(ticks(&topology, &on, near[0][0]), stays());
}

#[test]
fn a_vcpu_leaves_its_socket_for_one_with_more_than_twice_as_many_idle_cpus() {
    let topology = machine(1);
    let (near, far) = (cores(&topology, 0).concat(), cores(&topology, 1).concat());
    // One idle CPU, its own, and four: it goes. Two and four: it stays, though all of its memory were there.
    assert_eq!(ticks(&topology, &near, near[0]), to(&far));
    assert_eq!(ticks(&topology, &near[..3], near[0]), stays());
}

#[test]
fn with_smt_four_vcpus_on_the_cores_of_a_socket_stay_there() {
    let topology = machine(2);
    let on: Vec<CpuId> = cores(&topology, 0).iter().map(|core| core[0]).collect();
    for &from in &on {
        assert_eq!(ticks(&topology, &on, from), stays());
    }
}

#[test]
fn a_vcpu_stays_within_its_mask() {
    let topology = machine(1);
    let (near, far) = (cores(&topology, 0).concat(), cores(&topology, 1).concat());
    let loads = busy(&topology, &near);
    let allowed: CpuSet = [near[0], far[2]].into_iter().collect();
    let goes = drawn(|random| loads.idler_neighbours(&topology, near[0], &allowed, random));
    assert_eq!(goes, to(&far[2..3]));
    let at_home: CpuSet = near.iter().copied().collect();
    let goes = drawn(|random| loads.idler_neighbours(&topology, near[0], &at_home, random));
    assert_eq!(goes, stays());
}

#[test]
fn any_idle_cpu_steals_what_waits_and_a_busy_machine_steals_nothing() {
    let topology = machine(1);
    let all = topology.online_cpus();
    let first = all.first().unwrap();
    let two = busy(&topology, &[first, first]);
    assert!(two.waits(first, 1.0));
    assert_eq!(
        drawn(|random| two.stolen_by(&all, random)),
        all.iter().skip(1).map(Some).collect()
    );
    let every: Vec<CpuId> = all.iter().collect();
    let full = busy(&topology, &every);
    assert!(!full.waits(first, 1.0));
    assert_eq!(drawn(|random| full.stolen_by(&all, random)), stays());
}
