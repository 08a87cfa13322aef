//! Traces of threads that access pages of their own and shared pages in turn.

use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};
use serde_json::Map;

use crate::PAGE_BYTES;

/// Threads of a trace made by [`shared_pages`].
pub const THREADS: u64 = 4;

/// Number of each thread's own pages, and of each group's shared pages.
const PAGES: u64 = 128;

/// First shared page of the first group, and distance between two groups' shared pages.
const SHARED: (u64, u64) = (5000, 500);

/// Four threads of process 10, numbered from 10, in `groups` (1, 2 or 4) groups of neighbours. The first thread touches
/// all pages, then wakes the others. Then each passes `rounds` times over its own pages and its group's shared pages.
pub fn shared_pages(groups: u64, rounds: usize) -> Trace {
    let line =
        |page: u64, line: u64| Event::load(0x7000_0000 + page * PAGE_BYTES + line * 64, 8, 4);
    let shared = |group: u64| SHARED.0 + group * SHARED.1;
    let mut writer = Writer::new(Vec::new(), PAGE_BYTES, &Map::new()).expect("memory takes all");
    let mut encoder = Encoder::new();
    for number in 0..THREADS {
        let info = ThreadInfo {
            process: 10,
            tid: 10 + number as u32,
            name: "worker".to_owned(),
        };
        let thread = writer.thread(&info);
        let mut events = Vec::new();
        if number == 0 {
            let of_groups = (0..groups).flat_map(|group| shared(group)..shared(group) + PAGES);
            let all = (0..THREADS * PAGES).chain(of_groups);
            events.extend(all.map(|page| line(page, 0)));
            events.extend((1..THREADS as u32).map(|other| Event::wake(other, 0)));
        } else {
            events.push(Event::sleep(0));
        }
        for _ in 0..rounds {
            for page in 0..PAGES {
                for at in 0..8 {
                    let of_group = shared(number * groups / THREADS) + page;
                    events.push(line(number * PAGES + page, at * 8));
                    events.push(line(of_group, at * 8 + number % 2));
                }
            }
        }
        for part in events.chunks(FRAME_EVENTS) {
            let frame = encoder.encode(thread, 0, part).expect("the events fit");
            writer.append(frame).expect("memory takes all");
        }
    }
    let bytes = writer.finish().expect("memory takes all");
    Trace::from_bytes(bytes).expect("a finished trace can be read")
}
