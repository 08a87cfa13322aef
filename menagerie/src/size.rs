//! Sizes in bytes as people write them: `64MiB`, `64m`, `1.5g`, `4096`, `10MB`.

/// Reads a size. Single letters and `KiB`… are powers of 1024, `KB`… powers of 1000; case does
/// not count.
pub fn parse(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (base, power) = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => (1024, 0),
        "k" | "kib" => (1024, 1),
        "m" | "mib" => (1024, 2),
        "g" | "gib" => (1024, 3),
        "t" | "tib" => (1024, 4),
        "kb" => (1000, 1),
        "mb" => (1000, 2),
        "gb" => (1000, 3),
        "tb" => (1000, 4),
        _ => {
            return Err(format!(
                "unknown unit {unit:?}: use for example 64MiB, 64m or 4096"
            ));
        }
    };
    let unit_bytes: u64 = u64::pow(base, power);
    let bytes = if number.contains('.') {
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{number:?} is not a number"))?;
        let bytes = number * unit_bytes as f64;
        (bytes < 2f64.powi(63)).then_some(bytes as u64)
    } else {
        let number: &str = if number.is_empty() {
            return Err("no number: use for example 64MiB, 64m or 4096".to_owned());
        } else {
            number
        };
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit_bytes))
    };
    match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err("larger than any address space".to_owned()),
    }
}

/// Writes a size with the largest binary unit that leaves it whole, or one decimal where none does.
pub fn format(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn common_spellings() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64MiB", 64 << 20),
            ("64m", 64 << 20),
            ("64M", 64 << 20),
            ("1.5g", 3 << 29),
            ("2 GiB", 2 << 30),
            ("10MB", 10_000_000),
            ("1b", 1),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "0",
            "0.0k",
            "MiB",
            "12xb",
            "-1",
            "1e9",
            "1..5m",
            ".",
            "99999999999t",
            "1.5e30",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_whole_is_read_back(count in 1usize..1024, power in 0u32..5) {
            let bytes = count << (10 * power);
            prop_assert_eq!(parse(&format(bytes).replace("bytes", "b")), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,24}") {
            let _ = parse(&text);
        }
    }
}
