//! Threads that are alike.
//!
//! Problem: a machine has tens of thousands of threads, and for each layout that is tried the equations must be solved
//! for all of them. Rule: where there are many, threads of a domain whose figures are in the same step of an eighth of
//! an octave are one kind, and the threads of a kind that are in one domain are one to the equations. Where there are
//! few, each is a kind of its own.

use std::collections::HashMap;

use super::BUNDLED_FROM;
use super::demands::Curves;
use super::threads::{Load, Seats};

/// Figures are compared in so many steps to a doubling.
const STEPS: f64 = 8.0;

/// Which threads are alike.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    /// The kind of each thread.
    pub(super) of: Vec<usize>,
    /// The first thread of each kind.
    pub(super) first: Vec<usize>,
    /// The curves of each kind, which all draws share.
    pub(super) curves: Vec<Curves>,
    /// Whether threads may share one.
    pub(super) are_bundled: bool,
}

impl Kinds {
    /// The kinds of these threads.
    pub(super) fn of(threads: &[Load], seats: &Seats) -> Self {
        let are_bundled = threads.len() >= BUNDLED_FROM;
        if !are_bundled {
            return Self::each(threads);
        }
        let mut known = HashMap::new();
        let mut first = Vec::new();
        let of = threads.iter().enumerate().map(|(at, load)| {
            *known.entry(figures(load, seats)).or_insert_with(|| {
                first.push(at);
                first.len() - 1
            })
        });
        let of = of.collect();
        let curves = first.iter().map(|&at| Curves::of(&threads[at])).collect();
        Self {
            of,
            first,
            curves,
            are_bundled,
        }
    }

    /// Each thread is one of its own.
    fn each(threads: &[Load]) -> Self {
        let each: Vec<usize> = (0..threads.len()).collect();
        Self {
            of: each.clone(),
            first: each,
            curves: threads.iter().map(Curves::of).collect(),
            are_bundled: false,
        }
    }
}

/// The figures by which threads differ, in steps.
fn figures(load: &Load, seats: &Seats) -> Vec<i32> {
    // Casts from float saturate: nothing is the least step of all.
    let place = |place: usize| i32::try_from(place).unwrap_or(i32::MAX);
    let step = |figure: f64| (figure.log2() * STEPS).round() as i32;
    let domain = seats
        .get(load.cpu)
        .map_or(-1, |(seat, _)| place(seat.domain));
    let mut figures = vec![
        domain,
        step(load.speed),
        step(load.lines),
        step(load.requests.unwrap_or(0.0)),
        step(load.busy_ns.unwrap_or(0.0)),
        step(load.held),
        step(load.footprint),
        step(load.wanted),
        (load.common * STEPS).round() as i32,
        step(load.shared),
        (load.apart.share() * STEPS).round() as i32,
    ];
    for &(node, share) in &load.memory {
        figures.extend([place(node), (share * STEPS).round() as i32]);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::beliefs::Beliefs;
    use crate::estimate::demands::demands;
    use crate::estimate::{Estimator, Memory};
    use crate::placement::adaptive::tests::{program, scene};
    use crate::stage::Stage;

    #[test]
    fn many_threads_lose_what_they_would_lose_one_by_one() {
        let mut scene = scene();
        for number in 0..2 * BUNDLED_FROM as u32 {
            let lines = 20.0 + f64::from(number % 37) / 2.0;
            program(&mut scene, number, number % 8, lines, 500);
        }
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let together = Estimator::default().observe(&stage);
        assert!(together.kinds.are_bundled);
        assert!(together.kinds.first.len() < together.threads.len() / 4);
        let mut each = together.clone();
        each.kinds = Kinds::each(&each.threads);
        each.demands = (Beliefs::default().draws().iter().zip(&each.figures))
            .map(|(draw, figures)| {
                demands(
                    draw,
                    figures,
                    &each.threads,
                    &each.kinds,
                    &each.seats,
                    &each.cores,
                )
            })
            .collect();
        let stays = vec![Memory::default(); each.processes.len()];
        let (one, other) = (
            together.lost(&together.now(), &stays),
            each.lost(&each.now(), &stays),
        );
        for (one, other) in one.iter().zip(other) {
            assert!((one / other - 1.0).abs() < 0.05, "{one} {other}");
        }
    }
}
