//! How figures and paragraphs are written for people: grouped digits, units, plurals, wrapped lines.

use numaherd_topology::CpuSet;

/// Columns that text is wrapped at.
pub(crate) const WIDTH: usize = 100;

/// `1204` as `1,204`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 page`, `2 pages`: the number with its noun, whose plural takes an s or es.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{} {noun}es", count(number)),
        _ => format!("{} {noun}s", count(number)),
    }
}

/// A length of time in ns, in the unit that suits it.
pub(crate) fn time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", short(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", short(ns as f64 / 1e6)),
        1_000_000_000..120_000_000_000 => format!("{} s", short(ns as f64 / 1e9)),
        120_000_000_000..7_200_000_000_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A point in time, in seconds since the world began; to 10 ms, the paging's cadence, where that is
/// needed.
pub(crate) fn at(ns: u64) -> String {
    let hundredths = (ns / 5_000_000).div_ceil(2);
    let (seconds, rest) = (hundredths / 100, hundredths % 100);
    if rest % 10 == 0 {
        format!("{seconds}.{} s", rest / 10)
    } else {
        format!("{seconds}.{rest:02} s")
    }
}

/// A share of 0 to 1 as a percentage. What is not quite nothing or all is not shown as such.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent > 0.0 && percent < 0.1 => "under 0.1 %".to_owned(),
        _ if percent < 100.0 && percent > 99.9 => "over 99.9 %".to_owned(),
        _ => format!("{} %", short(percent)),
    }
}

/// One decimal where that says something: `4`, `4.5`, `45.1`, `451`.
pub(crate) fn short(number: f64) -> String {
    let text = if number.abs() < 100.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    };
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// Lines per 1000 instructions.
pub(crate) fn misses(rate: f64) -> String {
    format!("{rate:.1}")
}

/// A number of things per second, as `1.25 billion`, `310 million` or plainly.
pub(crate) fn many(number: f64) -> String {
    match number {
        _ if number >= 1e9 => format!("{:.2} billion", number / 1e9),
        _ if number >= 1e6 => format!("{:.0} million", number / 1e6),
        _ => format!("{number:.0}"),
    }
}

/// `a, b and c`.
pub(crate) fn listed<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [all @ .., last] => {
            let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", all.join(", "), last.as_ref())
        }
    }
}

/// `CPU 3`, `CPUs 0-3,8`.
pub(crate) fn cpus(set: &CpuSet) -> String {
    let s = if set.len() == 1 { "" } else { "s" };
    format!("CPU{s} {set}")
}

/// Bytes of a sentence of a ledger's that are kept.
pub(crate) const MOST_TEXT: usize = 400;

/// A text of a ledger's, cut where it is too long to be a sentence.
pub(crate) fn cut(text: &str) -> &str {
    if text.len() <= MOST_TEXT {
        return text;
    }
    let mut end = MOST_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The same text with a capital at its front.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The same text with a full stop, unless it ends in one.
pub(crate) fn stopped(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

/// `label` at `indent` columns, then `text` wrapped in a column of its own that begins at `column`;
/// a label that reaches into that column pushes only its own line. Ends with a line feed.
pub(crate) fn entry(indent: usize, label: &str, column: usize, text: &str) -> String {
    let mut lines = format!("{:indent$}{label}", "");
    let mut width = lines.chars().count();
    if width < column {
        lines.extend(std::iter::repeat_n(' ', column - width));
        width = column;
    } else if !label.is_empty() {
        lines.push(' ');
        width += 1;
    }
    let mut first = true;
    for word in words(text) {
        let letters = word.chars().count();
        if !first && width + 1 + letters > WIDTH {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', column));
            width = column;
        } else if !first {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(&word);
        width += letters;
        first = false;
    }
    lines.truncate(lines.trim_end().len());
    lines.push('\n');
    lines
}

/// The words of a text, a number and its unit being one.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 8] = ["%", "ns", "µs", "ms", "s", "min", "h", "MiB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches(|c: char| ",;.:)".contains(c));
        match words.last_mut() {
            Some(number)
                if UNITS.contains(&bare) && number.ends_with(|c: char| c.is_ascii_digit()) =>
            {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// A paragraph at `indent` columns. Ends with a line feed.
pub(crate) fn paragraph(indent: usize, text: &str) -> String {
    entry(indent, "", indent, text)
}

/// A date and time of day (UTC) from ms since 1970, proleptic Gregorian.
///
/// Days to date: in years that begin in March, leap days come last, and a month's first day follows
/// from (153 m + 2) / 5 (E. G. Richards, "Calendars", in the Explanatory Supplement to the
/// Astronomical Almanac, 2013, section 15.11).
pub(crate) fn date(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let days = seconds / 86_400;
    // Days since 1 March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_grouped_and_have_their_plural() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_204), "1,204");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "page"), "1 page");
        assert_eq!(counted(2_000, "page"), "2,000 pages");
        assert_eq!(counted(0, "process"), "0 processes");
    }

    #[test]
    fn times_have_the_unit_that_suits() {
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(1_500), "1.5 µs");
        assert_eq!(time(10_000_000), "10 ms");
        assert_eq!(time(12_300_000_000), "12.3 s");
        assert_eq!(time(312_000_000_000), "5 min 12 s");
        assert_eq!(time(7_500_000_000_000), "2 h 5 min");
    }

    #[test]
    fn points_in_time_are_as_fine_as_the_paging() {
        assert_eq!(at(0), "0.0 s");
        assert_eq!(at(12_300_000_000), "12.3 s");
        assert_eq!(at(4_010_000_000), "4.01 s");
        assert_eq!(at(3_999_999_999), "4.0 s");
        assert_eq!(at(4_004_999_999), "4.0 s");
        assert_eq!(at(4_005_000_000), "4.01 s");
        assert_eq!(at(u64::MAX), "18446744073.71 s");
    }

    #[test]
    fn nothing_and_all_are_only_said_of_nothing_and_all() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.000_1), "under 0.1 %");
        assert_eq!(percent(0.456), "45.6 %");
        assert_eq!(percent(0.999_9), "over 99.9 %");
        assert_eq!(percent(1.0), "100 %");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_735_689_599_000), "2024-12-31 23:59:59 UTC");
        assert_eq!(date(4_107_542_400_000), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn a_number_keeps_its_unit() {
        let text = paragraph(0, &format!("{} 12 %, or so", "x".repeat(WIDTH - 4)));
        assert_eq!(text.lines().nth(1), Some("12 %, or so"));
        assert_eq!(
            words("in 3 s (4 intervals) a s"),
            ["in", "3 s", "(4", "intervals)", "a", "s"]
        );
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_lines_keep_to_the_width(
            words in proptest::collection::vec("[a-z]{1,12}", 0..60), indent in 0usize..20,
        ) {
            let text = paragraph(indent, &words.join(" "));
            prop_assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
            let back: Vec<&str> = text.split_whitespace().collect();
            prop_assert_eq!(back, words);
        }
    }
}
