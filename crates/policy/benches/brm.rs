//! What BRM's tick costs, and what its system-wide penalty costs when several cores keep it.
//!
//! * *tick*: a whole decision ([`Place::place`]) of a machine of 8 nodes on which every vCPU is a
//!   candidate and its penalty changes every tick, with the plain and with the sharded penalty. As
//!   many cores as vCPUs.
//! * *one core*: the update alone, for all vCPUs of a tick: plain, sharded, and *anew*, where every
//!   update adds up all averages (what line 16 of Algorithm 1 would cost without a total that is
//!   kept).
//! * *two cores*: the same, half of the vCPUs on each of two threads: plain behind a lock, as in
//!   the paper (§6.3), and in two shards without one.
//!
//! Each figure is the least of 25 measurements: what others do on the machine only ever adds.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use numaherd_policy::placement::brm::Brm;
use numaherd_policy::settings::SystemPenaltyForm;
use numaherd_policy::uncore::{Part, SystemPenalty, Total};
use numaherd_policy::{Place, Random, Settings, Staged};
use numaherd_testing::Scene;
use numaherd_world::{Counts, Tag};
use rand::{Rng, SeedableRng};

const VCPUS: [u32; 6] = [2, 16, 64, 256, 1024, 4096];
const NODES: u32 = 8;

/// A machine of that many vCPUs, and their counts in two ticks that are taken in turn.
struct Ticks {
    scene: Scene,
    counts: [Vec<Counts>; 2],
}

impl Ticks {
    fn new(vcpus: u32) -> Self {
        let cores = vcpus.div_ceil(NODES).max(1);
        let mut scene = Scene::uniform(NODES as usize, cores);
        scene.snapshot.interval_ns = 10_000_000;
        for vcpu in 0..vcpus {
            let cpu = vcpu % NODES * cores + vcpu / NODES;
            scene.thread(vcpu / 16, 0.0, cpu).tag = Some(Tag::Agent);
        }
        let mut random = Random::seed_from_u64(1);
        let mut counts = || {
            let penalty = |_| Counts {
                instructions: 1_000_000,
                uncore_busy_cycles: Some(random.random_range(100..400) * 100_000),
                uncore_requests: Some(100_000),
                ..Counts::default()
            };
            (0..vcpus).map(penalty).collect()
        };
        Self {
            counts: [counts(), counts()],
            scene,
        }
    }

    /// The next interval; not a part of what is measured.
    fn next(&mut self) {
        let snapshot = &mut self.scene.snapshot;
        snapshot.time_ns += 10_000_000;
        snapshot.sequence += 1;
        let counts = &self.counts[usize::from(snapshot.sequence.is_multiple_of(2))];
        for (thread, &counts) in snapshot.threads.iter_mut().zip(counts) {
            thread.counts = Some(counts);
        }
    }
}

/// The time that so many ticks take to decide.
fn decide(vcpus: u32, form: SystemPenaltyForm, ticks: u64) -> Duration {
    let mut settings = Settings::default();
    settings.brm.system_penalty = form;
    let (mut world, mut brm) = (
        Ticks::new(vcpus),
        Staged::new(&settings, Brm::new(&settings)),
    );
    let mut random = Random::seed_from_u64(2);
    let mut took = Duration::ZERO;
    for _ in 0..ticks {
        world.next();
        let (snapshot, topology) = (&world.scene.snapshot, &world.scene.topology);
        let start = Instant::now();
        let plan = black_box(brm.place(snapshot, topology, &mut random));
        took += start.elapsed();
        world.scene.carry_out(&plan);
    }
    took
}

/// What each of so many vCPUs adds in two ticks.
fn parts(vcpus: usize) -> [Vec<Part>; 2] {
    let mut random = Random::seed_from_u64(3);
    let mut of_a_tick = || {
        let part = |_| Part::of_cycles(random.random_range(100.0..400.0));
        (0..vcpus).map(part).collect()
    };
    [of_a_tick(), of_a_tick()]
}

/// One tick of vCPUs whose parts were `before` and are `now`.
fn update(before: &[Part], now: &[Part], mut one: impl FnMut(Part, Part) -> Option<f64>) {
    for (&before, &now) in before.iter().zip(now) {
        black_box(one(before, now));
    }
}

fn add(total: &mut Total, parts: &[Part]) {
    parts.iter().for_each(|&part| total.add(part));
}

/// The time of so many ticks on one core.
fn one_core(form: &str, vcpus: usize, ticks: u64) -> Duration {
    let parts = parts(vcpus);
    let at = |tick: u64| (&parts[(tick % 2) as usize], &parts[(tick % 2) as usize ^ 1]);
    match form {
        "plain" => {
            let mut total = Total::default();
            add(&mut total, &parts[0]);
            let start = Instant::now();
            for (before, now) in (0..ticks).map(at) {
                update(before, now, |before, now| {
                    total.update(before, now);
                    total.mean()
                });
            }
            start.elapsed()
        }
        "sharded" => {
            let mut system = SystemPenalty::new(SystemPenaltyForm::Sharded, NODES as usize);
            let each = vcpus.div_ceil(NODES as usize);
            for (node, parts) in parts[0].chunks(each).enumerate() {
                add(system.at(node), parts);
            }
            let start = Instant::now();
            for (before, now) in (0..ticks).map(at) {
                system.tick();
                let both = before.chunks(each).zip(now.chunks(each));
                for (node, (before, now)) in both.enumerate() {
                    update(before, now, |before, now| {
                        system.at(node).update(before, now);
                        system.seen_from(node)
                    });
                }
            }
            start.elapsed()
        }
        _ => {
            let mut all = parts[0].clone();
            let start = Instant::now();
            for (_, now) in (0..ticks).map(at) {
                for (vcpu, &now) in now.iter().enumerate() {
                    all[vcpu] = now;
                    let mut total = Total::default();
                    add(&mut total, &all);
                    black_box(total.mean());
                }
            }
            start.elapsed()
        }
    }
}

/// A shard whose owner is a core of its own: what the others see of it is alone in its cache lines (two,
/// since neighbours are prefetched in pairs), as the bits of a mean.
#[derive(Default)]
#[repr(align(128))]
struct Published(AtomicU64);

/// The time of so many ticks on two cores, each with half of the vCPUs.
fn two_cores(sharded: bool, vcpus: usize, ticks: u64) -> Duration {
    let parts = parts(vcpus);
    let each = vcpus.div_ceil(2);
    let total = Mutex::new(Total::default());
    add(&mut total.lock().expect("nobody panics"), &parts[0]);
    let begin = Barrier::new(2);
    let published = [Published::default(), Published::default()];
    let core = |core: usize| {
        let mut own = Total::default();
        let mine = |tick: u64| {
            parts[(tick % 2) as usize]
                .chunks(each)
                .nth(core)
                .unwrap_or(&[])
        };
        add(&mut own, mine(0));
        begin.wait();
        let start = Instant::now();
        for tick in 0..ticks {
            let (before, now) = (mine(tick), mine(tick + 1));
            if sharded {
                let mean = |total: &Total| total.mean().unwrap_or_default();
                published[core]
                    .0
                    .store(mean(&own).to_bits(), Ordering::Release);
                let others = published[core ^ 1].0.load(Ordering::Acquire);
                update(before, now, |before, now| {
                    own.update(before, now);
                    Some(mean(&own).midpoint(f64::from_bits(others)))
                });
            } else {
                update(before, now, |before, now| {
                    let mut total = total.lock().expect("nobody panics");
                    total.update(before, now);
                    total.mean()
                });
            }
        }
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let cores = [0, 1].map(|at| scope.spawn(move || core(at)));
        let took = cores
            .into_iter()
            .map(|core| core.join().expect("nobody panics"));
        took.max().unwrap_or_default()
    })
}

const FORMS: [(&str, SystemPenaltyForm); 2] = [
    ("plain", SystemPenaltyForm::Plain),
    ("sharded", SystemPenaltyForm::Sharded),
];

/// Least time of a vCPU's part of a tick, in ns, out of 25 measurements of enough ticks.
fn least(vcpus: u32, most_ticks: u64, measure: impl Fn(u64) -> Duration) -> f64 {
    let ticks = (most_ticks / u64::from(vcpus)).max(2);
    let took = (0..25).map(|_| measure(ticks)).min().unwrap_or_default();
    took.as_nanos() as f64 / ticks as f64 / f64::from(vcpus)
}

fn main() {
    println!("ns for each vCPU and tick; ratios to the plain one\n");
    println!(
        "{:>6} {:>11} {:>8} {:>7} {:>11} {:>8} {:>7} {:>8} {:>11} {:>8} {:>7}",
        "vCPUs",
        "tick plain",
        "sharded",
        "ratio",
        "core plain",
        "sharded",
        "ratio",
        "anew",
        "two locked",
        "sharded",
        "ratio"
    );
    for vcpus in VCPUS {
        let tick = FORMS.map(|(_, form)| least(vcpus, 40_000, |n| decide(vcpus, form, n)));
        let n = vcpus as usize;
        let one = ["plain", "sharded"]
            .map(|form| least(vcpus, 1_000_000, |ticks| one_core(form, n, ticks)));
        let anew = least(vcpus, 8_192, |ticks| one_core("anew", n, ticks));
        let two = [false, true]
            .map(|sharded| least(vcpus, 1_000_000, |ticks| two_cores(sharded, n, ticks)));
        let ratio = |of: [f64; 2]| of[1] / of[0];
        println!(
            "{vcpus:>6} {:>11.1} {:>8.1} {:>7.2} {:>11.2} {:>8.2} {:>7.2} {anew:>8.1} {:>11.1} \
             {:>8.2} {:>7.3}",
            tick[0],
            tick[1],
            ratio(tick),
            one[0],
            one[1],
            ratio(one),
            two[0],
            two[1],
            ratio(two)
        );
    }
}
