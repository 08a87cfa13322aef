//! Ledgers: the record of a run, possibly cut short, damaged, or written by another version.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them), and where to damage it.
//!
//! Holds: no bytes make the reader panic, sealed or not; every line that is read can be written and
//! reads back the same; what is read of a damaged ledger is a beginning of what was written, compressed or not.
//!
//! Reader: crates/herd/src/ledger/reader.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;

use numaherd_fuzz::sealed;
use numaherd_herd::ledger::{Ledger, Line, Reader};

numaherd_fuzz::target!(|input: (u16, u8, &[u8])| {
    let (at, change, text) = input;
    let _ = read(text.to_vec());
    let mut bytes = sealed(text);
    let Some(whole) = read(bytes.clone()) else {
        return;
    };
    for line in &whole.lines {
        let written = serde_json::to_string(line).expect("a line can be written");
        let again = Line::read(written.as_bytes()).expect("and read back");
        assert_eq!(&again, line);
    }

    let mut packed = zstd::encode_all(&bytes[..], 1).expect("memory is there");
    let in_packed = usize::from(at) % packed.len();
    packed[in_packed] ^= change;
    starts_alike(read(packed), &whole, false);

    let at = usize::from(at) % bytes.len();
    bytes[at] ^= change;
    starts_alike(read(bytes.clone()), &whole, change != 0);
    bytes[at] ^= change;
    bytes.truncate(at);
    starts_alike(read(bytes), &whole, false);
});

fn read(bytes: Vec<u8>) -> Option<Ledger> {
    match Reader::of_bytes(Path::new("fuzz.ledger"), bytes) {
        Ok(reader) => Some(Ledger::of(reader)),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn starts_alike(damaged: Option<Ledger>, whole: &Ledger, must_tell: bool) {
    if let Some(damaged) = damaged {
        assert!(whole.lines.starts_with(&damaged.lines));
        assert!(
            damaged.damage.is_some() || !must_tell,
            "a damage that is not told"
        );
    }
}
