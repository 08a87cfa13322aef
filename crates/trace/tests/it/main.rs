//! Statements about trace files, as a user of the crate meets them.

mod any_events;
mod damage;
mod import;
mod info;
mod round_trip;
mod sra;

use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};
use serde_json::{Map, Value, json};

/// What the tests' traces say of themselves.
fn about() -> Map<String, Value> {
    let about = json!({"command": ["cg", "-c", "A"], "machine": "xeon64"});
    about.as_object().expect("an object").clone()
}

fn thread(tid: u32) -> ThreadInfo {
    ThreadInfo {
        process: 700,
        tid,
        name: format!("worker-{tid}"),
    }
}

/// A finished trace of these threads, their frames of at most `longest` events taken in turn.
fn trace_of(threads: &[Vec<Event>], longest: usize) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut writer = Writer::new(Vec::new(), 4096, &about()).expect("memory takes all");
    let numbers: Vec<_> = (0..threads.len() as u32)
        .map(|tid| writer.thread(&thread(701 + tid)))
        .collect();
    let mut rest: Vec<_> = threads
        .iter()
        .map(|events| events.chunks(longest))
        .collect();
    let mut time_ns = 0;
    loop {
        let mut is_done = true;
        for (number, chunks) in numbers.iter().zip(&mut rest) {
            let Some(events) = chunks.next() else {
                continue;
            };
            is_done = false;
            time_ns += 10;
            let frame = encoder.encode(*number, time_ns, events).expect("it fits");
            writer.append(frame).expect("memory takes all");
        }
        if is_done {
            return writer.finish().expect("memory takes all");
        }
    }
}

/// All events of each thread.
fn read(trace: &Trace) -> Vec<Vec<Event>> {
    let mut readers = trace.all_threads();
    let all = readers.iter_mut().map(|reader| {
        let (mut all, mut events) = (Vec::new(), Vec::new());
        while reader
            .next_frame(&mut events)
            .expect("nothing is damaged")
            .is_some()
        {
            all.append(&mut events);
        }
        all
    });
    all.collect()
}

/// Two arrays read, a third written, eight bytes at a time, as a loop would.
fn triad(events: usize) -> Vec<Event> {
    let step = |at: usize| (at / 3 * 8) as u64;
    let event = |at: usize| match at % 3 {
        0 => Event::load(0x7f00_0000_0000 + step(at), 8, 2),
        1 => Event::load(0x7f00_1000_0000 + step(at), 8, 1),
        _ => Event::store(0x7f00_2000_0000 + step(at), 8, 3),
    };
    (0..events).map(event).collect()
}

/// Several frames of two threads that wait for each other.
fn two_threads() -> Vec<Vec<Event>> {
    let mut first = triad(FRAME_EVENTS + 1000);
    first.push(Event::wake(1, 7));
    let mut second = vec![Event::sleep(40)];
    second.extend(triad(500));
    vec![first, second]
}
