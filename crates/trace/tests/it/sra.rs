//! What migration strategies save, on traces whose answer is known.

use numaherd_hardware::Cache;
use numaherd_trace::sra::{Caches, Options, Strategy, sra};
use numaherd_trace::{Error, Event, Trace};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use crate::trace_of;

const PAGE: u64 = 4096;
const LINES: u64 = PAGE / 64;

/// Caches of one line each: what is not the same line again reaches memory.
fn tiny() -> Caches {
    let line = Cache {
        bytes: 64,
        ways: 1,
        hit_ns: 0.0,
    };
    Caches {
        line_bytes: 64,
        l1: line,
        l2: None,
        llc: line,
        cores_per_domain: 1,
    }
}

fn options(pages: u64, one_in: u64) -> Options {
    Options {
        pages: vec![pages],
        one_in: vec![one_in],
        caches: tiny(),
        ..Options::default()
    }
}

/// Loads of every line of these pages, page after page.
fn lines_of(pages: impl IntoIterator<Item = u64>) -> Vec<Event> {
    let lines = pages
        .into_iter()
        .flat_map(|page| (0..LINES).map(move |line| (page, line)));
    lines
        .map(|(page, line)| Event::load(page * PAGE + line * 64, 8, 1))
        .collect()
}

fn trace(threads: &[Vec<Event>]) -> Trace {
    Trace::from_bytes(trace_of(threads, 1000)).expect("a trace")
}

#[test]
fn with_every_access_looked_at_each_strategy_saves_all_whatever_k() {
    let trace = trace(&[lines_of([7, 3, 9, 4, 100, 7])]);
    for pages in [1, 2, 8] {
        let found = sra(&trace, &options(pages, 1)).expect("it can be read");
        assert_eq!((found.remote, found.touched_pages), (6 * LINES, 5));
        for cell in &found.cells {
            assert_eq!(cell.sra, Some(1.0), "{cell:?}");
        }
    }
}

#[test]
fn of_a_sweep_one_sample_per_page_saves_what_is_ahead_of_it() {
    // Pages 10 to 29, once. One in 64 accesses is one sample in each page.
    let trace = trace(&[lines_of(10..30)]);
    let total = 20 * LINES;
    for pages in [1, 4] {
        let found = sra(&trace, &options(pages, LINES)).expect("it can be read");
        let cell = |strategy| *found.cell(strategy, pages, LINES).expect("it was tried");
        let forward = cell(Strategy::SequentialForward);
        // Every fourth page has its sample while it is remote, three come for free.
        assert_eq!(forward.triggers, 20 / pages);
        assert_eq!(forward.moved_pages, 20);
        let free = total - total / pages;
        assert!(
            forward.saved >= free && forward.saved < total,
            "{forward:?}"
        );
        let both = cell(Strategy::SequentialForwardBackward);
        // Pages p and p + 1 of those from p - 2 to p + 1 lie ahead.
        let moves = if pages == 1 { 20 } else { 10 };
        assert_eq!((both.triggers, both.moved_pages), (moves, 20));
        if pages == 1 {
            for strategy in Strategy::ALL {
                assert_eq!(cell(strategy).saved, forward.saved, "K is 1");
            }
        }
    }
}

#[test]
fn a_pattern_is_followed_where_there_is_one() {
    // Every fifth page, downwards: only pattern-based finds the next ones.
    let pages: Vec<_> = (0..50).map(|at| 1000 - 5 * at).collect();
    let found = sra(&trace(&[lines_of(pages)]), &options(4, LINES)).expect("it can be read");
    let cell = |strategy| {
        found
            .cell(strategy, 4, LINES)
            .expect("it was tried")
            .triggers
    };
    assert_eq!(cell(Strategy::SequentialForward), 50);
    assert_eq!(cell(Strategy::SequentialForwardBackward), 50);
    // Three pages to see the pattern; the fourth, 1000 - 15, and then one in four.
    assert_eq!(cell(Strategy::PatternBased), 3 + 47_u64.div_ceil(4));
}

#[test]
fn random_moves_k_pages_of_those_that_the_process_touches() {
    let trace = trace(&[lines_of(0..100)]);
    let found = sra(&trace, &options(25, 10 * LINES)).expect("it can be read");
    let cell = found
        .cell(Strategy::Random, 25, 10 * LINES)
        .expect("it was tried");
    assert!(cell.triggers >= 4 && cell.triggers <= 10, "{cell:?}");
    assert!(cell.moved_pages > 25 && cell.moved_pages < 100, "{cell:?}");
    let all = sra(&trace, &options(100, 10 * LINES)).expect("it can be read");
    let all = all
        .cell(Strategy::Random, 100, 10 * LINES)
        .expect("it was tried");
    assert_eq!((all.triggers, all.moved_pages), (1, 100));
}

#[test]
fn what_the_caches_have_is_no_access_to_memory() {
    // 20 pages fit into the last level, not into the first: they are fetched once.
    let twice: Vec<_> = (0..20).chain(0..20).collect();
    let trace = trace(&[lines_of(twice)]);
    let options = Options {
        pages: vec![1],
        one_in: vec![1],
        ..Options::default()
    };
    let found = sra(&trace, &options).expect("it can be read");
    assert_eq!((found.accesses, found.remote), (40 * LINES, 20 * LINES));
}

#[test]
fn threads_are_looked_at_one_by_one_and_processes_have_pages_of_their_own() {
    let trace = trace(&[lines_of(0..4), lines_of(2..8)]);
    let found = sra(&trace, &options(2, LINES)).expect("it can be read");
    assert_eq!((found.threads, found.touched_pages), (2, 10));
    let forward = found
        .cell(Strategy::SequentialForward, 2, LINES)
        .expect("it was tried");
    // Two moves of the first thread, three of the second, though they share two pages.
    assert_eq!((forward.triggers, forward.moved_pages), (5, 10));
}

#[test]
fn an_access_beyond_its_line_is_one_for_each_line() {
    let trace = trace(&[vec![
        Event::load(PAGE - 32, 64, 1),
        Event::store(u64::MAX - 7, 8, 1),
    ]]);
    let found = sra(&trace, &options(1, 1)).expect("it can be read");
    assert_eq!(
        (found.accesses, found.remote, found.touched_pages),
        (3, 3, 3)
    );
}

#[test]
fn nothing_to_save_is_no_share_and_nothing_at_a_time_is_refused() {
    let idle = trace(&[vec![Event::sleep(5)]]);
    let found = sra(&idle, &options(1, 1)).expect("it can be read");
    assert!(found.cells.iter().all(|cell| cell.sra.is_none()));
    for wrong in [options(0, 1), options(1, 0)] {
        assert!(matches!(sra(&idle, &wrong), Err(Error::Zero(_))));
    }
}

/// Pages as a program may touch them: stretches up, down, by steps, and leaps.
fn walk() -> impl proptest::strategy::Strategy<Value = Vec<u64>> {
    let stretch = (0..300_u64, -3..4_i64, 1..12_u64).prop_map(|(start, step, length)| {
        let page = move |at: u64| (start + 40).wrapping_add_signed(step * at.cast_signed());
        (0..length).map(page).collect::<Vec<_>>()
    });
    prop::collection::vec(stretch, 1..12).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn figures_keep_their_bounds(
        walks in prop::collection::vec(walk(), 1..4),
        pages in 1..40_u64,
        one_in in 1..200_u64,
        seed in any::<u64>(),
    ) {
        let threads: Vec<_> = walks.iter().map(|pages| lines_of(pages.iter().copied())).collect();
        let trace = trace(&threads);
        let options = Options { seed, ..options(pages, one_in) };
        let found = sra(&trace, &options).expect("it can be read");
        prop_assert_eq!(&found, &sra(&trace, &options).expect("it can be read"));
        for cell in &found.cells {
            prop_assert!(cell.saved <= found.remote);
            prop_assert!(cell.triggers <= cell.saved);
            prop_assert!(cell.triggers <= found.remote / one_in + found.threads as u64);
            prop_assert!(cell.moved_pages <= cell.triggers * pages);
            prop_assert!(cell.moved_pages >= cell.triggers);
        }
    }

    /// A page that moved is moved for good, so moving all that a smaller K would move, and more,
    /// can only save more of what comes after: from one sample on.
    #[test]
    fn a_single_sample_saves_no_less_with_more_pages(walk in walk(), seed in any::<u64>()) {
        let trace = trace(&[lines_of(walk)]);
        let all = Options {
            pages: vec![1, 2, 4, 8, 1 << 20],
            one_in: vec![1 << 20],
            strategies: vec![Strategy::SequentialForward, Strategy::SequentialForwardBackward],
            caches: tiny(),
            seed,
        };
        let found = sra(&trace, &all).expect("it can be read");
        for strategy in found.cells.chunks(all.pages.len()) {
            prop_assert!(strategy.is_sorted_by_key(|cell| cell.saved));
        }
    }
}
