//! Sentences and wrapped paragraphs for people; figures within them are `numaherd_quantity`'s.

pub(crate) use numaherd_quantity::{
    count, counted, date, listed, moment as at, nanoseconds, percent, short, time,
};
use numaherd_topology::CpuSet;
use numaherd_world::Unmanaged;

/// Why a thread is left alone, and what would change that.
pub(crate) fn left_alone(reason: &Unmanaged) -> String {
    match reason {
        Unmanaged::UserAffinity { cpus: Some(_) } => {
            format!("{reason}; --take-over to steer it too")
        }
        _ => reason.to_string(),
    }
}

/// Columns that text is wrapped at: those of a terminal that nobody has resized.
pub(crate) const WIDTH: usize = 80;

/// Seconds in whole ns.
pub(crate) fn nanoseconds_of(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
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

/// A figure, or a dash if it is not known.
pub(crate) fn or_dash(shown: Option<String>) -> String {
    shown.unwrap_or_else(|| "–".to_owned())
}

/// `CPU 3`, `CPUs 0-3,8`.
pub(crate) fn cpus(set: &CpuSet) -> String {
    let s = if set.len() == 1 { "" } else { "s" };
    format!("CPU{s} {set}")
}

/// The most bytes that are kept of a sentence from a ledger.
pub(crate) const MOST_TEXT: usize = 400;

/// A text from a ledger, cut if it is longer than [`MOST_TEXT`].
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
pub fn entry(indent: usize, label: &str, column: usize, text: &str) -> String {
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

/// The words of a text; a number and its unit are one word.
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

/// A paragraph. Ends with a line feed.
pub fn paragraph(text: impl AsRef<str>) -> String {
    indented(0, text)
}

/// A paragraph at `indent` columns. Ends with a line feed.
pub(crate) fn indented(indent: usize, text: impl AsRef<str>) -> String {
    entry(indent, "", indent, text.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_keeps_its_unit() {
        let text = paragraph(format!("{} 12 %, or so", "x".repeat(WIDTH - 4)));
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
            let text = indented(indent, words.join(" "));
            prop_assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
            let back: Vec<&str> = text.split_whitespace().collect();
            prop_assert_eq!(back, words);
        }
    }
}
