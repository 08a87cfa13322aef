//! Which events count instructions, cycles, lines from memory, and where those came from: one entry
//! per kind of machine, the best one first. Data only; [`crate::counters`] tries them in order.
//!
//! Sources: Linux pmu-events and libpfm4 for the codes. A raw code is umask and event number in
//! hex, `0xUUEE`.

use std::ops::RangeInclusive;

/// Kinds of PMU that every Linux has (`enum perf_type_id`).
const HARDWARE: u32 = 0;
const HW_CACHE: u32 = 3;
const RAW: u32 = 4;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// One that the kernel names for every machine, or a raw code.
    Coded {
        name: &'static str,
        kind: u32,
        config: u64,
        config1: u64,
    },
    /// One that a PMU names in sysfs.
    Named {
        pmu: &'static str,
        event: &'static str,
    },
}

impl Event {
    /// As people write it.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Coded { name, .. } => (*name).to_owned(),
            Self::Named { pmu, event } => format!("{pmu}/{event}/"),
        }
    }
}

/// How lines are told apart by where they came from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Split {
    /// An event for each.
    Each { local: Event, remote: Event },
    /// An event for both together and one for the remote ones.
    All { both: Event, remote: Event },
}

impl Split {
    /// Its events: local or both, then remote.
    pub(crate) fn events(&self) -> [Event; 2] {
        match *self {
            Self::Each { local, remote } => [local, remote],
            Self::All { both, remote } => [both, remote],
        }
    }
}

/// Where a set applies.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// Where this PMU is in sysfs.
    Pmu(&'static str),
    /// These models of a vendor's family.
    Models {
        vendor: &'static str,
        family: u32,
        models: &'static [RangeInclusive<u32>],
    },
    /// Everywhere.
    Any,
}

/// The events of one kind of machine.
#[derive(Clone, Debug)]
pub(crate) struct CounterSet {
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    pub(crate) instructions: Event,
    pub(crate) cycles: Event,
    /// Lines from memory: the sum of these.
    pub(crate) lines: &'static [Event],
    /// Added to the sum where it can be opened.
    pub(crate) prefetches: Option<Event>,
    pub(crate) split: Option<Split>,
    /// What the lines miss.
    pub(crate) caveat: Option<&'static str>,
    /// What local and remote miss.
    pub(crate) split_caveat: Option<&'static str>,
}

const fn raw(name: &'static str, config: u64) -> Event {
    response(name, config, 0)
}

const fn response(name: &'static str, config: u64, config1: u64) -> Event {
    Event::Coded {
        name,
        kind: RAW,
        config,
        config1,
    }
}

const fn lab(event: &'static str) -> Event {
    Event::Named { pmu: "lab", event }
}

const fn generic(name: &'static str, kind: u32, config: u64) -> Event {
    Event::Coded {
        name,
        kind,
        config,
        config1: 0,
    }
}

/// Cache events: which cache, operation << 8, result << 16.
const fn cache(name: &'static str, which: u64, operation: u64, miss: bool) -> Event {
    generic(name, HW_CACHE, which | operation << 8 | (miss as u64) << 16)
}

const LAST_LEVEL: u64 = 2;
const NODE: u64 = 6;
const READ: u64 = 0;
const PREFETCH: u64 = 2;

const CYCLES: Event = generic("cycles", HARDWARE, 0);
const INSTRUCTIONS: Event = generic("instructions", HARDWARE, 1);
const CACHE_MISSES: Event = generic("cache-misses", HARDWARE, 3);
const PREFETCH_MISSES: Event = cache("LLC-prefetch-misses", LAST_LEVEL, PREFETCH, true);
const NODE_LOADS: Event = cache("node-loads", NODE, READ, false);
const NODE_LOAD_MISSES: Event = cache("node-load-misses", NODE, READ, true);

/// LONGEST_LAT_CACHE.MISS on every Intel core since Nehalem.
const INTEL_LINES: &[Event] = &[raw("longest_lat_cache.miss", 0x412e)];
const INTEL_CAVEAT: &str =
    "lines that the last-level cache's own prefetcher fetched are not counted";
const LOADS_ONLY: &str = "local and remote are retired loads: no stores, no prefetches";
const READS: &str = "local and remote are reads, prefetches into L2 included; lines from another \
    cluster of the same package count as neither where sub-NUMA clustering is on";
const AMD_CAVEAT: &str =
    "lines that were prefetched into L2 or L3 and never reached the data cache are not counted";
const AMD_NODES: &str =
    "with several nodes per socket, the other nodes of the same socket count as remote";

const fn intel(
    name: &'static str,
    models: &'static [RangeInclusive<u32>],
    split: Split,
    split_caveat: &'static str,
) -> CounterSet {
    CounterSet {
        name,
        machine: Machine::Models {
            vendor: "GenuineIntel",
            family: 6,
            models,
        },
        instructions: INSTRUCTIONS,
        cycles: CYCLES,
        lines: INTEL_LINES,
        prefetches: None,
        split: Some(split),
        caveat: Some(INTEL_CAVEAT),
        split_caveat: Some(split_caveat),
    }
}

const fn zen(
    name: &'static str,
    family: u32,
    models: &'static [RangeInclusive<u32>],
    lines: &'static [Event],
    split: Split,
    caveat: &'static str,
) -> CounterSet {
    CounterSet {
        name,
        machine: Machine::Models {
            vendor: "AuthenticAMD",
            family,
            models,
        },
        instructions: INSTRUCTIONS,
        cycles: CYCLES,
        lines,
        prefetches: None,
        split: Some(split),
        caveat: Some(caveat),
        split_caveat: Some(AMD_NODES),
    }
}

const RETIRED_LOADS: Split = Split::Each {
    local: raw("mem_load_l3_miss_retired.local_dram", 0x01d3),
    remote: raw("mem_load_l3_miss_retired.remote_dram", 0x02d3),
};

/// Any fill of the data cache (event 44, prefetches included) from memory near (08) and far (40).
const ZEN_FILLS: Split = Split::Each {
    local: raw("any_data_cache_fills.local_memory", 0x0844),
    remote: raw("any_data_cache_fills.remote_memory", 0x4044),
};
const ZEN_LINES: &[Event] = &[raw("any_data_cache_fills.memory", 0x4844)];

/// All sets, the ones to prefer first.
pub(crate) const COUNTER_SETS: &[CounterSet] = &[
    CounterSet {
        name: "the lab's modelled hardware",
        machine: Machine::Pmu("lab"),
        instructions: lab("instructions"),
        cycles: lab("cycles"),
        lines: &[lab("llc_miss")],
        prefetches: Some(lab("prefetch")),
        split: Some(Split::Each {
            local: lab("dram_local"),
            remote: lab("dram_remote"),
        }),
        caveat: None,
        split_caveat: None,
    },
    intel(
        "Intel Nehalem",
        &[0x1a..=0x1a, 0x1e..=0x1f, 0x2e..=0x2e],
        Split::Each {
            local: raw("mem_uncore_retired.local_dram", 0x200f),
            remote: raw("mem_uncore_retired.remote_dram", 0x100f),
        },
        LOADS_ONLY,
    ),
    intel(
        "Intel Westmere-EP",
        &[0x2c..=0x2c],
        Split::Each {
            local: raw("mem_uncore_retired.local_dram_and_remote_cache_hit", 0x080f),
            remote: raw("mem_uncore_retired.remote_dram", 0x100f),
        },
        "local and remote are retired loads; hits in another socket's cache count as local",
    ),
    intel(
        "Intel Westmere-EX",
        &[0x2f..=0x2f],
        Split::Each {
            local: raw("mem_uncore_retired.local_dram", 0x100f),
            remote: raw("mem_uncore_retired.remote_dram", 0x200f),
        },
        LOADS_ONLY,
    ),
    intel(
        "Intel Sandy Bridge-EP",
        &[0x2d..=0x2d],
        Split::Each {
            local: response(
                "offcore_response.demand_data_rd.llc_miss.local",
                0x01b7,
                0x6_0040_0001,
            ),
            remote: response(
                "offcore_response.demand_data_rd.llc_miss.remote",
                0x01bb,
                0x6_7f80_0001,
            ),
        },
        "local and remote are demand reads of data: no stores, no prefetches",
    ),
    intel(
        "Intel Broadwell-EP",
        &[0x4f..=0x4f, 0x56..=0x56],
        Split::Each {
            local: response(
                "offcore_response.demand_data_rd.llc_miss.local",
                0x01b7,
                0x6_0400_0001,
            ),
            remote: response(
                "offcore_response.demand_data_rd.llc_miss.remote",
                0x01bb,
                0x6_3800_0001,
            ),
        },
        "local and remote are demand reads of data: no stores, no prefetches",
    ),
    intel(
        "Intel Skylake-SP, Cascade Lake, Ice Lake-SP",
        &[0x55..=0x55, 0x6a..=0x6a, 0x6c..=0x6c],
        RETIRED_LOADS,
        LOADS_ONLY,
    ),
    intel(
        "Intel Sapphire, Emerald and Granite Rapids",
        &[0x8f..=0x8f, 0xcf..=0xcf, 0xad..=0xae],
        Split::Each {
            local: response("ocr.reads_to_core.local_dram", 0x012a, 0x1_0400_4477),
            remote: response("ocr.reads_to_core.remote_dram", 0x012b, 0x7_3000_4477),
        },
        READS,
    ),
    zen(
        "AMD Zen 2",
        0x17,
        &[0x30..=0xff],
        &[raw("demand_data_cache_fills.memory", 0x4843)],
        Split::Each {
            local: raw("demand_data_cache_fills.local_memory", 0x0843),
            remote: raw("demand_data_cache_fills.remote_memory", 0x4043),
        },
        "prefetches are not counted: this processor counts demand fills of the data cache",
    ),
    zen(
        "AMD Zen 3 and 4",
        0x19,
        &[0x00..=0xff],
        ZEN_LINES,
        ZEN_FILLS,
        AMD_CAVEAT,
    ),
    zen(
        "AMD Zen 5",
        0x1a,
        &[0x00..=0xff],
        ZEN_LINES,
        ZEN_FILLS,
        AMD_CAVEAT,
    ),
    CounterSet {
        name: "the kernel's generic events",
        machine: Machine::Any,
        instructions: INSTRUCTIONS,
        cycles: CYCLES,
        lines: &[CACHE_MISSES],
        prefetches: Some(PREFETCH_MISSES),
        split: Some(Split::All {
            both: NODE_LOADS,
            remote: NODE_LOAD_MISSES,
        }),
        caveat: Some("what counts as a miss is the kernel's choice for this processor"),
        split_caveat: Some("loads only: no stores"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_resort_fits_every_machine() {
        assert!(matches!(COUNTER_SETS.last().unwrap().machine, Machine::Any));
        let others = &COUNTER_SETS[..COUNTER_SETS.len() - 1];
        assert!(
            others
                .iter()
                .all(|set| !matches!(set.machine, Machine::Any))
        );
    }

    #[test]
    fn no_model_is_in_two_sets() {
        let all: Vec<(&str, u32, u32)> = COUNTER_SETS
            .iter()
            .filter_map(|set| match &set.machine {
                Machine::Models {
                    vendor,
                    family,
                    models,
                } => Some((vendor, family, models)),
                _ => None,
            })
            .flat_map(|(vendor, family, models)| {
                models
                    .iter()
                    .cloned()
                    .flatten()
                    .map(move |model| (*vendor, *family, model))
            })
            .collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn generic_cache_events_are_coded_as_the_kernel_wants_them() {
        let code = |event| match event {
            Event::Coded { config, .. } => config,
            Event::Named { .. } => unreachable!("generic"),
        };
        assert_eq!(code(PREFETCH_MISSES), 0x1_0202);
        assert_eq!(code(NODE_LOADS), 0x6);
        assert_eq!(code(NODE_LOAD_MISSES), 0x1_0006);
    }

    #[test]
    fn offcore_responses_have_the_published_values() {
        let of = |name: &str| {
            COUNTER_SETS
                .iter()
                .filter_map(|set| set.split)
                .flat_map(|split| split.events())
                .find_map(|event| match event {
                    Event::Coded {
                        name: n,
                        config1,
                        config,
                        ..
                    } if n == name => Some((config, config1)),
                    _ => None,
                })
        };
        assert_eq!(
            of("ocr.reads_to_core.remote_dram"),
            Some((0x12b, 0x730004477))
        );
        assert_eq!(
            of("offcore_response.demand_data_rd.llc_miss.remote"),
            Some((0x1bb, 0x67f800001))
        );
    }
}
