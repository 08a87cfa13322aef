//! The settings of an experiment: the scenario's on top of those that suit its world, and the command line's on
//! top of both.
//!
//! ```toml
//! [settings.herd]         # cadence and limits of the loop
//! placement_interval_ms = 200
//!
//! [settings.policies]     # see docs/policies.md
//!
//! [model]                 # the contention model: docs/simulate.md
//!
//! [trace]                 # how a trace is played: docs/trace.md
//! dilation = 64
//! ipm = { cr_aging = 5 }  # what is left out is as usual
//! ```

use numaherd_files::{key_value, merge};
use numaherd_model::Options;
use numaherd_trace::world::{Options as TraceOptions, unit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::scenario::{Limits, Scenario, Tables, World};
use crate::{ExperimentError, playback, trial};

/// Settings of the loop, the policies and the world.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the loop.
    pub herd: numaherd_herd::Settings,
    /// Of the policies.
    pub policies: numaherd_policy::Settings,
    /// Of the model; the seed is the first trial's.
    pub model: Options,
    /// Of how a trace is played.
    pub trace: TraceOptions,
}

/// What a scenario may say of the model.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    variation: f64,
    counter_noise: f64,
    page_move_ns: f64,
    samples_per_tick: u32,
    wakes_elsewhere_s: f64,
}

impl Default for ModelTable {
    fn default() -> Self {
        let usual = Options::default();
        Self {
            variation: usual.variation,
            counter_noise: usual.counter_noise,
            page_move_ns: usual.page_move_ns,
            samples_per_tick: usual.samples_per_tick,
            wakes_elsewhere_s: usual.wakes_elsewhere_s,
        }
    }
}

/// A key whose table cannot be, and why.
type Wrong = (&'static str, String);

impl Settings {
    /// The scenario's settings in a world, with `overrides` (`herd.limits.bounce_limit=3`) on top.
    ///
    /// # Errors
    /// A key or value that cannot be; the message names it and who said it.
    pub fn of(
        scenario: &Scenario,
        world: World,
        overrides: &[String],
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let mut tables = scenario.settings.clone();
        let base = match (world, scenario.governor) {
            (World::Trace, _) => playback::settings(),
            (_, Limits::Usual) => numaherd_herd::Settings::default(),
            (_, Limits::AsPublished) => trial::as_published(),
        };
        let refused = |from: &str, (key, why): Wrong| ExperimentError::Setting {
            from: from.to_owned(),
            why: format!("{key}: {why}"),
        };
        // First alone, so that an error names the file when it is the file's.
        let of_file = Self::read(&base, &tables, seed);
        let of_file = of_file.map_err(|wrong| refused(&scenario.from, wrong))?;
        if overrides.is_empty() {
            return Ok(of_file);
        }
        for text in overrides {
            tables.set(&key_value(text, &["herd", "policies", "model"])?);
        }
        Self::read(&base, &tables, seed).map_err(|wrong| refused("--set", wrong))
    }

    fn read(base: &numaherd_herd::Settings, tables: &Tables, seed: u64) -> Result<Self, Wrong> {
        let herd: numaherd_herd::Settings = over("settings.herd", base, &tables.herd)?;
        herd.check()
            .map_err(|error| ("settings.herd", error.to_string()))?;
        let policies: numaherd_policy::Settings = read("settings.policies", &tables.policies)?;
        policies
            .check()
            .map_err(|error| ("settings.policies", error.to_string()))?;
        let model: ModelTable = read("model", &tables.model)?;
        // The unit that suits the dilation, unless the file says otherwise of it.
        let usual = TraceOptions::default();
        let dilation = tables.trace.get("dilation").and_then(Value::as_integer);
        let dilation = dilation.and_then(|dilation| u64::try_from(dilation).ok());
        let dilation = dilation.unwrap_or(usual.dilation);
        let played = TraceOptions {
            dilation,
            ipm: Some(unit(dilation)),
            ..usual
        };
        Ok(Self {
            herd,
            policies,
            model: Options {
                seed,
                variation: model.variation,
                counter_noise: model.counter_noise,
                page_move_ns: model.page_move_ns,
                samples_per_tick: model.samples_per_tick,
                wakes_elsewhere_s: model.wakes_elsewhere_s,
            },
            trace: over("trace", &played, &tables.trace)?,
        })
    }
}

impl Tables {
    /// Puts settings on top of these.
    fn set(&mut self, setting: &Table) {
        let tables = [
            ("herd", &mut self.herd),
            ("policies", &mut self.policies),
            ("model", &mut self.model),
        ];
        for (name, table) in tables {
            if let Some(Value::Table(over)) = setting.get(name) {
                merge(table, over);
            }
        }
    }
}

fn read<T: DeserializeOwned>(key: &'static str, table: &Table) -> Result<T, Wrong> {
    let read = table.clone().try_into();
    read.map_err(|error: toml::de::Error| (key, error.message().trim().replace('\n', ", ")))
}

/// Settings that a table says, the others as in `base`.
fn over<T: Serialize + DeserializeOwned>(
    key: &'static str,
    base: &T,
    table: &Table,
) -> Result<T, Wrong> {
    let mut all = Table::try_from(base).map_err(|error| (key, error.to_string()))?;
    merge(&mut all, table);
    read(key, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, ExperimentError> {
        let scenario = Scenario::parse(text, "x.toml", World::Trace)?;
        Settings::of(&scenario, World::Trace, &[], 0)
    }

    #[test]
    fn what_a_file_leaves_out_is_what_suits_a_trace() {
        let settings = read("").unwrap();
        assert_eq!(settings.trace, TraceOptions::default());
        assert_eq!(settings.herd, playback::settings());
        let settings = read("[trace]\nloops = 3\nipm = { cr_aging = 5 }").unwrap();
        let expected = TraceOptions {
            loops: 3,
            ipm: Some(numaherd_hardware::IpmConfig {
                cr_aging: 5,
                ..unit(64)
            }),
            ..TraceOptions::default()
        };
        assert_eq!(settings.trace, expected);
        // As configuration files have it, and as scenarios have it.
        for key in ["herd", "settings.herd"] {
            let settings = read(&format!("[{key}]\npaging_interval_ms = 20")).unwrap();
            assert_eq!(settings.herd.paging_interval_ms, 20);
            assert!(!settings.herd.limits.worse.undo);
        }
        let settings = read("[policies.n_mass]\nthreshold = 40").unwrap();
        assert_eq!(settings.policies.n_mass.threshold, 40.0);
    }

    #[test]
    fn the_example_of_the_documentation_can_be_read() {
        let page = include_str!("../../../docs/trace.md");
        let start = page.find("```toml").unwrap() + "```toml".len();
        let example = &page[start..][..page[start..].find("```").unwrap()];
        let settings = read(example).unwrap();
        assert_eq!(settings.trace.loops, 10);
        assert_eq!(settings.trace.ipm.unwrap().cr_aging, 5);
    }

    #[test]
    fn the_unit_follows_the_dilation() {
        let settings = read("[trace]\ndilation = 1").unwrap();
        assert_eq!(settings.trace.ipm, Some(unit(1)));
        assert_eq!(settings.trace.ipm.unwrap().cr_shift, 13);
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in ["[trace]\nloop = 1", "[model]", "[trace.ipm]\naging = 1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
