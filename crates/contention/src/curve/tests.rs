//! What a curve holds to: exact figures, and the properties that its file names.

use proptest::prelude::*;

use super::*;

const MIB: f64 = (1 << 20) as f64;

fn mcf() -> Curve {
    Curve::new(
        80.0,
        &[(2.75 * MIB, 71.27), (8.0 * MIB, 38.3), (20.25 * MIB, 30.16)],
        1700.0 * MIB,
    )
    .unwrap()
}

/// Instructions after which a thread, having started with none, holds `bytes` of cache: the inverse of
/// [`Curve::held_after`]. Infinite for more than the program's memory.
fn instructions_to_hold(curve: &Curve, bytes: f64) -> f64 {
    if bytes == curve.most() {
        return curve.fill[curve.fill.len() - 1].instructions;
    }
    let after = curve.fill.partition_point(|row| row.bytes <= bytes);
    let (Some(from), Some(to)) = (after.checked_sub(1), curve.fill.get(after)) else {
        return if after == 0 { 0.0 } else { f64::INFINITY };
    };
    let from = &curve.fill[from];
    let part = (bytes - from.bytes) / (to.bytes - from.bytes);
    from.instructions + (to.instructions - from.instructions) * part
}

#[test]
fn given_points_are_met_and_what_lies_beyond_stays() {
    let curve = mcf();
    for (bytes, lines) in [(2.75, 71.27), (8.0, 38.3), (20.25, 30.16), (500.0, 30.16)] {
        assert_eq!(curve.at(bytes * MIB), lines, "at {bytes} MiB");
    }
    assert_eq!(curve.at(0.0), 80.0);
    assert_eq!(curve.at(-1.0), 80.0);
    assert_eq!(curve.cache_accesses(), 80.0);
}

#[test]
fn between_points_lines_are_linear_in_the_logarithm_and_before_the_first_in_the_size() {
    let curve = Curve::new(10.0, &[(MIB, 8.0), (4.0 * MIB, 4.0)], 64.0 * MIB).unwrap();
    assert!((curve.at(2.0 * MIB) - 6.0).abs() < 1e-12);
    assert_eq!(curve.at(0.5 * MIB), 9.0);
}

#[test]
fn a_constant_rate_fills_a_cache_at_that_rate_until_the_memory_is_all_held() {
    // 10 lines per 1000 instructions are 0.64 bytes per instruction.
    let curve = Curve::new(10.0, &[(MIB, 10.0)], 64e6).unwrap();
    for instructions in [0.0, 1.0, 1e4, 1e7, 99.9e6] {
        let held = curve.held_after(instructions);
        assert!((held - 0.64 * instructions).abs() <= 1e-9 * held, "{held}");
    }
    assert_eq!(curve.held_after(100.1e6), 64e6);
    assert_eq!(curve.held_after(f64::INFINITY), 64e6);
    assert_eq!(instructions_to_hold(&curve, 65e6), f64::INFINITY);
}

#[test]
fn a_rate_falling_linearly_fills_as_the_exponential_that_solves_it() {
    // lines = 20 x (1 - c / 2 MiB) up to 1 MiB, so c(n) = 2 MiB x (1 - exp(-n x 1.28 / 2 MiB)).
    let curve = Curve::new(20.0, &[(MIB, 10.0)], 512.0 * MIB).unwrap();
    for instructions in [1e4, 1e5, 1e6, 1.135e6] {
        let exact = 2.0 * MIB * (1.0 - (-instructions * 1.28 / (2.0 * MIB)).exp());
        let held = curve.held_after(instructions);
        assert!((held / exact - 1.0).abs() < 4e-3, "{held} for {exact}");
    }
}

#[test]
fn a_program_that_fits_stops_filling_where_its_lines_end() {
    let curve = Curve::new(5.0, &[(MIB, 5.0), (2.0 * MIB, 0.0)], 100.0 * MIB).unwrap();
    let soon = curve.held_after(1e9);
    assert!(soon > 1.9 * MIB && soon < 2.01 * MIB, "{}", soon / MIB);
}

#[test]
fn a_curve_that_cannot_be_is_refused_with_the_reason() {
    let why = |accesses, points: &[(f64, f64)]| {
        Curve::new(accesses, points, MIB).unwrap_err().to_string()
    };
    assert!(why(1.0, &[]).contains("one point"));
    assert!(why(f64::NAN, &[(MIB, 1.0)]).contains("NaN accesses"));
    assert!(why(9.0, &[(2.0 * MIB, 5.0), (MIB, 4.0)]).contains("1 MiB follows 2 MiB"));
    assert!(why(9.0, &[(MIB, 4.0), (2.0 * MIB, 5.0)]).contains("cannot fetch more"));
    assert!(why(3.0, &[(MIB, 4.0)]).contains("cannot fetch more"));
    assert!(why(9.0, &[(MIB, -1.0)]).contains("-1 lines"));
    assert!(why(9.0, &[(f64::INFINITY, 1.0)]).contains("cannot be"));
    assert!(Curve::new(1.0, &[(MIB, 1.0)], 0.0).is_err());
}

prop_compose! {
    /// Any curve: sizes by growing steps, lines by falling ones, memory above or below the points.
    fn curves()(
        steps in prop::collection::vec((0.001..20.0_f64, 0.0..30.0_f64), 1..8),
        least in prop_oneof![Just(0.0), 1e-6..50.0_f64],
        footprint in 0.01..4000.0_f64,
    ) -> Curve {
        let mut lines: f64 = least + steps.iter().map(|step| step.1).sum::<f64>();
        let accesses = lines;
        let mut size = 0.0;
        let points: Vec<(f64, f64)> = steps
            .iter()
            .map(|&(step, fall)| {
                size += step * MIB;
                lines = (lines - fall).max(0.0);
                (size, lines)
            })
            .collect();
        Curve::new(accesses, &points, footprint * MIB).unwrap()
    }
}

proptest! {
    #[test]
    fn lines_never_rise_with_the_cache_and_stay_within_what_was_given(
        curve in curves(), a in 0.0..200.0_f64, b in 0.0..200.0_f64,
    ) {
        let (small, large) = (a.min(b) * MIB, a.max(b) * MIB);
        prop_assert!(curve.at(large) <= curve.at(small) * (1.0 + 1e-12));
        let least = curve.points().last().unwrap().1;
        for bytes in [small, large] {
            prop_assert!((least..=curve.cache_accesses()).contains(&curve.at(bytes)));
        }
    }

    #[test]
    fn what_is_held_never_falls_and_ends_at_the_memory(
        curve in curves(), a in 0.0..14.0_f64, b in 0.0..14.0_f64,
    ) {
        let (early, late) = (10_f64.powf(a.min(b)), 10_f64.powf(a.max(b)));
        prop_assert!(curve.held_after(early) <= curve.held_after(late));
        prop_assert!(curve.held_after(0.0) == 0.0);
        prop_assert!(curve.held_after(late) <= curve.most());
        prop_assert_eq!(curve.held_after(f64::INFINITY), curve.most());
    }

    #[test]
    fn the_instructions_to_hold_a_size_are_those_after_which_it_is_held(
        curve in curves(), share in 0.0..1.0_f64,
    ) {
        let bytes = curve.most() * share;
        let instructions = instructions_to_hold(&curve, bytes);
        prop_assert!(instructions.is_finite());
        let held = curve.held_after(instructions);
        prop_assert!((held - bytes).abs() <= 1e-6 * curve.most(), "{held} for {bytes}");
    }

    #[test]
    fn threads_that_hold_an_area_together_hold_as_much_as_one_that_runs_as_often(
        curve in curves(), threads in 1.0..16.0_f64, share in 0.0..1.0_f64, exponent in 0.0..14.0_f64,
    ) {
        let each = curve.held_together(threads);
        let bytes = share * curve.most();
        prop_assert!((each.at(bytes / threads) - curve.at(bytes)).abs() <= 1e-6 * curve.cache_accesses());
        let instructions = 10f64.powf(exponent);
        let held = each.held_after(instructions / threads) * threads;
        prop_assert!((held - curve.held_after(instructions)).abs() <= 1e-6 * curve.most());
    }

    /// What is filled is what the lines say: the table's slope is 64 x lines / 1000, between
    /// the lines of the two ends of any stretch.
    #[test]
    fn a_stretch_is_filled_at_a_rate_between_those_of_its_ends(
        curve in curves(), a in 0.0..1.0_f64, b in 0.0..1.0_f64,
    ) {
        let (small, large) = (curve.most() * a.min(b), curve.most() * a.max(b));
        prop_assume!(large - small > 1e-3 * curve.most());
        prop_assume!(curve.at(large) > 1e-3);
        let instructions = instructions_to_hold(&curve, large) - instructions_to_hold(&curve, small);
        let lines = (large - small) / instructions * 1000.0 / LINE_BYTES;
        prop_assert!(lines <= curve.at(small * 0.75) * 1.02, "{lines} of {}", curve.at(small));
        prop_assert!(lines >= curve.at(large * 1.25) * 0.98, "{lines} of {}", curve.at(large));
    }
}
