//! Page moves through our batches beside `migratepages` of Debian's numactl, in the same run:
//! throughput and the longest pause. Target: 95 % of its throughput, p99 pause at most 5 ms.
//!
//! Needs two nodes with memory. On a machine with one, run it in the lab:
//! `numaherd lab run -- PATH-OF-THIS-PROGRAM --bench`. How many MiB are moved, and how often, can be
//! given as `NUMAHERD_BENCH_MIB` (128) and `NUMAHERD_BENCH_ROUNDS` (6), the target time of a call as
//! `NUMAHERD_BENCH_CALL_US`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use numaherd_host::{Host, HostOptions, Selection};
use numaherd_topology::{NodeId, Topology, sysfs};
use numaherd_world::{PageOrder, Pages, World};

const HOARD: &str = "NUMAHERD_BENCH_HOARD";
/// Accesses that took longer than this were kept waiting.
const LEAST_PAUSE: Duration = Duration::from_micros(20);

fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The process whose pages are moved: so many MiB, until its input ends. One thread touches page
/// after page; for each line of input it prints how often it had to wait, and how long.
fn hoard(mib: usize) {
    let page = rustix::param::page_size();
    let memory: Vec<AtomicU8> = (0..mib << 20).map(|_| AtomicU8::new(1)).collect();
    let pauses = Mutex::new(Vec::new());
    let ended = AtomicBool::new(false);
    println!("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A stride that meets every page, and seldom two of one huge page in a row.
            let pages = memory.len() / page;
            let mut at = 0;
            while !ended.load(Ordering::Relaxed) {
                at = (at + 1009) % pages;
                let before = Instant::now();
                memory[at * page].fetch_add(1, Ordering::Relaxed);
                let waited = before.elapsed();
                if waited > LEAST_PAUSE {
                    pauses.lock().expect("no panic").push(waited);
                }
            }
        });
        for line in std::io::stdin().lines() {
            if line.is_err() {
                break;
            }
            let mut pauses = std::mem::take(&mut *pauses.lock().expect("no panic"));
            pauses.sort_unstable();
            let at = |share: usize| {
                let last = pauses.len().saturating_sub(1);
                pauses
                    .get(last * share / 100)
                    .copied()
                    .unwrap_or_default()
                    .as_micros()
            };
            println!("{} {} {}", pauses.len(), at(99), at(100));
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// What a thread had to wait for pages that were being moved.
struct Pauses {
    count: u64,
    p99: Duration,
    longest: Duration,
}

struct Hoard {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Hoard {
    fn start(mib: u64) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(HOARD, mib.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("piped")?);
        let mut hoard = Self { child, output };
        hoard.line()?;
        Ok(hoard)
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// The pauses since the last call.
    fn pauses(&mut self) -> Result<Pauses, Box<dyn Error>> {
        writeln!(self.child.stdin.as_mut().ok_or("piped")?)?;
        let line = self.line()?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [count, p99, longest] = numbers[..] else {
            return Err(format!("the process said {line:?}").into());
        };
        Ok(Pauses {
            count,
            p99: Duration::from_micros(p99),
            longest: Duration::from_micros(longest),
        })
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Pages moved, and the time that took.
struct Move {
    pages: u64,
    took: Duration,
}

impl Move {
    fn mib_per_second(&self, page_bytes: u64) -> f64 {
        (self.pages * page_bytes) as f64 / f64::from(1 << 20) / self.took.as_secs_f64()
    }
}

fn ours(pid: u32, to: NodeId, topology: &Arc<Topology>) -> Result<Move, Box<dyn Error>> {
    let mut options = HostOptions::new(Selection::Child { pid });
    let call_us = setting("NUMAHERD_BENCH_CALL_US", 0);
    if call_us > 0 {
        options.pages.call_target = Duration::from_micros(call_us);
    }
    let mut host = Host::new(options, topology.clone())?;
    let snapshot = host.observe()?;
    let process = snapshot.processes.first().ok_or("the process has ended")?;
    let order = PageOrder {
        process: process.id,
        thread: snapshot.threads.first().ok_or("it has no thread")?.id,
        pages: Pages::All,
        to,
        rule: "bench".into(),
        why: String::new(),
    };
    let mut pager = host.pager().ok_or("no pager")?;
    let began = Instant::now();
    let outcome = pager.apply(&[order]).remove(0);
    let took = began.elapsed();
    if let Some(error) = outcome.error {
        return Err(error.into());
    }
    let pages = outcome.moved;
    Ok(Move { pages, took })
}

fn pages_on(pid: u32, node: NodeId) -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/numa_maps"))?;
    let key = format!("N{node}=");
    Ok(text
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix(&key)?.parse::<u64>().ok())
        .sum())
}

fn theirs(pid: u32, from: NodeId, to: NodeId) -> Result<Move, Box<dyn Error>> {
    let before = pages_on(pid, from)?;
    let began = Instant::now();
    let status = Command::new("migratepages")
        .args([pid.to_string(), from.to_string(), to.to_string()])
        .status()?;
    let took = began.elapsed();
    if !status.success() {
        return Err(format!("migratepages ended with {status}").into());
    }
    let pages = before - pages_on(pid, from)?;
    Ok(Move { pages, took })
}

fn compare() -> Result<(), Box<dyn Error>> {
    let topology = Arc::new(sysfs::read(std::path::Path::new("/"))?);
    let nodes: Vec<NodeId> = topology.memory_nodes().iter().collect();
    let [first, second, ..] = nodes[..] else {
        println!(
            "page moves: this machine has one memory node; run it in the lab:\n  numaherd lab run -- \
             {} --bench",
            std::env::current_exe()?.display()
        );
        return Ok(());
    };
    let mib = setting("NUMAHERD_BENCH_MIB", 128);
    let page_bytes = rustix::param::page_size() as u64;
    let mut hoard = Hoard::start(mib)?;
    let pid = hoard.child.id();
    // From wherever it was first touched to the first node, so that both start from the same.
    ours(pid, first, &topology)?;
    // Once for nothing, so that its program is in memory.
    theirs(pid, second, second)?;
    println!(
        "page moves of {mib} MiB between nodes {first} and {second}, while a thread touches them"
    );
    hoard.pauses()?;
    let mut ratios = Vec::new();
    for round in 0..setting("NUMAHERD_BENCH_ROUNDS", 6) {
        // Who goes first changes, so that neither always has the warmer machine.
        let (a, pauses, b, their_pauses) = if round % 2 == 0 {
            let a = ours(pid, second, &topology)?;
            let pauses = hoard.pauses()?;
            let b = theirs(pid, second, first)?;
            (a, pauses, b, hoard.pauses()?)
        } else {
            let b = theirs(pid, first, second)?;
            let their_pauses = hoard.pauses()?;
            let a = ours(pid, first, &topology)?;
            (a, hoard.pauses()?, b, their_pauses)
        };
        for (who, moved, pauses) in [("ours", &a, &pauses), ("migratepages", &b, &their_pauses)] {
            println!(
                "  {who:12} {:7.0} MiB/s ({} pages); {} pauses, p99 {:.2} ms, longest {:.2} ms",
                moved.mib_per_second(page_bytes),
                moved.pages,
                pauses.count,
                pauses.p99.as_secs_f64() * 1e3,
                pauses.longest.as_secs_f64() * 1e3,
            );
        }
        ratios.push(a.mib_per_second(page_bytes) / b.mib_per_second(page_bytes));
    }
    ratios.sort_by(f64::total_cmp);
    if let Some(median) = ratios.get(ratios.len() / 2) {
        println!(
            "  median: {:.0} % of migratepages' throughput, the start of its program included",
            median * 100.0
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(mib) = std::env::var(HOARD) {
        hoard(mib.parse()?);
        return Ok(());
    }
    compare()
}
