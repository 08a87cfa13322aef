//! Down-sampling against the same done by hand.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Spans of time: a beginning in ns, a length and a figure.
fn spans() -> impl Strategy<Value = Vec<(u64, u64, f64)>> {
    let time = prop_oneof![0..4_000_000_000u64, 0..u64::MAX / 2];
    let length = prop_oneof![1..2_000_000_000u64, 1..u64::MAX / 2];
    prop::collection::vec((time, length, -1e6..1e6f64), 1..40)
}

/// Everything put, with the clock's final state.
fn drawn<C: Cell>(spans: &[(u64, u64, f64)], cell: impl Fn(f64, u64) -> C) -> (Clock, Columns<C>) {
    let mut clock = Clock::starting(spans[0].0);
    let mut columns = Columns::default();
    for &(begin, length, figure) in spans {
        clock.saw(begin + length);
        columns.put(&clock, (begin, begin + length), |ns| cell(figure, ns));
    }
    (clock, columns)
}

proptest! {
    #[test]
    fn columns_are_few_and_cover_the_run(spans in spans()) {
        let (clock, columns) = drawn(&spans, Spread::of);
        let last = columns.iter().last().map_or(0, |(column, _)| column);
        prop_assert!(last < MOST);
        prop_assert!(clock.span_ns >> clock.shift < MOST);
        let is_finest = clock.shift == FINEST;
        prop_assert!(is_finest || clock.span_ns >> clock.shift >= MOST / 2);
    }

    #[test]
    fn each_column_has_the_least_and_greatest_of_what_meets_it(spans in spans()) {
        let (clock, columns) = drawn(&spans, Spread::of);
        for (column, cell) in columns.iter() {
            let begin = u128::from(column) << clock.shift;
            let end = begin + u128::from(clock.width_ns());
            let meeting = spans.iter().filter(|&&(from, length, _)| {
                let (from, to) = (clock.since(from), clock.since(from + length));
                to > from && u128::from(from) < end && u128::from(to) > begin
            });
            let figures: Vec<f64> = meeting.map(|&(_, _, figure)| figure).collect();
            let ends = (!figures.is_empty()).then(|| {
                let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
                (least, figures.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            });
            prop_assert_eq!(cell.ends, ends);
            if let (Some(mean), Some((least, greatest))) = (cell.mean(), ends) {
                prop_assert!((least..=greatest).contains(&mean));
            }
        }
    }

    #[test]
    fn no_time_is_lost_or_counted_twice(spans in spans()) {
        // Below 2^53 ns so that sums of times are exact.
        let spans: Vec<_> = spans
            .into_iter()
            .map(|(begin, length, figure)| (begin % (1 << 45), length % (1 << 45) + 1, figure))
            .collect();
        let (clock, columns) = drawn(&spans, Spread::of);
        let put: u64 = spans
            .iter()
            .map(|&(begin, length, _)| clock.since(begin + length) - clock.since(begin))
            .sum();
        let held: f64 = columns.iter().map(|(_, cell)| cell.weight).sum();
        prop_assert_eq!(held as u64, put);
    }

    #[test]
    fn amounts_are_kept_to_the_last(events in prop::collection::vec((any::<u64>(), 0..1000u64), 1..60)) {
        let mut clock = Clock::starting(0);
        let mut columns = Columns::default();
        for &(time, amount) in &events {
            clock.saw(time);
            columns.add(&clock, time, &Amount(amount));
        }
        let mut by_hand: BTreeMap<u64, u64> = BTreeMap::new();
        for &(time, amount) in &events {
            *by_hand.entry(time >> clock.shift).or_default() += amount;
        }
        by_hand.retain(|_, amount| *amount > 0);
        let held = columns.iter().filter(|(_, cell)| cell.0 > 0);
        let held: BTreeMap<u64, u64> = held.map(|(column, cell)| (column, cell.0)).collect();
        prop_assert_eq!(held, by_hand);
    }

    #[test]
    fn a_column_says_where_a_thread_was_or_that_it_was_on_several_nodes(spans in spans()) {
        let node = |figure: f64| Stay::On((figure as i64).rem_euclid(3) as u16);
        let (clock, columns) = drawn(&spans, |figure, _| node(figure));
        for (column, &stay) in columns.iter() {
            let begin = u128::from(column) << clock.shift;
            let end = begin + u128::from(clock.width_ns());
            let mut there: Vec<Stay> = spans
                .iter()
                .filter(|&&(from, length, _)| {
                    let (from, to) = (clock.since(from), clock.since(from + length));
                    to > from && u128::from(from) < end && u128::from(to) > begin
                })
                .map(|&(_, _, figure)| node(figure))
                .collect();
            there.dedup();
            let is_one = there.windows(2).all(|pair| pair[0] == pair[1]);
            let expected = match there.first() {
                None => Stay::Absent,
                Some(&only) if is_one => only,
                Some(_) => Stay::Several,
            };
            prop_assert_eq!(stay, expected);
        }
    }
}

#[test]
fn what_is_no_number_was_not_measured() {
    assert_eq!(Spread::of(f64::NAN, 5).mean(), None);
    assert_eq!(Spread::of(f64::INFINITY, 5).mean(), None);
    let mut huge = Spread::of(f64::MAX, u64::MAX);
    huge.merge(&Spread::of(1.0, 1));
    assert_eq!(huge.mean(), Some(f64::MAX));
}
