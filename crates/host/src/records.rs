//! The records of a perf ring, and what a sample's data source says.
//!
//! Format: include/uapi/linux/perf_event.h, `enum perf_event_type` and `union perf_mem_data_src`.
//! Safe functions over bytes: any input gives records or an end.

use numaherd_world::MemorySource;

/// Fields of a sample in the order that the kernel writes them (`PERF_SAMPLE_*`).
mod field {
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDRESS: u64 = 1 << 3;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const WEIGHT: u64 = 1 << 14;
    pub(super) const DATA_SOURCE: u64 = 1 << 15;
    pub(super) const PHYSICAL: u64 = 1 << 19;
    pub(super) const WEIGHT_PARTS: u64 = 1 << 24;
}

const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// The fields of a ring's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The weight in parts (Linux 5.12) or as one number.
    pub weight_parts: bool,
    /// With the physical address.
    pub physical: bool,
}

impl Layout {
    /// What to ask the kernel for.
    pub fn sample_type(self) -> u64 {
        let weight = if self.weight_parts {
            field::WEIGHT_PARTS
        } else {
            field::WEIGHT
        };
        let physical = if self.physical { field::PHYSICAL } else { 0 };
        field::TID
            | field::TIME
            | field::ADDRESS
            | field::CPU
            | weight
            | field::DATA_SOURCE
            | physical
    }
}

/// A sample as in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawSample {
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub address: u64,
    pub cpu: u32,
    /// Latency; 0 if the hardware gives none.
    pub weight: u64,
    pub source: DataSource,
    /// Physical address; 0 if not asked for or unknown.
    pub physical: u64,
}

/// A record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Sample(RawSample),
    /// So many records did not fit the ring.
    Lost(u64),
    /// The kernel held the event back because it fired too often.
    Throttled,
    Other,
    /// The bytes from here on are no records.
    Damaged,
}

/// The records in these bytes, oldest first. A record that is cut short ends them as
/// [`Record::Damaged`].
pub fn records(bytes: &[u8], layout: Layout) -> impl Iterator<Item = Record> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((record, after)) = split(rest) else {
            rest = &[];
            return Some(Record::Damaged);
        };
        rest = after;
        Some(read(record, layout).unwrap_or(Record::Damaged))
    })
}

/// The first record, header included, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = bytes.get(6..8)?.try_into().map(u16::from_ne_bytes).ok()?;
    (size >= 8).then(|| bytes.split_at_checked(usize::from(size)))?
}

fn read(record: &[u8], layout: Layout) -> Option<Record> {
    let kind = u32::from_ne_bytes(record.get(..4)?.try_into().ok()?);
    let mut words = record
        .get(8..)?
        .as_chunks::<8>()
        .0
        .iter()
        .map(|chunk| u64::from_ne_bytes(*chunk));
    Some(match kind {
        SAMPLE => {
            let (pid, tid) = halves(words.next()?);
            let time = words.next()?;
            let address = words.next()?;
            let (cpu, _) = halves(words.next()?);
            let weight = words.next()?;
            Record::Sample(RawSample {
                pid,
                tid,
                time,
                address,
                cpu,
                weight: if layout.weight_parts {
                    // struct: u32 of full latency, then two u16 of its parts.
                    u64::from(halves(weight).0)
                } else {
                    weight
                },
                source: DataSource(words.next()?),
                physical: if layout.physical { words.next()? } else { 0 },
            })
        }
        // The event's number, then how many.
        LOST => Record::Lost(words.nth(1)?),
        LOST_SAMPLES => Record::Lost(words.next()?),
        THROTTLE => Record::Throttled,
        _ => Record::Other,
    })
}

/// Two `u32`s that are adjacent in memory.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
    )
}

/// `union perf_mem_data_src`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    /// Whether it was a store.
    pub fn is_store(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// Whether it was a load or a store at all.
    pub fn is_access(self) -> bool {
        self.0 & 0x6 != 0
    }

    /// What answered. The level number is used if the kernel gives one, else the older bits.
    pub fn memory_source(self) -> MemorySource {
        let level_bits = self.0 >> 5 & 0x3fff;
        let level_number = self.0 >> 33 & 0xf;
        let remote = self.0 >> 37 & 1 == 1;
        let hops = self.0 >> 43 & 0x7;
        // Another core's cache on the same node (0 hops) is not remote for placement.
        let other_node = remote && hops != 1;
        let of_cache = |far: bool| {
            if far {
                MemorySource::RemoteCache
            } else {
                MemorySource::Cache
            }
        };
        if level_bits & 0x300 != 0 {
            return MemorySource::RemoteMemory;
        }
        if level_bits & 0xc00 != 0 {
            return MemorySource::RemoteCache;
        }
        match level_number {
            // CXL, RAM, persistent memory.
            0x9 | 0xd | 0xe if remote => MemorySource::RemoteMemory,
            0x9 | 0xd | 0xe => MemorySource::LocalMemory,
            // L1 to L4, L2 miss buffer, memory-side cache, any cache, line fill buffer.
            0x1..=0x6 | 0xb | 0xc => of_cache(other_node),
            _ if level_bits & 0x80 != 0 => MemorySource::LocalMemory,
            _ if level_bits & 0x78 != 0 => of_cache(other_node),
            _ => MemorySource::Unknown,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const PLAIN: Layout = Layout {
        weight_parts: false,
        physical: false,
    };
    const FULL: Layout = Layout {
        weight_parts: true,
        physical: true,
    };

    /// A record as the kernel writes it.
    pub(crate) fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(8 + 8 * words.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    pub(crate) fn pair(first: u32, second: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    /// A sample without physical address.
    pub(crate) fn sample(tid: u32, time: u64, address: u64, cpu: u32, source: u64) -> Vec<u8> {
        record(
            SAMPLE,
            &[pair(tid, tid), time, address, pair(cpu, 0), 321, source],
        )
    }

    #[test]
    fn records_of_every_kind_in_their_order() {
        let bytes = [
            sample(7, 100, 0x1000, 3, 0x2),
            record(LOST, &[55, 12]),
            record(THROTTLE, &[1, 2, 3]),
            record(LOST_SAMPLES, &[4]),
            record(1, &[0, 0]),
        ]
        .concat();
        let found: Vec<Record> = records(&bytes, PLAIN).collect();
        let sample = RawSample {
            pid: 7,
            tid: 7,
            time: 100,
            address: 0x1000,
            cpu: 3,
            weight: 321,
            source: DataSource(2),
            physical: 0,
        };
        assert_eq!(
            found,
            [
                Record::Sample(sample),
                Record::Lost(12),
                Record::Throttled,
                Record::Lost(4),
                Record::Other
            ]
        );
    }

    #[test]
    fn weight_in_parts_and_physical_address() {
        let words = [
            pair(5, 6),
            9,
            0xabc,
            pair(2, 0),
            pair(400, 0x0003_0002),
            0x4,
            0xdef000,
        ];
        let bytes = record(SAMPLE, &words);
        let Some(Record::Sample(sample)) = records(&bytes, FULL).next() else {
            panic!("no sample");
        };
        assert_eq!((sample.weight, sample.physical), (400, 0xdef000));
        assert_eq!((sample.pid, sample.tid), (5, 6));
        assert!(sample.source.is_store());
    }

    #[test]
    fn a_record_cut_short_ends_the_rest() {
        let mut bytes = sample(7, 100, 0x1000, 3, 0x2);
        bytes.extend(sample(8, 101, 0x2000, 3, 0x2));
        bytes.truncate(bytes.len() - 5);
        let found: Vec<Record> = records(&bytes, PLAIN).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], Record::Damaged);
    }

    #[test]
    fn what_answered() {
        let number = |n: u64| n << 33;
        let remote = 1 << 37;
        let hops = |h: u64| h << 43;
        for (bits, want) in [
            // Lab and Intel: local RAM, remote RAM one hop, remote cache one hop, L3.
            (0x80 << 5 | number(0xd), MemorySource::LocalMemory),
            (
                0x100 << 5 | number(0xd) | remote | hops(3),
                MemorySource::RemoteMemory,
            ),
            (0x400 << 5, MemorySource::RemoteCache),
            (0x40 << 5 | number(3), MemorySource::Cache),
            // Numbers only, as newer AMD kernels give them.
            (number(0xd), MemorySource::LocalMemory),
            (number(0xd) | remote | hops(3), MemorySource::RemoteMemory),
            (number(0xb) | remote | hops(1), MemorySource::Cache),
            (number(0xb) | remote | hops(3), MemorySource::RemoteCache),
            (number(0x9), MemorySource::LocalMemory),
            (number(0xc), MemorySource::Cache),
            (number(0xf), MemorySource::Unknown),
            (0, MemorySource::Unknown),
        ] {
            assert_eq!(DataSource(bits).memory_source(), want, "{bits:#x}");
        }
    }

    proptest! {
        #[test]
        fn garbage_ends(bytes in proptest::collection::vec(any::<u8>(), 0..600), parts: bool) {
            let layout = Layout { weight_parts: parts, physical: !parts };
            let found: Vec<Record> = records(&bytes, layout).collect();
            // Every record takes at least its header.
            prop_assert!(found.len() <= bytes.len().div_ceil(8) + 1);
        }

        #[test]
        fn samples_are_read_back(tid: u32, time: u64, address: u64, cpu: u32, source: u64) {
            let bytes = sample(tid, time, address, cpu, source);
            let Some(Record::Sample(found)) = records(&bytes, PLAIN).next() else {
                return Err(TestCaseError::fail("no sample"));
            };
            prop_assert_eq!(
                (found.tid, found.time, found.address, found.cpu, found.source.0),
                (tid, time, address, cpu, source)
            );
        }
    }
}
