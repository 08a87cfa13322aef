//! The configuration of an IPM unit: its control registers, the widths of its fields, the cost of
//! an eviction, and the periodic pass.

use serde::{Deserialize, Serialize};

use crate::error::{HardwareError, check};

/// Configuration of an IPM unit ([`crate::Ipm`]).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IpmConfig {
    /// `CR_shift`: lowest bits of the time-stamp counter that are discarded (§4.3.1).
    pub cr_shift: u32,
    /// `CR_aging`: the higher, the less the NUMA Vector ages (Eq. 6).
    pub cr_aging: u32,
    /// `CR_mig`: the higher, the more difficult it is to migrate a page (Eq. 8).
    pub cr_mig: u32,
    /// Elements of the Sharers Vector (`#SV`).
    pub sharers: usize,
    /// Bits of each counter of the NUMA Vector, 1 to 32.
    pub numa_counter_bits: u32,
    /// Bits of each element of the Sharing Matrix, 1 to 32.
    pub matrix_element_bits: u32,
    /// Bits of a time stamp in the TLB Access Table, 2 to 64.
    pub time_stamp_bits: u32,
    /// Initial room for threads of each application; the structures grow for more (§4.4.2). The
    /// Sharing Matrix takes four bytes of the host's memory for each pair.
    pub threads: u32,
    /// Cycles that the unit takes for an eviction, and is busy for (§6.3).
    pub eviction_cycles: u64,
    /// The pass over infrequently evicted pages (§4.4.1); absent for none.
    pub pass: Option<PeriodicPass>,
}

/// The operating system's pass over pages that are evicted infrequently (§4.4.1).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PeriodicPass {
    /// Cycles from one pass to the next.
    pub every_cycles: u64,
    /// Least residency of an entry that the pass handles, in cycles.
    pub resident_cycles: u64,
}

impl IpmConfig {
    /// The paper's configuration: Table II, with 60 bits of time stamp (Table I) and the 255 cycles
    /// that an eviction took on average (§6.3). It has no periodic pass, for which the paper gives
    /// no figures.
    pub fn of_paper() -> Self {
        Self {
            cr_shift: 13,
            cr_aging: 7,
            cr_mig: 2,
            sharers: 2,
            numa_counter_bits: 16,
            matrix_element_bits: 32,
            time_stamp_bits: 60,
            threads: 1024,
            eviction_cycles: 255,
            pass: None,
        }
    }

    /// The weight of an event (a TLB miss, a memory sample) that is credited in place of residency
    /// ([`crate::Histories`]): 2^`CR_aging`. The paper gives none.
    pub fn event_weight(&self) -> u64 {
        1 << self.cr_aging
    }

    /// Checks that the fields are wide enough for what they must hold.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), HardwareError> {
        let bits = self.numa_counter_bits;
        let enough =
            "at most numa_counter_bits: a counter of the NUMA Vector begins at 2^cr_aging - 1";
        for (what, value, possible, must) in [
            ("numa_counter_bits", bits, 1..=32, "from 1 to 32"),
            (
                "matrix_element_bits",
                self.matrix_element_bits,
                1..=32,
                "from 1 to 32",
            ),
            (
                "time_stamp_bits",
                self.time_stamp_bits,
                2..=64,
                "from 2 to 64",
            ),
            ("cr_shift", self.cr_shift, 0..=63, "at most 63"),
            ("cr_mig", self.cr_mig, 0..=32, "at most 32"),
            ("cr_aging", self.cr_aging, 0..=bits, enough),
            ("threads", self.threads, 1..=u32::MAX, "at least 1"),
        ] {
            let what = format!("ipm.{what}");
            check(what, f64::from(value), possible.contains(&value), must)?;
        }
        let every = self.pass.map_or(1, |pass| pass.every_cycles);
        check(
            "ipm.pass.every_cycles",
            every as f64,
            every > 0,
            "at least 1",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_configuration_is_valid() {
        assert_eq!(IpmConfig::of_paper().validate(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        type Change = fn(&mut IpmConfig);
        let cases: [(Change, &str); 7] = [
            (
                |c| c.numa_counter_bits = 33,
                "ipm.numa_counter_bits is 33; it must be from 1 to 32",
            ),
            (
                |c| c.matrix_element_bits = 0,
                "ipm.matrix_element_bits is 0; it must be from 1 to 32",
            ),
            (
                |c| c.cr_aging = 17,
                "ipm.cr_aging is 17; it must be at most numa_counter_bits: a counter of the NUMA Vector begins at 2^cr_aging - 1",
            ),
            (|c| c.cr_mig = 40, "ipm.cr_mig is 40; it must be at most 32"),
            (
                |c| c.cr_shift = 64,
                "ipm.cr_shift is 64; it must be at most 63",
            ),
            (|c| c.threads = 0, "ipm.threads is 0; it must be at least 1"),
            (
                |c| {
                    c.pass = Some(PeriodicPass {
                        every_cycles: 0,
                        resident_cycles: 1,
                    });
                },
                "ipm.pass.every_cycles is 0; it must be at least 1",
            ),
        ];
        for (change, expected) in cases {
            let mut config = IpmConfig::of_paper();
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn it_is_read_from_a_file_and_needs_no_pass() {
        let mut config = IpmConfig::of_paper();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<IpmConfig>(&text).unwrap(), config);
        config.pass = Some(PeriodicPass {
            every_cycles: 1 << 30,
            resident_cycles: 1 << 28,
        });
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<IpmConfig>(&text).unwrap(), config);
    }
}
