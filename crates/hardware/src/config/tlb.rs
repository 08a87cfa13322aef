//! The shape and cost of a core's TLBs, as a user writes them down.
//!
//! Two kinds of management (IPM §4, §5.2). If hardware walks the page table, the core runs on and
//! only accesses that need the translation wait. If software does (Itanium), the core stops for the
//! handler.

use numaherd_topology::TlbManagement;
use serde::{Deserialize, Serialize};

use crate::error::{HardwareError, check, not_negative, positive};
use crate::page::Page;

/// The TLBs of each core.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Bytes of a page; a power of two, one line or more.
    pub page_bytes: u64,
    /// Who fills the TLBs.
    pub managed_by: TlbManagement,
    /// Time from a miss in all levels until the translation is there, in ns: the hardware's page
    /// walk or the operating system's miss handler.
    pub miss_ns: f64,
    /// First level. Its `hit_ns` is part of the instruction and must be 0.
    pub l1: TlbLevel,
    /// Second level, if there is one.
    pub l2: Option<TlbLevel>,
}

/// One level of a TLB.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TlbLevel {
    /// Translations that it holds.
    pub entries: usize,
    /// Entries in a set; as many as `entries` for a fully associative one.
    pub ways: usize,
    /// Time from a request to the translation on a hit, in ns.
    pub hit_ns: f64,
}

impl Tlb {
    /// The page of a virtual address.
    #[inline]
    pub fn page_of(&self, virtual_address: u64) -> Page {
        Page::new(virtual_address >> self.page_bytes.trailing_zeros())
    }

    /// Entries of the last level: as many translations as a core can hold, since the last level
    /// includes the first.
    pub fn entries(&self) -> usize {
        self.l2.unwrap_or(self.l1).entries
    }

    pub(super) fn validate(&self, line_bytes: u64) -> Result<(), HardwareError> {
        let page = self.page_bytes;
        let is_page = page.is_power_of_two() && page >= line_bytes;
        let must = "a power of two, one cache line or more";
        check("tlb.page_bytes", page as f64, is_page, must)?;
        not_negative("tlb.miss_ns", self.miss_ns)?;
        let hit_ns = self.l1.hit_ns;
        check(
            "tlb.l1.hit_ns",
            hit_ns,
            hit_ns == 0.0,
            "0: it is part of the instruction",
        )?;
        self.l1.validate("tlb.l1")?;
        let Some(l2) = self.l2 else {
            return Ok(());
        };
        l2.validate("tlb.l2")?;
        let must = "at least tlb.l1.entries: the second level contains the entries of the first";
        check(
            "tlb.l2.entries",
            l2.entries as f64,
            l2.entries >= self.l1.entries,
            must,
        )
    }
}

impl TlbLevel {
    fn validate(&self, level: &str) -> Result<(), HardwareError> {
        let what = format!("{level}.entries");
        let entries = self.entries as f64;
        positive(format!("{level}.ways"), self.ways as f64)?;
        positive(&what, entries)?;
        not_negative(format!("{level}.hit_ns"), self.hit_ns)?;
        check(&what, entries, self.entries <= MOST_ENTRIES, "at most 2^31")?;
        let is_whole = self.entries.is_multiple_of(self.ways);
        check(
            what,
            entries,
            is_whole,
            format!("a multiple of its {} ways", self.ways),
        )
    }
}

/// Entries are numbered in 32 bits.
const MOST_ENTRIES: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn level(entries: usize, ways: usize) -> TlbLevel {
        TlbLevel {
            entries,
            ways,
            hit_ns: 0.0,
        }
    }

    fn with(change: impl FnOnce(&mut Tlb)) -> Config {
        let mut tlb = Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 30.0,
            l1: level(64, 4),
            l2: Some(level(512, 4)),
        };
        change(&mut tlb);
        Config {
            tlb: Some(tlb),
            ..Config::of_equal_nodes(1, vec![vec![90.0]], 10.0)
        }
    }

    #[test]
    fn any_geometry_and_page_size_will_do() {
        for (entries, ways, page_bytes) in [(1, 1, 64), (96, 6, 16384), (1536, 1536, 1 << 30)] {
            let config = with(|tlb| {
                (tlb.l1, tlb.l2) = (level(entries, ways), None);
                tlb.page_bytes = page_bytes;
            });
            assert_eq!(config.validate(), Ok(()));
            let tlb = config.tlb.unwrap();
            assert_eq!(tlb.entries(), entries);
            assert_eq!(tlb.page_of(page_bytes * 7 + 13), Page::new(7));
        }
        assert_eq!(with(|_| ()).tlb.unwrap().entries(), 512);
    }

    type Change = fn(&mut Tlb);

    #[test]
    fn what_is_wrong_is_said() {
        let said = |change: Change| with(change).validate().unwrap_err().to_string();
        let cases: [(&str, Change); 7] = [
            (
                "tlb.page_bytes is 5000; it must be a power of two, one cache line or more",
                |tlb| tlb.page_bytes = 5000,
            ),
            ("tlb.miss_ns is -1; it must be 0 or more", |tlb| {
                tlb.miss_ns = -1.0;
            }),
            (
                "tlb.l1.hit_ns is 1; it must be 0: it is part of the instruction",
                |tlb| tlb.l1.hit_ns = 1.0,
            ),
            ("tlb.l1.ways is 0; it must be more than 0", |tlb| {
                tlb.l1.ways = 0;
            }),
            (
                "tlb.l1.entries is 64; it must be a multiple of its 5 ways",
                |tlb| tlb.l1.ways = 5,
            ),
            (
                "tlb.l1.entries is 4294967296; it must be at most 2^31",
                |tlb| {
                    tlb.l1.entries = 1 << 32;
                },
            ),
            (
                "tlb.l2.entries is 32; it must be at least tlb.l1.entries: the second level contains the entries of the first",
                |tlb| tlb.l2 = Some(level(32, 4)),
            ),
        ];
        for (expected, change) in cases {
            assert_eq!(said(change), expected);
        }
    }

    #[test]
    fn a_machine_file_may_have_tlbs_or_not() {
        let config = with(|tlb| tlb.managed_by = TlbManagement::Software);
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("managed_by = \"software\""), "{text}");
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config);
        let none = Config {
            tlb: None,
            ..config
        };
        let text = toml::to_string(&none).unwrap();
        assert!(!text.contains("tlb"), "{text}");
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), none);
    }
}
