//! The command line of `numaherd serve` and `numaherd ctl`.

use std::path::PathBuf;

use clap::Args;

use super::Run;
use crate::serve::protocol::Request;

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub struct Serve {
    /// The options of `run`
    #[command(flatten)]
    pub run: Run,

    /// Address of metrics and web page: HOST:PORT, unix:PATH, or none; may be repeated
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9741")]
    pub listen: Vec<String>,

    /// Allow addresses that other machines can reach; requires --token-file
    #[arg(long, requires = "token_file")]
    pub allow_remote: bool,

    /// Require the token in this file (Authorization: Bearer …) on every address except UNIX sockets
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// The control socket [default: /run/numaherd/control.sock, or in the user's runtime directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Let this group use the control socket as well
    #[arg(long, value_name = "GROUP")]
    pub control_group: Option<String>,
}

const SERVE_HELP: &str = "\
Serves metrics for Prometheus at /metrics, a web page at /, and the state as JSON at /status, all \
read-only. To change something, use `numaherd ctl`. Addresses, socket, security: docs/serve.md.";

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

    /// What to do
    #[command(subcommand)]
    pub ask: Request,
}

const CTL_HELP: &str = "\
Controls a herd started by `numaherd serve`. Root, the user who started it, and the group given by \
--control-group may do so.";
