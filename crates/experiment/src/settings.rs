//! The settings of an experiment: defaults for its world, overridden by the scenario's, overridden by the command
//! line's.
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

use numaherd_files::setting::{self, Wrong};
use numaherd_files::{key_value, merge};
use numaherd_model::Options;
use numaherd_trace::world::{Options as TraceOptions, unit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::ExperimentError;
use crate::scenario::{Limits, Scenario, Tables, World};

/// Settings of the loop, the policies and the world.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Of the loop.
    pub herd: numaherd_herd::Settings,
    /// Of the policies.
    pub policies: numaherd_policy::Settings,
    /// Of the model; the seed is the first trial's.
    pub model: Options,
    /// Of the playback of a trace.
    pub trace: TraceOptions,
}

/// Settings of the loop that let a policy act as published: nothing is limited or undone.
pub fn as_published() -> numaherd_herd::Settings {
    let mut settings = numaherd_herd::Settings {
        // As long as the others; the loop shortens it if a policy places more often.
        first_interval_ms: 1000,
        ..numaherd_herd::Settings::default()
    };
    let limits = &mut settings.limits;
    limits.moves_per_interval = u32::MAX;
    limits.moves_per_second = 1e9;
    limits.vm_moves_per_second = 1e9;
    limits.bounce_limit = u32::MAX;
    limits.pages_mib_per_s = 1e9;
    limits.process_pages_mib_per_s = 1e9;
    limits.vm_pages_mib_per_s = 1e9;
    limits.node_reserve = 0.0;
    limits.worse.undo = false;
    settings
}

/// [`as_published`] for a trace, in the loop's time: places threads every 200 ms (IPM §4.4.4) and pages every 10 ms
/// (DINO §4.2).
fn as_published_on_trace() -> numaherd_herd::Settings {
    numaherd_herd::Settings {
        placement_interval_ms: Some(200),
        first_interval_ms: 200,
        paging_interval_ms: 10,
        ..as_published()
    }
}

/// Pages in a block that `by-use` moves on a trace: programs are recorded with inputs some 8 times smaller than their
/// intended ones (FACTS 2.2), so blocks are smaller by the same factor.
const BLOCK_PAGES_ON_TRACE: u32 = 64;

impl Settings {
    /// The settings under which a policy acts as published, with defaults for everything else.
    pub fn as_published(world: World) -> Self {
        let mut policies = numaherd_policy::Settings::default();
        if world == World::Trace {
            policies.by_use.block_pages = u64::from(BLOCK_PAGES_ON_TRACE);
        }
        Self {
            policies,
            herd: match world {
                World::Trace => as_published_on_trace(),
                World::Lab | World::Model => as_published(),
            },
            ..Self::default()
        }
    }

    /// The scenario's settings, with `overrides` (`herd.limits.bounce_limit=3`) applied.
    ///
    /// # Errors
    /// A key or value is wrong; the message names it and its source.
    pub fn of(
        scenario: &Scenario,
        overrides: &[String],
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let mut tables = scenario.settings.clone();
        if scenario.world == World::Trace {
            tables.set_unless_said("by_use", "block_pages", BLOCK_PAGES_ON_TRACE);
        }
        let base = match (scenario.world, scenario.governor) {
            (World::Trace, _) => as_published_on_trace(),
            (_, Limits::Usual) => numaherd_herd::Settings::default(),
            (_, Limits::AsPublished) => as_published(),
        };
        let read = |from: &str, tables: &Tables| {
            let refused = |wrong| ExperimentError::Setting {
                from: from.to_owned(),
                wrong,
            };
            Self::read(&base, tables, seed).map_err(refused)
        };
        // Checked first without overrides, so that an error in the file names the file.
        let of_file = read(&scenario.from, &tables)?;
        if overrides.is_empty() {
            return Ok(of_file);
        }
        for text in overrides {
            tables.set(&key_value(text, &["herd", "policies", "model"])?);
        }
        read("--set", &tables)
    }

    fn read(base: &numaherd_herd::Settings, tables: &Tables, seed: u64) -> Result<Self, Wrong> {
        let defined = |table: &'static str| move |wrong: Wrong| wrong.within(table);
        let herd = setting::of_tables(over("settings.herd", base, &tables.herd)?);
        let policies = setting::of_tables(tables.policies.clone());
        let model = setting::of_tables::<Options>(tables.model.clone());
        if tables.model.contains_key("seed") {
            return Err(wrong("model", "unknown field `seed`: give --seed"));
        }
        // The IPM unit that suits the dilation; the file's keys override it.
        let mut played = TraceOptions::default();
        let dilation = tables.trace.get("dilation").and_then(Value::as_integer);
        if let Some(Ok(dilation)) = dilation.map(u64::try_from) {
            (played.dilation, played.ipm) = (dilation, Some(unit(dilation)));
        }
        Ok(Self {
            herd: herd.map_err(defined("settings.herd"))?,
            policies: policies.map_err(defined("settings.policies"))?,
            model: Options {
                seed,
                ..model.map_err(defined("model"))?
            },
            trace: read("trace", over("trace", &played, &tables.trace)?)?,
        })
    }
}

impl Tables {
    /// Sets a policy's key if it is not set.
    fn set_unless_said(&mut self, table: &str, key: &str, value: impl Into<Value>) {
        let table = self
            .policies
            .entry(table)
            .or_insert_with(|| Table::new().into());
        if let Value::Table(table) = table {
            table.entry(key).or_insert_with(|| value.into());
        }
    }

    /// Overrides these settings.
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

fn wrong(key: &str, why: &str) -> Wrong {
    Wrong {
        key: key.to_owned(),
        why: why.trim().replace('\n', ", "),
    }
}

fn read<T: DeserializeOwned>(key: &str, table: Table) -> Result<T, Wrong> {
    let read = table.try_into();
    read.map_err(|error: toml::de::Error| wrong(key, error.message()))
}

/// `base`, overridden by a table.
fn over(key: &str, base: &impl Serialize, table: &Table) -> Result<Table, Wrong> {
    let mut all = Table::try_from(base).map_err(|error| wrong(key, &error.to_string()))?;
    merge(&mut all, table);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, ExperimentError> {
        let scenario = Scenario::parse(text, "x.toml", World::Trace)?;
        Settings::of(&scenario, &[], 0)
    }

    #[test]
    fn what_a_file_leaves_out_is_what_suits_a_trace() {
        let settings = read("").unwrap();
        assert_eq!(settings.trace, TraceOptions::default());
        assert_eq!(settings.herd, as_published_on_trace());
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
        // The form of configuration files, and that of scenarios.
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
