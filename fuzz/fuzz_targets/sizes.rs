//! Sizes as people write them (`64MiB`, `1.5g`).
//!
//! Holds: no text makes the reader panic; the plain number of bytes reads back the same, and what is
//! printed reads back to within its last digit.
//!
//! Reader: crates/quantity/src/bytes.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_quantity::{bytes, parse_bytes};

numaherd_fuzz::target!(|text: &str| {
    let Ok(size) = parse_bytes(text, 1) else {
        return;
    };
    assert_eq!(parse_bytes(&size.to_string(), 1), Ok(size));
    let printed = bytes(size).replace("bytes", "b").replace("byte", "b");
    let again = parse_bytes(&printed, 1).expect("what is printed can be read");
    // One decimal, cut off, of a number of at least 1.
    assert!(again <= size && size - again <= size / 10, "{printed}");
});
