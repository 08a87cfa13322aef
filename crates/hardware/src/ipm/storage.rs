//! The main memory that the unit's structures take (IPM §4.5.1, Table I, Eq. 10 to 13).
//!
//! Readings. The number of a thread is as wide in the TLB Access Table as in Eq. 11. Entries of
//! both tables are rounded up to a power of two of bytes, as the paper does for the Page History
//! Table (12 bytes to 16). Sizes are in binary units, in which Table I's 0.0032 % for the matrix is
//! 0.00305 %.

use super::IpmConfig;
use crate::HardwareError;
use crate::config::Config;

/// One structure in main memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Structure {
    /// Bits of an entry that are used.
    pub used_bits: u64,
    /// Bits of an entry.
    pub entry_bits: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The sizes of all structures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Storage {
    /// TLB Access Table (Eq. 10): an entry per TLB entry of every core.
    pub access_table: Structure,
    /// Page History Table (Eq. 11 and 12): an entry per page of main memory.
    pub page_history: Structure,
    /// Sharing Matrix of one application (Eq. 13): an entry per pair of threads.
    pub sharing_matrix: Structure,
}

impl Structure {
    /// Bits of the whole structure.
    pub fn bits(&self) -> u128 {
        u128::from(self.entry_bits) * u128::from(self.entries)
    }

    /// Bytes of the whole structure, rounded up.
    pub fn bytes(&self) -> u128 {
        self.bits().div_ceil(8)
    }

    /// Its share of a main memory of `memory_bytes` bytes, from 0 to 1.
    pub fn overhead(&self, memory_bytes: u64) -> f64 {
        self.bits() as f64 / 8.0 / memory_bytes as f64
    }
}

impl IpmConfig {
    /// The sizes of the structures on a machine with `memory_bytes` of main memory in all and room
    /// for `threads` threads ([`IpmConfig::threads`] before growth).
    ///
    /// # Errors
    /// When the machine has no TLBs.
    pub fn storage(
        &self,
        machine: &Config,
        memory_bytes: u64,
        threads: u32,
    ) -> Result<Storage, HardwareError> {
        let tlb = machine.tlb.ok_or(HardwareError::NoTlb)?;
        let rounded = |used_bits: u64, entries| Structure {
            used_bits,
            entry_bits: used_bits.div_ceil(8).next_power_of_two() * 8,
            entries,
        };
        let page_bits = u64::from(64 - tlb.page_bytes.trailing_zeros());
        let thread_bits = 8 * thread_bytes(threads);
        // Eq. 11.
        let history_bits = machine.nodes() as u64 * u64::from(self.numa_counter_bits)
            + self.sharers as u64 * thread_bits;
        let matrix_bits = u64::from(self.matrix_element_bits);
        Ok(Storage {
            access_table: rounded(
                page_bits + u64::from(self.time_stamp_bits) + thread_bits,
                (machine.cores() * tlb.entries()) as u64,
            ),
            page_history: rounded(history_bits, memory_bytes / tlb.page_bytes),
            sharing_matrix: Structure {
                used_bits: matrix_bits,
                entry_bits: matrix_bits,
                entries: u64::from(threads) * u64::from(threads),
            },
        })
    }
}

/// Bytes for the number of a thread: log2 of the number of threads, divided by 8, rounded up.
fn thread_bytes(threads: u32) -> u64 {
    let bits = 32 - threads.saturating_sub(1).leading_zeros();
    u64::from(bits.div_ceil(8).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tlb, TlbLevel, TlbManagement};

    const GIB: u64 = 1 << 30;

    /// The paper's Xeon64: 64 virtual cores on 4 nodes, 256 TLB entries each, pages of 4 KiB.
    fn xeon64() -> Config {
        Config {
            tlb: Some(Tlb {
                page_bytes: 4096,
                managed_by: TlbManagement::Hardware,
                miss_ns: 0.0,
                l1: TlbLevel {
                    entries: 256,
                    ways: 4,
                    hit_ns: 0.0,
                },
                l2: None,
            }),
            ..Config::of_equal_nodes(16, vec![vec![100.0; 4]; 4], 10.0)
        }
    }

    #[test]
    fn table_1_of_the_paper() {
        let storage = IpmConfig::of_paper()
            .storage(&xeon64(), 128 * GIB, 1024)
            .unwrap();
        let Storage {
            access_table,
            page_history,
            sharing_matrix,
        } = storage;
        assert_eq!(access_table.used_bits, 52 + 60 + 16);
        assert_eq!(access_table.entry_bits, 128);
        assert_eq!(access_table.entries, 256 * 64);
        assert_eq!(access_table.bytes(), 256 << 10);
        assert_eq!(page_history.used_bits, 2 * 16 + 4 * 16);
        assert_eq!(page_history.entry_bits, 128, "32 bits are unused");
        assert_eq!(page_history.entries, 33_554_432);
        assert_eq!(page_history.bytes(), 512 << 20);
        assert_eq!(sharing_matrix.entry_bits, 32);
        assert_eq!(sharing_matrix.entries, 1024 * 1024);
        assert_eq!(sharing_matrix.bytes(), 4 << 20);
    }

    #[test]
    fn overheads_of_the_paper() {
        let memory = 128 * GIB;
        let storage = IpmConfig::of_paper()
            .storage(&xeon64(), memory, 1024)
            .unwrap();
        let overheads = [
            (storage.access_table, "0.0002"),
            (storage.page_history, "0.3906"),
            // The paper prints an upper bound, 0.0032.
            (storage.sharing_matrix, "0.0031"),
        ];
        let mut sum = 0.0;
        for (structure, percent) in overheads {
            let overhead = structure.overhead(memory) * 100.0;
            assert_eq!(format!("{overhead:.4}"), percent);
            sum += overhead;
        }
        assert!(sum < 0.5, "lower than 0.5 % in all (§4.5.1)");
    }

    #[test]
    fn numbers_of_threads_take_whole_bytes() {
        let cases = [
            (1, 1),
            (2, 1),
            (256, 1),
            (257, 2),
            (65_536, 2),
            (65_537, 3),
            (u32::MAX, 4),
        ];
        for (threads, bytes) in cases {
            assert_eq!(thread_bytes(threads), bytes, "{threads} threads");
        }
    }
}
