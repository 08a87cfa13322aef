//! Accesses per second of host time, by one core: through three levels of caches alone, with TLBs
//! before them, and with the IPM unit watching the TLBs.
//!
//! The three differ in nothing else, and run one after the other, so that they can be held against
//! each other whatever the host does. The machine has the shape of the paper's Xeon64 (four nodes
//! of eight cores, 32 KiB, 256 KiB and 18 MiB of cache) and the TLBs of its Table II (64 and 512
//! entries, four ways); its latencies and bandwidths are round figures, which cost the host the
//! same as any others.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use numaherd_hardware::{
    Access, Cache, Config, Core, Detail, Ipm, IpmConfig, Machine, Memory, Page, Span, Tlb,
    TlbLevel, TlbManagement,
};

const GIB: u64 = 1 << 30;
const ACCESSES: u64 = 100_000;
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
        (step / 2 * 8) % (64 << 20)
    } else {
        GIB + shuffled(step * 64, 16 << 10)
    }
}

/// Names a sequence; its function gives the address of the step from the one before.
type Sequence = (&'static str, fn(u64, u64) -> u64);

const SEQUENCES: [Sequence; 4] = [
    ("hits, 16 KiB", |_, address| (address + 64) % (16 << 10)),
    ("stream of 8 bytes, 64 MiB", |_, address| {
        (address + 8) % (64 << 20)
    }),
    ("stream and table, 64 MiB", |step, _| kernel(step)),
    ("random, 64 MiB", |_, address| shuffled(address, 64 << 20)),
];

fn residency(c: &mut Criterion) {
    for (name, next) in SEQUENCES {
        let mut group = c.benchmark_group(name);
        group
            .throughput(Throughput::Elements(ACCESSES))
            .sample_size(20);
        for (with, with_tlbs, with_ipm) in [
            ("caches", false, false),
            ("caches, TLBs", true, false),
            ("caches, TLBs, IPM", true, true),
        ] {
            let mut scene = Scene::new(with_tlbs, with_ipm);
            let (mut step, mut address) = (0, 0);
            group.bench_function(BenchmarkId::from_parameter(with), |b| {
                b.iter(|| {
                    for _ in 0..ACCESSES {
                        step += 1;
                        address = next(step, address);
                        scene.access(address);
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, residency);
criterion_main!(benches);
