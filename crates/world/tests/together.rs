//! Several intervals as one.

use numaherd_testing::{cpus, machine, snapshot, thread};
use numaherd_topology::CpuId;
use numaherd_world::{Counts, Snapshot, Thread};

fn seen(sequence: u64, interval_ns: u64, threads: &[Thread]) -> Snapshot {
    Snapshot {
        sequence,
        time_ns: sequence * 1000,
        interval_ns,
        online: cpus(""),
        gaps: vec!["seen once".to_owned()],
        ..snapshot(&machine(1, 4), 0.0, threads)
    }
}

fn ran(number: u32, cpu: u32, cpu_share: f64, instructions: u64) -> Thread {
    Thread {
        cpu_share,
        counts: Some(Counts {
            instructions,
            lines: instructions / 10,
            counted_share: 1.0,
            ..Counts::default()
        }),
        ..thread(number, 1, cpu, &machine(1, 4))
    }
}

#[test]
fn counts_are_summed_shares_averaged_by_time_and_the_rest_is_the_later() {
    let earlier = seen(4, 300, &[ran(1, 0, 1.0, 500), ran(2, 0, 1.0, 7)]);
    let later = seen(5, 100, &[ran(1, 3, 0.0, 40), ran(3, 1, 1.0, 9)]);
    let both = earlier.with_later(&later);
    assert_eq!(
        (both.sequence, both.time_ns, both.interval_ns),
        (5, 5000, 400)
    );
    let one = &both.threads[0];
    assert_eq!((one.cpu, one.cpu_share), (CpuId(3), 0.75));
    let counts = one.counts.unwrap();
    assert_eq!((counts.instructions, counts.lines), (540, 54));
    let new = &both.threads[1];
    assert_eq!((new.id.tid, new.cpu_share), (3, 0.25), "not there before");
    assert_eq!(both.threads.len(), 2, "thread 2 has ended");
    assert_eq!(both.gaps, ["seen once"]);
}
