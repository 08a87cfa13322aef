//! Accesses per second of host time that a trace is played with, on one host core.
//!
//! Sixteen threads on sixteen cores of the machine Xeon64 of IPM, with its TLBs, three levels of caches
//! and the IPM unit. They walk through a megabyte each, eight bytes at a time, storing every fourth, and
//! read a part of their neighbours': the pattern of the field's stencils. The same with everything in the
//! first-level cache, and with no access to the page before, are the two ends.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use numaherd_topology::{CpuId, Machine};
use numaherd_trace::world::{Hardware, Options, TraceWorld};
use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};
use numaherd_world::{Progress, World};

const THREADS: u64 = 16;
const ACCESSES: u64 = 50_000;
const BASE: u64 = 0x7f00_0000_0000;

/// Gives the address of a step of a thread.
type Pattern = fn(thread: u64, step: u64) -> u64;

const PATTERNS: [(&str, Pattern); 3] = [
    ("hits, 16 KiB each", |thread, step| {
        (thread << 20) + step * 8 % (16 << 10)
    }),
    ("stencil, 1 MiB each", |thread, step| {
        let of = if step.is_multiple_of(8) {
            (thread + 1) % THREADS
        } else {
            thread
        };
        (of << 20) + step * 8 % (1 << 20)
    }),
    ("random, 64 MiB together", |thread, step| {
        let mixed = (thread << 32 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 38) / 8 * 8
    }),
];

fn trace(pattern: Pattern) -> Trace {
    let mut writer = Writer::new(Vec::new(), 4096, &serde_json::Map::new()).expect("into memory");
    let mut encoder = Encoder::new();
    for thread in 0..THREADS {
        let number = writer.thread(&ThreadInfo {
            process: 1,
            tid: thread as u32 + 1,
            name: "thread".to_owned(),
        });
        let wakes = (1..THREADS).map(|other| Event::wake(other as u32, 0));
        let accesses = (0..ACCESSES).map(|step| {
            let address = BASE + pattern(thread, step);
            if step.is_multiple_of(4) {
                Event::store(address, 8, 4)
            } else {
                Event::load(address, 8, 4)
            }
        });
        let events: Vec<Event> = wakes.filter(|_| thread == 0).chain(accesses).collect();
        for part in events.chunks(FRAME_EVENTS) {
            let frame = encoder.encode(number, 0, part).expect("a frame's worth");
            writer.append(frame).expect("into memory");
        }
    }
    Trace::from_bytes(writer.finish().expect("into memory")).expect("a trace")
}

fn world(c: &mut Criterion) {
    let machine = Machine::preset("xeon-x7550-4s").expect("a preset");
    let hardware = Hardware::of(&machine).expect("it has all figures");
    let mut options = Options::default();
    options.start.cpus = (0..THREADS)
        .map(|thread| Some(CpuId(thread as u32 * 2)))
        .collect();
    for (name, pattern) in PATTERNS {
        let trace = trace(pattern);
        let mut group = c.benchmark_group(name);
        group
            .throughput(Throughput::Elements(THREADS * ACCESSES))
            .sample_size(10);
        group.bench_function("played", |b| {
            b.iter_batched(
                || TraceWorld::new(hardware.clone(), &trace, options.clone()).unwrap(),
                |mut world| {
                    while world.run_for(Duration::from_secs(1)) == Progress::Ran {}
                    black_box(world)
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, world);
criterion_main!(benches);
