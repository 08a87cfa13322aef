//! Counts, nouns and shares for people: `1,204`, `2 pages`, `45.1 %`, `12.3k`, `a, b and c`.

use std::fmt::Display;

/// A whole number that counts things.
pub trait Count: Copy {
    /// The number.
    fn number(self) -> u64;
}

impl Count for u32 {
    fn number(self) -> u64 {
        self.into()
    }
}

impl Count for u64 {
    fn number(self) -> u64 {
        self
    }
}

impl Count for usize {
    fn number(self) -> u64 {
        self as u64
    }
}

/// A count with its digits in groups of three: `1,204`.
pub fn count(number: impl Count) -> String {
    let digits = number.number().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A noun in the singular for 1 thing, else in the plural with s or es: `node`, `nodes`, `processes`.
pub fn noun(number: impl Count, noun: &str) -> String {
    match number.number() {
        1 => noun.to_owned(),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// A count with its noun: `1 page`, `2,000 pages`, `0 processes`.
pub fn counted(number: impl Count, one: &str) -> String {
    format!("{} {}", count(number), noun(number, one))
}

/// A share of 0 to 1 as a percentage: `45.1 %`. A share just above 0 or just below 1 is not rounded to it:
/// `under 0.1 %`, `over 99.9 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent > 0.0 && percent < 0.1 => "under 0.1 %".to_owned(),
        _ if percent < 100.0 && percent > 99.9 => "over 99.9 %".to_owned(),
        _ => format!("{} %", short(percent)),
    }
}

/// A share of 0 to 1 in whole percent, as short as a column needs it: `46%`, `?` where it is unknown.
pub fn whole_percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.0}%", share * 100.0)
    } else {
        "?".to_owned()
    }
}

/// A number, to a tenth below 100: `4`, `4.5`, `45.1`, `451`.
pub fn short(number: f64) -> String {
    let text = if number.abs() < 100.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    };
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// A number of things, as short as a column needs it: `950`, `12.3k`, `1.2M`, `?` where it is unknown.
pub fn short_count(number: f64) -> String {
    if number.is_finite() {
        scaled(number, 1000.0, &["", "k", "M", "G", "T", "P"])
    } else {
        "?".to_owned()
    }
}

/// A number in the unit that leaves it below 1000, with a decimal if it is below 100 and has a unit.
pub(crate) fn scaled(mut number: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= 1000.0 && unit + 1 < units.len() {
        number /= base;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && number < 100.0);
    format!("{number:.decimals$}{}", units[unit])
}

/// `a, b and c`.
pub fn listed(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// The least round number that is not below this one: 1, 2, 2.5 or 5 times a power of ten.
pub fn round_up(figure: f64) -> f64 {
    if !figure.is_finite() || figure <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powi(figure.log10().floor() as i32);
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * power);
    let mut round = round.into_iter();
    round
        .find(|&round| round >= figure * (1.0 - 1e-9))
        .unwrap_or(figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_scale_reaches_what_is_drawn_and_not_much_beyond(figure in 1e-6..1e15f64) {
            let top = round_up(figure);
            prop_assert!(top >= figure * (1.0 - 1e-6) && top <= figure * 2.500_001);
        }
    }

    #[test]
    fn numbers_are_grouped_and_have_their_plural() {
        assert_eq!(
            [0_u64, 999, 1_204, 1_234_567].map(count),
            ["0", "999", "1,204", "1,234,567"]
        );
        assert_eq!(counted(1_u64, "page"), "1 page");
        assert_eq!(counted(2_000_usize, "page"), "2,000 pages");
        assert_eq!(counted(0_u32, "process"), "0 processes");
        assert_eq!(
            ["hop", "access"].map(|of| noun(2_u32, of)),
            ["hops", "accesses"]
        );
        assert_eq!(
            [0.0, 950.0, 12_300.0, 1.25e6, f64::NAN].map(short_count),
            ["0", "950", "12.3k", "1.2M", "?"]
        );
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(
            [0.0, 0.0004, 0.04, 0.456, 0.9999, 1.0].map(percent),
            [
                "0 %",
                "under 0.1 %",
                "4 %",
                "45.6 %",
                "over 99.9 %",
                "100 %"
            ]
        );
        assert_eq!(
            [0.0, 0.456, 1.0, f64::NAN].map(whole_percent),
            ["0%", "46%", "100%", "?"]
        );
    }

    #[test]
    fn names_are_listed() {
        assert_eq!(listed(&[] as &[&str]), "");
        assert_eq!(listed(["a"]), "a");
        assert_eq!(listed(["a", "b", "c"]), "a, b and c");
    }
}
