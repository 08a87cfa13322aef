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

use numaherd_files::settings;
use numaherd_policy::groups::OwnOfAll;
pub use numaherd_world::{AffinityScope, Enforcement};

pub use limits::{GroupLimits, Limits, Steal, StealWhen, Worse};

/// A day in ms: the most that a time in ms may be. Beyond all use, so that what is computed from one stays within
/// its type.
const DAY_MS: f64 = 86_400_000.0;

/// How often threads are placed if neither the user nor the placement says, in ms (DINO §3.3.3: more often brought
/// no gain).
const USUAL_PLACEMENT_INTERVAL_MS: u64 = 1000;

/// A shorter share of a whole interval is not begun at a run's end: next to nothing is counted in it.
const LEAST_INTERVAL: f64 = 0.1;

settings! {
    /// How often the machine is observed, and for how long.
    pub struct Settings {
        /// How often to place threads. DINO's authors gained nothing by placing them more often than once a
        /// second (DINO 3.3.3).
        placement_interval_ms: Option<u64>, unit: "ms", range: 1.0..=DAY_MS, because: ", a day",
            left_out: "the interval of the policy's source (brm: 10), or else 1000", example: "1000";
        /// Length of the first interval, if it is shorter than the others, so that the first decision comes
        /// early.
        first_interval_ms: u64 = 500, unit: "ms", range: 1.0..=DAY_MS, because: ", a day", restart: true;
        /// How often to consider moving pages (DINO 4.2).
        paging_interval_ms: u64 = 10, unit: "ms", range: 1.0..=DAY_MS, because: ", a day";
        /// How often to record observations while nothing is decided; 0 records every interval. This matters
        /// if threads are placed more often: an hour of 10 ms intervals takes several gigabytes if each is
        /// recorded. A record sums the intervals since the previous one.
        record_interval_ms: u64 = 1000, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
        /// Stop after this many placement intervals.
        intervals: Option<u64>, unit: "intervals", left_out: "run until stopped", example: "3600";
        /// Stop after this time. The last interval is cut to it.
        length_ms: Option<u64>, unit: "ms", range: 1.0..=f64::MAX,
            because: " (to run without end, leave it out)", left_out: "run until stopped", example: "3600000";
        /// How placements are carried out: by affinity masks, or by hints to scx_layered, a scheduler of sched_ext,
        /// which numaherd starts. With hints, a thread prefers its memory domain, runs elsewhere when that has no
        /// idle CPU, and keeps its affinity.
        enforce: Enforcement, restart: true;
        /// Decide, check and record, but change nothing: shows what a policy would do. A reload can turn a dry
        /// run on at any time, and off again unless the run began with it.
        dry_run: bool = false;
        /// The seed of the policy's random numbers. The same seed on the same observations gives the same
        /// decisions.
        seed: u64 = 0, unit: "seed";
        /// What the governor permits.
        limits: Limits;
    }
}

impl Settings {
    /// The same with nothing left out: cadence and scope as the user set them, else as the placement has them, else
    /// the default. A run uses and records these.
    pub fn resolved(mut self, policies: &OwnOfAll) -> Self {
        let own = policies.interval.map(milliseconds);
        self.placement_interval_ms
            .get_or_insert(own.unwrap_or(USUAL_PLACEMENT_INTERVAL_MS));
        self.limits.resolve(policies);
        self
    }

    /// The placement cadence: the length of the next interval once `seen` have passed. The default if left out.
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

    /// The length of the next interval once `seen` have passed, when the run is `now_ns` old: cut if
    /// [`Settings::length_ms`] ends within it; `None` when the run is over.
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
}

/// Whole milliseconds of a time, at least one.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_files::setting;
    use numaherd_topology::CpuSet;

    #[test]
    fn the_defaults_are_sound() {
        setting::check(&Settings::default()).unwrap();
    }

    #[test]
    fn a_setting_that_cannot_be_is_named_with_what_can() {
        let told = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            setting::check(&settings).unwrap_err().to_string()
        };
        assert_eq!(
            told(&|s| s.placement_interval_ms = Some(0)),
            "placement_interval_ms: must be a whole number from 1 to 86400000, a day, not 0"
        );
        assert_eq!(
            told(&|s| s.limits.node_reserve = 1.5),
            "limits.node_reserve: must be a number from 0 to 1, not 1.5"
        );
        assert_eq!(
            told(&|s| s.limits.pages_mib_per_s = f64::NAN),
            "limits.pages_mib_per_s: must be a number from 0 to 1000000000, not NaN"
        );
        assert_eq!(
            told(&|s| s.limits.cpus = Some(CpuSet::new())),
            "limits.cpus: must name at least one; leave it out for all"
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
            setting::check(&settings).unwrap_err().key
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
