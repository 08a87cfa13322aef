//! A line of JSON that shows when it was damaged.
//!
//! The last member of the object is `"sum"`: the CRC-32 (IEEE 802.3, reflected, polynomial
//! `0xEDB88320`) of all bytes before it, as eight lower-case hexadecimal digits. Any tool for JSON
//! lines still reads it. The ledger and the journal use it.

use serde::Serialize;

/// What the sum follows.
pub(crate) const SEAL: &[u8] = b",\"sum\":\"";

/// The seal, eight digits and `"}`.
const SEAL_BYTES: usize = SEAL.len() + 8 + 2;

/// A value as a sealed line, with its line feed.
///
/// # Panics
/// As [`seal_into`].
pub(crate) fn seal<T: Serialize>(value: &T) -> Vec<u8> {
    let mut line = Vec::new();
    seal_into(&mut line, value);
    line
}

/// Makes `line` a value as a sealed line, with its line feed. Its old content is replaced; reusing
/// its memory saves a new mapping for each line of a few 100 kB.
///
/// # Panics
/// When the value is not a JSON object with at least one member; callers seal their own structs.
pub(crate) fn seal_into<T: Serialize>(line: &mut Vec<u8>, value: &T) {
    line.clear();
    serde_json::to_writer(&mut *line, value)
        .expect("records have string keys and no failing parts");
    assert_eq!(line.pop(), Some(b'}'), "only objects are sealed");
    let sum = crc32fast::hash(line);
    line.extend_from_slice(format!(",\"sum\":\"{sum:08x}\"}}\n").as_bytes());
}

/// Whether a line (without its line feed) is whole.
pub(crate) fn is_whole(line: &[u8]) -> bool {
    let Some(at) = line.len().checked_sub(SEAL_BYTES) else {
        return false;
    };
    let (body, found) = line.split_at(at);
    found == format!(",\"sum\":\"{:08x}\"}}", crc32fast::hash(body)).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_sum_is_the_crc_that_everyone_computes() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_sealed_line_is_json_and_whole() {
        let line = seal(&json!({"a": 1}));
        let text = std::str::from_utf8(&line).unwrap().trim_end();
        assert!(is_whole(text.as_bytes()));
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["a"], 1);
    }

    /// Of a line as short as this one.
    #[test]
    fn any_two_flipped_bits_and_any_cut_of_a_line_are_seen() {
        let mut line = seal(&json!({"kind": "settled"}));
        line.pop();
        let whole = line.clone();
        for cut in 0..line.len() {
            assert!(!is_whole(&line[..cut]), "{cut}");
        }
        for first in 0..line.len() * 8 {
            line[first / 8] ^= 1 << (first % 8);
            assert!(!is_whole(&line), "{first}");
            for second in 0..first {
                line[second / 8] ^= 1 << (second % 8);
                assert!(!is_whole(&line), "{first} and {second}");
                line[second / 8] ^= 1 << (second % 8);
            }
            line[first / 8] ^= 1 << (first % 8);
        }
        assert_eq!(line, whole);
        assert!(is_whole(&line));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_seen(name in ".{0,40}", at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut line = seal(&json!({ "name": name }));
            line.pop();
            let at = at.index(line.len());
            line[at] ^= 1 << bit;
            prop_assert!(!is_whole(&line));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = is_whole(&bytes);
        }
    }
}
