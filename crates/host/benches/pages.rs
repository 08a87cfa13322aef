//! Page moves through our batches beside `migratepages` of Debian's numactl, in the same run:
//! throughput and the longest pause. Target: 95 % of its throughput, p99 pause at most 5 ms.
//!
//! Needs two nodes with memory. On a machine with one, run it in the lab:
//! `numaherd lab run -- PATH-OF-THIS-PROGRAM --bench`. How many MiB are moved, and how often, can be
//! given as `NUMAHERD_BENCH_MIB` (128) and `NUMAHERD_BENCH_ROUNDS` (6).

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use numaherd_host::{Host, HostOptions, Selection};
use numaherd_topology::{NodeId, Topology, sysfs};
use numaherd_world::{PageOrder, Pages, World};

const HOARD: &str = "NUMAHERD_BENCH_HOARD";

fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The process whose pages are moved: so many MiB, until its input ends.
fn hoard(mib: usize) {
    let memory = vec![1u8; mib << 20];
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    std::hint::black_box(&memory);
}

struct Hoard(Child);

impl Hoard {
    fn start(mib: u64) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(HOARD, mib.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("piped")?).read_line(&mut line)?;
        Ok(Self(child))
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Pages moved, the time that took, and each batch's share of it: the longest.
struct Move {
    pages: u64,
    took: Duration,
    longest: Duration,
}

impl Move {
    fn mib_per_second(&self, page_bytes: u64) -> f64 {
        (self.pages * page_bytes) as f64 / f64::from(1 << 20) / self.took.as_secs_f64()
    }
}

fn ours(pid: u32, to: NodeId, topology: &Arc<Topology>) -> Result<Move, Box<dyn Error>> {
    let mut host = Host::new(HostOptions::new(Selection::Child { pid }), topology.clone())?;
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
    Ok(Move {
        pages: outcome.moved,
        took,
        longest: Duration::from_nanos(outcome.longest_batch_ns),
    })
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
    Ok(Move {
        pages,
        took,
        longest: took,
    })
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
    let hoard = Hoard::start(mib)?;
    let pid = hoard.0.id();
    // From wherever it was first touched to the first node, so that both start from the same.
    ours(pid, first, &topology)?;
    println!("page moves of {mib} MiB between nodes {first} and {second}");
    let mut ratios = Vec::new();
    for round in 0..setting("NUMAHERD_BENCH_ROUNDS", 6) {
        // Who goes first changes, so that neither always has the warmer machine.
        let (a, b) = if round % 2 == 0 {
            let a = ours(pid, second, &topology)?;
            (a, theirs(pid, second, first)?)
        } else {
            let b = theirs(pid, first, second)?;
            (ours(pid, first, &topology)?, b)
        };
        let (ours, theirs) = (a.mib_per_second(page_bytes), b.mib_per_second(page_bytes));
        println!(
            "  numaherd {ours:8.0} MiB/s, longest batch {:6.2} ms ({} pages); \
             migratepages {theirs:8.0} MiB/s ({} pages, start of the program included)",
            a.longest.as_secs_f64() * 1e3,
            a.pages,
            b.pages
        );
        ratios.push(ours / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    if let Some(median) = ratios.get(ratios.len() / 2) {
        println!(
            "  median: {:.0} % of migratepages' throughput",
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
