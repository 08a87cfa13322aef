//! Residency simulation: accesses of one core per second of CPU time, through three levels of caches alone, with TLBs
//! before them, and with the IPM unit watching the TLBs, beside `cachegrind` and `lackey` (of Valgrind) that watch a
//! program make the same accesses.
//!
//! The machine has the shape of the paper's Xeon64 (four nodes of eight cores, 32 KiB, 256 KiB and 18 MiB of cache) and
//! the TLBs of its Table II (64 and 512 entries, four ways); its latencies and bandwidths are round figures, which cost
//! the host the same as any others. cachegrind has two levels of caches, of 32 KiB and 16 MiB, neither TLBs nor time;
//! lackey writes each access as a line of text, which is thrown away.
//!
//! The program that Valgrind watches is this one: it goes through the sequence in memory of its own. What it takes to
//! start is measured as well and subtracted. Each figure is the best of several rounds in turns, since other load on
//! the host only ever adds. The kernel accounts CPU time of other programs in hundredths of a second.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

use numaherd_hardware::{
    Access, Cache, Config, Core, Detail, Ipm, IpmConfig, Machine, Memory, Page, Span, Tlb,
    TlbLevel, TlbManagement,
};

const GIB: u64 = 1 << 30;
const WALKED_BYTES: u64 = 64 << 20;
const TABLE_BYTES: u64 = 16 << 10;
/// Steps of a round: of ours and cachegrind, and of lackey.
const STEPS: u64 = 5_000_000;
const STEPS_OF_LACKEY: u64 = 200_000;
const ROUNDS: usize = 2;
/// Set for the program that Valgrind watches: the sequence's number and the steps.
const WALK: &str = "NUMAHERD_BENCH_WALK";

const PAGE_BYTES: u64 = 4096;

fn config(with_tlbs: bool) -> Config {
    let cache = |kib: u64, ways, hit_ns| Cache {
        bytes: kib << 10,
        ways,
        hit_ns,
    };
    let level = |entries, hit_ns| TlbLevel {
        entries,
        ways: 4,
        hit_ns,
    };
    let near_far = |from: usize| (0..4).map(move |to| if from == to { 90.0 } else { 150.0 });
    let latency_ns = (0..4).map(|from| near_far(from).collect()).collect();
    Config {
        l1: cache(32, 8, 0.0),
        l2: Some(cache(256, 8, 5.0)),
        llc: cache(18 << 10, 24, 20.0),
        tlb: with_tlbs.then(|| Tlb {
            page_bytes: PAGE_BYTES,
            managed_by: TlbManagement::Hardware,
            miss_ns: 15.0,
            l1: level(64, 0.0),
            l2: Some(level(512, 3.5)),
        }),
        ..Config::of_equal_nodes(8, latency_ns, 25.6)
    }
}

/// One core, with what watches it.
struct Scene {
    machine: Machine,
    core: Core,
    ipm: Option<Ipm>,
    instructions: u64,
}

impl Scene {
    fn new(with_tlbs: bool, with_ipm: bool) -> Self {
        let spans = (0..4).map(|node| Span {
            start: node as u64 * GIB,
            end: (node as u64 + 1) * GIB,
            node,
        });
        let config = config(with_tlbs);
        let ipm = with_ipm.then(|| {
            let mut ipm = Ipm::new(IpmConfig::of_paper(), &config).unwrap();
            let application = ipm.start_application();
            let thread = ipm.start_thread(application);
            ipm.run(0, Some(thread));
            ipm
        });
        let machine = Machine::new(config, Memory::new(spans).unwrap()).unwrap();
        let core = Core::new(&machine, 0);
        Self {
            machine,
            core,
            ipm,
            instructions: 0,
        }
    }

    #[inline]
    fn access(&mut self, address: u64) {
        self.instructions += 4;
        let instructions = self.instructions;
        let page = Page::new(address / PAGE_BYTES);
        let translation = self
            .core
            .translate(&self.machine, page, address, || instructions);
        if let Some(translation) = translation
            && let Some(fill) = translation.fill
            && let Some(ipm) = &mut self.ipm
        {
            let tsc = self.machine.config().cycles(translation.now_ps);
            let memory = self.machine.memory();
            let node_of = |page: Page| memory.node_of(page.number() * PAGE_BYTES);
            black_box(ipm.tlb_miss(0, &fill, tsc, node_of));
        }
        let access = Access {
            virtual_address: address,
            physical_address: address,
            store: false,
        };
        let detail = || Detail {
            instructions,
            value: None,
        };
        black_box(self.core.access(&self.machine, access, detail));
    }
}

/// The next of a fixed pseudo-random sequence of lines (a full-period congruence).
fn shuffled(address: u64, bytes: u64) -> u64 {
    (((address / 64) * 1_664_525 + 1_013_904_223) * 64) % bytes
}

/// A kernel with the TLB miss rate of a real program: eight-byte walks through 64 MiB with a table
/// of 16 KiB looked up in between. One access in 1024 goes to a new page, 0.1 %; the paper's programs
/// miss in 0.26 % and 0.05 % of their accesses on average.
fn kernel(step: u64) -> u64 {
    if step.is_multiple_of(2) {
        (step / 2 * 8) % WALKED_BYTES
    } else {
        GIB + shuffled(step * 64, TABLE_BYTES)
    }
}

/// Names a sequence; its function gives the address of the step from the one before.
type Sequence = (&'static str, fn(u64, u64) -> u64);

const SEQUENCES: [Sequence; 4] = [
    ("hits, 16 KiB", |_, address| (address + 64) % TABLE_BYTES),
    ("stream of 8 bytes, 64 MiB", |_, address| {
        (address + 8) % WALKED_BYTES
    }),
    ("stream and table, 64 MiB", |step, _| kernel(step)),
    ("random, 64 MiB", |_, address| {
        shuffled(address, WALKED_BYTES)
    }),
];

/// Accesses per second of CPU time in a round of ours.
fn simulated(next: fn(u64, u64) -> u64, with_tlbs: bool, with_ipm: bool) -> f64 {
    let mut scene = Scene::new(with_tlbs, with_ipm);
    let mut address = 0;
    let start = Instant::now();
    for step in 1..=STEPS {
        address = next(step, address);
        scene.access(address);
    }
    STEPS as f64 / start.elapsed().as_secs_f64()
}

/// What Valgrind watches: the sequence in memory.
fn walk(next: fn(u64, u64) -> u64, steps: u64) {
    let (walked, table) = (
        vec![0_u8; WALKED_BYTES as usize],
        vec![0_u8; TABLE_BYTES as usize],
    );
    let (mut address, mut sum) = (0, 0_u64);
    for step in 1..=steps {
        address = next(step, address);
        let byte = match address.checked_sub(GIB) {
            Some(in_table) => table[in_table as usize],
            None => walked[address as usize],
        };
        sum = sum.wrapping_add(u64::from(byte));
    }
    black_box(sum);
}

/// Accesses per second of CPU time in a round under a tool of Valgrind.
fn watched(tool: &[&str], sequence: usize, steps: u64) -> f64 {
    let cpu_s = |steps: u64| {
        let before = cpu_s_of_children();
        let program = std::env::current_exe().expect("this program");
        let status = Command::new("valgrind")
            .args(tool)
            .arg("--log-file=/dev/null")
            .arg(program)
            .env(WALK, format!("{sequence} {steps}"))
            .stdout(Stdio::null())
            .status()
            .expect("valgrind is there");
        assert!(status.success(), "valgrind {tool:?}: {status}");
        cpu_s_of_children() - before
    };
    steps as f64 / (cpu_s(steps) - cpu_s(0)).max(0.01)
}

/// CPU time of the programs that this one has waited for, user and system.
fn cpu_s_of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this process");
    // The name may have spaces, and is in brackets.
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks = rest.split(' ').skip(13).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<f64>().expect("a number of ticks"));
    ticks.sum::<f64>() / 100.0
}

const CACHEGRIND: [&str; 5] = [
    "--tool=cachegrind",
    "--cache-sim=yes",
    "--D1=32768,8,64",
    "--LL=16777216,16,64",
    "--cachegrind-out-file=/dev/null",
];
const LACKEY: [&str; 3] = ["--tool=lackey", "--basic-counts=no", "--trace-mem=yes"];

fn table() {
    let valgrind = Command::new("valgrind").arg("--version").output();
    let valgrind = valgrind
        .ok()
        .map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    println!(
        "million accesses per second of CPU time; in brackets, how many times as fast the unit is"
    );
    println!(
        "{:26} {:>8} {:>9} {:>9} {:>16} {:>16}",
        "", "caches", "and TLBs", "and unit", "cachegrind", "lackey"
    );
    for (number, (name, next)) in SEQUENCES.into_iter().enumerate() {
        let mut best = [0.0_f64; 5];
        for _ in 0..ROUNDS {
            let mut round = vec![
                simulated(next, false, false),
                simulated(next, true, false),
                simulated(next, true, true),
            ];
            if valgrind.is_some() {
                round.push(watched(&CACHEGRIND, number, STEPS));
                round.push(watched(&LACKEY, number, STEPS_OF_LACKEY));
            }
            for (best, now) in best.iter_mut().zip(round) {
                *best = best.max(now);
            }
        }
        let [caches, tlbs, unit, cachegrind, lackey] = best.map(|rate| rate / 1e6);
        let beside = |other: f64| match other > 0.0 {
            true => format!("{other:.1} ({:.1} x)", unit / other),
            false => "-".to_owned(),
        };
        println!(
            "{name:26} {caches:>8.1} {tlbs:>9.1} {unit:>9.1} {:>16} {:>16}",
            beside(cachegrind),
            beside(lackey),
        );
    }
    match valgrind {
        Some(version) => println!("cachegrind and lackey: {version}"),
        None => {
            println!("without cachegrind and lackey: valgrind is not installed; run `make setup`");
        }
    }
}

fn main() {
    let Ok(walked) = std::env::var(WALK) else {
        return table();
    };
    let (sequence, steps) = walked.split_once(' ').expect("a sequence and steps");
    let (_, next) = SEQUENCES[sequence.parse::<usize>().expect("a number")];
    walk(next, steps.parse().expect("a number"));
}
