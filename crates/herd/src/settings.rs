//! What a user can set: cadence, limits, dry run. One value, written to the ledger as it was used.
//!
//! A configuration file has it under `[herd]`:
//!
//! ```toml
//! [herd.limits]
//! moves_per_second = 16.0
//!
//! [herd.limits.worse]
//! undo = false
//! ```
//!
//! Times are in ms or s as their names say; memory in MiB (2^20 bytes).

mod limits;

use std::time::Duration;

use numaherd_policy::groups::OwnOfAll;
pub use numaherd_world::Stray;
use serde::{Deserialize, Serialize};

use crate::error::HerdError;
use limits::within;
pub use limits::{GroupLimits, Limits, Steal, StealWhen, Worse};

/// A day in ms: the most that a time in ms may be. Beyond all use, so that what is computed from one
/// keeps within its type.
const DAY_MS: u64 = 86_400_000;

/// How often threads are placed where neither the user nor the placement says, in ms (DINO §3.3.3: more
/// often brought no gain).
const USUAL_PLACEMENT_INTERVAL_MS: u64 = 1000;

/// An interval shorter than this share of a whole one is not begun at a run's end: next to nothing is
/// counted in it.
const LEAST_INTERVAL: f64 = 0.1;

/// Everything that can be set about a herd. What is left out is the placement's own affair or the usual,
/// see [`Settings::resolved`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often threads are placed, in ms. Left out: as often as the placement says itself
    /// ([`Place::interval`]), or else 1000 (DINO §3.3.3: more often brought no gain).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_interval_ms: Option<u64>,
    /// Length of the first interval in ms, where it is shorter than the others; 500. Ours: threads
    /// that suffer need not wait a whole interval for the first decision, and those that began a
    /// few hundredths of a second into it still show as busy.
    pub first_interval_ms: u64,
    /// How often pages are looked after, in ms. 10 (DINO §4.2).
    pub paging_interval_ms: u64,
    /// How often what was seen is recorded while nothing is decided, in ms; 1000. 0: every interval.
    /// Counts for cadences that are shorter: an hour of 10 ms intervals, recorded each, is some
    /// gigabytes. What lies between two records is in the later one, summed.
    pub record_interval_ms: u64,
    /// How many placement intervals to run; without end when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
    /// How long to run, in ms of the world's time; without end when left out. The last interval is
    /// cut to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_ms: Option<u64>,
    /// Plan, govern and record, but carry nothing out.
    pub dry_run: bool,
    /// Where the policy's random numbers start.
    pub seed: u64,
    /// What the governor lets through.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            placement_interval_ms: None,
            first_interval_ms: 500,
            paging_interval_ms: 10,
            record_interval_ms: 1000,
            intervals: None,
            length_ms: None,
            dry_run: false,
            seed: 0,
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// The same with nothing left out: cadence and stray as the user set them, or else as the
    /// placement has them, or else the usual. What a run uses and records.
    pub fn resolved(mut self, policies: &OwnOfAll) -> Self {
        let own = policies.interval.map(milliseconds);
        self.placement_interval_ms
            .get_or_insert(own.unwrap_or(USUAL_PLACEMENT_INTERVAL_MS));
        self.limits.resolve(policies);
        self
    }

    /// The placement cadence: the length of the interval after so many have been seen. The usual where
    /// it is left out.
    pub fn placement_interval(&self, seen: u64) -> Duration {
        let usual = self
            .placement_interval_ms
            .unwrap_or(USUAL_PLACEMENT_INTERVAL_MS);
        let length = if seen == 0 {
            usual.min(self.first_interval_ms)
        } else {
            usual
        };
        Duration::from_millis(length)
    }

    /// The length of the interval after so many have been seen, when the run is `now_ns` old: cut
    /// where [`Settings::length_ms`] ends within it; `None` when the run is over.
    pub fn next_interval(&self, seen: u64, now_ns: u64) -> Option<Duration> {
        let whole = self.placement_interval(seen);
        let Some(length) = self.length_ms.map(Duration::from_millis) else {
            return Some(whole);
        };
        let left = length.saturating_sub(Duration::from_nanos(now_ns));
        (seen == 0 || left > whole.mul_f64(LEAST_INTERVAL)).then(|| whole.min(left))
    }

    /// The paging cadence.
    pub fn paging_interval(&self) -> Duration {
        Duration::from_millis(self.paging_interval_ms)
    }

    /// Looks for settings that cannot be.
    ///
    /// # Errors
    /// [`HerdError::Setting`] names the first.
    pub fn check(&self) -> Result<(), HerdError> {
        let a_day = "it must be from 1 to 86400000, a day";
        if let Some(placement) = self.placement_interval_ms {
            within("placement_interval_ms", placement, 1..=DAY_MS, a_day)?;
        }
        let paging = self.paging_interval_ms;
        within("paging_interval_ms", paging, 1..=DAY_MS, a_day)?;
        if let Some(length) = self.length_ms {
            let why = "it must be 1 or more; to run without end, leave it out";
            within("length_ms", length, 1..=u64::MAX, why)?;
        }
        within(
            "first_interval_ms",
            self.first_interval_ms,
            1..=DAY_MS,
            a_day,
        )?;
        within(
            "record_interval_ms",
            self.record_interval_ms,
            0..=DAY_MS,
            "it must be at most 86400000, a day",
        )?;
        self.limits.check()
    }
}

/// Whole milliseconds of a time, at least one.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(DAY_MS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::CpuSet;

    #[test]
    fn the_defaults_are_sound() {
        Settings::default().check().unwrap();
    }

    #[test]
    fn a_setting_that_cannot_be_is_named_with_what_can() {
        let told = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(
            told(&|s| s.placement_interval_ms = Some(0)),
            "the setting placement_interval_ms is 0: it must be from 1 to 86400000, a day"
        );
        assert_eq!(
            told(&|s| s.limits.node_reserve = 1.5),
            "the setting limits.node_reserve is 1.5: it is a share, from 0 to 1"
        );
        assert_eq!(
            told(&|s| s.limits.pages_mib_per_s = f64::NAN),
            "the setting limits.pages_mib_per_s is NaN: it must be a number from 0 to 1000000000"
        );
        assert_eq!(
            told(&|s| s.limits.cpus = Some(CpuSet::new())),
            "the setting limits.cpus is empty: name at least one, or leave it out for all"
        );
    }

    #[test]
    fn a_configuration_file_can_turn_undoing_off() {
        let settings: Settings = toml::from_str("[limits.worse]\nundo = false").unwrap();
        let expected = Worse {
            undo: false,
            ..Worse::default()
        };
        assert_eq!(settings.limits.worse, expected);
        assert!(Settings::default().limits.worse.undo);
    }

    #[test]
    fn no_setting_is_so_large_that_what_follows_from_it_overflows() {
        let refused = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            match settings.check() {
                Err(HerdError::Setting { key, .. }) => key,
                other => panic!("{other:?}"),
            }
        };
        let worse = |intervals, settle| {
            move |settings: &mut Settings| {
                settings.limits.worse = Worse {
                    intervals,
                    settle,
                    ..Worse::default()
                };
            }
        };
        assert_eq!(refused(&worse(usize::MAX, 2)), "limits.worse.intervals");
        assert_eq!(refused(&worse(3, usize::MAX)), "limits.worse.settle");
        assert_eq!(
            refused(&|s| s.placement_interval_ms = Some(u64::MAX)),
            "placement_interval_ms"
        );
        assert_eq!(
            refused(&|s| s.paging_interval_ms = u64::MAX),
            "paging_interval_ms"
        );
        assert_eq!(
            refused(&|s| s.limits.pages_burst_ms = u64::MAX),
            "limits.pages_burst_ms"
        );
        assert_eq!(
            refused(&|s| s.limits.pages_mib_per_s = f64::MAX),
            "limits.pages_mib_per_s"
        );
    }
}
