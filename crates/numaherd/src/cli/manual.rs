//! The command line of `numaherd manual`, which packages are built with.

use std::path::PathBuf;

use clap::Args;

/// Options of `manual`.
#[derive(Debug, Args)]
#[command(after_help = MANUAL_HELP)]
pub struct Manual {
    /// The folder to write to; it is created if missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// The date on the pages [default: none]
    #[arg(
        long,
        value_name = "YYYY-MM-DD",
        default_value = "",
        hide_default_value = true
    )]
    pub date: String,
}

const MANUAL_HELP: &str = "\
Writes man1/*.1, a page for each command, and bash/numaherd, zsh/_numaherd, fish/numaherd.fish. The same
program and date give the same bytes.";
