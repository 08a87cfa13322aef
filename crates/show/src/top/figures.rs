//! Figures as short as a table's column needs them.

/// Bytes as `512M`, `1.5G`, `12G`, in binary units.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut number = bytes as f64;
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    short(number, UNITS[unit], unit == 0)
}

/// A number of things as `950`, `12.3k`, `1.25M`.
pub(super) fn count(number: f64) -> String {
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    if !number.is_finite() {
        return "?".to_owned();
    }
    let mut unit = 0;
    let mut number = number;
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    short(number, UNITS[unit], unit == 0)
}

fn short(number: f64, unit: &str, whole: bool) -> String {
    if whole || number >= 100.0 {
        format!("{number:.0}{unit}")
    } else {
        format!("{number:.1}{unit}")
    }
}

/// A share of 0 to 1 in whole percent.
pub(super) fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.0}%", share * 100.0)
    } else {
        "?".to_owned()
    }
}

/// Lines per 1000 instructions.
pub(super) fn rate(rate: f64) -> String {
    if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        count(rate)
    }
}

/// How long ago, in two or three letters and a unit.
pub(super) fn ago(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => "now".to_owned(),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [
            0,
            999,
            1 << 20,
            1 << 30,
            1_610_612_736,
            12 << 30,
            700 << 30,
            u64::MAX,
        ];
        let all = all.map(bytes);
        assert_eq!(
            all,
            [
                "0B", "999B", "1.0M", "1.0G", "1.5G", "12.0G", "700G", "16.0E"
            ]
        );
        assert_eq!(
            [0.0, 950.0, 12_300.0, 1.25e6, f64::NAN].map(count),
            ["0", "950", "12.3k", "1.2M", "?"]
        );
        assert_eq!([0.0, 0.456, 1.0].map(percent), ["0%", "46%", "100%"]);
        assert_eq!([3.04, 240.0, 12_000.0].map(rate), ["3.0", "240", "12.0k"]);
        assert_eq!(
            [0, 59, 119, 120, 7_300].map(|s| ago(s * 1_000_000_000)),
            ["now", "59s", "119s", "2m", "2h"]
        );
    }
}
