//! What is written is read: events, threads, and what is known of the recording.

use numaherd_trace::{Encoder, Error, Event, FRAME_EVENTS, Kind, ThreadInfo, Trace, Writer};
use serde_json::{Map, json};

use crate::{about, read, thread, trace_of, triad, two_threads};

#[test]
fn events_come_back_thread_by_thread() {
    let threads = two_threads();
    let trace = Trace::from_bytes(trace_of(&threads, FRAME_EVENTS)).expect("a trace");
    assert_eq!(trace.damage(), None);
    assert_eq!(trace.threads(), [thread(701), thread(702)]);
    assert_eq!(trace.about(), &about());
    assert_eq!(trace.page_bytes(), 4096);
    assert_eq!(read(&trace), threads);
    let mut alone = trace.all_threads().remove(1);
    let mut events = Vec::new();
    assert!(
        alone
            .next_frame(&mut events)
            .expect("it is whole")
            .is_some()
    );
    assert_eq!(events, threads[1]);
    assert!(
        alone
            .next_frame(&mut events)
            .expect("it is whole")
            .is_none()
    );
    assert_eq!(events, []);
}

#[test]
fn frames_come_in_recorded_order_with_what_is_in_them() {
    let threads = two_threads();
    let trace = Trace::from_bytes(trace_of(&threads, FRAME_EVENTS)).expect("a trace");
    let mut recorded = trace.recorded();
    let mut events = Vec::new();
    let mut order = Vec::new();
    while let Some(frame) = recorded.next_frame(&mut events).expect("it is whole") {
        let gaps: u64 = events.iter().map(|event| u64::from(event.gap)).sum();
        assert_eq!(frame.events as usize, events.len());
        assert_eq!(frame.instructions, gaps);
        order.push((frame.thread, frame.time_ns, events.len()));
    }
    let expected = [(0, 10, FRAME_EVENTS), (1, 20, 501), (0, 30, 1001)];
    assert_eq!(order, expected);
}

#[test]
fn every_kind_size_gap_and_distance_comes_back() {
    let edges = |width: u32| {
        let power = 1_u64.checked_shl(width).unwrap_or(0);
        [power.wrapping_sub(1), power, power.wrapping_neg()]
    };
    let addresses = (0..=64).flat_map(edges);
    let kinds = [Kind::Load, Kind::Store, Kind::Sleep, Kind::Wake];
    let sizes = [0, 1, 2, 3, 4, 8, 10, 16, 32, 64, 65, 128, 255];
    let gaps = [0, 1, 5, 6, 7, 255, 256, 65_536, u32::MAX];
    let mut all = Vec::new();
    for (at, address) in addresses.enumerate() {
        for kind in kinds {
            all.push(Event {
                kind,
                bytes: sizes[at % sizes.len()],
                gap: gaps[(at / 2) % gaps.len()],
                address,
            });
        }
    }
    let trace = Trace::from_bytes(trace_of(&[all.clone()], 100)).expect("a trace");
    assert_eq!(read(&trace), [all]);
}

#[test]
fn many_instructions_between_two_events_take_fillers() {
    let mut events = Vec::new();
    let instructions = 3 * u64::from(u32::MAX) + 17;
    Event::load(64, 8, 0).push_after(instructions, &mut events);
    assert_eq!(events.len(), 4);
    assert!(events[..3].iter().all(|event| !event.is_access()));
    assert_eq!(events[3], Event::load(64, 8, 17));
    let trace = Trace::from_bytes(trace_of(&[events], FRAME_EVENTS)).expect("a trace");
    assert_eq!(trace.frames()[0].instructions, instructions);
}

#[test]
fn threads_are_added_and_renamed_while_events_are_written() {
    let mut encoder = Encoder::new();
    let mut writer = Writer::new(Vec::new(), 4096, &Map::new()).expect("memory takes all");
    let first = writer.thread(&thread(1));
    let mut append = |writer: &mut Writer<Vec<u8>>, thread| {
        let frame = encoder.encode(thread, 0, &triad(3)).expect("it fits");
        writer.append(frame)
    };
    append(&mut writer, first).expect("the thread is known");
    let second = writer.thread(&thread(2));
    append(&mut writer, second).expect("the thread is known");
    let long = ThreadInfo {
        name: "é".repeat(200),
        ..thread(1)
    };
    writer.describe(first, &long);
    let unknown = append(&mut writer, 2);
    assert!(matches!(
        unknown,
        Err(Error::UnknownThread {
            thread: 2,
            known: 2
        })
    ));
    let bytes = writer.finish().expect("memory takes all");
    let trace = Trace::from_bytes(bytes).expect("a trace");
    // 255 bytes are 127 letters of two bytes and half a letter.
    assert_eq!(trace.threads()[0].name, "é".repeat(127));
    assert_eq!(trace.threads()[1], thread(2));
    assert_eq!(read(&trace), [triad(3), triad(3)]);
}

#[test]
fn notes_add_to_what_is_known_of_the_recording() {
    let mut writer = Writer::new(Vec::new(), 4096, &about()).expect("memory takes all");
    let note = json!({"exit": 0, "machine": "opteron"});
    let note = note.as_object().expect("an object");
    writer.note(note).expect("memory takes all");
    let bytes = writer.finish().expect("memory takes all");
    let trace = Trace::from_bytes(bytes).expect("a trace");
    assert_eq!(trace.about()["command"], about()["command"]);
    assert_eq!(trace.about()["machine"], "opteron");
    assert_eq!(trace.about()["exit"], 0);
}

#[test]
fn a_frame_holds_so_many_events_and_no_more() {
    let mut encoder = Encoder::new();
    let events = triad(FRAME_EVENTS + 1);
    let refused = encoder.encode(0, 0, &events);
    assert!(matches!(
        refused,
        Err(Error::FrameFull {
            given: 65_537,
            most: 65_536
        })
    ));
}

#[test]
fn regular_code_takes_far_less_than_a_byte_per_event() {
    let events = triad(FRAME_EVENTS);
    let mut encoder = Encoder::new();
    let frame = encoder.encode(0, 0, &events).expect("it fits");
    assert!(
        frame.bytes() < FRAME_EVENTS / 100,
        "{} bytes",
        frame.bytes()
    );
}
