//! The command line of `numaherd replay`.

use std::path::PathBuf;

use clap::Args;

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub struct Replay {
    /// The ledger of a run or a recording
    pub ledger: PathBuf,

    /// Policies to ask, or placements and pagings joined by a plus
    #[arg(long, required = true, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Vec<String>,

    /// Carry each policy's own placement on, instead of judging each interval as it was recorded
    #[arg(long)]
    pub carry_on: bool,

    /// Print every decision, the policies side by side
    #[arg(long)]
    pub decisions: bool,

    /// The machine's figures for the prediction: a preset or a machine file [default: the preset that
    /// the ledger names, if it does]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Change a setting of the loop or the policies
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Configuration file, whose settings of loop and policies are used [default: the recorded run's
    /// settings of the loop, the policies' own]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Seed of the policies' random numbers [default: the recorded run's]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const REPLAY_HELP: &str = "\
Keys: herd.limits.bounce_limit=3, policies.n_mass.threshold=40. Ends with 3 when the ledger holds
nothing that any of the policies could go by. What agreement and prediction mean: docs/replay.md.";
