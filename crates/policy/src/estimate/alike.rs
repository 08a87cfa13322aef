//! What was seen of one thread, for others that do the same.
//!
//! Problem: of a pair of copies of a program that press on a cache, neither has had more than half of it. Other copies may
//! have had all of it since they were parted. Rule: threads *do the same* if they ask the last-level cache as often per
//! instruction and read as many lines with about as much cache, within what counts as one phase. What one of them read with
//! another share of a cache then holds for all. Where requests are not counted, no threads are known to do the same.

use super::known::is_near;
use super::threads::{Load, QUIET, are_as_many, are_one_phase};

/// With so many kinds of threads at most, each of which has seen several shares of a cache, threads are compared (chosen
/// here): the cost stays linear in threads.
const MOST: usize = 64;

/// Threads that do the same.
struct Alike {
    /// Requests per 1000 instructions.
    requests: f64,
    /// Bytes of cache, ascending, and the lines per 1000 instructions with so much.
    seen: Vec<(f64, f64)>,
}

impl Alike {
    /// Whether a thread is one of them.
    fn include(&self, load: &Load) -> bool {
        let agree = |&(held, lines): &(f64, f64)| {
            let mut of_it = load.seen.iter();
            of_it.any(|&(its, read)| is_near(held, its) && are_as_many(lines, read))
        };
        load.requests.is_some()
            && are_one_phase(Some(self.requests), load.requests)
            && self.seen.iter().any(agree)
    }
}

/// Adds to what threads saw of themselves what others saw that do the same.
pub(super) fn tell(threads: &mut [Load]) {
    let mut all: Vec<Alike> = Vec::new();
    for load in threads.iter().filter(|load| load.seen.len() > 1) {
        let Some(requests) = load.requests.filter(|&requests| requests >= QUIET) else {
            continue;
        };
        if let Some(alike) = all.iter_mut().find(|alike| alike.include(load)) {
            add(&mut alike.seen, &load.seen);
        } else if all.len() < MOST {
            all.push(Alike {
                requests,
                seen: load.seen.clone(),
            });
        }
    }
    for load in threads.iter_mut() {
        if let Some(alike) = all.iter().find(|alike| alike.include(load)) {
            add(&mut load.seen, &alike.seen);
        }
    }
}

/// Adds what was seen with other shares of a cache.
fn add(known: &mut Vec<(f64, f64)>, seen: &[(f64, f64)]) {
    for &(held, lines) in seen {
        if !known.iter().any(|&(other, _)| is_near(held, other)) {
            known.push((held, lines));
        }
    }
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::placement::adaptive::tests::{program, scene};
    use crate::stage::Stage;

    /// A thread that asks so often, and what was seen of it.
    fn load(requests: Option<f64>, seen: &[(f64, f64)]) -> Load {
        let mut scene = scene();
        program(&mut scene, 1, 0, 100.0, 0);
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        Load {
            requests,
            seen: seen.to_vec(),
            ..Estimator::default().observe(&stage).threads.remove(0)
        }
    }

    #[test]
    fn a_thread_that_had_half_of_a_cache_would_read_with_all_of_it_what_its_like_does() {
        let half = (1e6, 80.0);
        let of_both = [half, (2e6, 0.0)];
        let told = |requests, seen: &[(f64, f64)]| {
            let mut threads = [load(Some(90.0), &of_both), load(requests, seen)];
            tell(&mut threads);
            assert_eq!(threads[0].seen, of_both);
            threads[1].seen.clone()
        };
        assert_eq!(
            told(Some(91.0), &[(1.05e6, 78.0)]),
            [(1.05e6, 78.0), (2e6, 0.0)]
        );
        // It asks more often, reads less with as much, has had another share, or is not counted.
        for (requests, seen) in [
            (Some(120.0), half),
            (Some(90.0), (1e6, 60.0)),
            (Some(90.0), (4e5, 80.0)),
            (None, half),
        ] {
            assert_eq!(told(requests, &[seen]), [seen], "{requests:?}");
        }
    }

    #[test]
    fn what_several_saw_with_different_shares_holds_for_each() {
        let seen = [(1e6, 80.0), (2e6, 40.0), (4e6, 20.0)];
        let mut threads = [
            load(Some(90.0), &seen[..2]),
            load(Some(90.0), &seen[1..]),
            load(Some(90.0), &seen[..1]),
        ];
        tell(&mut threads);
        assert!(threads.iter().all(|load| load.seen == seen));
    }
}
