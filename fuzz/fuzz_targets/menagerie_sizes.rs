//! Sizes as people write them to the menagerie (`64MiB`, `1.5g`).
//!
//! Holds: no text makes the reader panic; what is read is more than 0 and fits an address space;
//! the plain number of bytes reads back the same, and what is printed reads back to within half of
//! the last digit that is printed.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../menagerie/src/size.rs"]
mod size;

fuzz_target!(|text: &str| {
    let Ok(bytes) = size::parse(text) else {
        return;
    };
    assert!(bytes > 0 && isize::try_from(bytes).is_ok());
    assert_eq!(size::parse(&bytes.to_string()), Ok(bytes));
    // Nearer to the end of the address space, what is printed may be rounded beyond it.
    if bytes < 1 << 62 {
        let printed = size::format(bytes).replace("bytes", "b");
        let again = size::parse(&printed).expect("what is printed can be read");
        // One decimal of a number of at least 1: no more than a twentieth.
        assert!(again.abs_diff(bytes) <= bytes / 20 + 1, "{printed}");
    }
});
