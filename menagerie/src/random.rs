//! Random numbers cheap enough for a measured loop: one multiplication and one addition, of whose
//! result the upper bits are used.

/// Multiplier and increment of Knuth's 64-bit linear congruential generator (MMIX), whose period
/// is 2^64.
pub const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
/// See [`MULTIPLIER`].
pub const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// The number after `state`. Only its upper bits are random.
#[inline(always)]
pub fn next(state: u64) -> u64 {
    state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// An index below `count`, from the upper bits of `state`.
#[inline(always)]
pub fn index(state: u64, count: usize) -> usize {
    ((u128::from(state) * count as u128) >> 64) as usize
}

/// Mixes all bits of a seed (the finaliser of SplitMix64), so that seeds 1, 2, 3, … give unrelated
/// sequences.
pub fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_index_is_below_its_count(state: u64, count in 1usize..usize::MAX) {
            prop_assert!(index(state, count) < count);
        }
    }

    #[test]
    fn indices_are_spread_evenly() {
        let mut counts = [0u32; 10];
        let mut state = mix(1);
        for _ in 0..10_000 {
            state = next(state);
            counts[index(state, 10)] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }
}
