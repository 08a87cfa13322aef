//! Lengths of time and points in time: `500ms`, `1.5s` or `10m` from people; `5 min 12 s`, `12.3 s`
//! or `2026-01-31 08:00:00 UTC` for them.

use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_seconds;
use thiserror::Error;

use crate::short;

/// Why a text is not a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotATime {
    /// No number in front of the unit.
    #[error("a time is written 500ms, 1s or 10m")]
    NoNumber,
    /// No unit, or an unknown one.
    #[error("a time needs a unit: 500ms, 1s, 10m or 1h")]
    NoUnit,
    /// Shorter than a millisecond, or longer than a [`Duration`] holds.
    #[error("a time must be 1ms or more")]
    OutOfRange,
}

/// The whole nanoseconds of a time, at most [`u64::MAX`].
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads `500ms`, `1s`, `2.5s`, `10m`, `1h`.
///
/// # Errors
/// Another form, or less than 1 ms.
pub fn parse_time(text: &str) -> Result<Duration, NotATime> {
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| NotATime::NoNumber)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(NotATime::NoUnit),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time >= Duration::from_millis(1) => Ok(time),
        _ => Err(NotATime::OutOfRange),
    }
}

/// A length of time in the unit that suits it: `1.5 µs`, `10 ms`, `12.3 s`, `5 min 12 s`, `2 h 5 min`.
pub fn time(ns: u64) -> String {
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

/// A length of time in whole units, as short as a column needs it: `now`, `59s`, `2m`, `2h`, `3d`.
pub fn ago(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => "now".to_owned(),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A point in time, in seconds since the world began: `12.3 s`, or `4.01 s` where a tenth is too coarse (the cadence
/// of paging is 10 ms).
pub fn moment(ns: u64) -> String {
    let hundredths = (ns / 5_000_000).div_ceil(2);
    let (seconds, rest) = (hundredths / 100, hundredths % 100);
    if rest % 10 == 0 {
        format!("{seconds}.{} s", rest / 10)
    } else {
        format!("{seconds}.{rest:02} s")
    }
}

/// A date and time of day, from milliseconds since 1970: `2026-01-31 08:00:00 UTC`. A date after the year 9999 is
/// shown as its last second.
pub fn date(unix_ms: u64) -> String {
    let known = Duration::from_millis(unix_ms).min(LAST_SECOND);
    let date = format_rfc3339_seconds(SystemTime::UNIX_EPOCH + known);
    date.to_string().replace('T', " ").replace('Z', " UTC")
}

/// The last second of the year 9999, since 1970.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["10", "s", "-1s", "0s", "1e400s", "1d", "NaNs"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_the_unit_that_suits() {
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(1_500), "1.5 µs");
        assert_eq!(time(10_000_000), "10 ms");
        assert_eq!(time(12_300_000_000), "12.3 s");
        assert_eq!(time(312_000_000_000), "5 min 12 s");
        assert_eq!(time(7_500_000_000_000), "2 h 5 min");
        assert_eq!(
            [0, 59, 119, 120, 7_300].map(|s| ago(s * 1_000_000_000)),
            ["now", "59s", "119s", "2m", "2h"]
        );
    }

    #[test]
    fn points_in_time_are_as_fine_as_the_paging() {
        assert_eq!(moment(0), "0.0 s");
        assert_eq!(moment(12_300_000_000), "12.3 s");
        assert_eq!(moment(4_010_000_000), "4.01 s");
        assert_eq!(moment(3_999_999_999), "4.0 s");
        assert_eq!(moment(4_004_999_999), "4.0 s");
        assert_eq!(moment(4_005_000_000), "4.01 s");
        assert_eq!(moment(u64::MAX), "18446744073.71 s");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_735_689_599_000), "2024-12-31 23:59:59 UTC");
        assert_eq!(date(4_107_542_400_000), "2100-03-01 00:00:00 UTC");
        assert_eq!(date(u64::MAX), "9999-12-31 23:59:59 UTC");
    }
}
