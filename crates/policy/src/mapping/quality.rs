//! How good a mapping is: communication times distance, summed over all pairs of threads.
//!
//! The distance is in hops ([`super::Tree::hops`]). Lower is better. Two mappings compare only when
//! they load the CPUs alike: all threads on one CPU would have quality 0.

use numaherd_topology::CpuId;

use super::{Communication, Tree};

/// The quality of a mapping, in the matrix's counts times hops; `None` when the mapping is not one
/// of these threads to CPUs of the tree.
pub fn quality(communication: &Communication, tree: &Tree, mapping: &[CpuId]) -> Option<u128> {
    if mapping.len() != communication.threads() {
        return None;
    }
    let leaves = mapping.iter().map(|&cpu| tree.leaf(cpu));
    let leaves: Vec<usize> = leaves.collect::<Option<_>>()?;
    let mut sum = 0;
    for (thread, &leaf) in leaves.iter().enumerate() {
        let counts = &communication.row(thread)[..thread];
        for (&count, &other) in counts.iter().zip(&leaves).filter(|&(&count, _)| count > 0) {
            sum += u128::from(count) * tree.hops_of_leaves(leaf, other) as u128;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_counts_once_by_its_hops() {
        let tree = Tree::even(&[2, 2]).expect("four CPUs");
        let communication = Communication::of(3, |row, column| match (row, column) {
            (0, 1) => 10,
            (1, 2) => 100,
            _ => 0,
        });
        let quality = |cpus: [u32; 3]| quality(&communication, &tree, &cpus.map(CpuId));
        assert_eq!(quality([0, 1, 2]), Some(10 + 2 * 100));
        assert_eq!(quality([0, 2, 3]), Some(2 * 10 + 100));
        assert_eq!(quality([0, 2, 2]), Some(20));
        assert_eq!(quality([0, 1, 4]), None);
    }
}
