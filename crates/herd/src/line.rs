//! A line of JSON that shows when it was damaged.
//!
//! The last member of the object is `"sum"`: the CRC-32 (IEEE 802.3, reflected, polynomial
//! `0xEDB88320`) of all bytes before it, as eight lower-case hexadecimal digits. Any tool for JSON
//! lines still reads it. Used by the ledger and the journal.

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

/// Makes `line` a value as a sealed line, with its line feed. What was in it is gone; its memory is
/// used again, which for lines of a few 100 kB saves having it mapped anew each time.
///
/// # Panics
/// When the value is not a JSON object with at least one member; callers seal their own structs.
pub(crate) fn seal_into<T: Serialize>(line: &mut Vec<u8>, value: &T) {
    line.clear();
    serde_json::to_writer(&mut *line, value)
        .expect("records have string keys and no failing parts");
    assert_eq!(line.pop(), Some(b'}'), "only objects are sealed");
    let sum = crc32(line);
    line.extend_from_slice(format!(",\"sum\":\"{sum:08x}\"}}\n").as_bytes());
}

/// Whether a line (without its line feed) is whole.
pub(crate) fn is_whole(line: &[u8]) -> bool {
    let Some(at) = line.len().checked_sub(SEAL_BYTES) else {
        return false;
    };
    let (body, found) = line.split_at(at);
    found == format!(",\"sum\":\"{:08x}\"}}", crc32(body)).as_bytes()
}

/// How many bytes are taken in at once: a line of a large machine has a few 100 kB.
const STRIDE: usize = 8;

/// `TABLES[n][byte]` is what `byte` followed by `n` zero bytes comes to.
static TABLES: [[u32; 256]; STRIDE] = tables();

const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0u32; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ 0xEDB8_8320
            } else {
                sum >> 1
            };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

fn crc32(bytes: &[u8]) -> u32 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let sum = strides.iter().fold(!0, |sum, stride| {
        let mut stride = *stride;
        for (byte, of_sum) in stride.iter_mut().zip(u32::to_le_bytes(sum)) {
            *byte ^= of_sum;
        }
        let each = stride.iter().zip(TABLES.iter().rev());
        each.fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    !rest.iter().fold(sum, |sum, &byte| {
        (sum >> 8) ^ TABLES[0][((sum ^ u32::from(byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_sum_is_the_crc_that_everyone_computes() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_sealed_line_is_json_and_whole() {
        let line = seal(&json!({"a": 1}));
        let text = std::str::from_utf8(&line).unwrap().trim_end();
        assert!(is_whole(text.as_bytes()));
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["a"], 1);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_same_bit_by_bit(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let shift = |sum: u32| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1));
            let take = |sum: u32, &byte: &u8| (0..8).fold(sum ^ u32::from(byte), |sum, _| shift(sum));
            prop_assert_eq!(crc32(&bytes), !bytes.iter().fold(!0, take));
        }

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
