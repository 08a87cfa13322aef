//! Parsers of procfs and sysfs text: safe functions from bytes to values, no I/O.
//!
//! Formats: Documentation/filesystems/proc.rst and the sources named in each file. Every parser
//! accepts any input: text that it cannot parse is an error or is left out, never a panic.

pub mod cgroup;
pub mod cpu_times;
pub mod cpuinfo;
pub mod maps;
pub mod meminfo;
pub mod numa_maps;
pub mod stat;
pub mod status;

/// Parses a decimal number; `None` for anything else, or if it does not fit.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Reads a hexadecimal number without prefix.
pub fn hexadecimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let plain = !text.starts_with(['+', '-']);
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty())
}

/// The lines of a text.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// What comes before and after the first such byte in a line; `None` if there is none.
pub fn split_once(line: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == at)?;
    Some((&line[..at], &line[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_back(number: u64) {
            prop_assert_eq!(decimal(number.to_string().as_bytes()), Some(number));
            prop_assert_eq!(hexadecimal(format!("{number:x}").as_bytes()), Some(number));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (decimal(&bytes), hexadecimal(&bytes));
            let _ = stat::parse(&bytes);
            let _ = status::parse(&bytes);
            let _ = cgroup::parse(&bytes);
            let _ = cgroup::mounts(&bytes);
            let _ = cpu_times::parse(&bytes);
            let _ = cpuinfo::parse(&bytes);
            let _ = maps::parse(&bytes);
            let _ = meminfo::parse(&bytes);
            let _ = meminfo::inactive_file(&bytes);
            let _ = numa_maps::parse(&bytes, 4096, None);
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b"-1"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(hexadecimal(b"+1"), None);
    }
}
