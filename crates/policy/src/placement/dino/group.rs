//! DINO's final pass (§3.3.3): threads of one process are brought together by swapping equals.
//!
//! The paper: for a thread A, if a thread B of its process, not yet iterated, is in another domain,
//! and a thread C of another process and of B's class is in A's domain, B and C change places. So
//! classes stay where the layout wants them; only the threads that fill them change.
//!
//! As printed the pass has no rest: a C that was brought to its own process in A's domain may be
//! taken away again, and with two processes that want the same domain the pass, applied to its own
//! result, swaps for ever, moving threads each second though nothing changed. Two conditions that
//! the paper does not print give it rest, and leave its worked example as it is:
//! * Threads are iterated process by process (in the order of each process's first thread), and for
//!   each process domain by domain; C must be of a process that has not been iterated yet. Processes
//!   of a single thread come last: the paper's pass never iterates them, so that they give way to every
//!   multithreaded process, whichever was started first.
//! * B must be in a later domain than A.
//!
//! Why it rests: when process `p` is done with domain X, then for each class either no thread of
//! `p` of that class is left in a later domain, or no thread of that class and of a later process
//! is left in X. Threads of `p` never move again, and later swaps put a thread of one later process
//! in the place of another, so they cannot bring to X a class that no later process had there. Both
//! cases hold to the end, and the pass, applied to its own result, finds nothing to swap.
//!
//! Cost: linear in threads. The threads of each class in each domain are a queue of candidates for
//! C; a thread passed over for `p` is of a process iterated already and never wanted again.

use crate::classes::Class;
use crate::placement::dino::layout::Tuple;
use crate::placement::slots::At;

/// Brings threads of one process together in `solution` (by place in the pool). Gives for every
/// thread whose place it exchanged the first thread of the process that it was done for.
pub fn group(tuples: &[Tuple], domains: usize, solution: &mut [At]) -> Vec<Option<usize>> {
    let mut members: Vec<Vec<usize>> = Vec::new();
    for tuple in tuples {
        if members.len() <= tuple.process {
            members.resize(tuple.process + 1, Vec::new());
        }
        members[tuple.process].push(tuple.thread);
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&process| members[process].len() < 2);
    let mut turn_of = vec![0; members.len()];
    for (turn, &process) in order.iter().enumerate() {
        turn_of[process] = turn;
    }
    let mut candidates = Candidates::new(&members, &turn_of, tuples, domains, solution);
    let mut grouped = vec![None; tuples.len()];
    let mut in_domain: Vec<Vec<usize>> = vec![Vec::new(); domains];
    let multithreaded = order
        .iter()
        .take_while(|&&process| members[process].len() > 1);
    for &process in multithreaded {
        let threads = &members[process];
        let mut present: Vec<usize> = Vec::new();
        for &thread in threads {
            let domain = solution[thread].domain;
            if in_domain[domain].is_empty() {
                present.push(domain);
            }
            in_domain[domain].push(thread);
        }
        present.sort_unstable();
        let mut count: Vec<usize> = present.iter().map(|&d| in_domain[d].len()).collect();
        // B's by class, in the order of domains, with how many are done with.
        let mut done = [0; 3];
        let mut elsewhere: [Vec<(usize, usize)>; 3] = Default::default();
        for (index, &domain) in present.iter().enumerate() {
            for thread in in_domain[domain].drain(..) {
                elsewhere[tuples[thread].class.index()].push((index, thread));
            }
        }
        for here in 0..present.len() {
            if count[here] == 0 {
                continue;
            }
            for class in Class::DEALT {
                let done = &mut done[class.index()];
                while let Some(&(there, b)) = elsewhere[class.index()].get(*done) {
                    if there <= here {
                        *done += 1;
                        continue;
                    }
                    let Some(c) = candidates.take(present[here], class, process, b, solution)
                    else {
                        break;
                    };
                    *done += 1;
                    solution.swap(b, c);
                    count[here] += 1;
                    count[there] -= 1;
                    grouped[b] = Some(threads[0]);
                    grouped[c] = Some(threads[0]);
                }
            }
        }
    }
    grouped
}

/// For each domain and class its threads, from where the next C is taken.
struct Candidates<'a> {
    tuples: &'a [Tuple],
    /// When each process is iterated.
    turn_of: &'a [usize],
    threads: Vec<Vec<usize>>,
    next: Vec<usize>,
    position: Vec<usize>,
}

impl<'a> Candidates<'a> {
    fn new(
        members: &[Vec<usize>],
        turn_of: &'a [usize],
        tuples: &'a [Tuple],
        domains: usize,
        solution: &[At],
    ) -> Self {
        let mut candidates = Self {
            tuples,
            turn_of,
            threads: vec![Vec::new(); domains * Class::DEALT.len()],
            next: vec![0; domains * Class::DEALT.len()],
            position: vec![0; tuples.len()],
        };
        for &thread in members.iter().flatten() {
            let queue = candidates.queue(solution[thread].domain, tuples[thread].class);
            candidates.position[thread] = candidates.threads[queue].len();
            candidates.threads[queue].push(thread);
        }
        candidates
    }

    fn queue(&self, domain: usize, class: Class) -> usize {
        domain * Class::DEALT.len() + class.index()
    }

    /// A thread C of that class in that domain whose process is iterated after `process`; B takes its
    /// place among the candidates, and C takes B's.
    fn take(
        &mut self,
        domain: usize,
        class: Class,
        process: usize,
        b: usize,
        solution: &[At],
    ) -> Option<usize> {
        let queue = self.queue(domain, class);
        let other = self.queue(solution[b].domain, class);
        loop {
            let at = self.next[queue];
            let c = *self.threads[queue].get(at)?;
            if self.turn_of[self.tuples[c].process] <= self.turn_of[process] {
                self.next[queue] += 1;
                continue;
            }
            let place_of_b = self.position[b];
            self.threads[queue][at] = b;
            self.threads[other][place_of_b] = c;
            self.position[c] = place_of_b;
            self.position[b] = at;
            return Some(c);
        }
    }
}
