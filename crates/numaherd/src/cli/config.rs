//! Options of `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Run;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print the settings of a run with these options, and where each comes from
    Show(Box<ConfigShow>),
    /// Check a configuration file and report all mistakes
    Check(ConfigCheck),
    /// List all keys with their defaults, or describe one
    Keys(ConfigKeys),
    /// Print a configuration file with all keys and defaults, commented out
    Example,
}

/// Options of `config show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub struct ConfigShow {
    /// Print only settings that differ from the default
    #[arg(long)]
    pub changed: bool,

    /// The options of the run
    #[command(flatten)]
    pub run: Run,
}

const SHOW_HELP: &str = "\
The output is an equivalent configuration file. With --json, it lists all keys with their values and \
sources.";

/// Options of `config check`.
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The file [default: the one that a run would read]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Options of `config keys`.
#[derive(Debug, Args)]
pub struct ConfigKeys {
    /// A key, or a table of keys: herd.limits.scope, herd.limits
    #[arg(value_name = "KEY")]
    pub key: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
