//! The modelled kernel's NUMA balancing: pages go to their threads, threads to their pages, and what neither helps
//! stays.

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use numaherd_model::program::Library;
use numaherd_model::{Binding, Hardware, Job, Model, Options, Placement, Program, Until};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{Progress, World};
use proptest::prelude::*;

use crate::round;

fn hardware() -> Hardware {
    let memory = "node_gb_per_s = 6.4\nlink_gb_per_s = 3.2";
    round::hardware("memory_per_node_mib = 4096", "", memory, "")
}

/// A program of so many threads that share a part of 512 MiB, each with 10 lines per 1000 instructions, one at a time.
fn program(threads: u32, shared_accesses: f64) -> Arc<Program> {
    let text = format!(
        "source = \"made up for tests\"\n[[program]]\nname = \"walkers\"\nabout = \"for tests\"\n\
         footprint_mib = 512\nthreads = {threads}\nshared_accesses = {shared_accesses}\n\
         [[program.phase]]\ninstructions = 3e10\ncycles_per_instruction = 1\ncache_accesses = 10\n\
         lines = [[1, 10]]\nmisses_in_flight = 1\nwritten_per_line = 0\n"
    );
    let library = Library::parse(&text, Path::new("tests.toml"));
    let library = library.unwrap_or_else(|error| panic!("{error}"));
    library.get("walkers").unwrap().clone()
}

fn cpus(cpus: &[u32]) -> Vec<CpuId> {
    cpus.iter().copied().map(CpuId).collect()
}

/// What became of jobs: how long the first took, and where its pages and its threads were half-way.
struct Ran {
    seconds: f64,
    pages: [u64; 2],
    nodes: Vec<u32>,
}

fn run(jobs: &[Job], numa_balancing: bool) -> Ran {
    let options = Options {
        numa_balancing,
        ..Options::default()
    };
    let until = Until::Completions(1);
    let mut model = Model::new(hardware(), jobs.to_vec(), until, options).unwrap();
    assert_eq!(model.run_for(Duration::from_secs(25)), Progress::Ran);
    let seen = model.observe().unwrap();
    let on = |node| {
        let process = &seen.processes[0];
        let residency = process.residency.as_ref().unwrap();
        let pages = residency.pages.iter().find(|&&(at, _)| at == NodeId(node));
        pages.map_or(0, |&(_, pages)| pages)
    };
    let topology = model.topology().clone();
    let node = |cpu| topology.node_of(cpu).unwrap().0;
    let nodes = seen.threads.iter().map(|thread| node(thread.cpu)).collect();
    while model.run_for(Duration::from_secs(1)) == Progress::Ran {}
    let completions = model.completions();
    Ran {
        seconds: completions
            .iter()
            .find(|run| run.job == 0)
            .unwrap()
            .seconds(),
        pages: [on(0), on(1)],
        nodes,
    }
}

#[test]
fn pages_go_to_a_thread_that_cannot_go_to_them() {
    let job = |home| Job::new(program(1, 0.0)).homed(NodeId(home)).on(cpus(&[0]));
    let [local, without, with] =
        [(0, false), (1, false), (1, true)].map(|(home, on)| run(&[job(home)], on));
    assert_eq!(without.pages, [0, 131_072]);
    assert_eq!(with.pages, [131_072, 0]);
    assert!(without.seconds > 1.4 * local.seconds);
    // The pages' own way: 2 us and a fault each, and some passes of two scans.
    let cost = with.seconds / local.seconds;
    assert!((1.0..1.1).contains(&cost), "{cost}");
}

#[test]
fn each_thread_gets_its_own_pages() {
    let job = Job {
        memory: Placement::On(NodeId(0)),
        binding: Binding::StartOn(cpus(&[0, 1, 2, 3])),
        ..Job::new(program(4, 0.0))
    };
    let (without, with) = (run(slice::from_ref(&job), false), run(&[job], true));
    assert_eq!(without.pages, [131_072, 0]);
    assert_eq!(with.pages, [65_536, 65_536]);
    assert_eq!(with.nodes.iter().sum::<u32>(), 2, "{:?}", with.nodes);
    assert!(with.seconds < 0.95 * without.seconds);
}

#[test]
fn processes_whose_threads_share_pages_part_by_node() {
    let job = |home, first, second| Job {
        memory: Placement::On(NodeId(home)),
        binding: Binding::StartOn(cpus(&[first, second])),
        ..Job::new(program(2, 1.0))
    };
    let jobs = [job(0, 0, 2), job(1, 1, 3)];
    let (without, with) = (run(&jobs, false), run(&jobs, true));
    assert_eq!(without.nodes, [0, 1, 0, 1]);
    assert_eq!(with.nodes, [0, 0, 1, 1]);
    assert_eq!(with.pages, [131_072, 0]);
    assert!(with.seconds < 0.9 * without.seconds);
}

#[test]
fn what_is_at_home_pays_for_faults_alone() {
    let job = Job::new(program(1, 0.0)).homed(NodeId(0)).on(cpus(&[0]));
    let (without, with) = (run(slice::from_ref(&job), false), run(&[job], true));
    assert_eq!(with.pages, without.pages);
    // A pass of 131,072 faults of 1.5 us takes at least a second, and more with each.
    let cost = with.seconds / without.seconds - 1.0;
    assert!((0.001..0.1).contains(&cost), "{cost}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever runs: no page is lost, and the same seed gives the same run.
    #[test]
    fn pages_are_kept_and_runs_are_repeatable(
        threads in 1u32..5,
        shared in prop::sample::select(vec![0.0, 0.3, 1.0]),
        home in 0u32..2,
        seed: u64,
    ) {
        let options = Options { numa_balancing: true, seed, ..Options::default() };
        let ran = || {
            let job = Job::new(program(threads, shared)).homed(NodeId(home));
            let until = Until::Time(Duration::from_secs(20));
            let mut model = Model::new(hardware(), vec![job.clone(), job], until, options).unwrap();
            let mut seen = Vec::new();
            while model.run_for(Duration::from_secs(1)) == Progress::Ran {
                let snapshot = model.observe().unwrap();
                let used: u64 = snapshot.nodes.iter().map(|node| node.total_bytes - node.free_bytes).sum();
                let residency = snapshot.processes.iter().filter_map(|process| process.residency.clone());
                let pages: Vec<_> = residency.map(|residency| residency.pages).collect();
                let all: u64 = pages.iter().flatten().map(|&(_, pages)| pages).sum();
                assert_eq!(used, all * 4096);
                seen.push(pages);
            }
            seen
        };
        prop_assert_eq!(ran(), ran());
    }
}
