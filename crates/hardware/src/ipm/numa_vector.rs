//! The NUMA Vector (NV): one saturating counter per node, each an estimate of a page's affinity to
//! that node (IPM §4.3.3, Eq. 6 to 9).

/// Eq. 9: the initial value of each counter, "the maximum value not affected by aging". Zero would
/// move too many pages early on.
pub(super) fn initial(cr_aging: u32) -> u32 {
    ((1u64 << cr_aging) - 1) as u32
}

/// Eq. 6: ages every counter.
pub(super) fn age(vector: &mut [u32], cr_aging: u32) {
    for counter in vector {
        *counter -= counter.checked_shr(cr_aging).unwrap_or(0);
    }
}

/// Eq. 7: adds the residency to the counter of a node. Counters saturate at `most`.
pub(super) fn add(vector: &mut [u32], node: usize, residency: u64, most: u32) {
    let sum = u64::from(vector[node]).saturating_add(residency);
    vector[node] = sum.min(u64::from(most)) as u32;
}

/// Eq. 8: whether `node` uses a page on node `home` so intensely that the page should be migrated.
/// The comparison is made in full width: a shifted counter loses no bits.
pub(super) fn should_migrate(vector: &[u32], node: usize, home: usize, cr_mig: u32) -> bool {
    u64::from(vector[node]) > u64::from(vector[home]) << cr_mig
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_counters_begin_at_127() {
        assert_eq!(initial(7), 127);
        assert_eq!(initial(0), 0);
        assert_eq!(initial(32), u32::MAX);
    }

    proptest! {
        /// Eq. 9's value is the highest that ageing does not change.
        #[test]
        fn the_initial_value_is_the_highest_that_does_not_age(cr_aging in 0u32..32) {
            let value = initial(cr_aging);
            let mut vector = [value, value + 1];
            age(&mut vector, cr_aging);
            prop_assert_eq!(vector[0], value);
            prop_assert!(vector[1] <= value);
        }

        /// Counters stay within their bits, additions never make them smaller, and only the node's
        /// own changes.
        #[test]
        fn counters_saturate(
            bits in 1u32..33,
            start in any::<u32>(),
            residencies in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let most = u32::MAX >> (32 - bits);
            let mut vector = [start & most; 3];
            for residency in residencies {
                let before = vector[1];
                add(&mut vector, 1, residency, most);
                prop_assert!(vector[1] <= most);
                prop_assert!(vector[1] >= before);
                prop_assert_eq!(u64::from(vector[1] - before), residency.min(u64::from(most - before)));
                prop_assert_eq!([vector[0], vector[2]], [start & most; 2]);
            }
        }

        /// A page never moves to its own node, and never to a node whose counter is no higher.
        #[test]
        fn only_a_higher_counter_moves_a_page(
            vector in prop::collection::vec(any::<u32>(), 2..6), node: usize, home: usize, cr_mig in 0u32..33,
        ) {
            let (node, home) = (node % vector.len(), home % vector.len());
            let moves = should_migrate(&vector, node, home, cr_mig);
            let exact = u128::from(vector[node]) > u128::from(vector[home]) << cr_mig;
            prop_assert_eq!(moves, exact);
            prop_assert!(!moves || vector[node] > vector[home]);
        }
    }
}
