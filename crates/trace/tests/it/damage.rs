//! A damaged trace is read up to the damage, and says where that is.

use numaherd_trace::{Error, FRAME_EVENTS, Trace};

use crate::{read, trace_of, triad, two_threads};

/// Small frames, so that every byte of them can be tried.
fn small() -> Vec<u8> {
    trace_of(&[triad(100), triad(90)], 30)
}

#[test]
fn a_file_without_its_end_is_read_up_to_where_it_was_cut() {
    let whole = trace_of(&two_threads(), FRAME_EVENTS);
    let all = Trace::from_bytes(whole.clone()).expect("a trace");
    let last = all.frames()[2];
    // The recorder was killed while it wrote its third frame.
    let cut = last.at + last.bytes / 2;
    let trace = Trace::from_bytes(whole[..cut as usize].to_vec()).expect("a trace");
    assert_eq!(trace.frames(), &all.frames()[..2]);
    let damage = trace.damage().expect("it is cut");
    assert!(
        damage
            .to_string()
            .contains("the file ends within this frame"),
        "{damage}"
    );
    assert_eq!(read(&trace)[0], two_threads()[0][..FRAME_EVENTS]);
    assert_eq!(read(&trace)[1], two_threads()[1]);
}

#[test]
fn wherever_it_is_cut_what_lies_before_is_read() {
    let whole = small();
    let all = Trace::from_bytes(whole.clone()).expect("a trace");
    let (frames, events) = (all.frames(), read(&all));
    for length in 0..whole.len() {
        let Ok(mut trace) = Trace::from_bytes(whole[..length].to_vec()) else {
            // The description is not whole.
            assert!(length < 200);
            continue;
        };
        let damage = trace
            .check()
            .expect("memory can be read")
            .expect("it is cut")
            .clone();
        assert!(damage.at <= length as u64);
        assert_eq!(trace.frames(), &frames[..trace.frames().len()]);
        for (read, whole) in read(&trace).iter().zip(&events) {
            assert_eq!(read[..], whole[..read.len()]);
        }
    }
}

#[test]
fn whatever_byte_is_changed_what_is_read_is_what_was_written() {
    let whole = small();
    let all = Trace::from_bytes(whole.clone()).expect("a trace");
    let events = read(&all);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let Ok(mut trace) = Trace::from_bytes(bytes) else {
            assert!(at < 200, "byte {at} of {} spoils all", whole.len());
            continue;
        };
        trace.check().expect("memory can be read");
        for (read, whole) in read(&trace).iter().zip(&events) {
            assert_eq!(read[..], whole[..read.len()]);
        }
        let is_all = read(&trace) == events;
        // Only the index, and what says where it is, can be lost without events.
        assert!(
            trace.damage().is_some() || is_all,
            "byte {at} was changed unnoticed"
        );
    }
}

#[test]
fn damage_within_a_frame_is_found_when_it_is_read() {
    let whole = small();
    let all = Trace::from_bytes(whole.clone()).expect("a trace");
    let second = all.frames()[1];
    let mut bytes = whole;
    bytes[(second.at + second.bytes / 2) as usize] ^= 1;
    let mut trace = Trace::from_bytes(bytes).expect("a trace");
    assert_eq!(trace.damage(), None);
    let mut reader = trace.all_threads().remove(1);
    let mut found = Vec::new();
    let error = reader.next_frame(&mut found).expect_err("it is damaged");
    let Error::Damaged(damage) = error else {
        panic!("{error}");
    };
    assert_eq!(damage.at, second.at);
    assert!(
        reader
            .next_frame(&mut found)
            .expect("nothing follows")
            .is_none()
    );
    assert_eq!(trace.check().expect("memory can be read"), Some(&damage));
    assert_eq!(trace.frames(), &all.frames()[..1]);
}

#[test]
fn what_is_no_trace_is_refused_with_what_to_do() {
    for (bytes, why) in [
        (&b""[..], "it is empty"),
        (b"NHTRACE", "it ends within its first bytes"),
        (
            b"==17== Lackey, an example Valgrind tool and then some more text",
            "does not start as one",
        ),
    ] {
        let error = Trace::from_bytes(bytes.to_vec())
            .expect_err("no trace")
            .to_string();
        assert!(error.contains(why), "{error}");
        assert!(error.contains("numaherd trace import"), "{error}");
    }
    let error = Trace::open("no/such/file".as_ref()).expect_err("no file");
    assert!(
        error.to_string().starts_with("cannot open no/such/file: "),
        "{error}"
    );
}

#[test]
fn a_later_version_is_refused() {
    let mut bytes = small();
    bytes[8] = 9;
    // The check sum of the first 32 bytes, as the format says: FNV-1a.
    let sum = bytes[..32]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    bytes[32..40].copy_from_slice(&sum.to_le_bytes());
    let error = Trace::from_bytes(bytes).expect_err("it is of the future");
    assert!(
        matches!(error, Error::Version { found: 9, known: 1 }),
        "{error}"
    );
}
