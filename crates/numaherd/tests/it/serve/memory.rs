//! How much memory each thread that is watched takes.

use std::sync::{Arc, Barrier};
use std::thread::Builder;

use super::daemon::Daemon;

/// Threads that are added.
const THREADS: u64 = 6_000;

/// What each may take, in bytes: `MemoryMax=` of the unit, 512 MiB, for 100,000 threads.
const MOST: u64 = (512 << 20) / 100_000;

#[test]
fn a_hundred_thousand_threads_fit_into_the_memory_of_the_unit() {
    let own = std::process::id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.zst");
    let ledger = ["--ledger", ledger.to_str().unwrap()];
    let daemon = Daemon::start(&[&["--pid", &own], &ledger[..]].concat());
    daemon.await_snapshot();
    // What is made once is made now.
    daemon.get("/");
    daemon.get("/metrics");
    let before = daemon.resident_bytes();

    let rest = Arc::new(Barrier::new(THREADS as usize + 1));
    for _ in 0..THREADS {
        let rest = rest.clone();
        let thread = Builder::new().stack_size(32 << 10);
        thread.spawn(move || rest.wait()).unwrap();
    }
    let seen = daemon.await_that(|status| status["now"]["threads"].as_u64() >= Some(THREADS));
    let intervals = seen["totals"]["intervals"].as_u64().unwrap();
    daemon.get("/");
    daemon.get("/metrics");
    daemon.await_that(|status| status["totals"]["intervals"].as_u64() > Some(intervals + 4));
    let each = daemon.resident_bytes().saturating_sub(before) / THREADS;
    println!("{each} bytes for each thread");
    rest.wait();
    assert!(each < MOST, "{each} bytes for each thread");
}
