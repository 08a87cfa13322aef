//! Settings of `trace simulate`: what a configuration file says, on top of what suits a trace.
//!
//! ```toml
//! [herd]                  # cadence and limits; here policies act as they were published
//! placement_interval_ms = 200
//!
//! [policies]              # see docs/policies.md
//!
//! [trace]                 # how the trace is played: docs/trace.md
//! dilation = 64
//! ipm = { cr_aging = 5 }  # what is left out is as usual
//! ```

use anyhow::{Context, Result};
use numaherd_trace::world::Options;
use numaherd_trace::world::unit;
use serde::Deserialize;
use toml::Table;

use crate::cli::TraceSimulate;
use numaherd::config::merge;
use numaherd::exit::{Exit, ended};

/// Settings of the loop, the policies and the world.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the loop.
    pub herd: numaherd_herd::Settings,
    /// Of the policies.
    pub policies: numaherd_policy::Settings,
    /// Of the world.
    pub trace: Options,
}

/// A configuration file as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    herd: Table,
    policies: Table,
    trace: Table,
}

impl Settings {
    /// The configuration file if one is named, with the command line's changes.
    ///
    /// # Errors
    /// The file cannot be read, or has a key or value that cannot be.
    pub fn of(options: &TraceSimulate) -> Result<Self> {
        let mut settings = match &options.config {
            None => Self::read(File::default()).context("the settings that suit a trace")?,
            Some(path) => {
                let shown = path.display();
                let text = std::fs::read_to_string(path).map_err(|error| {
                    ended(
                        Exit::Usage,
                        format!("cannot read the configuration {shown}: {error}"),
                    )
                })?;
                toml::from_str(&text)
                    .map_err(anyhow::Error::from)
                    .and_then(Self::read)
                    .map_err(|error| {
                        ended(
                            Exit::Usage,
                            format!("the configuration {shown} is wrong: {error:#}"),
                        )
                    })?
            }
        };
        if let Some(loops) = options.loops {
            settings.trace.loops = loops;
        }
        Ok(settings)
    }

    fn read(file: File) -> Result<Self> {
        let mut herd = Table::try_from(super::trial::settings())?;
        merge(&mut herd, &file.herd);
        let herd: numaherd_herd::Settings = herd.try_into().context("[herd]")?;
        herd.check().context("[herd]")?;
        let policies: numaherd_policy::Settings = file.policies.try_into().context("[policies]")?;
        policies.check().context("[policies]")?;
        // The unit that suits the dilation, unless the file says otherwise of it.
        let dilation = file.trace.get("dilation").and_then(toml::Value::as_integer);
        let dilation = dilation.and_then(|dilation| u64::try_from(dilation).ok());
        let usual = Options::default();
        let dilation = dilation.unwrap_or(usual.dilation);
        let mut trace = Table::try_from(Options {
            dilation,
            ipm: Some(unit(dilation)),
            ..usual
        })?;
        merge(&mut trace, &file.trace);
        Ok(Self {
            herd,
            policies,
            trace: trace.try_into().context("[trace]")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        Settings::read(toml::from_str(text)?)
    }

    #[test]
    fn what_a_file_leaves_out_is_what_suits_a_trace() {
        let settings = read("").unwrap();
        assert_eq!(settings.trace, Options::default());
        assert_eq!(settings.herd, super::super::trial::settings());
        let settings = read("[trace]\nloops = 3\nipm = { cr_aging = 5 }").unwrap();
        let expected = Options {
            loops: 3,
            ipm: Some(numaherd_hardware::IpmConfig {
                cr_aging: 5,
                ..unit(64)
            }),
            ..Options::default()
        };
        assert_eq!(settings.trace, expected);
        let settings = read("[herd]\npaging_interval_ms = 20").unwrap();
        assert_eq!(settings.herd.paging_interval_ms, 20);
        assert!(!settings.herd.limits.worse.undo);
    }

    #[test]
    fn the_example_of_the_documentation_can_be_read() {
        let page = include_str!("../../../../../docs/trace.md");
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
