//! What it costs to leave `numaherd run` on: over 1,001 threads at one interval a second, first all asleep, then each waking
//! every 2 s. CPU time of the release build for two minutes from its fifth second on, and the growth of its ledger; beside
//! it, in the same minutes on the same threads, `top` and `pidstat`, as far as they are installed. Targets: 0.2 % of a core
//! and 20 MB an hour for threads that sleep, 1 % for those that wake.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What the threads of the crowd do: nothing, or wake every so many ms.
const CROWD: &str = "NUMAHERD_BENCH_CROWD";
const THREADS: u32 = 1001;
const BEFORE: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(120);

/// The process that is watched, until its input ends.
fn crowd(wakes_every_ms: u32) {
    let (threads, period) = (THREADS - 1, Duration::from_millis(wakes_every_ms.into()));
    for number in 0..threads {
        let wakes = move || {
            // Not all at once.
            thread::sleep(period * number / threads);
            loop {
                match wakes_every_ms {
                    0 => thread::park(),
                    _ => thread::sleep(period),
                }
            }
        };
        let thread = thread::Builder::new().stack_size(64 << 10);
        thread.spawn(wakes).expect("a thread");
    }
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts it and waits until it is whole.
fn start_crowd(wakes_every_ms: u32) -> Child {
    let mut crowd = Command::new(std::env::current_exe().expect("own path"))
        .env(CROWD, wakes_every_ms.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the crowd");
    let mut line = String::new();
    let answers = crowd.stdout.take().expect("piped");
    let read = BufReader::new(answers).read_line(&mut line);
    read.expect("the crowd's word");
    assert_eq!(line, "ready\n", "there are limits of threads (ulimit -u)");
    crowd
}

/// CPU time so far of a process that runs.
fn cpu_time(of: &Child) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", of.id())).expect("its stat file");
    // Fields 14 and 15; field 3 is the first after the name.
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_secs(ticks)
        / u32::try_from(rustix::param::clock_ticks_per_second()).expect("few")
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("the ledger").len()
}

fn measure(what: &str, wakes_every_ms: u32) {
    let mut crowd = start_crowd(wakes_every_ms);
    let pid = crowd.id().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let (ledger, journal) = (
        folder.path().join("ledger.zst"),
        folder.path().join("journal"),
    );
    let mut numaherd = Command::new(env!("CARGO_BIN_EXE_numaherd"));
    numaherd
        .args(["run", "--config", "none", "--interval", "1s", "--pid", &pid])
        .arg("--ledger")
        .arg(&ledger)
        .arg("--journal")
        .arg(&journal);
    let mut top = Command::new("top");
    top.args(["-b", "-H", "-d", "1", "-p", &pid]);
    let mut pidstat = Command::new("pidstat");
    pidstat.args(["-t", "-p", &pid, "1"]);
    let programs = [
        ("numaherd run", numaherd),
        ("top -b -H -d 1", top),
        ("pidstat -t 1", pidstat),
    ];
    let mut running = Vec::new();
    for (name, mut program) in programs {
        match program.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => running.push((name, child)),
            Err(error) => println!("{name}: skipped: {error}"),
        }
    }
    thread::sleep(BEFORE);
    let begun = Instant::now();
    let before: Vec<Duration> = running.iter().map(|(_, child)| cpu_time(child)).collect();
    let bytes = size(&ledger);
    thread::sleep(MEASURED);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{THREADS} threads, {what}, for {seconds:.0} s:");
    for ((name, child), before) in running.iter().zip(before) {
        let share = (cpu_time(child) - before).as_secs_f64() / seconds;
        println!("  {:.2} % of a core: {name}", 100.0 * share);
    }
    let an_hour = (size(&ledger) - bytes) as f64 / seconds * 3600.0;
    println!("  ledger: {:.1} MB an hour", an_hour / 1e6);
    for (_, mut child) in running {
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        child.wait().expect("its end");
    }
    drop(crowd.stdin.take());
    crowd.wait().expect("the crowd's end");
}

fn main() {
    if let Ok(wakes_every_ms) = std::env::var(CROWD) {
        crowd(wakes_every_ms.parse().expect("a number"));
        return;
    }
    measure("all asleep", 0);
    measure("each waking every 2 s", 2000);
}
