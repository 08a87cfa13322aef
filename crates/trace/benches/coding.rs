//! Events per second written and read, by one thread, for code of different regularity.
//!
//! *encode* is what a recorder's thread does (frames of 65,536 events, zstd included), *decode* what
//! a simulation does before anything else. Bytes per event are printed first.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};
use serde_json::Map;

const FRAMES: usize = 16;

/// Numbers without a pattern (xorshift), to gather by.
fn scattered(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Three arrays passed through in step.
fn triad() -> Vec<Event> {
    let step = |at: usize| (at / 3 * 8) as u64;
    let event = |at: usize| match at % 3 {
        0 => Event::load(0x7f00_0000_0000 + step(at), 8, 2),
        1 => Event::load(0x7f00_1000_0000 + step(at), 8, 1),
        _ => Event::store(0x7f00_2000_0000 + step(at), 8, 3),
    };
    (0..FRAMES * FRAME_EVENTS).map(event).collect()
}

/// A sparse matrix times a vector: values, column numbers, and the vector gathered by them.
fn sparse() -> Vec<Event> {
    let mut state = 0x1234_5678_9abc_def1;
    let mut events = Vec::new();
    let mut at = 0_u64;
    while events.len() < FRAMES * FRAME_EVENTS {
        for _ in 0..5 + scattered(&mut state) % 9 {
            let column = scattered(&mut state) % 14_000;
            events.push(Event::load(0x7f00_0000_0000 + 4 * at, 4, 1));
            events.push(Event::load(0x7f00_1000_0000 + 8 * at, 8, 1));
            events.push(Event::load(0x7f00_2000_0000 + 8 * column, 8, 1));
            at += 1;
        }
        events.push(Event::store(0x7f00_3000_0000 + at, 8, 4));
    }
    events.truncate(FRAMES * FRAME_EVENTS);
    events
}

/// Seven points of a grid of 128³ for each one written.
fn stencil() -> Vec<Event> {
    let offsets = [0, -8, 8, -1024, 1024, -131_072, 131_072];
    let event = |at: usize| {
        let point = 0x7f00_0100_0000 + (at / 8 * 8) as u64;
        match offsets.get(at % 8) {
            Some(&offset) => Event::load(point.wrapping_add_signed(offset), 8, 1),
            None => Event::store(point + 0x1000_0000, 8, 3),
        }
    };
    (0..FRAMES * FRAME_EVENTS).map(event).collect()
}

/// Anything anywhere.
fn random() -> Vec<Event> {
    let mut state = 0x1234_5678_9abc_def1;
    let mut event = || {
        let place = scattered(&mut state);
        Event::load(
            0x7f00_0000_0000 + (place >> 34),
            1 << (place & 3),
            (place >> 4 & 7) as u32,
        )
    };
    (0..FRAMES * FRAME_EVENTS).map(|_| event()).collect()
}

fn trace_of(encoder: &mut Encoder, events: &[Event]) -> Trace {
    let mut writer = Writer::new(Vec::new(), 4096, &Map::new()).expect("memory takes all");
    let thread = writer.thread(&ThreadInfo::default());
    for frame in events.chunks(FRAME_EVENTS) {
        let frame = encoder.encode(thread, 0, frame).expect("it fits");
        writer.append(frame).expect("memory takes all");
    }
    let bytes = writer.finish().expect("memory takes all");
    Trace::from_bytes(bytes).expect("a trace")
}

fn coding(criterion: &mut Criterion) {
    let mut encoder = Encoder::new();
    let programs = [
        ("triad", triad()),
        ("sparse", sparse()),
        ("stencil", stencil()),
        ("random", random()),
    ];
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements((FRAMES * FRAME_EVENTS) as u64));
    for (name, events) in &programs {
        let trace = trace_of(&mut encoder, events);
        println!(
            "{name}: {:.3} bytes per event",
            trace.bytes() as f64 / events.len() as f64
        );
        group.bench_function(BenchmarkId::new("encode", name), |bencher| {
            bencher.iter(|| {
                for frame in events.chunks(FRAME_EVENTS) {
                    let frame = encoder.encode(0, 0, frame).expect("it fits");
                    black_box(frame.bytes());
                }
            });
        });
        let mut read = Vec::new();
        group.bench_function(BenchmarkId::new("decode", name), |bencher| {
            bencher.iter(|| {
                let mut reader = trace.recorded();
                while reader.next_frame(&mut read).expect("it is whole").is_some() {
                    black_box(&read);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, coding);
criterion_main!(benches);
