//! How long EagerMap and the refined mapper take, how that grows with threads, and what the one
//! gains over the other.
//!
//! As many threads as CPUs, on a machine of nodes of 8 domains of 8 cores: one node for 64 threads,
//! 64 for 4,096. Three patterns: *scattered grid*, neighbours of a grid in an order that has nothing
//! to do with it; *shifted band*, a chain numbered from elsewhere, EagerMap's weakness; *noise*,
//! every pair with a count of its own, where there is least to find. The table has the
//! median time of repetitions in turns, its growth when threads are four times as many, the refined
//! mapper's time as multiple of EagerMap's, and its quality likewise (lower is better).

#[path = "../src/mapping/patterns.rs"]
#[allow(dead_code)] // The benchmark uses a part of it.
mod patterns;

// What `patterns` is written against.
use numaherd_policy::mapping::Communication;

use std::hint::black_box;
use std::time::{Duration, Instant};

use numaherd_policy::Random;
use numaherd_policy::mapping::{Tree, eager_map, quality, refined_map};
use rand::{Rng, SeedableRng};

const THREADS: [usize; 4] = [64, 256, 1024, 4096];

/// What so many threads communicate.
type Pattern = fn(usize) -> Communication;

const PATTERNS: [(&str, Pattern); 3] = [
    ("scattered grid", |threads| {
        let width = threads.isqrt();
        patterns::scattered(&patterns::grid(threads, width), 27)
    }),
    ("shifted band", |threads| {
        patterns::shifted(&patterns::band(threads, 2), 13)
    }),
    ("noise", |threads| {
        let mut random = Random::seed_from_u64(1);
        Communication::of(threads, |row, column| {
            if row < column {
                random.random_range(0..1000)
            } else {
                0
            }
        })
    }),
];

fn tree(threads: usize) -> Tree {
    Tree::even(&[threads / 64, 8, 8]).expect("as many CPUs as threads")
}

/// The median times of two functions, run in turns so that both see the same machine.
fn medians(repetitions: usize, mut runs: [&mut dyn FnMut(); 2]) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..repetitions {
        for (run, times) in runs.iter_mut().zip(&mut times) {
            let start = Instant::now();
            run();
            times.push(start.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

fn main() {
    println!("pattern         threads   eager (us)  growth  refined (us)  growth  time x  quality");
    for (name, pattern) in PATTERNS {
        let mut before = None;
        for threads in THREADS {
            let (of, tree) = (pattern(threads), tree(threads));
            let of_quality = |mapping: &[_]| quality(&of, &tree, mapping).expect("a mapping");
            let quality = of_quality(&refined_map(&of, &tree)) as f64
                / of_quality(&eager_map(&of, &tree)) as f64;
            assert!(quality <= 1.0, "never worse");
            let mut eager = || drop(black_box(eager_map(&of, &tree)));
            let mut refined = || drop(black_box(refined_map(&of, &tree)));
            let repetitions = (20_000 / threads).clamp(9, 200);
            let times = medians(repetitions, [&mut eager, &mut refined]);
            let us = times.map(|time| time.as_secs_f64() * 1e6);
            let growth = |at: usize| {
                let grown = |before: [f64; 2]| format!("{:.1}", us[at] / before[at]);
                before.map_or_else(|| "-".to_owned(), grown)
            };
            println!(
                "{name:15} {threads:7} {:12.1} {:>7} {:13.1} {:>7} {:7.2} {quality:8.4}",
                us[0],
                growth(0),
                us[1],
                growth(1),
                us[1] / us[0],
            );
            before = Some(us);
        }
    }
}
