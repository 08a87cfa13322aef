//! The best mapping there is, for a dozen threads or so: what the other mappers are judged by.
//!
//! Which mappings: those that load the CPUs as EagerMap does. Its CPUs, with one seat for each thread
//! they hold, are given, and of all ways to seat the threads the one of lowest
//! [`super::quality()`] is found. (Without seats given, all threads on one CPU would be best.)
//!
//! Branch and bound: threads are seated one after the other, first those that communicate most with
//! seated ones. Seats that are alike (under vertices of like seats, none of them taken) are tried
//! once. A branch is left when it cannot become better than the best so far, the refined mapper's to
//! begin with. The bound (after Gilmore and Lawler's for the quadratic assignment problem): what
//! seated threads communicate among themselves; plus, for each unseated thread, the least over free
//! seats of what it communicates with seated ones from there, plus half of what it communicates with
//! the others, the largest count over the shortest distance.
//!
//! Properties: quality is never above EagerMap's, nor the refined mapper's if that loads CPUs alike,
//! and no mapping that loads CPUs as EagerMap does has a lower one. Cost: exponential; the caller
//! says how many branches it may take.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaherd_topology::CpuId;

use super::{Communication, Tree, eager_map, quality, refined_map};

/// Maps every thread of the matrix to a CPU of the tree; `None` when not done after `most_branches`
/// seatings of a thread. See the top of this file.
pub fn exact_map(
    communication: &Communication,
    tree: &Tree,
    most_branches: u64,
) -> Option<Vec<CpuId>> {
    let eager = eager_map(communication, tree);
    let mut seats: Vec<usize> = eager
        .iter()
        .map(|&cpu| tree.leaf(cpu))
        .collect::<Option<_>>()?;
    seats.sort_unstable();
    let refined = refined_map(communication, tree);
    let alike = |mapping: &[CpuId]| {
        let mut leaves: Vec<_> = mapping.iter().map(|&cpu| tree.leaf(cpu)).collect();
        leaves.sort_unstable();
        leaves.iter().flatten().eq(&seats)
    };
    let start = if alike(&refined) { refined } else { eager };
    let mut search = Search {
        order: by_ties(communication),
        kinds: kinds_of_seats(tree, &seats),
        twice_best: 2 * quality(communication, tree, &start)?,
        best: None,
        taken: vec![None; seats.len()],
        branches_left: most_branches,
        communication,
        tree,
        seats,
    };
    search.seat(0, 0)?;
    let Some(best) = search.best else {
        return Some(start);
    };
    let mut mapping = start;
    for (seat, thread) in best.into_iter().enumerate() {
        mapping[thread?] = tree.cpus()[search.seats[seat]];
    }
    Some(mapping)
}

/// The threads, each after those it communicates most with.
fn by_ties(communication: &Communication) -> Vec<usize> {
    let mut left: Vec<usize> = (0..communication.threads()).collect();
    let mut order: Vec<usize> = Vec::with_capacity(left.len());
    let sum = |thread: usize, with: &[usize]| -> u128 {
        let counts = with
            .iter()
            .map(|&other| communication.between(thread, other));
        counts.map(u128::from).sum()
    };
    while let Some(at) = (0..left.len()).max_by_key(|&at| {
        (
            sum(left[at], &order),
            sum(left[at], &left),
            Reverse(left[at]),
        )
    }) {
        order.push(left.remove(at));
    }
    order
}

/// For each seat and height, the kind of the vertex above it: equal for vertices of a height with
/// like seats.
fn kinds_of_seats(tree: &Tree, seats: &[usize]) -> Vec<Vec<usize>> {
    let mut kinds = vec![Vec::new(); seats.len()];
    for height in 0..=tree.height() {
        let mut under: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (seat, &leaf) in seats.iter().enumerate() {
            let below = match height {
                0 => 0,
                _ => tree.above(height - 1, leaf),
            };
            let kind = kinds[seat].last().copied().unwrap_or(0);
            let vertex = tree.above(height, leaf);
            under.entry(vertex).or_default().push((kind, below));
        }
        let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut of_vertex = BTreeMap::new();
        for (vertex, mut below) in under {
            // One entry for each child with seats; for each seat of a CPU.
            if height > 0 {
                below.dedup();
            }
            let mut below: Vec<usize> = below.into_iter().map(|(kind, _)| kind).collect();
            below.sort_unstable();
            let next = known.len();
            of_vertex.insert(vertex, *known.entry(below).or_insert(next));
        }
        for (kinds, &leaf) in kinds.iter_mut().zip(seats) {
            kinds.push(of_vertex[&tree.above(height, leaf)]);
        }
    }
    kinds
}

struct Search<'a> {
    communication: &'a Communication,
    tree: &'a Tree,
    order: Vec<usize>,
    /// The leaf of each seat.
    seats: Vec<usize>,
    kinds: Vec<Vec<usize>>,
    /// The thread on each seat.
    taken: Vec<Option<usize>>,
    best: Option<Vec<Option<usize>>>,
    twice_best: u128,
    branches_left: u64,
}

impl Search<'_> {
    /// Tries all seats for the threads from the `depth`-th on; `None` when out of branches.
    fn seat(&mut self, depth: usize, twice_cost: u128) -> Option<()> {
        let Some(&thread) = self.order.get(depth) else {
            if twice_cost < self.twice_best {
                self.twice_best = twice_cost;
                self.best = Some(self.taken.clone());
            }
            return Some(());
        };
        if twice_cost + self.twice_least(depth) >= self.twice_best {
            return Some(());
        }
        let mut tried: Vec<usize> = Vec::new();
        for seat in 0..self.seats.len() {
            if self.taken[seat].is_some() || tried.iter().any(|&other| self.alike(seat, other)) {
                continue;
            }
            tried.push(seat);
            self.branches_left = self.branches_left.checked_sub(1)?;
            let cost = twice_cost + 2 * self.with_seated(thread, seat);
            self.taken[seat] = Some(thread);
            let done = self.seat(depth + 1, cost);
            self.taken[seat] = None;
            done?;
        }
        Some(())
    }

    fn hops(&self, seat: usize, other: usize) -> u128 {
        self.tree
            .hops_of_leaves(self.seats[seat], self.seats[other]) as u128
    }

    fn with_seated(&self, thread: usize, seat: usize) -> u128 {
        let seated = self.taken.iter().enumerate();
        let seated = seated.filter_map(|(at, thread)| Some((at, (*thread)?)));
        seated
            .map(|(at, other)| {
                u128::from(self.communication.between(thread, other)) * self.hops(seat, at)
            })
            .sum()
    }

    /// What the threads from the `depth`-th on must add to twice the cost.
    fn twice_least(&self, depth: usize) -> u128 {
        let left = &self.order[depth..];
        let free: Vec<usize> = (0..self.seats.len())
            .filter(|&seat| self.taken[seat].is_none())
            .collect();
        let distances: Vec<Vec<u128>> = free
            .iter()
            .map(|&seat| {
                let others = free.iter().filter(|&&other| other != seat);
                let mut hops: Vec<u128> = others.map(|&other| self.hops(seat, other)).collect();
                hops.sort_unstable();
                hops
            })
            .collect();
        let least_of = |&thread: &usize| {
            let others = left.iter().filter(|&&other| other != thread);
            let mut counts: Vec<u64> = others
                .map(|&other| self.communication.between(thread, other))
                .collect();
            counts.sort_unstable_by_key(|&count| Reverse(count));
            let from = |(&seat, hops): (&usize, &Vec<u128>)| {
                let ahead = counts.iter().zip(hops).map(|(&c, &h)| u128::from(c) * h);
                2 * self.with_seated(thread, seat) + ahead.sum::<u128>()
            };
            free.iter().zip(&distances).map(from).min().unwrap_or(0)
        };
        left.iter().map(least_of).sum()
    }

    /// Whether two free seats differ in name only.
    fn alike(&self, seat: usize, other: usize) -> bool {
        let meet = self
            .tree
            .hops_of_leaves(self.seats[seat], self.seats[other]);
        let Some(below) = meet.checked_sub(1) else {
            return true;
        };
        let above = |seat: usize| self.tree.above(below, self.seats[seat]);
        let untouched = |vertex: usize| {
            (0..self.seats.len()).all(|at| self.taken[at].is_none() || above(at) != vertex)
        };
        self.kinds[seat][..meet] == self.kinds[other][..meet]
            && untouched(above(seat))
            && untouched(above(other))
    }
}
