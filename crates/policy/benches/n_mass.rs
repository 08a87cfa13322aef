//! How long N-MASS takes to decide, and how that grows with threads and processors.
//!
//! As many threads as there are cores but for a tenth, single-threaded processes whose homes are the
//! first half of the nodes: maximum-local cannot keep all at home, and there are cores to move
//! others to. Three cases: *quiet*, where no miss rate changed enough and nothing is worked out;
//! *anew*, where all have and everything is, for a plan that is empty or nearly so; and *first*,
//! where every thread is placed and every decision put into words.

use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use numaherd_policy::placement::n_mass::{NMass, Steps};
use numaherd_policy::{Place, Random, Settings, Staged};
use numaherd_testing::Scene;
use numaherd_world::Placement;
use rand::{Rng, SeedableRng};

/// Threads, processors and cores of each.
const SIZES: [(u32, usize, u32); 4] = [
    (1_000, 16, 70),
    (1_000, 139, 8),
    (10_000, 16, 695),
    (10_000, 174, 64),
];

fn scene(threads: u32, domains: usize, cores: u32) -> Scene {
    let mut random = Random::seed_from_u64(1);
    let mut scene = Scene::uniform(domains, cores);
    let nodes = u32::try_from(domains).expect("few domains");
    for thread in 0..threads {
        let rate = [0.5, 10.0, 30.0][random.random_range(0..3)];
        scene.thread(thread, rate, random.random_range(0..nodes * cores));
        scene.home(thread, "program", random.random_range(0..nodes.div_ceil(2)));
    }
    scene
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    // Caches of many cores are under more pressure than the paper's of four.
    settings.n_mass.threshold = 1e6;
    settings
}

fn whole() -> Staged<NMass> {
    Staged::new(&settings(), NMass::new(&settings(), Steps::All))
}

fn place(policy: &mut Staged<NMass>, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    policy.place(&scene.snapshot, &scene.topology, &mut random)
}

/// An N-MASS that has nothing left to do; its scene; and the same with other miss rates.
fn settled(threads: u32, domains: usize, cores: u32) -> (Staged<NMass>, Scene, Scene) {
    let mut scene = scene(threads, domains, cores);
    let mut policy = whole();
    let plan = place(&mut policy, &scene);
    scene.carry_out(&plan);
    assert!(place(&mut policy, &scene).is_empty(), "it must be at rest");
    let mut other = scene.clone();
    for thread in 0..other.snapshot.threads.len() {
        let rate = other.snapshot.threads[thread]
            .counts
            .and_then(|c| c.miss_rate());
        other.set_miss_rate(thread, rate.unwrap_or_default() * 1.5);
    }
    (policy, scene, other)
}

fn benchmarks(criterion: &mut Criterion) {
    for (threads, domains, cores) in SIZES {
        let mut group = criterion.benchmark_group("n-mass");
        group.throughput(Throughput::Elements(threads.into()));
        let id = |case: &str| BenchmarkId::new(format!("{case}, {domains} processors"), threads);
        let (mut policy, one, other) = settled(threads, domains, cores);
        group.bench_function(id("quiet"), |b| b.iter(|| place(&mut policy, &one)));
        let mut turn = false;
        group.bench_function(id("anew"), |b| {
            b.iter(|| {
                turn = !turn;
                place(&mut policy, if turn { &other } else { &one })
            });
        });
        let unplaced = scene(threads, domains, cores);
        group.bench_function(id("first"), |b| {
            let fresh = whole;
            b.iter_batched_ref(fresh, |p| place(p, &unplaced), BatchSize::LargeInput);
        });
        group.finish();
    }
}

/// Median time of a decision by size, so that growth can be read off one table.
fn growth() {
    println!(
        "{:>8} {:>10} {:>10} {:>10}",
        "threads", "processors", "anew ms", "ns/thread"
    );
    for (threads, domains, cores) in SIZES {
        let (mut policy, one, other) = settled(threads, domains, cores);
        let mut took: Vec<u128> = (0..15)
            .map(|round| {
                let scene = if round % 2 == 0 { &other } else { &one };
                let start = Instant::now();
                std::hint::black_box(place(&mut policy, scene));
                start.elapsed().as_nanos()
            })
            .collect();
        took.sort_unstable();
        let median = took[took.len() / 2] as f64;
        let (ms, each) = (median / 1e6, median / f64::from(threads));
        println!("{threads:>8} {domains:>10} {ms:>10.3} {each:>10.0}");
    }
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    benchmarks(&mut criterion);
    criterion.final_summary();
    growth();
}
