//! Communication of known patterns, made up for tests and benchmarks.

use super::Communication;

/// Neighbours up to `reach` apart, nearer ones more: what a stencil over a line does.
pub fn band(threads: usize, reach: usize) -> Communication {
    Communication::of(threads, |row, column| match column.checked_sub(row) {
        Some(apart @ 1..) if apart <= reach => 100 * (reach + 1 - apart) as u64,
        _ => 0,
    })
}

/// The same threads numbered from elsewhere: thread 0 becomes thread `by`, and so on, round.
pub fn shifted(of: &Communication, by: usize) -> Communication {
    let threads = of.threads();
    let before = |thread: usize| (thread + threads - by % threads) % threads;
    renumbered(of, before)
}

/// The same threads in an order that has nothing to do with the pattern. `stride` has no divisor in
/// common with the number of threads.
pub fn scattered(of: &Communication, stride: usize) -> Communication {
    renumbered(of, |thread| thread * stride % of.threads())
}

/// All threads communicate alike.
pub fn all_to_all(threads: usize) -> Communication {
    Communication::of(threads, |row, column| if row < column { 100 } else { 0 })
}

/// Pipelines of `stages` stages side by side; stage hands to stage.
pub fn pipelines(threads: usize, stages: usize) -> Communication {
    Communication::of(threads, |row, column| {
        if row + 1 == column && column % stages != 0 {
            100
        } else {
            0
        }
    })
}

/// A butterfly: partners whose numbers differ in one bit, as in a Fourier transform.
pub fn butterfly(threads: usize) -> Communication {
    Communication::of(threads, |row, column| {
        if row < column && (row ^ column).is_power_of_two() {
            100
        } else {
            0
        }
    })
}

/// A grid of `width` columns, each with its four neighbours.
pub fn grid(threads: usize, width: usize) -> Communication {
    Communication::of(threads, |row, column| {
        let beside = row + 1 == column && column % width != 0;
        if beside || row + width == column {
            100
        } else {
            0
        }
    })
}

fn renumbered(of: &Communication, before: impl Fn(usize) -> usize) -> Communication {
    Communication::of(of.threads(), |row, column| {
        if row < column {
            of.between(before(row), before(column))
        } else {
            0
        }
    })
}
