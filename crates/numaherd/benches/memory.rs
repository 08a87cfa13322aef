//! Memory of `numaherd run` over processes of 1,000 and of 11,000 threads that sleep: the most that it had in memory while
//! it recorded some intervals, and the bytes of each further thread. Target: 512 MB for 100,000 threads, the `MemoryMax` of the
//! unit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const CROWD: &str = "NUMAHERD_BENCH_CROWD";

/// The process that is watched: so many threads that wait, until its input ends.
fn crowd(threads: usize) {
    for _ in 1..threads {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let waits = || {
            loop {
                std::thread::park();
            }
        };
        thread.spawn(waits).expect("a thread");
    }
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

/// The most memory in KiB that a run over so many threads had.
fn peak_kib(threads: usize) -> u64 {
    let mut crowd = Command::new(std::env::current_exe().expect("own path"))
        .env(CROWD, threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the crowd");
    let answers = crowd.stdout.take().expect("piped");
    let mut line = String::new();
    let read = BufReader::new(answers).read_line(&mut line);
    read.expect("the crowd's word");
    assert_eq!(line, "ready\n", "there are limits of threads (ulimit -u)");

    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Command::new(env!("CARGO_BIN_EXE_numaherd"))
        .args(["run", "--policy", "homeward", "--for", "8s"])
        .args(["--pid", &crowd.id().to_string()])
        .arg("--ledger")
        .arg(folder.path().join("ledger.zst"))
        .arg("--journal")
        .arg(folder.path().join("journal"))
        .stdout(Stdio::null())
        .spawn()
        .expect("numaherd");
    let mut peak_kib = 0;
    while run.try_wait().expect("its end").is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.id()));
        let status = status.unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = peak.and_then(|peak| peak.split_whitespace().next());
        peak_kib = peak_kib.max(number.map_or(0, |number| number.parse().expect("a number")));
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(crowd.stdin.take());
    crowd.wait().expect("the crowd's end");
    peak_kib
}

fn main() {
    if let Ok(threads) = std::env::var(CROWD) {
        crowd(threads.parse().expect("a number of threads"));
        return;
    }
    let (few, many) = (peak_kib(1_000), peak_kib(11_000));
    let each = many.saturating_sub(few) as f64 * 1024.0 / 10e3;
    println!(
        "memory: 1,000 threads {few} KiB, 11,000 threads {many} KiB: {each:.0} bytes for each further thread"
    );
    let most = few as f64 * 1024.0 + 99e3 * each;
    println!("memory: 100,000 threads would take {:.0} MB", most / 1e6);
}
