//! One tick over 1,000 live threads of another process, in CPU time, beside the plain way of
//! opening, reading and closing each thread's stat file. Target: 20 ms of CPU.
#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group};
use numaherd_host::{Host, HostOptions, Selection};
use numaherd_topology::{CpuId, CpuPart, CpuSet, Node, NodeId, Parts, Topology};
use numaherd_world::World;
use rustix::time::{ClockId, clock_gettime};

const CROWD: &str = "NUMAHERD_BENCH_CROWD";
const THREADS: usize = 1000;

/// The process that is watched: so many threads that wait, until its input ends.
fn crowd(threads: usize) {
    let barrier = Arc::new(std::sync::Barrier::new(threads + 1));
    for _ in 0..threads {
        let barrier = barrier.clone();
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                barrier.wait();
                loop {
                    std::thread::park();
                }
            })
            .expect("a thread");
    }
    barrier.wait();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

struct Crowd(Child);

impl Crowd {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .env(CROWD, (THREADS - 1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the crowd");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("the crowd's word");
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn topology() -> Arc<Topology> {
    let online: CpuSet = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .expect("the online CPUs")
        .parse()
        .expect("a list");
    let cpu = |id: CpuId| CpuPart {
        id,
        online: true,
        package: None,
        siblings: CpuSet::new(),
        capacity: None,
    };
    let parts = Parts {
        name: "bench".into(),
        cpus: online.iter().map(cpu).collect(),
        nodes: vec![Node {
            id: NodeId(0),
            online: true,
            cpus: online,
            memory_bytes: 1 << 30,
        }],
        ..Parts::default()
    };
    Arc::new(Topology::new(parts).expect("a machine"))
}

fn cpu_time_of(iterations: u64, mut work: impl FnMut()) -> Duration {
    let before = cpu_time();
    for _ in 0..iterations {
        work();
    }
    cpu_time() - before
}

fn tick(criterion: &mut Criterion) {
    let crowd = Crowd::start();
    let pid = crowd.0.id();
    let options = HostOptions::new(Selection::Child { pid });
    let mut host = Host::new(options, topology()).expect("a host");
    assert_eq!(host.observe().expect("a snapshot").threads.len(), THREADS);
    let mut group = criterion.benchmark_group("tick/1000 threads (CPU time)");
    group.bench_function("observe", |bencher| {
        bencher.iter_custom(|n| {
            cpu_time_of(n, || {
                std::hint::black_box(host.observe().expect("a snapshot"));
            })
        });
    });
    let tids: Vec<u32> = (host.observe().expect("a snapshot").threads.iter())
        .map(|thread| thread.id.tid)
        .collect();
    group.bench_function("open, read, close each stat alone", |bencher| {
        bencher.iter_custom(|n| {
            cpu_time_of(n, || {
                for tid in &tids {
                    let path = format!("/proc/{pid}/task/{tid}/stat");
                    std::hint::black_box(std::fs::read(path).expect("a stat file"));
                }
            })
        });
    });
    group.finish();
}

criterion_group!(benches, tick);

fn main() {
    if let Ok(threads) = std::env::var(CROWD) {
        crowd(threads.parse().expect("a number of threads"));
        return;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
