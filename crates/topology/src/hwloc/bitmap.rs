//! hwloc's form of sets: `0x00000001,,0x000000ff`, words of 32 bits, highest first.
//!
//! An empty word is 0. A leading `0xf...f` means that all higher bits are set, without end.

use crate::set::{Id, IdSet, LARGEST_PARSED};

const WORD_BITS: u32 = 32;

/// A set as hwloc writes it.
pub(super) struct Bitmap<T> {
    pub finite: IdSet<T>,
    /// Whether every number above the finite ones is in the set, too.
    pub infinite: bool,
}

/// Parses a bitmap; the error says what is wrong with it.
pub(super) fn parse<T: Id>(text: &str) -> Result<Bitmap<T>, &'static str> {
    let text = text.trim();
    let (infinite, words) = match text.strip_prefix("0xf...f") {
        Some("") => (true, ""),
        Some(rest) => match rest.strip_prefix(',') {
            Some(words) => (true, words),
            None => return Err("0xf...f must be followed by a comma"),
        },
        None => (false, text),
    };
    let mut finite = IdSet::new();
    if words.len() as u64 > u64::from(LARGEST_PARSED) {
        return Err("it is too long");
    }
    for (word, place) in words.rsplit(',').zip(0_u32..) {
        let word = word.trim();
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let bits = match digits {
            "" if word.is_empty() => 0,
            _ if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                u32::from_str_radix(digits, 16).map_err(|_| "a word has more than 32 bits")?
            }
            _ => return Err("it is not a bitmap such as 0x00000001,0x0000000f"),
        };
        for bit in (0..WORD_BITS).filter(|bit| bits >> bit & 1 == 1) {
            finite.insert(T::from(place * WORD_BITS + bit));
        }
    }
    Ok(Bitmap { finite, infinite })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CpuId;
    use proptest::prelude::*;

    fn finite(text: &str) -> String {
        match parse::<CpuId>(text) {
            Ok(bitmap) => format!(
                "{}{}",
                bitmap.finite,
                if bitmap.infinite { "-" } else { "" }
            ),
            Err(why) => why.to_owned(),
        }
    }

    #[test]
    fn bitmaps_are_read_as_hwloc_writes_them() {
        assert_eq!(finite("0x0000000f"), "0-3");
        assert_eq!(finite("0x00000001,,0x00000008"), "3,64");
        assert_eq!(finite("0x3,0x80000000"), "31-33");
        assert_eq!(finite("0x0"), "");
        assert_eq!(finite(""), "");
        assert_eq!(finite("0xf...f"), "-");
        assert_eq!(finite("0xf...f,0x00000002"), "1-");
        assert_eq!(finite("0xf...f0"), "0xf...f must be followed by a comma");
        assert_eq!(finite("0x1ffffffff"), "a word has more than 32 bits");
        assert_eq!(
            finite("0-3"),
            "it is not a bitmap such as 0x00000001,0x0000000f"
        );
        assert_eq!(
            finite("0x-1"),
            "it is not a bitmap such as 0x00000001,0x0000000f"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9a-fx,.]{0,60}|.{0,30}") {
            let _ = parse::<CpuId>(&text);
        }
    }
}
