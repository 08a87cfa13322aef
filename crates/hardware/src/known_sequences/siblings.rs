//! SMT siblings on the machine of the other known sequences: threads 0 and 1 are one core, 2 and 3 another, and so on.
//! Two siblings have 1.15 times the throughput of one alone.

use super::{NODE_BYTES, NS, Program, config, machine, scattered};
use crate::{Config, Machine, Smt};

const THROUGHPUT: f64 = 1.15;
/// Relative growth of a base cycle while the sibling computes.
const STRETCH: f64 = 2.0 / THROUGHPUT - 1.0;

fn with_siblings(config: Config) -> Machine {
    let core_of_thread = (0..config.cores()).map(|thread| thread / 2).collect();
    let throughput = THROUGHPUT;
    let smt = Some(Smt {
        core_of_thread,
        throughput,
    });
    machine(Config { smt, ..config })
}

impl Program<'_> {
    fn load_all(&mut self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            self.load(address);
        }
    }

    /// Executes instructions that access nothing. Returns the time after them.
    fn compute(&mut self, instructions: u64) -> u64 {
        self.instructions += instructions;
        self.core.now_ps(self.instructions)
    }
}

#[test]
fn private_caches_are_one_for_both() {
    let machine = with_siblings(config());
    let (mut one, mut other) = (Program::on(&machine, 0), Program::on(&machine, 1));
    assert!(one.store(4096).is_some());
    assert_eq!(other.load(4096), None, "the first level has it");
    assert_eq!(other.store(4096), None, "and nobody is asked");
    assert_eq!(one.load(4096), None);
    let mut elsewhere = Program::on(&machine, 2);
    assert!(elsewhere.load(4096).is_some());
    assert_eq!(elsewhere.core.counts().invalidation, 0);
    assert!(other.store(4096).is_some(), "now another core has it, too");
    assert_eq!(other.core.counts().invalidation, 1);
    assert!(
        elsewhere.load(4096).is_some(),
        "which was told to drop its own"
    );
}

#[test]
fn two_that_fit_a_private_cache_alone_drive_each_other_out() {
    // 24 KiB each; the first level has 32.
    let lines = |start: u64| (0..384).map(move |line| start + line * 64);
    for (second, expected) in [(1, 384), (2, 0)] {
        let machine = with_siblings(config());
        let (mut one, mut other) = (Program::on(&machine, 0), Program::on(&machine, second));
        one.load_all(lines(0));
        other.load_all(lines(NODE_BYTES));
        let before = one.core.counts().l1_miss;
        one.load_all(lines(0));
        assert_eq!(
            one.core.counts().l1_miss - before,
            expected,
            "beside {second}"
        );
    }
}

#[test]
fn two_that_compute_get_done_together_what_the_file_says() {
    const STEPS: u64 = 1000;
    const STEP: u64 = 10_000;
    let machine = with_siblings(config());
    let (mut one, mut other) = (Program::on(&machine, 0), Program::on(&machine, 1));
    for _ in 0..STEPS {
        one.compute(STEP);
        other.compute(STEP);
    }
    let stretched = |steps: u64| (steps * STEP * NS) as f64 * 2.0 / THROUGHPUT;
    // In its first window, the first thread knows nothing of the other yet.
    let expected = (STEP * NS) as f64 + stretched(STEPS - 1);
    assert!((one.compute(0) as f64 - expected).abs() <= 1.0);
    assert!((other.compute(0) as f64 - stretched(STEPS)).abs() <= 1.0);
    assert_eq!(one.core.stalled_ps(), 0, "slots are no wait for memory");
    let yielded = one.core.yielded_ps();
    assert_eq!(yielded, one.compute(0) - STEPS * STEP * NS);
}

#[test]
fn a_sibling_that_rests_or_is_another_cores_takes_nothing() {
    let machine = with_siblings(config());
    let (mut one, mut other) = (Program::on(&machine, 0), Program::on(&machine, 1));
    let mut elsewhere = Program::on(&machine, 2);
    elsewhere.compute(50_000);
    assert_eq!(one.compute(50_000), 50_000 * NS);
    other.compute(50_000);
    other.core.rests();
    assert_eq!(one.compute(50_000), 100_000 * NS);
    // It has slept until now, so its earlier report no longer counts.
    other.compute(50_000);
    let slept = 1_000_000 * NS;
    other.core.idle_until(other.instructions, slept);
    assert_eq!(one.compute(50_000), 150_000 * NS);
}

#[test]
fn a_sibling_that_waits_for_memory_leaves_the_slots() {
    let machine = with_siblings(config());
    let (mut computes, mut chases) = (Program::on(&machine, 0), Program::on(&machine, 1));
    chases.gap = 90;
    let list = scattered(0, 20_000);
    let mut begin = (0, 0, 0);
    for (step, pair) in list.windows(2).enumerate() {
        chases.access(pair[0], false, Some(pair[1]));
        // Computes up to the time of the other thread.
        let time = chases.core.now_ps(chases.instructions);
        while computes.compute(10) < time {}
        if step == 2000 {
            begin = (
                computes.instructions,
                computes.compute(0),
                chases.core.stalled_ps(),
            );
        }
    }
    let (executed, until) = (computes.instructions, computes.compute(0));
    let took = (until - begin.1) as f64;
    let waited = (chases.core.stalled_ps() - begin.2) as f64;
    let computed = 1.0 - waited / took;
    assert!((0.5..0.8).contains(&computed), "{computed}");
    let expected = ((executed - begin.0) * NS) as f64 * (1.0 + STRETCH * computed);
    assert!(
        (took / expected - 1.0).abs() < 0.002,
        "{took} ps, expected {expected}"
    );
}

#[test]
fn lines_in_flight_are_divided_while_both_wait() {
    let each = |threads: &[usize]| {
        let machine = with_siblings(Config {
            controller_gb_per_s: vec![640.0; 4],
            in_flight_per_core: 10,
            reorder_window_instructions: 10_000,
            ..config()
        });
        let mut programs: Vec<_> = threads
            .iter()
            .map(|&thread| Program::on(&machine, thread))
            .collect();
        let addresses = scattered(0, 20_000);
        for address in addresses {
            for (at, program) in programs.iter_mut().enumerate() {
                program.load(address + at as u64 * 2 * NODE_BYTES);
            }
        }
        let program = &mut programs[0];
        program.core.now_ps(program.instructions) as f64 / 20_000.0
    };
    for (threads, at_once) in [(&[0][..], 10.0), (&[0, 2], 10.0), (&[0, 1], 5.0)] {
        let (took, expected) = (each(threads), 90_000.0 / at_once);
        let share = took / expected;
        assert!((0.97..1.03).contains(&share), "{threads:?}: {took} ps");
    }
}
