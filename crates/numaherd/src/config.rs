//! The configuration file of `numaherd run`, and what the command line changes of it.
//!
//! ```toml
//! policy = "dino"        # or a placement and a paging joined: "dino+whole-set"
//! events = "own.toml"    # events of a processor, before the built-in ones (data/events)
//!
//! [herd]                 # cadence: see `numaherd-herd`'s settings
//! placement_interval_ms = 1000   # left out: as often as the policy's source has it
//!
//! [herd.limits]          # what the governor lets through
//! pages_mib_per_s = 1024.0
//!
//! [policies]             # classes, windows: see docs/policies.md
//! ```
//!
//! Unknown keys are refused.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cli::{Run, Stray};
use crate::exit::{Exit, ended};

/// What a run is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The policy's name; [`DEFAULT_POLICY`] when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// A file of events that are tried before the built-in ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<PathBuf>,
    /// Cadence and what the governor lets through.
    pub herd: numaherd_herd::Settings,
    /// What the policies can be told.
    pub policies: numaherd_policy::Settings,
}

/// What `run` runs when nobody says otherwise.
pub const DEFAULT_POLICY: &str = "dino";

impl Config {
    /// The configuration file if one is named, with the command line's changes.
    ///
    /// # Errors
    /// The file cannot be read, or has a key or value that cannot be: the message names file, line
    /// and key.
    pub fn of(run: &Run) -> Result<Self> {
        let mut config = match &run.config {
            Some(path) => Self::read(path)?,
            None => Self::default(),
        };
        if let Some(policy) = &run.policy {
            config.policy = Some(policy.clone());
        }
        if run.events.is_some() {
            config.events.clone_from(&run.events);
        }
        let herd = &mut config.herd;
        let milliseconds =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if let Some(interval) = run.interval {
            herd.placement_interval_ms = Some(milliseconds(interval));
        }
        if let Some(interval) = run.paging_interval {
            herd.paging_interval_ms = milliseconds(interval);
        }
        if let Some(length) = run.length {
            herd.length_ms = Some(milliseconds(length));
        }
        herd.dry_run |= run.dry_run;
        if let Some(seed) = run.seed {
            herd.seed = seed;
        }
        if run.cpus.is_some() {
            herd.limits.cpus.clone_from(&run.cpus);
        }
        if run.nodes.is_some() {
            herd.limits.nodes.clone_from(&run.nodes);
        }
        if let Some(stray) = run.stray {
            herd.limits.stray = Some(match stray {
                Stray::Core => numaherd_herd::Stray::Core,
                Stray::Domain => numaherd_herd::Stray::Domain,
                Stray::Node => numaherd_herd::Stray::Node,
            });
        }
        herd.limits.take_over |= run.take_over;
        config
            .herd
            .check()
            .map_err(|error| ended(Exit::Usage, error))?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ended(
                Exit::Usage,
                format!("cannot read the configuration {shown}: {error}"),
            )
        })?;
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            ended(
                Exit::Usage,
                format!("the configuration {shown} is wrong: {error}"),
            )
        })?;
        // A file that it names is beside it.
        if let (Some(folder), Some(events)) = (path.parent(), &mut config.events) {
            *events = folder.join(&*events);
        }
        Ok(config)
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or(DEFAULT_POLICY)
    }
}
