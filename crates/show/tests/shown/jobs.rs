//! What a batch job lost, in the lines that a user finds at its end.

use std::sync::Arc;

use numaherd_policy::losses::{Basis, Estimate, Losses, Parts, Range, Unknown};
use numaherd_show::job::{Job, Pinned, Reading};
use numaherd_world::Thread;

use crate::lost::{known, of, range};
use crate::made::*;

/// A job of two tasks, in each second of which this was lost; what it is said to have lost.
fn job(seconds: &[Losses], change: impl Fn(&mut Thread)) -> Job {
    let mut made = Made::new("linux");
    for losses in seconds {
        let mut threads = vec![
            thread(100, 100, "a", 1, 1_000, 41.0, 0.5),
            thread(200, 200, "b", 2, 1_000, 41.0, 0.5),
        ];
        threads.iter_mut().for_each(&change);
        let processes = [100, 200].map(|pid| process(pid, "chase", &[(0, 20_000)]));
        made.second(threads, processes.to_vec());
        made.lost(losses.clone());
        made.placed(vec![], vec![]);
    }
    let mut reading = Reading::new("job 4711 on node n3", &made.ledger().header);
    made.shared().for_each(|line| reading.line(&line));
    reading.finish(0, None)
}

/// Of two CPUs that were wanted, a tenth is lost, to this; some of it is recoverable.
fn a_tenth_to(parts: Parts) -> Losses {
    let mut losses = known(
        Basis::Uncore,
        range(0.1, 0.2, 0.4),
        Some(range(0.1, 0.18, 0.3)),
    );
    losses.judged = 2.0;
    if let Estimate::Known(known) = &mut losses.estimate {
        known.parts = Some(parts);
    }
    losses
}

fn to_remote() -> Losses {
    a_tenth_to(Parts {
        remote: 0.16,
        caches: 0.03,
        controllers: 0.01,
        cpus: 0.0,
    })
}

fn to_caches() -> Losses {
    a_tenth_to(Parts {
        caches: 0.2,
        ..Parts::default()
    })
}

fn free(_: &mut Thread) {}

/// The first task has a half of the machine, the second the other.
fn bound(thread: &mut Thread) {
    let half = if thread.cpu.0 == 1 { "0-3" } else { "4-7" };
    thread.affinity = Arc::new(cpus(half));
}

#[test]
fn the_report_says_what_was_lost_to_what_and_what_would_have_helped() {
    let at_most = Range {
        mean: None,
        ..range(0.0, 0.0, 0.5)
    };
    let said = [
        job(&[to_remote(), to_remote()], free),
        job(&[to_caches()], free),
        job(&[known(Basis::Uncore, range(0.0, 0.0, 0.0), None)], free),
        job(&[known(Basis::Counters, at_most, None)], free),
        job(&[known(Basis::Residency, at_most, None)], free),
        job(&[of(Estimate::Unknown(Unknown::NotCounted))], free),
        job(&[of(Estimate::Idle)], free),
        job(&[], free),
    ];
    let said: Vec<String> = said.iter().map(|job| job.text(Pinned::Quiet)).collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_job_that_binds_its_threads_and_has_the_machine_is_reported_only_when_asked() {
    let pinned = job(&[to_remote()], bound);
    assert!(pinned.is_pinned());
    assert_eq!(pinned.text(Pinned::Quiet), "");
    assert!(pinned.text(Pinned::Reported).contains("lost 10 %"));

    let beside_others = job(&[to_remote()], |thread| {
        thread.affinity = Arc::new(cpus("0-3"));
    });
    assert!(!beside_others.is_pinned());
    assert_eq!(beside_others.bound, 1.0);
    // Whose cpuset has no other CPUs has bound nothing.
    let confined = job(&[to_remote()], |thread| {
        bound(thread);
        thread.cpuset = thread.affinity.clone();
    });
    assert_eq!(confined.bound, 0.0);
}
