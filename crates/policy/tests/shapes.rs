//! Every policy of live machines on machines of every shape: nodes without CPUs or memory, several last-level caches in a
//! node, several nodes in a socket, SMT.

use std::sync::Arc;

use numaherd_policy::policy::Random;
use numaherd_policy::registry;
use numaherd_policy::settings::Settings;
use numaherd_testing::{Scene, Shape};
use numaherd_topology::{CpuId, CpuSet, Machine, NodeId, Topology};
use numaherd_world::{Residency, Snapshot, VirtualMachine};
use proptest::prelude::*;
use rand::SeedableRng;

/// Machines whose shapes differ.
const SHAPES: [&str; 10] = [
    "epyc-9355p-1s",
    "epyc-9355p-1s-nps4",
    "epyc-9654-1s-nps4",
    "grace-superchip",
    "lab-2x2x2",
    "lab-4x2",
    "lab-smt",
    "lab-uneven",
    "xeon-6980p-2s-snc3",
    "xeon-max-9480-2s-flat",
];

/// Machines with two hardware threads a core, or four, that are numbered one after the other.
fn with_siblings() -> Vec<Topology> {
    let shape = |domains, cores, siblings| {
        let shape = Shape {
            siblings,
            ..Shape::uniform(domains, cores)
        };
        shape.topology()
    };
    let lab = Machine::preset("lab-smt").unwrap().topology().unwrap();
    vec![lab, shape(4, 2, 2), shape(2, 8, 2), shape(8, 4, 4)]
}

/// Busy threads, each a process with its memory on some node with memory, at miss rates of every class.
fn scene(topology: Topology, rates: &[f64], start: usize) -> Scene {
    let mut scene = Scene::uniform(1, 1);
    let all: Arc<CpuSet> = Arc::new(topology.cpus().iter().map(|cpu| cpu.id).collect());
    let memory: Vec<NodeId> = topology.memory_nodes().iter().collect();
    let cpus: Vec<CpuId> = all.iter().collect();
    scene.snapshot = Snapshot {
        online: (*all).clone(),
        ..numaherd_testing::snapshot(&topology, 1.0, &[])
    };
    scene.topology = topology;
    for (number, &rate) in (0..).zip(rates) {
        let at = number as usize;
        let cpu = cpus[(start + at) % cpus.len()];
        let home = memory[at % memory.len()];
        scene.home(number + 1, "vcpu", home.0);
        let residency = Residency {
            pages: vec![(home, 1000)],
            kinds: None,
        };
        scene.snapshot.processes[at].residency = Some(residency);
        let thread = scene.thread(number + 1, rate, cpu.0);
        (thread.affinity, thread.cpuset) = (all.clone(), all.clone());
        let machine = VirtualMachine::clone(&numaherd_testing::virtual_machine(
            "vm",
            std::slice::from_ref(thread),
        ));
        scene.snapshot.processes[at].machine = Some(Arc::new(machine));
    }
    scene
}

/// Lets a policy decide a few times, each on what came of the time before.
fn decide(policy: &str, scene: &mut Scene) -> Result<(), TestCaseError> {
    let mut policy = registry::build(policy, &Settings::default()).unwrap();
    let mut random = Random::seed_from_u64(7);
    for _ in 0..4 {
        let plan = policy
            .placement
            .place(&scene.snapshot, &scene.topology, &mut random);
        for placement in &plan {
            let known = scene.topology.cpu(placement.to);
            prop_assert!(known.is_some(), "no such CPU: {placement:?}");
        }
        scene.carry_out(&plan);
        for released in policy.placement.release(&scene.snapshot) {
            let mut threads = scene.snapshot.threads.iter_mut();
            threads
                .find(|thread| thread.id == released.thread)
                .unwrap()
                .assigned = None;
        }
        scene.snapshot.sequence += 1;
        scene.snapshot.time_ns += scene.snapshot.interval_ns;
    }
    Ok(())
}

/// Domains with more threads than cores, one of which was put there, while another domain has an idle core. Within a domain
/// the kernel spreads threads over idle cores: the affinity that they get is the whole of it.
fn overfull(scene: &Scene) -> usize {
    let domains = scene.topology.domains().iter();
    let in_each: Vec<(usize, usize, bool)> = domains
        .map(|domain| {
            let cores = scene
                .topology
                .cores()
                .iter()
                .filter(|core| core.domain == domain.id);
            let threads =
                || (scene.snapshot.threads.iter()).filter(|t| domain.cpus.contains(t.place()));
            (
                cores.count(),
                threads().count(),
                threads().any(|t| t.assigned.is_some()),
            )
        })
        .collect();
    let is_idle = in_each.iter().any(|&(cores, threads, _)| threads < cores);
    let over = |(cores, threads, put): &&(usize, usize, bool)| threads > cores && *put;
    if is_idle {
        in_each.iter().filter(over).count()
    } else {
        0
    }
}

/// Threads that share a core with another that was put there, or were put there themselves, while a core of the machine
/// is idle.
fn share_a_core(scene: &Scene) -> usize {
    let threads = &scene.snapshot.threads;
    let cores = scene.topology.cores().iter();
    let on_each = cores.map(|core| {
        threads
            .iter()
            .filter(|thread| core.cpus.contains(thread.place()))
    });
    let on_each: Vec<(usize, bool)> = on_each
        .map(|on| {
            (
                on.clone().count(),
                on.clone().any(|thread| thread.assigned.is_some()),
            )
        })
        .collect();
    let is_idle = on_each.iter().any(|&(threads, _)| threads == 0);
    let shared = on_each.iter().filter(|&&(threads, put)| threads > 1 && put);
    if is_idle { shared.count() } else { 0 }
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.5), 2.0..100.0f64, 100.0..400.0f64]
}

fn rates() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(rate(), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn every_policy_runs_on_every_shape(rates in rates(), start in 0usize..64) {
        for name in SHAPES {
            for policy in registry::for_live_machines() {
                let topology = Machine::preset(name).unwrap().topology().unwrap();
                let mut scene = scene(topology, &rates, start);
                decide(policy.name, &mut scene)?;
            }
        }
    }

    #[test]
    fn no_domain_gets_more_vcpus_than_cores_while_a_core_elsewhere_is_idle(rates in rates(), start in 0usize..64) {
        for policy in registry::for_live_machines().filter(|policy| policy.name != "random") {
            let topology = Machine::preset("lab-smt").unwrap().topology().unwrap();
            let few = rates.len().min(topology.cores().len());
            let mut scene = scene(topology, &rates[..few], start);
            decide(policy.name, &mut scene)?;
            prop_assert_eq!(overfull(&scene), 0, "{} {:?}", policy.name, scene.places());
        }
    }

    #[test]
    fn adaptive_puts_no_two_threads_on_one_core_while_another_core_is_idle(
        rates in proptest::collection::vec(rate(), 1..24), start in 0usize..64,
    ) {
        for topology in with_siblings() {
            let few = rates.len().min(topology.cores().len());
            let mut scene = scene(topology, &rates[..few], start);
            decide("adaptive", &mut scene)?;
            prop_assert_eq!(share_a_core(&scene), 0, "{:?}", scene.places());
        }
    }
}
