//! Sizes in bytes: `64MiB`, `64m`, `1.5g`, `4096` or `10MB` from people; `1.5 GiB` or `1.5G` for them.

use thiserror::Error;

use crate::count::{Count, noun};

/// Why a text is not a size in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotASize {
    /// There are no digits in front of the unit.
    #[error("no number: use for example 64MiB, 64m or 4096")]
    NoNumber,
    /// The digits and points in front of the unit are not a number.
    #[error("{0:?} is not a number")]
    NotANumber(String),
    /// No such unit.
    #[error("unknown unit {0:?}: use for example 64MiB, 64m or 4096")]
    UnknownUnit(String),
    /// The size does not fit 64 bits.
    #[error("larger than any address space")]
    TooLarge,
}

/// Bytes of a unit, in upper or lower case: `k` and `kib` are powers of 1024, `kb` powers of 1000.
pub fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base): (&str, u64) = match unit.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024),
        _ => match unit.strip_suffix('b') {
            Some("") => return Some(1),
            Some(prefix) => (prefix, 1000),
            None => (&unit[..], 1024),
        },
    };
    let power = match prefix {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return None,
    };
    base.checked_pow(power)
}

/// Reads a size, in bytes. A number without a unit counts units of `bare` bytes.
///
/// # Errors
/// The text is not a size, or the size does not fit 64 bits.
pub fn parse_bytes(text: &str, bare: u64) -> Result<u64, NotASize> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let each = match unit {
        "" => bare,
        unit => unit_bytes(unit).ok_or_else(|| NotASize::UnknownUnit(unit.to_owned()))?,
    };
    if number.is_empty() {
        return Err(NotASize::NoNumber);
    }
    let bytes = if number.contains('.') {
        let number: f64 = number
            .parse()
            .map_err(|_| NotASize::NotANumber(number.to_owned()))?;
        let bytes = number * each as f64;
        (bytes < u64::MAX as f64).then_some(bytes as u64)
    } else {
        let whole = number.parse::<u64>().ok();
        whole.and_then(|number| number.checked_mul(each))
    };
    bytes.ok_or(NotASize::TooLarge)
}

/// A size in the largest binary unit that it fills, truncated to a tenth: `700 bytes`, `32 KiB`, `1.5 GiB`.
pub fn bytes(size: impl Count) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let bytes = size.number();
    let Some(power) = bytes
        .checked_ilog2()
        .map(|bits| bits / 10)
        .filter(|power| *power > 0)
    else {
        return format!("{bytes} {}", noun(bytes, "byte"));
    };
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    let unit = UNITS[power as usize - 1];
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

/// A size as short as a table's column needs it, in binary units: `999B`, `1.5G`, `700G`.
pub fn short_bytes(bytes: u64) -> String {
    crate::count::scaled(bytes as f64, 1024.0, &["B", "K", "M", "G", "T", "P", "E"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("64MiB", 64 << 20),
            ("64m", 64 << 20),
            ("64M", 64 << 20),
            ("1.5g", 3 << 29),
            ("2 GiB", 2 << 30),
            ("10MB", 10_000_000),
            ("1b", 1),
        ] {
            assert_eq!(parse_bytes(text, 1), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("128", 1 << 20), Ok(128 << 20));
        for text in [
            "",
            "MiB",
            "12xb",
            "12ib",
            "-1",
            "1e9",
            "1..5m",
            ".",
            "99999999999t",
            "99999999999999999999",
            "18446744073709551615E",
            "1.5e30",
        ] {
            assert!(parse_bytes(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_for_people() {
        let sizes = [0_u64, 1, 1023, 1024, 1536, 1 << 30, (1 << 21) - 1, u64::MAX];
        assert_eq!(
            sizes.map(bytes),
            [
                "0 bytes",
                "1 byte",
                "1023 bytes",
                "1 KiB",
                "1.5 KiB",
                "1 GiB",
                "1.9 MiB",
                "15.9 EiB"
            ]
        );
        let sizes = [0, 999, 1 << 20, 3 << 29, 12 << 30, 700 << 30, u64::MAX];
        assert_eq!(
            sizes.map(short_bytes),
            ["0B", "999B", "1.0M", "1.5G", "12.0G", "700G", "16.0E"]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_whole_is_read_back(count in 2u64..1024, power in 0u32..5) {
            let size = count << (10 * power);
            prop_assert_eq!(parse_bytes(&bytes(size).replace("bytes", "b"), 1), Ok(size));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,24}", bare in any::<u64>()) {
            let _ = parse_bytes(&text, bare);
        }
    }
}
