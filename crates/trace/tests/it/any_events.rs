//! Whatever events are written, in frames of whatever length, are read; whatever bytes are read
//! make no reader panic.

use numaherd_trace::{Event, Kind, Trace};
use proptest::prelude::*;

use crate::{read, trace_of};

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        6 => Just(Kind::Load),
        3 => Just(Kind::Store),
        1 => Just(Kind::Sleep),
        1 => Just(Kind::Wake),
    ];
    let bytes = prop_oneof![4 => Just(8), 1 => any::<u8>()];
    let gap = prop_oneof![6 => 0..8_u32, 1 => any::<u32>()];
    // Near each other, so that guesses are right, and anywhere.
    let address = prop_oneof![
        4 => (0..64_u64).prop_map(|at| 0x5000 + 8 * at),
        1 => any::<u64>(),
    ];
    (kind, bytes, gap, address).prop_map(|(kind, bytes, gap, address)| Event {
        kind,
        bytes,
        gap,
        address,
    })
}

fn threads() -> impl Strategy<Value = Vec<Vec<Event>>> {
    prop::collection::vec(prop::collection::vec(event(), 0..300), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read(threads in threads(), longest in 1..200_usize) {
        let trace = Trace::from_bytes(trace_of(&threads, longest)).expect("a trace");
        prop_assert_eq!(trace.damage(), None);
        prop_assert_eq!(read(&trace), threads);
    }

    #[test]
    fn changed_traces_give_no_events_that_were_not_written(
        threads in threads(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
    ) {
        let mut bytes = trace_of(&threads, 40);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(kept.index(bytes.len()) + 1);
        if let Ok(mut trace) = Trace::from_bytes(bytes) {
            trace.check().expect("memory can be read");
            for (read, whole) in read(&trace).iter().zip(&threads) {
                prop_assert_eq!(&read[..], &whole[..read.len()]);
            }
        }
    }
}
