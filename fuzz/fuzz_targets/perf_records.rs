//! The records of a perf ring: bytes that the kernel writes, and that a reader may find overrun.
//!
//! Holds: no bytes make the reader panic; it comes to an end after at most a record per eight
//! bytes; damage that is found in a header is the last thing it tells; a sample that was read can
//! be written as the record that it came from.
//!
//! Reader: crates/host/src/records.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::records;

use numaherd_host::records::{Layout, RawSample, Record};

numaherd_fuzz::target!(|input: (bool, bool, &[u8])| {
    let (weight_parts, physical, bytes) = input;
    let layout = Layout {
        weight_parts,
        physical,
    };
    let read: Vec<Record> = records::records(bytes, layout).collect();
    assert!(read.len() <= bytes.len() / 8 + 1);
    for record in read {
        if let Record::Sample(sample) = record {
            let source = sample.source;
            let _ = (
                source.is_store(),
                source.is_access(),
                source.memory_source(),
            );
            let mut again = records::records(&written(&sample, layout), layout)
                .collect::<Vec<_>>()
                .into_iter();
            assert_eq!((again.next(), again.next()), (Some(record), None));
        }
    }
});

/// A sample as the kernel writes it: the header (type, flags, size), then the fields.
fn written(sample: &RawSample, layout: Layout) -> Vec<u8> {
    let mut fields = Vec::new();
    for half in [sample.pid, sample.tid] {
        fields.extend_from_slice(&half.to_ne_bytes());
    }
    for word in [sample.time, sample.address] {
        fields.extend_from_slice(&word.to_ne_bytes());
    }
    for half in [sample.cpu, 0] {
        fields.extend_from_slice(&half.to_ne_bytes());
    }
    if layout.weight_parts {
        let weight = u32::try_from(sample.weight).expect("the part of a weight that is used");
        for half in [weight, 0] {
            fields.extend_from_slice(&half.to_ne_bytes());
        }
    } else {
        fields.extend_from_slice(&sample.weight.to_ne_bytes());
    }
    fields.extend_from_slice(&sample.source.0.to_ne_bytes());
    if layout.physical {
        fields.extend_from_slice(&sample.physical.to_ne_bytes());
    }
    let size = u16::try_from(fields.len() + 8).expect("a sample is short");
    let mut record = 9_u32.to_ne_bytes().to_vec();
    record.extend_from_slice(&0_u16.to_ne_bytes());
    record.extend_from_slice(&size.to_ne_bytes());
    record.extend_from_slice(&fields);
    record
}
