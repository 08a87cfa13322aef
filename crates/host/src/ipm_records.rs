//! The records of the lab's IPM unit, as its module hands them out (`/dev/numaherd_ipm`, protocol 1).
//!
//! Records follow each other, little-endian, each a multiple of 8 bytes. Each begins with 16 bytes:
//! magic (`NIPM`), version, kind, length. Kinds: a notification (of a page that should move, IPM Eq. 8),
//! a part of a process's Sharing Matrix (Eq. 3, cumulative), and counts. Records of unknown kinds are
//! skipped by their length.
//!
//! Safe functions over bytes: any input gives records, or one error at the end.

use std::fmt;

/// Bytes `NIPM`.
const MAGIC: u32 = 0x4d50_494e;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const NOTIFICATION: u32 = 1;
const NOTIFICATION_BYTES: usize = 56;
const SHARING: u32 = 2;
const SHARING_BYTES: usize = 40;
const PAIR_BYTES: usize = 16;
const COUNTS: u32 = 3;
const COUNTS_BYTES: usize = 80;

/// A page that should be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Process whose page it is.
    pub tgid: u32,
    /// The thread that ran where the page left the TLB; 0 if unknown.
    pub tid: u32,
    /// Node that the page is on, as last seen.
    pub from: u32,
    /// Node that uses it.
    pub to: u32,
    /// Virtual address of its first byte.
    pub address: u64,
    /// Its size in the TLB.
    pub page_bytes: u64,
    /// When it was found, on the monotonic clock.
    pub time_ns: u64,
}

/// A part of what a process's threads have shared since they began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingPart {
    pub tgid: u32,
    /// The first part of the process in this snapshot.
    pub is_first: bool,
    /// The last one.
    pub is_last: bool,
    /// Pairs of threads, with how much they shared.
    pub pairs: Vec<(u32, u32, u64)>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Notification(Notification),
    Sharing(SharingPart),
    /// The unit's counts, or an unknown kind.
    Other,
}

/// Why bytes are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRecord {
    Magic(u32),
    Version(u32),
    Length { kind: u32, bytes: u32, left: usize },
}

impl fmt::Display for NoRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(magic) => write!(f, "a record begins with {magic:#010x}, not with NIPM"),
            Self::Version(version) => write!(
                f,
                "records are of version {version}, and this program reads version {VERSION}; \
                 update it"
            ),
            Self::Length { kind, bytes, left } => write!(
                f,
                "a record of kind {kind} says that it has {bytes} bytes, and {left} are left"
            ),
        }
    }
}

/// The records in these bytes, in order; an error ends them.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record, NoRecord>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let read =
            split(rest).and_then(|(kind, record, after)| Ok((record_of(kind, record)?, after)));
        rest = read.as_ref().map_or(&[], |&(_, after)| after);
        Some(read.map(|(record, _)| record))
    })
}

/// Kind and bytes of the first record, header included, and what follows it.
fn split(bytes: &[u8]) -> Result<(u32, &[u8], &[u8]), NoRecord> {
    let too_short = |kind, bytes_said| NoRecord::Length {
        kind,
        bytes: bytes_said,
        left: bytes.len(),
    };
    let word = |at| half(bytes, at).ok_or(too_short(0, 0));
    let (magic, version, kind, said) = (word(0)?, word(4)?, word(8)?, word(12)?);
    if magic != MAGIC {
        return Err(NoRecord::Magic(magic));
    }
    if version != VERSION {
        return Err(NoRecord::Version(version));
    }
    let length = usize::try_from(said).unwrap_or(usize::MAX);
    let is_whole = length >= HEADER_BYTES && length.is_multiple_of(8);
    let (record, after) = bytes
        .split_at_checked(length)
        .filter(|_| is_whole)
        .ok_or(too_short(kind, said))?;
    Ok((kind, record, after))
}

fn record_of(kind: u32, record: &[u8]) -> Result<Record, NoRecord> {
    let wrong = || NoRecord::Length {
        kind,
        bytes: u32::try_from(record.len()).unwrap_or(u32::MAX),
        left: record.len(),
    };
    match kind {
        NOTIFICATION => notification(record).map(Record::Notification),
        SHARING => sharing(record).map(Record::Sharing),
        COUNTS => (record.len() == COUNTS_BYTES).then_some(Record::Other),
        _ => Some(Record::Other),
    }
    .ok_or_else(wrong)
}

fn notification(record: &[u8]) -> Option<Notification> {
    if record.len() != NOTIFICATION_BYTES {
        return None;
    }
    Some(Notification {
        tgid: half(record, 16)?,
        tid: half(record, 20)?,
        from: half(record, 24)?,
        to: half(record, 28)?,
        address: word(record, 32)?,
        page_bytes: word(record, 40)?,
        time_ns: word(record, 48)?,
    })
}

fn sharing(record: &[u8]) -> Option<SharingPart> {
    let (flags, pairs) = (half(record, 20)?, half(record, 28)?);
    let (_, cells) = record.split_at_checked(SHARING_BYTES)?;
    let (cells, left) = cells.as_chunks::<PAIR_BYTES>();
    if !left.is_empty() || usize::try_from(pairs) != Ok(cells.len()) {
        return None;
    }
    let pair = |cell: &[u8; PAIR_BYTES]| Some((half(cell, 0)?, half(cell, 4)?, word(cell, 8)?));
    Some(SharingPart {
        tgid: half(record, 16)?,
        is_first: flags & 1 != 0,
        is_last: flags & 2 != 0,
        pairs: cells.iter().map(pair).collect::<Option<_>>()?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Records as the unit's module writes them, for tests.
#[cfg(test)]
pub(crate) mod written {
    use super::{
        COUNTS, COUNTS_BYTES, MAGIC, NOTIFICATION, Notification, SHARING, SharingPart, VERSION,
    };

    /// A record of any kind, its fields after the header as they come.
    pub(crate) fn record(kind: u32, fields: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + fields.len()).expect("short");
        let header = [MAGIC, VERSION, kind, length].map(u32::to_le_bytes);
        [header.as_flattened(), fields].concat()
    }

    pub(crate) fn notification(of: &Notification) -> Vec<u8> {
        let halves = [of.tgid, of.tid, of.from, of.to].map(u32::to_le_bytes);
        let words = [of.address, of.page_bytes, of.time_ns].map(u64::to_le_bytes);
        record(
            NOTIFICATION,
            &[halves.as_flattened(), words.as_flattened()].concat(),
        )
    }

    /// A part of a Sharing Matrix.
    pub(crate) fn sharing(of: &SharingPart) -> Vec<u8> {
        let flags = u32::from(of.is_first) | u32::from(of.is_last) << 1;
        let pairs = u32::try_from(of.pairs.len()).expect("few");
        let mut fields = [of.tgid, flags, 9, pairs].map(u32::to_le_bytes).concat();
        fields.extend(0_u64.to_le_bytes());
        for &(one, other, amount) in &of.pairs {
            fields.extend([one, other].map(u32::to_le_bytes).as_flattened());
            fields.extend(amount.to_le_bytes());
        }
        record(SHARING, &fields)
    }

    /// Counts, all of them 0.
    pub(crate) fn counts() -> Vec<u8> {
        record(COUNTS, &[0; COUNTS_BYTES - 16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(pairs: &[(u32, u32, u64)]) -> SharingPart {
        SharingPart {
            tgid: 7,
            is_first: true,
            is_last: false,
            pairs: pairs.to_vec(),
        }
    }

    fn told(bytes: &[u8]) -> Vec<String> {
        let told = |record: Result<Record, NoRecord>| match record {
            Ok(record) => format!("{record:?}"),
            Err(error) => error.to_string(),
        };
        records(bytes).map(told).collect()
    }

    #[test]
    fn what_is_wrong_is_said_and_ends_it() {
        let counts = written::counts();
        let mut bytes = counts.clone();
        bytes[0] = 0;
        assert_eq!(
            told(&[&counts[..], &bytes, &counts].concat()),
            ["Other", "a record begins with 0x4d504900, not with NIPM"]
        );
        let mut bytes = counts.clone();
        bytes[4] = 2;
        assert_eq!(
            told(&bytes),
            ["records are of version 2, and this program reads version 1; update it"]
        );
        assert_eq!(
            told(&counts[..72]),
            ["a record of kind 3 says that it has 80 bytes, and 72 are left"]
        );
        assert_eq!(
            told(&counts[..12]),
            ["a record of kind 0 says that it has 0 bytes, and 12 are left"]
        );
        for wrong in [
            written::record(1, &[0; 32]),
            written::record(2, &[0; 16]),
            written::record(3, &[0; 72]),
            written::record(9, &[0; 4]),
        ] {
            // Nothing is read after it.
            let told = told(&[wrong, written::counts()].concat());
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("a record of kind "), "{told:?}");
        }
        let mut pairs = written::sharing(&part(&[(1, 2, 3)]));
        pairs[28] = 2;
        assert!(told(&pairs)[0].starts_with("a record of kind 2 says"));
    }

    #[test]
    fn kinds_that_are_not_known_are_passed_over() {
        let bytes = [written::record(77, &[1; 24]), written::counts()].concat();
        assert_eq!(told(&bytes), ["Other", "Other"]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            halves: [u32; 4],
            words: [u64; 3],
            tgid: u32,
            flags: [bool; 2],
            pairs in prop::collection::vec(any::<(u32, u32, u64)>(), 0..20),
        ) {
            let notification = Notification {
                tgid: halves[0],
                tid: halves[1],
                from: halves[2],
                to: halves[3],
                address: words[0],
                page_bytes: words[1],
                time_ns: words[2],
            };
            let part = SharingPart { tgid, is_first: flags[0], is_last: flags[1], pairs };
            let bytes = [written::notification(&notification), written::counts(), written::sharing(&part)].concat();
            let read: Vec<_> = records(&bytes).collect();
            let expected = [Record::Notification(notification), Record::Other, Record::Sharing(part)];
            prop_assert_eq!(read, expected.map(Ok));
        }

        #[test]
        fn no_bytes_make_it_panic_or_go_on_for_ever(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            headed: bool,
        ) {
            if headed && bytes.len() >= 16 {
                bytes[..8].copy_from_slice([MAGIC, VERSION].map(u32::to_le_bytes).as_flattened());
                bytes[9..12].fill(0);
                bytes[13..16].fill(0);
            }
            let read: Vec<_> = records(&bytes).collect();
            prop_assert!(read.len() <= bytes.len() / HEADER_BYTES + 1);
            prop_assert!(read.iter().rev().skip(1).all(Result::is_ok));
        }
    }
}
