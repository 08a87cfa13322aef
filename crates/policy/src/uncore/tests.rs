//! Averages by hand, and totals against adding up anew.

use super::*;
use proptest::prelude::*;

fn counts(cycles: u64, requests: u64) -> Counts {
    Counts {
        uncore_busy_cycles: Some(cycles),
        uncore_requests: Some(requests),
        ..Counts::default()
    }
}

#[test]
fn a_sample_is_cycles_per_request_of_enough_requests() {
    assert_eq!(sample(&counts(20_000, 100)), Some(200.0));
    assert_eq!(sample(&counts(20_000, 99)), None);
    assert_eq!(sample(&Counts::default()), None);
}

#[test]
fn an_average_begins_with_the_first_sample_and_takes_an_eighth_of_each_next() {
    let mut average = Average::default();
    let mut after = |sample| {
        average.observe(sample);
        average.value()
    };
    assert_eq!(after(None), None);
    assert_eq!(after(Some(80.0)), Some(80.0));
    assert_eq!(after(Some(160.0)), Some(90.0));
    assert_eq!(after(None), Some(90.0));
    assert_eq!(after(Some(10.0)), Some(80.0));
}

#[test]
fn figures_gone_mad_do_not_overflow_a_total() {
    let mut total = Total::default();
    for cycles in [f64::INFINITY, u64::MAX as f64, f64::NAN, -1.0] {
        total.add(Part::of_cycles(cycles));
    }
    assert_eq!(total.mean(), Some(f64::from(1 << 29)));
}

/// What happens to one of a few candidates.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It has that average now, on that node.
    Has(usize, f64, usize),
    Goes(usize),
    Tick,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0usize..12, 0.0..2000.0f64, 0usize..5).prop_map(|(v, p, n)| Event::Has(v, p, n)),
        1 => (0usize..12).prop_map(Event::Goes),
        2 => Just(Event::Tick),
    ];
    proptest::collection::vec(event, 0..200)
}

/// Takes in an event; `parts` are what each candidate last added, and where.
fn take(penalty: &mut SystemPenalty, parts: &mut [Option<(Part, usize)>], event: Event) {
    match event {
        Event::Has(v, cycles, node) => {
            let now = Part::of_cycles(cycles);
            match parts[v].replace((now, node)) {
                Some((before, at)) if at == node => penalty.at(node).update(before, now),
                before => {
                    if let Some((before, at)) = before {
                        penalty.at(at).remove(before);
                    }
                    penalty.at(node).add(now);
                }
            }
        }
        Event::Goes(v) => {
            if let Some((before, at)) = parts[v].take() {
                penalty.at(at).remove(before);
            }
        }
        Event::Tick => penalty.tick(),
    }
}

proptest! {
    #[test]
    fn a_total_is_what_adding_up_anew_gives(events in events()) {
        for form in [SystemPenaltyForm::Plain, SystemPenaltyForm::Sharded] {
            let mut penalty = SystemPenalty::new(form, 5);
            let mut parts = [None; 12];
            for &event in &events {
                take(&mut penalty, &mut parts, event);
            }
            let mut anew = Total::default();
            parts.iter().flatten().for_each(|&(part, _)| anew.add(part));
            prop_assert_eq!(penalty.mean(), anew.mean());
        }
    }

    #[test]
    fn at_a_tick_every_shard_sees_what_the_plain_total_is(events in events()) {
        let mut plain = SystemPenalty::new(SystemPenaltyForm::Plain, 5);
        let mut sharded = SystemPenalty::new(SystemPenaltyForm::Sharded, 5);
        let mut parts = ([None; 12], [None; 12]);
        for &event in &events {
            take(&mut plain, &mut parts.0, event);
            take(&mut sharded, &mut parts.1, event);
            if let Event::Tick = event {
                for node in 0..5 {
                    prop_assert_eq!(plain.seen_from(node), sharded.seen_from(node));
                }
            }
        }
    }

    #[test]
    fn between_ticks_a_shard_sees_its_own_changes_at_once_and_no_others(
        at_first in proptest::collection::vec(1.0..2000.0f64, 3), then in 1.0..2000.0f64,
    ) {
        let mut penalty = SystemPenalty::new(SystemPenaltyForm::Sharded, 3);
        let mut parts = [None; 12];
        for (v, &cycles) in at_first.iter().enumerate() {
            take(&mut penalty, &mut parts, Event::Has(v, cycles, v));
        }
        penalty.tick();
        let before = penalty.seen_from(0);
        take(&mut penalty, &mut parts, Event::Has(1, then, 1));
        prop_assert_eq!(penalty.seen_from(0), before);
        prop_assert_eq!(penalty.seen_from(1), penalty.mean());
    }
}
