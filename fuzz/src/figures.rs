//! Changes of texts that are mostly figures.

/// Changes a text: every other time one of its numbers, and
/// else whatever libFuzzer would change. Of files that are mostly figures, its own changes leave
/// hardly one in a hundred that can be read, and what is wrong with figures lies behind the reader.
pub fn figures_changed(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = u64::from(seed) ^ 0x9E37_79B9_7F4A_7C15;
    let mut drawn = |below: usize| {
        // Splitmix, whose only duty here is to be another number each time.
        random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (random ^ random >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ mixed >> 31) % below as u64) as usize
    };
    let numbers = numbers(&data[..size]);
    if numbers.is_empty() || drawn(2) == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let of = numbers[drawn(numbers.len())].clone();
    let other = numbers[drawn(numbers.len())].clone();
    let was = std::str::from_utf8(&data[of.clone()]).unwrap_or("0");
    let value: f64 = was.parse().unwrap_or(0.0);
    let new = match drawn(6) {
        0 => NUMBERS[drawn(NUMBERS.len())].to_owned(),
        1 => String::from_utf8_lossy(&data[other]).into_owned(),
        2 => (value * [0.5, 0.9, 1.1, 2.0, 10.0, 1e3][drawn(6)]).to_string(),
        3 => (value.trunc() + 1.0).to_string(),
        4 => (value.trunc() - 1.0).to_string(),
        _ => drawn(100).to_string(),
    };
    let changed = [&data[..of.start], new.as_bytes(), &data[of.end..size]].concat();
    let size = changed.len().min(max_size);
    data[..size].copy_from_slice(&changed[..size]);
    size
}

/// Numbers at which something changes.
const NUMBERS: [&str; 14] = [
    "0",
    "-0.0",
    "1",
    "-1",
    "0.5",
    "1e-300",
    "5e-324",
    "1e9",
    "1e18",
    "1.7976931348623157e308",
    "inf",
    "nan",
    "4294967295",
    "9223372036854775807",
];

/// Where the numbers of a text are that do not belong to a word.
fn numbers(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    let within = |at: usize| {
        let letter = text[at];
        letter.is_ascii_digit()
            || letter == b'.'
            || letter == b'e' && at > 0 && text[at - 1].is_ascii_digit()
    };
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let start = at;
        while at < text.len() && within(at) {
            at += 1;
        }
        let alone = start == 0
            || !(text[start - 1].is_ascii_alphanumeric() || b"_-\"".contains(&text[start - 1]));
        if at > start && alone && text[start].is_ascii_digit() {
            numbers.push(start..at);
        }
        at = at.max(start + 1);
    }
    numbers
}
