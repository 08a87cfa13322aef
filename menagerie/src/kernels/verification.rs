//! Verifies a kernel's results against published ones, or against properties that must always hold.

use numaherd_quantity::counted;
use serde::Serialize;
use std::fmt::Write;

/// A result of a kernel, and what it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The number's name.
    pub name: String,
    /// The computed value.
    pub value: f64,
    /// The expected value, if there is one.
    pub expected: Option<f64>,
    /// Whether `expected` is published for the class, not known beforehand.
    pub published: bool,
    /// Whether it holds after any number of iterations, not only after those of the class.
    #[serde(skip)]
    holds_always: bool,
    /// Difference to `expected`, relative to it (absolute where it is 0).
    pub error: Option<f64>,
    /// Largest error allowed.
    pub tolerance: f64,
}

impl Check {
    /// A result compared with a published one, if there is one.
    pub fn published(
        name: impl Into<String>,
        value: f64,
        expected: Option<f64>,
        tolerance: f64,
    ) -> Check {
        Check {
            name: name.into(),
            value,
            expected,
            published: true,
            holds_always: false,
            error: expected.map(|expected| error(value, expected)),
            tolerance,
        }
    }

    /// A published result of a single iteration: it holds for longer and shorter runs, too.
    pub fn each_iteration(
        name: impl Into<String>,
        value: f64,
        expected: f64,
        tolerance: f64,
    ) -> Check {
        Check {
            holds_always: true,
            ..Check::published(name, value, Some(expected), tolerance)
        }
    }

    /// A number that must be `expected` after any number of iterations.
    pub fn always(name: impl Into<String>, value: f64, expected: f64, tolerance: f64) -> Check {
        Check {
            published: false,
            holds_always: true,
            ..Check::published(name, value, Some(expected), tolerance)
        }
    }

    /// Whether it has an expected value and misses it. NaN always misses.
    fn fails(&self) -> bool {
        self.error
            .is_some_and(|error| error.is_nan() || error > self.tolerance)
    }
}

/// Difference relative to `expected`, absolute where that is 0.
fn error(value: f64, expected: f64) -> f64 {
    let difference = (value - expected).abs();
    if expected == 0.0 {
        difference
    } else {
        difference / expected.abs()
    }
}

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every result that can be compared is right, and there is one.
    Verified,
    /// There is nothing to compare with.
    NotVerified,
    /// A result is wrong.
    Failed,
}

/// The verdict on a run, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// The verdict.
    pub verdict: Verdict,
    /// Why results were not compared, if so.
    pub reason: Option<String>,
    /// The results.
    pub checks: Vec<Check>,
}

impl Verification {
    /// Judges the `checks` of a run of `iterations`; the class prescribes `published` iterations.
    pub fn new(mut checks: Vec<Check>, iterations: u64, published: u64) -> Verification {
        let mut reason = None;
        if iterations == published {
            if checks.iter().any(|check| check.expected.is_none()) {
                reason = Some("no published value known here".to_owned());
            }
        } else if checks.iter().any(|check| !check.holds_always) {
            let known = checks.iter_mut().filter(|check| !check.holds_always);
            known.for_each(|check| (check.expected, check.error) = (None, None));
            let iterations = counted(published, "iteration");
            reason = Some(format!("the published value is for {iterations}"));
        }
        let verdict = if checks.iter().any(Check::fails) {
            Verdict::Failed
        } else if checks.iter().any(|check| check.expected.is_some()) {
            Verdict::Verified
        } else {
            Verdict::NotVerified
        };
        Verification {
            verdict,
            reason,
            checks,
        }
    }

    /// The verdict on a run that a signal has ended.
    pub fn ended_early() -> Verification {
        Verification {
            verdict: Verdict::NotVerified,
            reason: Some("a signal ended the run".to_owned()),
            checks: Vec::new(),
        }
    }

    /// Text for people: the verdict and the result with the largest error.
    pub fn text(&self) -> String {
        let mut text = match self.verdict {
            Verdict::Verified => "verified",
            Verdict::NotVerified => "not verified",
            Verdict::Failed => "FAILED",
        }
        .to_owned();
        if let Some(reason) = &self.reason {
            let _ = write!(text, ": {reason}");
        }
        let compared = self.checks.iter().filter(|check| check.error.is_some());
        let count = compared.clone().count();
        let badness = |check: &&Check| {
            let share = check.error.unwrap_or_default() / check.tolerance;
            if share.is_nan() { f64::INFINITY } else { share }
        };
        // The first of the worst.
        let worst = compared
            .rev()
            .max_by(|left, right| badness(left).total_cmp(&badness(right)));
        if let Some(check) = worst.or(self.checks.last()) {
            let joint = if self.reason.is_some() { ";" } else { ":" };
            let _ = write!(text, "{joint} {} {}", check.name, number(check.value));
            if let (Some(expected), Some(error)) = (check.expected, check.error) {
                let word = if check.published {
                    "published"
                } else {
                    "must be"
                };
                let _ = write!(text, ", {word} {}, error {error:.0e}", number(expected));
            }
            if count > 1 {
                let _ = write!(text, " (largest error of {count} results)");
            }
        }
        text
    }
}

/// Integers as such, other numbers with 13 digits, as many as are published.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else {
        format!("{value:.12e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(values: [f64; 2]) -> Vec<Check> {
        let expected = [1.25, -2.0];
        let check =
            |at: usize| Check::published(format!("r{at}"), values[at], Some(expected[at]), 1e-8);
        vec![check(0), check(1)]
    }

    #[test]
    fn what_is_near_is_verified_and_what_is_not_fails() {
        let good = Verification::new(checks([1.25, -2.000_000_01]), 6, 6);
        assert_eq!(good.verdict, Verdict::Verified);
        insta::assert_snapshot!(good.text(), @"verified: r1 -2.000000010000e0, published -2, error 5e-9 (largest error of 2 results)");
        let bad = Verification::new(checks([1.25, 2.0]), 6, 6);
        assert_eq!(bad.verdict, Verdict::Failed);
        insta::assert_snapshot!(bad.text(), @"FAILED: r1 2, published -2, error 2e0 (largest error of 2 results)");
        let undefined = Verification::new(checks([f64::NAN, -2.0]), 6, 6);
        assert_eq!(undefined.verdict, Verdict::Failed);
        insta::assert_snapshot!(undefined.text(), @"FAILED: r0 NaN, published 1.250000000000e0, error NaN (largest error of 2 results)");
    }

    #[test]
    fn published_values_hold_for_their_iterations_alone() {
        let other = Verification::new(checks([7.0, 7.0]), 5, 6);
        assert_eq!(other.verdict, Verdict::NotVerified);
        insta::assert_snapshot!(other.text(), @"not verified: the published value is for 6 iterations; r1 7");
        let always = Check::always("particles", 500.0, 500.0, 0.0);
        let both = [checks([7.0, 7.0]), vec![always]].concat();
        assert_eq!(Verification::new(both, 5, 6).verdict, Verdict::Verified);
    }

    #[test]
    fn what_nobody_has_published_is_not_verified() {
        let unknown = vec![Check::published("zeta", 5.5, None, 1e-8)];
        let unknown = Verification::new(unknown, 6, 6);
        assert_eq!(unknown.verdict, Verdict::NotVerified);
        insta::assert_snapshot!(unknown.text(), @"not verified: no published value known here; zeta 5.500000000000e0");
    }

    #[test]
    fn what_must_hold_always_may_be_nought() {
        let check = |value| vec![Check::always("keys out of order", value, 0.0, 0.0)];
        let sorted = Verification::new(check(0.0), 3, 10);
        assert_eq!(sorted.verdict, Verdict::Verified);
        insta::assert_snapshot!(sorted.text(), @"verified: keys out of order 0, must be 0, error 0e0");
        assert_eq!(
            Verification::new(check(1.0), 3, 10).verdict,
            Verdict::Failed
        );
    }
}
