//! Sets of CPUs against numbers whose bits are the members: every pair of sets, every short list.

use std::collections::HashMap;

use numaherd_topology::{CpuId, CpuSet};

/// What may be a member: both sides of the ends of words.
const MEMBERS: [u32; 8] = [0, 1, 62, 63, 64, 127, 128, 300];

/// The set of the members whose bits are 1.
fn set(bits: u8) -> CpuSet {
    members(bits).map(CpuId).collect()
}

fn members(bits: u8) -> impl DoubleEndedIterator<Item = u32> {
    (0..8)
        .filter(move |bit| bits >> bit & 1 == 1)
        .map(|bit| MEMBERS[bit])
}

#[test]
fn every_pair_of_sets_obeys_set_algebra() {
    let sets: Vec<CpuSet> = (0..=u8::MAX).map(set).collect();
    for (a, x) in (0..=u8::MAX).zip(&sets) {
        for (b, y) in (0..=u8::MAX).zip(&sets) {
            assert_eq!(x.intersection(y), sets[usize::from(a & b)], "{x} and {y}");
            assert_eq!(
                x.difference(y),
                sets[usize::from(a & !b)],
                "{x} without {y}"
            );
            assert_eq!(x.intersects(y), a & b != 0, "{x} meets {y}");
            assert_eq!(x.is_subset(y), a & !b == 0, "{x} within {y}");
            assert_eq!(x == y, a == b, "{x} is {y}");
            let mut both = x.clone();
            both.extend_from(y);
            assert_eq!(both, sets[usize::from(a | b)], "{x} or {y}");
        }
    }
}

#[test]
fn every_set_has_its_members_and_loses_and_gains_each() {
    let mut known: HashMap<CpuSet, u8> = HashMap::new();
    for bits in 0..=u8::MAX {
        let all = set(bits);
        assert!(all.iter().map(u32::from).eq(members(bits)));
        assert_eq!(all.len(), bits.count_ones() as usize);
        assert_eq!(all.is_empty(), bits == 0);
        assert_eq!(all.first().map(u32::from), members(bits).next());
        assert_eq!(all.last().map(u32::from), members(bits).next_back());
        assert_eq!(CpuSet::of_words(all.as_words().to_vec()), all);
        let padded = [all.as_words(), &[0, 0]].concat();
        assert_eq!(CpuSet::of_words(padded), all);
        assert_eq!(all.to_string().parse(), Ok(all.clone()));
        for (bit, member) in MEMBERS.into_iter().enumerate() {
            let is_there = bits >> bit & 1 == 1;
            assert_eq!(all.contains(CpuId(member)), is_there);
            let mut fewer = all.clone();
            assert_eq!(fewer.remove(CpuId(member)), is_there);
            assert_eq!(fewer, set(bits & !(1 << bit)));
            assert!(fewer.insert(CpuId(member)));
            assert_eq!(fewer, set(bits | 1 << bit));
        }
        assert_eq!(
            known.insert(all, bits),
            None,
            "no two have one hash and are equal"
        );
    }
}

/// Every `first-last:used/size` of small numbers names what the kernel's documentation says, or is refused.
#[test]
fn every_short_list_names_its_members() {
    let small = || 0..6u32;
    for (first, last) in small().flat_map(|first| small().map(move |last| (first, last))) {
        for (used, size) in small().flat_map(|used| small().map(move |size| (used, size))) {
            let read = format!("{first}-{last}:{used}/{size}").parse::<CpuSet>();
            if first > last || used == 0 || used > size {
                assert!(read.is_err(), "{first}-{last}:{used}/{size}");
                continue;
            }
            let mut named = Vec::new();
            let mut group = first;
            while group <= last {
                named.extend((group..group + used).filter(|number| *number <= last));
                group += size;
            }
            assert_eq!(read, Ok(named.into_iter().map(CpuId).collect()));
        }
    }
}
