//! DINO's final pass (§3.3.3): threads of one process are brought together by swapping equals.
//!
//! The paper: for a thread A, if a thread B of its process, not yet iterated, is in another domain,
//! and a thread C of another process and of B's class is in A's domain, B and C change places. So
//! classes stay where the layout wants them; only the threads that fill them change.
//!
//! As printed, the pass never rests: a C that was brought to its own process in A's domain may be taken
//! away again, and with two processes that want the same domain the pass, applied to its own result,
//! swaps for ever, moving threads each second though nothing changed. Two conditions that the paper does
//! not print give it rest, and leave its worked example as it is:
//! * Threads are iterated process by process (in the order of each process's first thread), and for
//!   each process domain by domain; C must be of a process that has not been iterated yet. Processes
//!   of a single thread come last: the paper's pass never iterates them, so they give way to every
//!   multithreaded process, whichever was started first.
//! * B must be in a later domain than A.
//!
//! Why it rests: when process `p` is done with domain X, then for each class either no thread of
//! `p` of that class is left in a later domain, or no thread of that class and of a later process
//! is left in X. Threads of `p` never move again, and later swaps put a thread of one later process
//! in the place of another, so they cannot bring to X a class that no later process had there. Both
//! cases hold to the end, and the pass, applied to its own result, finds nothing to swap.
//!
//! Cost: linear in threads, but for sorting those of each process by domain. The threads of each class
//! in each domain are a queue of candidates for C; a thread passed over for `p` is of a process that was
//! iterated already, and never wanted again.

use std::collections::VecDeque;

use crate::classes::Class;
use crate::placement::dino::layout::Tuple;
use crate::placement::slots::At;

/// Brings threads of one process together in `solution` (by place in the pool). Returns, for every
/// thread that changed places, the first thread of the process for which it did.
pub fn group(tuples: &[Tuple], domains: usize, solution: &mut [At]) -> Vec<Option<usize>> {
    let processes = tuples.iter().map(|tuple| tuple.process + 1).max();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); processes.unwrap_or(0)];
    for tuple in tuples {
        members[tuple.process].push(tuple.thread);
    }
    let class = |thread: usize| tuples[thread].class.index();
    let mut candidates: Vec<[VecDeque<usize>; Class::DEALT.len()]> =
        vec![Default::default(); domains];
    for &thread in members.iter().flatten() {
        candidates[solution[thread].domain][class(thread)].push_back(thread);
    }
    let mut grouped = vec![None; tuples.len()];
    let mut count = vec![0usize; domains];
    for (process, threads) in members
        .iter()
        .enumerate()
        .filter(|(_, threads)| threads.len() > 1)
    {
        let has_been_iterated = |&c: &usize| {
            let other = tuples[c].process;
            other <= process && members[other].len() > 1
        };
        let mut by_domain = threads.clone();
        by_domain.sort_by_key(|&thread| solution[thread].domain);
        let mut elsewhere: [VecDeque<usize>; Class::DEALT.len()] = Default::default();
        let mut present: Vec<usize> = Vec::new();
        for &thread in &by_domain {
            elsewhere[class(thread)].push_back(thread);
            present.push(solution[thread].domain);
            count[solution[thread].domain] += 1;
        }
        present.dedup();
        for &here in &present {
            for class in Class::DEALT.map(Class::index) {
                let bs = &mut elsewhere[class];
                while count[here] > 0 {
                    drop_front(bs, |&b| solution[b].domain <= here);
                    drop_front(&mut candidates[here][class], has_been_iterated);
                    let (Some(&b), Some(&c)) = (bs.front(), candidates[here][class].front()) else {
                        break;
                    };
                    bs.pop_front();
                    candidates[here][class].pop_front();
                    let there = solution[b].domain;
                    candidates[there][class].push_back(c);
                    solution.swap(b, c);
                    count[here] += 1;
                    count[there] -= 1;
                    (grouped[b], grouped[c]) = (Some(threads[0]), Some(threads[0]));
                }
            }
        }
        present.iter().for_each(|&domain| count[domain] = 0);
    }
    grouped
}

fn drop_front(queue: &mut VecDeque<usize>, is_done_with: impl Fn(&usize) -> bool) {
    while queue.front().is_some_and(&is_done_with) {
        queue.pop_front();
    }
}
