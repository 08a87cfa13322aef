//! Options of `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Run;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print what holds for a run of these options, and what sets it
    Show(Box<ConfigShow>),
    /// Say whether a configuration file is right, or everything that is wrong with it
    Check(ConfigCheck),
    /// List every key with its default, or tell about one
    Keys(ConfigKeys),
    /// Print a configuration file with every key and its default, behind a #
    Example,
}

/// Options of `config show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub struct ConfigShow {
    /// Only what is not the default
    #[arg(long)]
    pub changed: bool,

    /// The options of the run
    #[command(flatten)]
    pub run: Run,
}

const SHOW_HELP: &str = "\
What is printed is a configuration file that says the same. With --json: every key with its value and
what sets it.";

/// Options of `config check`.
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The file [default: that which a run would read]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Options of `config keys`.
#[derive(Debug, Args)]
pub struct ConfigKeys {
    /// A key, or a table of keys: herd.limits.stray, herd.limits
    #[arg(value_name = "KEY")]
    pub key: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
