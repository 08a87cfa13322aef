//! How long DINO (and DI, and adaptive) take to decide, and how that grows with threads.
//!
//! Three cases: *steady*, where everything is where it should be and the plan is empty, as it is most
//! of the time; *first*, where every thread is placed and every decision put into words; and *away*, the same where no
//! thread is where its memory is. Half
//! of the processes have eight threads, the other half one; classes are mixed; eight cores a
//! domain. The targets: 0.5 ms for 1,000 threads on 8 domains, 50 ms for 100,000 on 64; ten times as long for
//! adaptive, which here looks for a layout each time.

use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use numaherd_policy::placement::{adaptive::Adaptive, di::DistributedIntensity, dino::Dino};
use numaherd_policy::{Place, Random, Settings, Staged};
use numaherd_testing::Scene;
use numaherd_world::Placement;
use rand::{Rng, SeedableRng};

/// Threads and domains.
const SIZES: [(u32, usize); 5] = [
    (1_000, 8),
    (1_000, 64),
    (10_000, 64),
    (100_000, 8),
    (100_000, 64),
];

fn scene(threads: u32, domains: usize) -> Scene {
    let mut random = Random::seed_from_u64(1);
    let mut scene = Scene::uniform(domains, 8);
    let cpus = u32::try_from(domains).expect("few domains") * 8;
    for thread in 0..threads {
        let process = if thread < threads / 2 {
            thread / 8
        } else {
            thread
        };
        let rate = [0.5, 20.0, 150.0][random.random_range(0..3)];
        scene.thread(process, rate, random.random_range(0..cpus));
    }
    scene
}

/// The same where the memory of each process is on one node, and no thread of it there.
fn away(threads: u32, domains: usize) -> Scene {
    let mut scene = scene(threads, domains);
    let nodes = u32::try_from(domains).expect("few domains");
    for at in 0..scene.snapshot.threads.len() {
        let thread = &mut scene.snapshot.threads[at];
        let number = thread.process.pid;
        if thread.cpu.0 / 8 == number % nodes {
            thread.cpu.0 = (thread.cpu.0 + 8) % (8 * nodes);
        }
        let counts = thread.counts.as_mut().expect("every thread is counted");
        (counts.local, counts.remote) = (Some(0), Some(counts.lines));
        scene.home(number, "away", number % nodes);
    }
    scene
}

fn place(policy: &mut dyn Place, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    policy.place(&scene.snapshot, &scene.topology, &mut random)
}

/// A DINO that has nothing left to do, and its scene.
fn settled(threads: u32, domains: usize) -> (Staged<Dino>, Scene) {
    let mut scene = scene(threads, domains);
    let mut dino = Staged::new(&Settings::default(), Dino);
    let plan = place(&mut dino, &scene);
    scene.carry_out(&plan);
    assert!(
        place(&mut dino, &scene).is_empty(),
        "the layout must be at rest"
    );
    (dino, scene)
}

fn benchmarks(criterion: &mut Criterion) {
    let settings = Settings::default();
    let mut steady = criterion.benchmark_group("dino/steady");
    for (threads, domains) in SIZES {
        let id = BenchmarkId::new(format!("{domains} domains"), threads);
        let (mut dino, scene) = settled(threads, domains);
        steady.throughput(Throughput::Elements(threads.into()));
        steady.bench_function(id, |b| b.iter(|| place(&mut dino, &scene)));
    }
    steady.finish();
    let adaptive = || Staged::new(&settings, Adaptive::new(&settings));
    first(criterion, "dino/first", scene, || {
        Staged::new(&settings, Dino)
    });
    first(criterion, "di/first", scene, || {
        Staged::new(&settings, DistributedIntensity::default())
    });
    first(criterion, "adaptive/first", scene, adaptive);
    first(criterion, "adaptive/away", away, adaptive);
}

/// Decisions of a policy that has seen nothing yet.
fn first<P: Place>(
    criterion: &mut Criterion,
    name: &str,
    scene: impl Fn(u32, usize) -> Scene,
    fresh: impl Fn() -> P,
) {
    let mut first = criterion.benchmark_group(name);
    for (threads, domains) in SIZES {
        let id = BenchmarkId::new(format!("{domains} domains"), threads);
        let scene = scene(threads, domains);
        first.throughput(Throughput::Elements(threads.into()));
        first.bench_function(id, |b| {
            b.iter_batched_ref(
                &fresh,
                |policy| place(policy, &scene),
                BatchSize::LargeInput,
            );
        });
    }
    first.finish();
}

/// Median time of a decision by size, so that growth can be read off one table.
fn growth() {
    println!(
        "{:>8} {:>8} {:>12} {:>10}",
        "threads", "domains", "steady ms", "ns/thread"
    );
    for (threads, domains) in SIZES {
        let (mut dino, scene) = settled(threads, domains);
        let mut took: Vec<u128> = (0..15)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(place(&mut dino, &scene));
                start.elapsed().as_nanos()
            })
            .collect();
        took.sort_unstable();
        let median = took[took.len() / 2] as f64;
        let (ms, each) = (median / 1e6, median / f64::from(threads));
        println!("{threads:>8} {domains:>8} {ms:>12.3} {each:>10.0}");
    }
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    benchmarks(&mut criterion);
    criterion.final_summary();
    growth();
}
