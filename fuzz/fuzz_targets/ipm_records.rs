//! The records of the lab's IPM unit: bytes that a module of another version may write.
//!
//! Holds: no bytes make the reader panic; it comes to an end after at most a record per header; an error
//! is the last thing it tells, in a sentence; what was read can be written as the record that it came
//! from.
//!
//! Reader: crates/host/src/ipm_records.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::ipm_records;

use numaherd_host::ipm_records::{NoRecord, Notification, Record, SharingPart};

const HEADER_BYTES: usize = 16;

numaherd_fuzz::target!(|bytes: &[u8]| {
    let read: Vec<Result<Record, NoRecord>> = ipm_records::records(bytes).collect();
    assert!(read.len() <= bytes.len() / HEADER_BYTES + 1);
    assert!(read.iter().rev().skip(1).all(Result::is_ok));
    for record in read {
        let record = match record {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
            Ok(record) => record,
        };
        let written = match &record {
            Record::Notification(notification) => of_notification(notification),
            Record::Sharing(part) => of_sharing(part),
            Record::Other => continue,
        };
        let again: Vec<_> = ipm_records::records(&written).collect();
        assert_eq!(again, [Ok(record)]);
    }
});

/// A record of a kind: magic, version, kind, length, then the fields.
fn of(kind: u32, fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + fields.len()).expect("no longer than what was read");
    let mut record = b"NIPM".to_vec();
    for half in [1, kind, length] {
        record.extend_from_slice(&half.to_le_bytes());
    }
    record.extend_from_slice(fields);
    record
}

fn of_notification(of_page: &Notification) -> Vec<u8> {
    let mut fields = Vec::new();
    for half in [of_page.tgid, of_page.tid, of_page.from, of_page.to] {
        fields.extend_from_slice(&half.to_le_bytes());
    }
    for word in [of_page.address, of_page.page_bytes, of_page.time_ns] {
        fields.extend_from_slice(&word.to_le_bytes());
    }
    of(1, &fields)
}

fn of_sharing(part: &SharingPart) -> Vec<u8> {
    let flags = u32::from(part.is_first) | u32::from(part.is_last) << 1;
    let pairs = u32::try_from(part.pairs.len()).expect("no more than were read");
    let mut fields = Vec::new();
    // Threads and time are not kept.
    for half in [part.tgid, flags, 0, pairs, 0, 0] {
        fields.extend_from_slice(&half.to_le_bytes());
    }
    for &(one, other, amount) in &part.pairs {
        fields.extend_from_slice(&one.to_le_bytes());
        fields.extend_from_slice(&other.to_le_bytes());
        fields.extend_from_slice(&amount.to_le_bytes());
    }
    of(2, &fields)
}
