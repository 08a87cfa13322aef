//! Accesses per second of host time: hits, chase, stream and random accesses of one core.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use numaherd_hardware::{Access, Config, Core, Detail, Machine, Memory, Span};

const GIB: u64 = 1 << 30;
const ACCESSES: u64 = 100_000;

fn machine() -> Machine {
    let near_far = |from: usize| (0..4).map(move |to| if from == to { 90.0 } else { 150.0 });
    let latency_ns = (0..4).map(|from| near_far(from).collect()).collect();
    let config = Config::of_equal_nodes(2, latency_ns, 6.4);
    let spans = (0..4).map(|n| Span {
        start: n as u64 * GIB,
        end: (n as u64 + 1) * GIB,
        node: n,
    });
    Machine::new(config, Memory::new(spans).unwrap()).unwrap()
}

/// Runs `ACCESSES` accesses; `next` gives address and value of each from the one before.
fn bench(c: &mut Criterion, name: &str, mut next: impl FnMut(u64) -> (u64, Option<u64>)) {
    let machine = machine();
    let mut core = Core::new(&machine, 0);
    let (mut address, mut instructions) = (0, 0);
    let mut group = c.benchmark_group("accesses");
    group
        .throughput(Throughput::Elements(ACCESSES))
        .sample_size(20);
    group.bench_function(name, |b| {
        b.iter(|| {
            for _ in 0..ACCESSES {
                let (following, value) = next(address);
                let access = Access {
                    virtual_address: address,
                    physical_address: address,
                    store: false,
                };
                instructions += 5;
                black_box(core.access(&machine, access, || Detail {
                    instructions,
                    value,
                }));
                address = following;
            }
        });
    });
    group.finish();
}

/// The next of a fixed pseudo-random sequence of lines (a full-period congruence).
fn shuffled(address: u64, bytes: u64) -> u64 {
    (((address / 64) * 1_664_525 + 1_013_904_223) * 64) % bytes
}

fn accesses(c: &mut Criterion) {
    bench(c, "hit, one line", |_| (64, None));
    bench(c, "hit, 16 KiB", |address| {
        ((address + 64) % (16 << 10), None)
    });
    bench(c, "stream, 8 bytes", |address| {
        ((address + 8) % (64 << 20), None)
    });
    bench(c, "random, 64 MiB", |address| {
        (shuffled(address, 64 << 20), None)
    });
    bench(c, "chase, 64 MiB", |address| {
        let following = shuffled(address, 64 << 20);
        (following, Some(following))
    });
}

criterion_group!(benches, accesses);
criterion_main!(benches);
