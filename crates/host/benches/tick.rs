//! One tick over 1,000 live threads of another process, in CPU time, beside the plain way of
//! opening, reading and closing each thread's stat file. The threads sleep, or all of them wake once a tick. Target: 2 ms
//! of CPU for threads that sleep (0.2 % of a core at one tick a second), 20 ms for those that wake.
//!
//! Then the same beside a refresh of `top` and of `pidstat`, as far as they are installed.
#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group};
use numaherd_host::{Host, HostOptions, Selection};
use numaherd_topology::{CpuId, CpuPart, CpuSet, Node, NodeId, Parts, Topology};
use numaherd_world::World;
use rustix::time::{ClockId, clock_gettime};

const CROWD: &str = "NUMAHERD_BENCH_CROWD";
const THREADS: usize = 1000;

/// The process that is watched: so many threads that wait, until its input ends. All of them wake at each byte of it.
fn crowd(threads: usize) {
    let barrier = Arc::new(std::sync::Barrier::new(threads + 1));
    let spawn = |_| {
        let barrier = barrier.clone();
        let rounds = move || {
            loop {
                barrier.wait();
            }
        };
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(rounds).expect("a thread");
    };
    (0..threads).for_each(spawn);
    barrier.wait();
    println!("ready");
    while matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
        barrier.wait();
        println!("ready");
    }
}

struct Crowd {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Crowd {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .env(CROWD, (THREADS - 1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the crowd");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut crowd = Self { child, answers };
        crowd.wait_until_ready();
        crowd
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.expect("the crowd's word");
        assert_eq!(line, "ready\n");
    }

    fn wake(&mut self) {
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(&[1]).expect("the crowd listens");
        self.wait_until_ready();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
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

/// CPU time of children that have ended.
fn cpu_time_of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("own stat file");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    // Fields 16 and 17; field 3 is the first after the name.
    let ticks = rest.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_secs(ticks)
        / u32::try_from(rustix::param::clock_ticks_per_second()).expect("few")
}

/// Prints what a tick takes beside what others take to look at the same threads as often.
fn beside_others(host: &mut Host, pid: u32) {
    let ticks = 20;
    let ours = cpu_time_of(ticks, || {
        std::hint::black_box(host.observe().expect("a snapshot"));
    }) / 20;
    println!(
        "observe: {:.2} ms of CPU for a tick",
        ours.as_secs_f64() * 1e3
    );
    let pid = pid.to_string();
    let others: [(&[&str], u32); 2] = [
        (
            &["top", "-b", "-H", "-d", "0.1", "-n", "20", "-p", &pid],
            20,
        ),
        (&["pidstat", "-t", "-p", &pid, "1", "5"], 5),
    ];
    for (command, refreshes) in others {
        let before = cpu_time_of_children();
        let ran = Command::new(command[0])
            .args(&command[1..])
            .stdout(Stdio::null())
            .status();
        let name = command[..2].join(" ");
        match ran {
            Ok(status) if status.success() => {
                let took = (cpu_time_of_children() - before) / refreshes;
                let times = took.as_secs_f64() / ours.as_secs_f64();
                let ms = took.as_secs_f64() * 1e3;
                println!("{name}: {ms:.2} ms of CPU for a refresh, {times:.1} times as much");
            }
            Ok(status) => println!("{name}: skipped, it failed: {status}"),
            Err(error) => println!("{name}: skipped: {error}"),
        }
    }
}

fn tick(criterion: &mut Criterion) {
    let mut crowd = Crowd::start();
    let pid = crowd.child.id();
    let options = HostOptions::new(Selection::Child { pid });
    let mut host = Host::new(options, topology()).expect("a host");
    assert_eq!(host.observe().expect("a snapshot").threads.len(), THREADS);
    let mut group = criterion.benchmark_group("tick/1000 threads (CPU time)");
    group.bench_function("observe, all asleep", |bencher| {
        bencher.iter_custom(|n| {
            cpu_time_of(n, || {
                std::hint::black_box(host.observe().expect("a snapshot"));
            })
        });
    });
    group.bench_function("observe, all woken", |bencher| {
        bencher.iter_custom(|n| {
            let ticks = (0..n).map(|_| {
                crowd.wake();
                cpu_time_of(1, || {
                    std::hint::black_box(host.observe().expect("a snapshot"));
                })
            });
            ticks.sum()
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
    beside_others(&mut host, pid);
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
