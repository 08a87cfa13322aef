//! Recent looks: a layout must gain over all of them, not in the last interval alone.
//!
//! Problem: programs have phases. What suits threads in one interval may cost them more in the next than it gains, and the
//! phase may be over once threads and memory have moved. Rule: the estimates of the last looks are kept, each with the
//! length of its interval. A layout's gain is what it would have gained, compared with leaving threads where they are, over
//! all kept looks in which the threads that it touches were seen. A thread's speed is compared with the last of these in
//! which it did the same. Speeds also differ by chance; looks between which nothing was done, and as many CPUs were wanted,
//! show how much. A gain must be more than that: otherwise nothing would show whether there is one.

use std::collections::VecDeque;
use std::sync::Arc;

use numaherd_topology::CpuId;

use super::search::Candidate;
use crate::estimate::{Basis, Load, Memory, ONE_PHASE, Picture, Rough};

/// Looks that are kept (chosen here).
const LOOKS: usize = 8;
/// For how many ns looks count (chosen here).
const HORIZON_NS: u64 = 10_000_000_000;
/// Within this share, as many CPUs are wanted (chosen here).
const AS_MANY: f64 = 0.1;
/// The past is kept only up to so many threads: with more it would take too long (chosen here).
const MOST_THREADS: usize = 2048;

#[derive(Clone)]
struct Look {
    picture: Arc<Picture>,
    /// When it was, in ns.
    at_ns: u64,
    /// How long its interval was, in ns, including those of looks before it that were dropped.
    lasted_ns: f64,
}

/// The last looks, the newest last.
#[derive(Clone, Default)]
pub(super) struct Past {
    looks: VecDeque<Look>,
    /// For the last looks between which nothing was done, and as many CPUs were wanted: the share by which the speeds of all
    /// threads differed from the look before in which they did the same.
    by_chance: VecDeque<f64>,
    /// Something was done since the last look.
    was_touched: bool,
}

impl Past {
    /// Takes in a look.
    pub(super) fn see(&mut self, picture: &Arc<Picture>, at_ns: u64, interval_ns: u64) {
        if picture.threads.len() > MOST_THREADS {
            *self = Self::default();
            return;
        }
        let is_over = |look: &Look| at_ns.saturating_sub(look.at_ns) > HORIZON_NS;
        while self.looks.front().is_some_and(is_over) {
            self.looks.pop_front();
        }
        if picture.from != Basis::Residency {
            // Speeds that were assumed before anything was counted are not compared with.
            self.looks
                .retain(|look| look.picture.from != Basis::Residency);
        }
        let was_touched = std::mem::take(&mut self.was_touched);
        // With other neighbours, speeds differ for a reason.
        let is_the_same = !was_touched && self.are_as_many(picture);
        if let Some(times) = self.compare(picture).filter(|_| is_the_same) {
            if self.by_chance.len() == LOOKS {
                self.by_chance.pop_front();
            }
            self.by_chance.push_back(times - 1.0);
        }
        if self.looks.len() == LOOKS {
            self.thin_out();
        }
        self.looks.push_back(Look {
            picture: Arc::clone(picture),
            at_ns,
            lasted_ns: interval_ns as f64,
        });
    }

    /// Whether about as many CPUs are wanted as in the last look.
    fn are_as_many(&self, picture: &Picture) -> bool {
        let wanted = picture.busy_cores();
        let last = self.looks.back().map(|look| look.picture.busy_cores());
        last.is_some_and(|last| (wanted - last).abs() <= AS_MANY * wanted.max(last))
    }

    /// How fast all threads are on average, as a multiple of when they last did the same; `None` where none did.
    fn compare(&self, picture: &Picture) -> Option<f64> {
        let threads = picture.threads.iter().filter(|load| load.speed > 0.0);
        let alike = threads.filter_map(|load| Some((load.wanted, load.speed / self.speed(load)?)));
        let (times, wanted) = alike.fold((0.0, 0.0), |(times, all), (wanted, by)| {
            (times + wanted * by, all + wanted)
        });
        (wanted > 0.0).then(|| times / wanted)
    }

    /// The variance of threads' mean speed in a look, as a multiple of before, while nothing is done. Before any such looks
    /// were seen, it is the variance of a uniform difference of up to [`ONE_PHASE`].
    pub(super) fn by_chance(&self) -> f64 {
        (self.squares() + ONE_PHASE.powi(2) / 3.0) / (self.by_chance.len() + 1) as f64
    }

    /// The standard deviation of threads' mean speed in a look while nothing is done, as far as it was seen; 0 before.
    pub(super) fn seen_by_chance(&self) -> f64 {
        (self.squares() / self.by_chance.len().max(1) as f64).sqrt()
    }

    fn squares(&self) -> f64 {
        self.by_chance.iter().map(|by| by * by).sum()
    }

    /// Notes that threads are placed or let go: speeds in the next look do not differ by chance alone.
    pub(super) fn touch(&mut self) {
        self.was_touched = true;
    }

    /// Drops every other look; the one after it stands for both.
    fn thin_out(&mut self) {
        let mut carried = 0.0;
        let mut place = 0;
        self.looks.retain_mut(|look| {
            place += 1;
            if place % 2 == 1 {
                carried = look.lasted_ns;
                return false;
            }
            look.lasted_ns += carried;
            true
        });
    }

    /// Forgets all looks, because memory has moved since.
    pub(super) fn forget(&mut self) {
        self.looks.clear();
    }

    /// How fast a thread was, in instructions per ns on a CPU, in the last look in which it did what it does in this one;
    /// `None` where there is none. Looks before that one had other neighbours, or none yet.
    pub(super) fn speed(&self, load: &Load) -> Option<f64> {
        let mut seen = self.looks.iter().rev();
        seen.find_map(|look| {
            let then = look.picture.thread(load.id)?;
            (then.speed > 0.0 && then.does_as(load)).then_some(then.speed)
        })
    }

    /// Cores that a candidate for the threads of `now` would have gained on average, compared with leaving them on the CPUs
    /// of `stays`, and the standard error of that; `None` where no look counts. Only the two draws that a search uses
    /// count, one of which is the worst. With the mean of all draws, memory of `is` followed its use on traces, which cost
    /// up to 10 %.
    pub(super) fn gain(
        &self,
        now: &Picture,
        stays: &[CpuId],
        candidate: &Candidate,
    ) -> Option<(f64, f64)> {
        let touched = touched(now, candidate);
        let mut gained = Vec::new();
        for look in &self.looks {
            let then = &*look.picture;
            let was_seen = |&at: &usize| {
                let place = then.place(now.threads[at].id);
                place.is_some_and(|place| then.threads[place].speed > 0.0)
            };
            if !touched.iter().all(was_seen) {
                continue;
            }
            let [before, after] = [stays, &*candidate.cpus].map(|cpus| laid_out(now, then, cpus));
            let none = vec![Memory::default(); then.processes.len()];
            let lost = |cpus: &[CpuId], memory: &[Memory]| {
                then.roughly(cpus, memory, f64::INFINITY)
                    .map_or(0.0, |rough| rough.mean())
            };
            let lost_before = match before == then.now() {
                true => Rough::of(&then.lost_now()).mean(),
                false => lost(&before, &none),
            };
            let memory = memory(now, then, &candidate.memory);
            gained.push((lost_before - lost(&after, &memory), look.lasted_ns));
        }
        let lasted: f64 = gained.iter().map(|(_, lasted)| lasted).sum();
        let mean = gained
            .iter()
            .map(|(gain, of)| gain * of / lasted)
            .sum::<f64>();
        let squares = gained
            .iter()
            .map(|(gain, of)| ((gain - mean) * of / lasted).powi(2));
        (lasted > 0.0).then(|| (mean, squares.sum::<f64>().sqrt()))
    }
}

/// The threads that read memory and that a candidate moves, or whose process's memory it moves.
pub(super) fn touched(now: &Picture, candidate: &Candidate) -> Vec<usize> {
    let is_touched = |&at: &usize| {
        let load = &now.threads[at];
        load.reads()
            && (now.is_move(load, candidate.cpus[at]) || candidate.memory[load.process].moves())
    };
    (0..now.threads.len()).filter(is_touched).collect()
}

/// A layout of the threads of `now`, for those of another look; a thread that is not in both stays where it was.
fn laid_out(now: &Picture, then: &Picture, cpus: &[CpuId]) -> Vec<CpuId> {
    let threads = then.threads.iter();
    threads
        .map(|load| now.place(load.id).map_or(load.cpu, |at| cpus[at]))
        .collect()
}

/// What becomes of memory, for the processes of another look.
fn memory(now: &Picture, then: &Picture, memory: &[Memory]) -> Vec<Memory> {
    let processes = then.processes.iter();
    processes
        .map(|owner| {
            let mut threads = owner.threads.iter().map(|&at| then.threads[at].id);
            let place = threads.find_map(|id| now.place(id));
            place.map_or_else(Memory::default, |at| memory[now.threads[at].process])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{program, scene};
    use super::*;
    use crate::estimate::Estimator;
    use crate::stage::Stage;

    /// A look at one thread that runs so many times as fast, and asks as often per instruction.
    fn look(times: u64) -> Arc<Picture> {
        let mut scene = scene();
        program(&mut scene, 1, 0, 10.0, 0);
        let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
        counts.instructions *= times;
        counts.lines *= times;
        counts.uncore_requests = counts.uncore_requests.map(|requests| requests * times);
        Arc::new(Estimator::default().observe(&Stage::of_all(&scene.snapshot, &scene.topology)))
    }

    #[test]
    fn a_thread_is_as_fast_as_when_it_last_did_the_same() {
        let mut past = Past::default();
        let now = look(1);
        assert_eq!(past.speed(&now.threads[0]), None);
        // Alone on the machine it was three times as fast; then its neighbours began.
        past.see(&look(3), 50_000_000, 50_000_000);
        past.see(&now, 150_000_000, 100_000_000);
        assert_eq!(past.speed(&now.threads[0]), Some(now.threads[0].speed));
    }

    #[test]
    fn what_was_assumed_before_anything_was_counted_is_no_speed_to_compare_with() {
        let mut assumed = Picture::clone(&look(1));
        assumed.from = Basis::Residency;
        let mut past = Past::default();
        past.see(&Arc::new(assumed), 50_000_000, 50_000_000);
        assert_eq!(past.looks.len(), 1);
        past.see(&look(1), 150_000_000, 100_000_000);
        assert_eq!(past.looks.len(), 1);
        assert_ne!(past.looks[0].picture.from, Basis::Residency);
    }

    /// A look at one thread so many times as fast as usual that does the same.
    fn faster(times: f64) -> Arc<Picture> {
        let mut picture = Picture::clone(&look(1));
        picture.threads[0].speed *= times;
        Arc::new(picture)
    }

    #[test]
    fn what_speeds_differ_by_chance_is_known_from_looks_between_which_nothing_was_done() {
        let mut past = Past::default();
        for (number, times) in [1.0, 1.1, 1.0, 2.0].into_iter().enumerate() {
            if times == 2.0 {
                past.touch();
            }
            past.see(&faster(times), number as u64 * 100_000_000, 100_000_000);
        }
        // A tenth more, a tenth less, and what was done.
        let seen = 0.1f64.powi(2) + (1.0 / 1.1f64 - 1.0).powi(2);
        let expected = (seen + ONE_PHASE.powi(2) / 3.0) / 3.0;
        assert!((past.by_chance() - expected).abs() < 1e-9);
        assert!((past.seen_by_chance() - (seen / 2.0).sqrt()).abs() < 1e-9);
        // Nor is what comes with other neighbours by chance.
        let mut beside_others = Picture::clone(&faster(3.0));
        beside_others.threads[0].wanted *= 2.0;
        past.see(&Arc::new(beside_others), 400_000_000, 100_000_000);
        assert!((past.by_chance() - expected).abs() < 1e-9);
    }
}
