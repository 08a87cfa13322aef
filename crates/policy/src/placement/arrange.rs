//! Which of a domain's CPUs takes which of the hands that the domain was dealt.
//!
//! Problem: a layout says what each memory domain is to run; which of its CPUs runs which part of
//! it makes no difference to contention, since they share the cache and the controller. Dealt
//! blindly, threads would change CPUs within their domain for nothing.
//! Rule: hands go, one by one, to the CPU where the most threads can stay; ties to the CPU that is
//! dealt first. Of the CPUs of the worst quality in use (siblings, weaker cores), no more are used
//! than were dealt to. CPUs that are held by others keep the hand they were dealt.
//!
//! Terms: a *hand* is what one CPU is to run: how many threads of each label (DINO: class).
//!
//! Placements without labels, which only decide how many threads a domain gets, use [`seat`].
//!
//! Properties: the hands of the domain stay the same; if every CPU already runs one of them, each
//! keeps its own.

use crate::placement::slots::{At, DomainSlots, PoolSlots};
use crate::relabel::most_staying_first;

/// How many threads of each label a CPU is to run.
pub type Hand = [usize; 3];

/// Rearranges the hands of one domain, one for each of its CPUs, to what runs there now.
pub fn arrange(domain: &DomainSlots, hands: &mut [Hand], running: &[Hand]) {
    let dealt = |cpu: usize, hands: &[Hand]| domain.cpus[cpu].held == 0 && hands[cpu] != [0; 3];
    let Some(last) = (0..hands.len()).rev().find(|&cpu| dealt(cpu, hands)) else {
        return;
    };
    let worst = domain.cpus[last].quality();
    let is_worst = |cpu: usize| domain.cpus[cpu].quality() == worst;
    let candidates: Vec<usize> = (0..hands.len())
        .filter(|&cpu| domain.cpus[cpu].held == 0 && (dealt(cpu, hands) || is_worst(cpu)))
        .collect();

    // Hands are runs of a sorted array, so a domain has few different ones however many CPUs.
    let mut kinds: Vec<(Hand, usize)> = Vec::new();
    let mut worst_left = 0;
    for &cpu in &candidates {
        if hands[cpu] == [0; 3] {
            continue;
        }
        worst_left += usize::from(is_worst(cpu));
        match kinds.iter_mut().find(|(hand, _)| *hand == hands[cpu]) {
            Some((_, count)) => *count += 1,
            None => kinds.push((hands[cpu], 1)),
        }
    }
    let mut staying: Vec<(usize, usize)> = Vec::new();
    for &cpu in &candidates {
        for (kind, (hand, _)) in kinds.iter().enumerate() {
            let stay: usize = (0..3).map(|c| hand[c].min(running[cpu][c])).sum();
            staying.extend(std::iter::repeat_n((cpu, kind), stay));
        }
    }

    let mut given: Vec<Option<Hand>> = vec![None; hands.len()];
    let mut give = |cpu: usize, kind: usize, kinds: &mut [(Hand, usize)]| {
        let room = !is_worst(cpu) || worst_left > 0;
        if given[cpu].is_none() && kinds[kind].1 > 0 && room {
            kinds[kind].1 -= 1;
            worst_left -= usize::from(is_worst(cpu));
            given[cpu] = Some(kinds[kind].0);
        }
    };
    most_staying_first(staying, |(cpu, kind)| give(cpu, kind, &mut kinds));
    for &cpu in &candidates {
        if let Some(kind) = kinds.iter().position(|&(_, count)| count > 0) {
            give(cpu, kind, &mut kinds);
        }
    }
    for cpu in candidates {
        hands[cpu] = given[cpu].unwrap_or([0; 3]);
    }
}

/// Gives every thread a CPU of the domain it is to run in, its own where it can stay.
///
/// `domain_of` is by place in the pool. `loads` is how many threads each CPU of each domain takes,
/// and adds up to the threads of the domain. Threads that cannot stay take what is left, in `order`
/// (places in the pool, each once).
pub fn seat(
    slots: &PoolSlots,
    domain_of: &[usize],
    loads: Vec<Vec<usize>>,
    order: &[usize],
) -> Vec<At> {
    let hand = |threads: usize| -> Hand { [threads, 0, 0] };
    let mut hands: Vec<Vec<Hand>> = loads
        .into_iter()
        .map(|domain| domain.into_iter().map(hand).collect())
        .collect();
    let stays = |thread: usize| slots.sits[thread].filter(|at| at.domain == domain_of[thread]);
    let mut running: Vec<Vec<Hand>> = hands.iter().map(|cpus| vec![[0; 3]; cpus.len()]).collect();
    for at in (0..order.len()).filter_map(stays) {
        running[at.domain][at.cpu][0] += 1;
    }
    for (domain, slots) in slots.domains.iter().enumerate() {
        arrange(slots, &mut hands[domain], &running[domain]);
    }
    let mut seats: Vec<Option<At>> = vec![None; order.len()];
    for (thread, seat) in seats.iter_mut().enumerate() {
        let slot = stays(thread).filter(|at| hands[at.domain][at.cpu][0] > 0);
        if let Some(at) = slot {
            hands[at.domain][at.cpu][0] -= 1;
            *seat = slot;
        }
    }
    let mut next = vec![0; slots.domains.len()];
    for &thread in order {
        let domain = domain_of[thread];
        seats[thread].get_or_insert_with(|| {
            while hands[domain][next[domain]][0] == 0 {
                next[domain] += 1;
            }
            let cpu = next[domain];
            hands[domain][cpu][0] -= 1;
            At { domain, cpu }
        });
    }
    seats
        .into_iter()
        .map(|at| at.expect("every thread was seated above"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::slots::CpuSlots;
    use numaherd_topology::{CpuId, DomainId, NodeId};

    fn domain(capacities: &[u32]) -> DomainSlots {
        let slots = |(cpu, &capacity): (u32, &u32)| CpuSlots {
            cpu: CpuId(cpu),
            tier: 0,
            capacity,
            held: 0,
        };
        DomainSlots {
            domain: DomainId(0),
            node: NodeId(0),
            cpus: (0..).zip(capacities).map(slots).collect(),
        }
    }

    const D: Hand = [1, 0, 0];
    const T: Hand = [0, 0, 1];
    const NONE: Hand = [0; 3];

    #[test]
    fn hands_go_where_threads_can_stay() {
        let mut hands = [D, T, NONE, NONE];
        arrange(&domain(&[1024; 4]), &mut hands, &[NONE, NONE, T, D]);
        assert_eq!(hands, [NONE, NONE, T, D]);
    }

    #[test]
    fn a_weaker_core_is_not_used_while_a_strong_one_is_free() {
        let mut hands = [D, T, NONE];
        arrange(&domain(&[1024, 1024, 500]), &mut hands, &[NONE, T, D]);
        assert_eq!(hands, [D, T, NONE]);
    }

    #[test]
    fn hands_of_several_threads_go_where_most_can_stay() {
        let mut hands = [[2, 0, 0], [1, 1, 0], [0, 0, 2]];
        let running = [[0, 1, 1], [2, 0, 0], [0, 0, 2]];
        arrange(&domain(&[1024; 3]), &mut hands, &running);
        assert_eq!(hands, [[1, 1, 0], [2, 0, 0], [0, 0, 2]]);
    }
}
