//! Prefetches of a stream that another core has read or written before.

use super::*;

#[test]
fn a_stream_is_prefetched_on_another_core_as_on_the_first_unless_that_has_written_it() {
    let lines_prefetched = |second: usize, store: bool| {
        let prefetch = Some(Prefetch {
            streams: 16,
            depth_lines: 16,
        });
        let machine = machine(Config {
            prefetch,
            ..config()
        });
        let mut first = Program::on(&machine, 0);
        for address in (0..1 << 20).step_by(64) {
            first.access(address, store, None);
        }
        let mut then = Program::on(&machine, second);
        for address in (0..1 << 20).step_by(64) {
            then.load(address);
        }
        then.settled_ps();
        then.core.counts().prefetch
    };
    // Core 1 shares the last-level cache of core 0; core 2 has another one.
    assert!(lines_prefetched(2, false) > (1 << 20) / 64 * 9 / 10);
    assert_eq!(lines_prefetched(1, false), 0, "all are in the cache");
    assert_eq!(lines_prefetched(2, true), 0, "all are dirty elsewhere");
}
