//! What modelled time costs: an hour of eight programs on four nodes, watched every second and every
//! 10 ms (BRM's tick), a minute of BRM's micro-benchmark, whose phases take milliseconds, and one
//! epoch of ever larger machines, beside a plain pass over the same threads (the least that any model
//! must do).

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use numaherd_model::program::Library;
use numaherd_model::{Hardware, Job, Micro, Model, Options, Until};
use numaherd_topology::{Machine, NodeId};
use numaherd_world::{Progress, World};

const PROGRAMS: [&str; 8] = [
    "mcf", "milc", "soplex", "lbm", "gobmk", "omnetpp", "namd", "povray",
];

fn jobs(count: usize, nodes: u32) -> Vec<Job> {
    let library = Library::built_in();
    let program = |at: usize| {
        let mut program = (**library.get(PROGRAMS[at % 8]).expect("a built-in program")).clone();
        // So that any number fits into the machine.
        program.footprint_bytes = 4 << 20;
        Arc::new(program)
    };
    let homed = |at: usize| Job::new(program(at)).homed(NodeId(at as u32 / 4 % nodes));
    (0..count).map(homed).collect()
}

fn hour(c: &mut Criterion) {
    let machine = Machine::preset("opteron-8356-4s").expect("a preset");
    let hardware = Hardware::of(&machine).expect("figures");
    let mut group = c.benchmark_group("an hour of eight programs on four nodes");
    group.sample_size(20);
    let second = Duration::from_secs(1);
    let tick = Duration::from_millis(10);
    for (name, variation, interval) in [
        ("even", 0.0, second),
        ("varying every second", 0.05, second),
        ("varying every second, watched every 10 ms", 0.05, tick),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let options = Options {
                    variation,
                    ..Options::default()
                };
                let until = Until::Time(Duration::from_secs(3600));
                let jobs = jobs(8, 4);
                let mut model = Model::new(hardware.clone(), jobs, until, options).expect("jobs");
                while model.run_for(interval) == Progress::Ran {
                    black_box(model.observe().expect("a snapshot"));
                }
            });
        });
    }
}

fn micro(c: &mut Criterion) {
    let machine = Machine::preset("xeon-e5620-2s").expect("a preset");
    let hardware = Hardware::of(&machine).expect("figures");
    let micro = Micro {
        threads: 4,
        working_set_bytes: 16 << 20,
        shared_bytes: 128 << 10,
        loops: 1000,
    };
    let program = Arc::new(micro.program(&hardware).expect("something to do"));
    let mut group = c.benchmark_group("a minute of the micro-benchmark");
    group.sample_size(10);
    for (name, interval) in [
        ("watched every second", Duration::from_secs(1)),
        ("watched every 10 ms", Duration::from_millis(10)),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let until = Until::Time(Duration::from_secs(60));
                // Memory on one node of two, so that threads do not keep step.
                let job = Job::new(program.clone()).homed(NodeId(0));
                let options = Options::default();
                let mut model =
                    Model::new(hardware.clone(), vec![job], until, options).expect("a job");
                while model.run_for(interval) == Progress::Ran {
                    black_box(model.observe().expect("a snapshot"));
                }
            });
        });
    }
}

/// A machine of so many nodes with 64 cores each, every node joined to every other.
fn machine(nodes: usize) -> Machine {
    let row = |from: usize| -> String {
        let latency = |to: usize| if from == to { "100" } else { "180" };
        let row: Vec<&str> = (0..nodes).map(latency).collect();
        format!("[{}]", row.join(","))
    };
    let rows: Vec<String> = (0..nodes).map(row).collect();
    let text = format!(
        "name='big'\ndescription='for benchmarks'\nsource='made up'\n[shape]\nnodes={nodes}\n\
         cores_per_domain=64\nmemory_per_node_mib=65536\n[[cache]]\nlevel=3\nkind='unified'\n\
         size_kib=65536\nshared_by='domain'\n[memory]\nlatency_ns=[{}]\nnode_gb_per_s=200\n\
         link_gb_per_s=50\n[core]\nclock_ghz=2.0\nmisses_in_flight=12\n",
        rows.join(",")
    );
    Machine::parse(&text, Path::new("big.toml")).expect("a machine")
}

fn epoch(c: &mut Criterion) {
    let mut group = c.benchmark_group("one epoch");
    group.sample_size(10);
    for (threads, nodes) in [(100, 1), (1_000, 8), (10_000, 64), (40_000, 64)] {
        let hardware = Hardware::of(&machine(nodes)).expect("figures");
        let until = Until::Time(Duration::from_secs(1 << 40));
        let options = Options {
            variation: 0.05,
            ..Options::default()
        };
        let jobs = jobs(threads, nodes as u32);
        let mut model = Model::new(hardware, jobs, until, options).expect("jobs");
        // Everything varies once a second, so that each second is an epoch of its own.
        model.run_for(Duration::from_millis(1500));
        let name = format!("{threads} threads, {nodes} nodes, {} cores", 64 * nodes);
        group.bench_function(BenchmarkId::new("solved", &name), |b| {
            b.iter(|| model.run_for(Duration::from_secs(1)));
        });
        group.bench_function(BenchmarkId::new("one pass over the threads", &name), |b| {
            b.iter(|| black_box(model.observe().expect("a snapshot")));
        });
    }
}

criterion_group!(benches, hour, micro, epoch);
criterion_main!(benches);
