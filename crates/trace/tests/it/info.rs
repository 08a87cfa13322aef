//! What is in a trace, in figures that can be counted by hand.

use std::collections::BTreeMap;

use numaherd_trace::info::{Counts, WorkingSet, info};
use numaherd_trace::{Event, Trace};

use crate::{read, thread, trace_of, two_threads};

#[test]
fn events_and_pages_are_counted() {
    let first = vec![
        Event::load(0x1000, 8, 3),
        Event::store(0x1ffc, 8, 2),
        Event::load(0x5000, 1, 0),
        Event::filler(100),
        Event::wake(1, 5),
    ];
    let second = vec![Event::sleep(7), Event::load(0x2000, 4, 1)];
    let trace = Trace::from_bytes(trace_of(&[first, second], 10)).expect("a trace");
    let info = info(&trace).expect("memory can be read");
    let total = Counts {
        loads: 3,
        stores: 1,
        instructions: 118,
        sleeps: 1,
        wakes: 1,
    };
    assert_eq!(info.total, total);
    assert_eq!((info.processes, info.threads.len(), info.pages), (1, 2, 3));
    // Pages 1 and 5 are the first thread's, page 2 was accessed by both.
    assert_eq!(info.pages_by_threads, BTreeMap::from([(1, 2), (2, 1)]));
    assert_eq!(info.threads[0].pages, 3);
    assert_eq!(info.threads[1].info, thread(702));
    assert_eq!((info.frames, info.recorded_ns), (2, 20));
    let per_event = trace.frames().iter().map(|frame| frame.bytes).sum::<u64>() as f64 / 7.0;
    assert_eq!(info.bytes_per_event, Some(per_event));
    assert_eq!(info.damage, None);
}

#[test]
fn the_working_set_is_of_windows_of_a_million_instructions() {
    // Three pages in the first window, one in the second, none in the third, two in the fourth,
    // which is not whole and left out.
    let events = vec![
        Event::load(0x1000, 8, 10),
        Event::load(0x2000, 8, 10),
        Event::load(0x1000, 8, 10),
        Event::load(0x3000, 8, 10),
        Event::load(0x1000, 8, 1_000_000),
        Event::load(0x1000, 8, 10),
        Event::load(0x1000, 8, 2_000_000),
        Event::load(0x2000, 8, 10),
    ];
    let whole = Trace::from_bytes(trace_of(std::slice::from_ref(&events), 3)).expect("a trace");
    let whole = info(&whole).expect("memory can be read").working_set;
    let expected = WorkingSet {
        windows: 3,
        mean_pages: 4.0 / 3.0,
        most_pages: 3,
    };
    assert_eq!(whole, Some(expected));
    let short = Trace::from_bytes(trace_of(&[events[..2].to_vec()], 3)).expect("a trace");
    let short = info(&short).expect("memory can be read").working_set;
    let expected = WorkingSet {
        windows: 1,
        mean_pages: 2.0,
        most_pages: 2,
    };
    assert_eq!(short, Some(expected));
}

#[test]
fn figures_of_a_damaged_trace_are_of_what_lies_before() {
    let threads = two_threads();
    let mut bytes = trace_of(&threads, 10_000);
    let whole = Trace::from_bytes(bytes.clone()).expect("a trace");
    let third = whole.frames()[2];
    bytes[(third.at + third.bytes - 1) as usize] ^= 1;
    let trace = Trace::from_bytes(bytes).expect("a trace");
    let info = info(&trace).expect("memory can be read");
    assert_eq!(info.frames, 2);
    assert_eq!(info.damage.expect("it is damaged").at, third.at);
    let before = 10_000 + threads[1].iter().filter(|event| event.is_access()).count();
    assert_eq!(info.total.accesses(), before as u64);
    assert_eq!(read(&whole), threads);
}
