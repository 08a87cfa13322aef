//! The command line of `numaherd serve` and `numaherd ctl`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Run;

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub struct Serve {
    /// Everything that `run` can be told
    #[command(flatten)]
    pub run: Run,

    /// Where metrics and the page are: HOST:PORT, unix:PATH, or none; again for more than one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9741")]
    pub listen: Vec<String>,

    /// Allow addresses that other machines reach; needs --token-file
    #[arg(long, requires = "token_file")]
    pub allow_remote: bool,

    /// Who asks must know what is in this file (Authorization: Bearer …), on every address but UNIX sockets
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// The control socket [default: /run/numaherd/control.sock, or in the user's runtime directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Let this group use the control socket, too
    #[arg(long, value_name = "GROUP")]
    pub control_group: Option<String>,
}

const SERVE_HELP: &str = "\
Metrics for Prometheus are at /metrics, a page for people at /, the state as JSON at /status. Nothing
that is asked there changes anything; `numaherd ctl` does. Addresses, socket, security: docs/serve.md.";

/// Options of `ctl`.
#[derive(Debug, Args)]
#[command(after_help = CTL_HELP)]
pub struct Ctl {
    /// The control socket [default: /run/numaherd/control.sock, or in the user's runtime directory]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// What to ask
    #[command(subcommand)]
    pub ask: Ask,
}

/// What can be asked of a herd that serves.
#[derive(Debug, Subcommand)]
pub enum Ask {
    /// Say what it does and how the machine is
    Status,
    /// Have it decide nothing until it is resumed; threads stay where they are
    Pause {
        /// Give threads the affinities back that they were found with, too
        #[arg(long)]
        give_back: bool,
    },
    /// Have it go on after a pause
    Resume,
    /// Have it go on by another policy
    Policy {
        /// The policy's name, see `numaherd policies`
        name: String,
    },
    /// Have it read its configuration again; a bad one changes nothing
    Reload,
    /// Show what happens as it happens, until interrupted
    Watch,
}

const CTL_HELP: &str = "\
The herd is one that was started by `numaherd serve`. Root may ask, the user who started it, and the
group of --control-group.";
