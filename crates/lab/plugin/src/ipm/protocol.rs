// SPDX-License-Identifier: GPL-2.0-or-later
//! The format of the device `/dev/numaherd_ipm`, from which a program of the guest reads. `docs/lab.md` describes it
//! for users; the module only passes the bytes on.
//!
//! A read returns whole records, one after the other. All numbers are little-endian. A record begins
//! with [`MAGIC`], [`VERSION`], its kind and its length in bytes, 32 bits each; the length is a multiple
//! of 8 and at most [`LONGEST`], so that a reader may skip a kind that it does not know.

use crate::layout::OUTBOX_BYTES;

/// First word of each record: the bytes `NIPM`.
const MAGIC: u32 = u32::from_le_bytes(*b"NIPM");
/// Every change that a reader can notice raises it.
const VERSION: u32 = 1;
/// Bytes of the longest record: the outbox.
pub const LONGEST: usize = OUTBOX_BYTES as usize;

/// Bytes of a record before its own fields.
const HEADER_BYTES: usize = 16;
/// Bytes of [`sharing`] before its pairs, and of a pair.
const SHARING_BYTES: usize = HEADER_BYTES + 24;
const PAIR_BYTES: usize = 16;
/// Pairs in a record.
const MOST_PAIRS: usize = (LONGEST - SHARING_BYTES) / PAIR_BYTES;

/// A page that should be moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Notice {
    /// The process whose page it is.
    pub tgid: u32,
    /// Its thread on the CPU that evicted the page; 0 if none of its threads ran there.
    pub tid: u32,
    /// Node that the page is on.
    pub from: u32,
    /// Node that uses it.
    pub to: u32,
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub page_bytes: u64,
    /// Guest time of the notification, in ns.
    pub time_ns: u64,
}

/// Affinity of two threads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pair {
    /// The thread with the smaller number.
    pub one: u32,
    /// The other.
    pub other: u32,
    /// The sum of what both added for each other.
    pub affinity: u64,
}

fn record(kind: u32, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = Vec::with_capacity(64);
    for word in [MAGIC, VERSION, kind, 0] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    fields(&mut record);
    let bytes = record.len() as u32;
    record[12..16].copy_from_slice(&bytes.to_le_bytes());
    record
}

fn words(record: &mut Vec<u8>, words: &[u32]) {
    record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn longs(record: &mut Vec<u8>, longs: &[u64]) {
    record.extend(longs.iter().flat_map(|long| long.to_le_bytes()));
}

/// Kind 1, 56 bytes: process, thread, `from` and `to`, 32 bits each; address, bytes of the page and
/// time, 64 bits each.
pub fn notification(notice: &Notice) -> Vec<u8> {
    record(1, |record| {
        words(record, &[notice.tgid, notice.tid, notice.from, notice.to]);
        longs(record, &[notice.address, notice.page_bytes, notice.time_ns]);
    })
}

/// Kind 2, for a process, in as many records as its pairs need: process, flags (1 in the first
/// record, 2 in the last), watched threads of the process, pairs in this record, 32 bits each;
/// time, 64 bits. Then for each pair, both threads, 32 bits each, and their affinity, 64 bits.
pub fn sharing(tgid: u32, threads: u32, time_ns: u64, pairs: &[Pair]) -> Vec<Vec<u8>> {
    let pieces = pairs.len().div_ceil(MOST_PAIRS).max(1);
    let piece = |number: usize| {
        let start = (number * MOST_PAIRS).min(pairs.len());
        let own = &pairs[start..(start + MOST_PAIRS).min(pairs.len())];
        let flags = u32::from(number == 0) | u32::from(number + 1 == pieces) << 1;
        record(2, |record| {
            words(record, &[tgid, flags, threads, own.len() as u32]);
            longs(record, &[time_ns]);
            for pair in own {
                words(record, &[pair.one, pair.other]);
                longs(record, &[pair.affinity]);
            }
        })
    };
    (0..pieces).map(piece).collect()
}

/// Kind 3, 80 bytes: TLB misses, evictions, dropped evictions, entries handled in passes, notifications, memory reads,
/// memory writes, and `CR_shift`; 64 bits each.
pub fn counts(counts: &[u64; 8]) -> Vec<u8> {
    record(3, |record| longs(record, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(record: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(record[at..at + 4].try_into().unwrap())
    }

    fn long(record: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(record[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn a_notification_is_laid_out_as_written_down() {
        let bytes = notification(&Notice {
            tgid: 1,
            tid: 2,
            from: 3,
            to: 4,
            address: 0x1000,
            page_bytes: 4096,
            time_ns: 5,
        });
        assert_eq!(&bytes[..4], b"NIPM");
        let fields: Vec<u32> = (4..32).step_by(4).map(|at| word(&bytes, at)).collect();
        assert_eq!(fields, [1, 1, 56, 1, 2, 3, 4]);
        let fields: Vec<u64> = (32..56).step_by(8).map(|at| long(&bytes, at)).collect();
        assert_eq!(fields, [0x1000, 4096, 5]);
        assert_eq!(bytes.len(), 56);
    }

    #[test]
    fn a_matrix_takes_as_many_records_as_it_needs() {
        let pair = |number| Pair {
            one: number,
            other: number + 1,
            affinity: u64::from(number),
        };
        for (pairs, lengths) in [
            (0, vec![40]),
            (1, vec![56]),
            (MOST_PAIRS, vec![LONGEST - 8]),
            (MOST_PAIRS + 1, vec![LONGEST - 8, 56]),
            (3 * MOST_PAIRS, vec![LONGEST - 8; 3]),
        ] {
            let all: Vec<Pair> = (0..pairs as u32).map(pair).collect();
            let records = sharing(7, 3, 9, &all);
            let mut told = Vec::new();
            for (number, record) in records.iter().enumerate() {
                assert_eq!(record.len(), lengths[number]);
                assert_eq!(word(record, 12) as usize, record.len());
                assert_eq!(
                    (word(record, 8), word(record, 16), word(record, 24)),
                    (2, 7, 3)
                );
                let first = u32::from(number == 0);
                let last = 2 * u32::from(number + 1 == lengths.len());
                assert_eq!(word(record, 20), first + last);
                assert_eq!(long(record, 32), 9);
                for pair in 0..word(record, 28) as usize {
                    let at = 40 + 16 * pair;
                    told.push(Pair {
                        one: word(record, at),
                        other: word(record, at + 4),
                        affinity: long(record, at + 8),
                    });
                }
            }
            assert_eq!(told, all);
        }
    }

    #[test]
    fn counts_come_in_their_order() {
        let bytes = counts(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            (word(&bytes, 8), word(&bytes, 12), bytes.len()),
            (3, 80, 80)
        );
        assert!((0..8).all(|at| long(&bytes, 16 + 8 * at) == at as u64 + 1));
    }
}
