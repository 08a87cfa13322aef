//! Trace files: any bytes, and bytes that were a trace before a few of them were changed.
//!
//! The input is a choice and bytes. With an even choice the bytes are read as a trace. With an odd
//! one they are first made into events (sixteen bytes each) of up to four threads and written as a
//! trace of frames of up to 50 events; then the bytes that the choice names are changed and the end
//! is cut off.
//!
//! Holds: no bytes make the reader panic; after a check nothing that is read is damaged; of a trace
//! that was changed, each thread's events are a beginning of those that were written; one that was
//! not changed is read whole.
//!
//! Reader: crates/trace/src/file.rs crates/trace/src/file
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_trace::info::info;
use numaherd_trace::{Encoder, Event, Kind, ThreadInfo, Trace, Writer};

/// Events of one input.
const MOST_EVENTS: usize = 2000;
const FRAME: usize = 50;

numaherd_fuzz::target!(|input: (u8, [(u16, u8); 3], u16, &[u8])| {
    let (choice, changes, cut, bytes) = input;
    if choice % 2 == 0 {
        read(bytes.to_vec());
        return;
    }
    let threads = threads(bytes);
    let mut file = written(&threads);
    let is_changed = choice % 4 == 3;
    if is_changed {
        for (at, byte) in changes {
            let at = usize::from(at) % file.len();
            file[at] = byte;
        }
        file.truncate(file.len() - usize::from(cut) % file.len());
    }
    let events = read(file);
    if !is_changed {
        assert_eq!(events.as_deref(), Some(&threads[..]));
    }
    for (read, written) in events.iter().flatten().zip(&threads) {
        assert_eq!(read[..], written[..read.len()]);
    }
});

/// Reads bytes as a trace: every thread's events up to the damage, if they are one.
fn read(bytes: Vec<u8>) -> Option<Vec<Vec<Event>>> {
    let mut trace = match Trace::from_bytes(bytes) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    trace.check().expect("memory can be read");
    let counted = info(&trace).expect("memory can be read");
    assert_eq!(counted.damage.as_ref(), trace.damage());
    let mut all = Vec::new();
    for mut reader in trace.all_threads() {
        let (mut thread, mut events) = (Vec::new(), Vec::new());
        while reader
            .next_frame(&mut events)
            .expect("it was checked")
            .is_some()
        {
            thread.append(&mut events);
        }
        all.push(thread);
    }
    Some(all)
}

fn threads(bytes: &[u8]) -> Vec<Vec<Event>> {
    let mut threads = vec![Vec::new()];
    let (events, _) = bytes.as_chunks::<16>();
    for event in events.iter().take(MOST_EVENTS) {
        let thread = usize::from(event[0] >> 6);
        threads.resize(threads.len().max(thread + 1), Vec::new());
        let kind = match event[0] & 3 {
            0 => Kind::Load,
            1 => Kind::Store,
            2 => Kind::Sleep,
            _ => Kind::Wake,
        };
        let word = |at: usize| {
            u32::from_le_bytes([event[at], event[at + 1], event[at + 2], event[at + 3]])
        };
        threads[thread].push(Event {
            kind,
            bytes: event[1],
            gap: word(4) >> (event[2] & 31),
            address: u64::from(word(8)) << 32 | u64::from(word(12)),
        });
    }
    threads
}

fn written(threads: &[Vec<Event>]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let about = serde_json::Map::new();
    let mut writer = Writer::new(Vec::new(), 4096, &about).expect("memory takes all");
    for events in threads {
        let thread = writer.thread(&ThreadInfo::default());
        for events in events.chunks(FRAME) {
            let frame = encoder.encode(thread, 0, events).expect("it fits");
            writer.append(frame).expect("memory takes all");
        }
    }
    writer.finish().expect("memory takes all")
}
