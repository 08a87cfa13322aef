//! The derivation on figures worked out by hand.

use super::*;

fn reference() -> Reference {
    Reference {
        clock_ghz: 2.5,
        memory_beyond_llc_ns: 60.0,
        lines_in_flight: 16.0,
        instructions_per_cycle: 4.0,
        private_cache_mib: 1.0,
    }
}

/// 20 lines and 1 cycle less from 2 to 32 MiB; 50 exposed cycles of 150 per line.
fn pointers() -> Sweep {
    Sweep {
        cache_mib: vec![2.0, 8.0, 32.0],
        cycles_per_instruction: vec![3.0, 2.5, 2.0],
        lines: vec![Some(30.0), None, Some(10.0)],
        demand_without_prefetch: vec![24.0, 12.0, 4.0],
        demand: Some(vec![20.0, 10.0, 5.0]),
        cycles_without_prefetch_at_largest: None,
        l2_misses: Some(22.0),
        written: Some(Written {
            written: 3.0,
            lines: 30.0,
        }),
    }
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12, "{a} for {b}");
}

#[test]
fn where_the_size_tells_little_prefetchers_tell_the_wait_per_line() {
    let mut sweep = pointers();
    sweep.cycles_per_instruction = vec![2.02, 2.01, 2.0];
    // 1 cycle for 5 misses less per 1000 instructions is 200 for each of the 5 that are left, which
    // is 100 for each of the 10 lines.
    sweep.demand_without_prefetch = vec![24.0, 12.0, 10.0];
    sweep.cycles_without_prefetch_at_largest = Some(3.0);
    near(derived(&sweep, &reference()).misses_in_flight, 1.5);
    // Without that figure it is 0.02 cycles for 20 lines: more in flight than the core can have.
    sweep.cycles_without_prefetch_at_largest = None;
    near(derived(&sweep, &reference()).misses_in_flight, 16.0);
    // Where the difference between sizes is large enough, it counts.
    let mut sweep = pointers();
    sweep.cycles_without_prefetch_at_largest = Some(9.0);
    near(derived(&sweep, &reference()).misses_in_flight, 3.0);
}

#[test]
fn the_wait_per_line_tells_how_many_share_it() {
    let derived = derived(&pointers(), &reference());
    near(derived.misses_in_flight, 3.0);
    near(derived.cycles_per_instruction, 1.5);
    near(derived.written_per_line, 0.1);
}

#[test]
fn the_figures_come_back_from_what_was_derived() {
    let derived = derived(&pointers(), &reference());
    for (lines, cycles) in [(30.0, 3.0), (10.0, 2.0)] {
        let wait = lines * 150.0 / derived.misses_in_flight / 1000.0;
        near(derived.cycles_per_instruction + wait, cycles);
    }
}

#[test]
fn lines_between_follow_the_demand_and_lines_below_the_power_law() {
    let derived = derived(&pointers(), &reference());
    // 8 of 20 demand misses beyond the largest size's are left at 8 MiB: 10 + 20 x 0.4; two more
    // of the private cache are answered at 2 MiB; demand halves in two doublings, so the power is
    // a half, and the quarter of the private cache fetches twice as much.
    let exact = [
        (0.25, 64.0),
        (1.0, 32.0),
        (2.0, 30.0),
        (8.0, 18.0),
        (32.0, 10.0),
    ];
    assert_eq!(derived.lines.len(), exact.len());
    for (&(size, lines), (wanted_size, wanted)) in derived.lines.iter().zip(exact) {
        near(size, wanted_size);
        near(lines, wanted);
    }
    near(derived.cache_accesses, 64.0);
    let demand = derived.demand.unwrap();
    near(demand[1].1, 22.0);
    near(demand[0].1, 44.0);
}

#[test]
fn a_gentle_fall_continues_as_gently() {
    let mut sweep = pointers();
    // A power of 1/4.
    sweep.demand_without_prefetch[1] = 24.0 / 2_f64.sqrt();
    near(
        derived(&sweep, &reference()).cache_accesses,
        32.0 * 2_f64.sqrt(),
    );
    sweep.demand_without_prefetch = vec![4.0, 4.0, 4.0];
    let flat = derived(&sweep, &reference());
    near(flat.cache_accesses, 32.0);
    assert!(
        flat.lines.iter().all(|&(size, _)| size != 8.0),
        "nothing says what the middle size fetches"
    );
}

#[test]
fn differences_within_rounding_tell_nothing_so_the_core_sets_what_is_in_flight() {
    let mut sweep = pointers();
    sweep.cycles_per_instruction = vec![2.01, 2.0, 2.0];
    let covered = derived(&sweep, &reference());
    near(covered.misses_in_flight, 16.0);
    near(covered.cycles_per_instruction, 2.0 - 0.09375);
    let mut sweep = pointers();
    sweep.lines = vec![Some(10.4), None, Some(10.0)];
    near(derived(&sweep, &reference()).misses_in_flight, 16.0);
    sweep.lines = vec![Some(0.0), None, Some(0.0)];
    near(derived(&sweep, &reference()).misses_in_flight, 16.0);
}

#[test]
fn what_is_in_flight_is_at_least_one_and_at_most_the_cores() {
    let mut sweep = pointers();
    sweep.cycles_per_instruction = vec![2.04, 2.0, 2.0];
    near(derived(&sweep, &reference()).misses_in_flight, 16.0);
    sweep.cycles_per_instruction = vec![30.0, 2.0, 2.0];
    near(derived(&sweep, &reference()).misses_in_flight, 1.0);
}

#[test]
fn no_program_runs_faster_than_the_core_is_wide() {
    let mut sweep = pointers();
    sweep.cycles_per_instruction = vec![1.3, 0.8, 0.3];
    near(derived(&sweep, &reference()).cycles_per_instruction, 0.25);
}

#[test]
fn lines_unknown_at_the_smallest_size_are_the_demand_and_what_prefetching_adds() {
    let smallest = |lines, demand: [f64; 3]| {
        let mut sweep = pointers();
        sweep.lines = vec![None, None, Some(lines)];
        sweep.demand_without_prefetch = demand.to_vec();
        sweep.l2_misses = None;
        let derived = derived(&sweep, &reference());
        derived.lines[2].1
    };
    near(smallest(5.0, [24.0, 12.0, 4.0]), 30.0);
    near(smallest(12.0, [24.0, 12.0, 4.0]), 24.0 * 1.64);
    near(smallest(3.0, [24.0, 12.0, 4.0]), 24.0);
    near(smallest(0.0, [24.0, 12.0, 0.0]), 24.0);
    near(smallest(9.0, [2.0, 2.0, 2.0]), 9.0);
}
