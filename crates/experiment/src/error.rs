//! Why an experiment cannot be run.

use std::path::PathBuf;

use numaherd_files::FileError;
use numaherd_files::setting::Wrong;
use numaherd_herd::HerdError;
use numaherd_model::ModelError;
use numaherd_policy::PolicyError;
use numaherd_topology::ReadError;

/// Why an experiment cannot be set up or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A scenario or a settings file cannot be read, or is wrong at a line and key.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no scenario of that name.
    #[error("no scenario is called {name:?}: give one of {known}, or a .toml file")]
    NoScenario {
        /// The name asked for.
        name: String,
        /// The scenarios that come with the program.
        known: String,
    },
    /// A scenario cannot be run, but no single key and line is to blame.
    #[error("{file}: {why}")]
    Scenario {
        /// The scenario's file or name.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// A setting is wrong.
    #[error("{from}: {wrong}")]
    Setting {
        /// The file or the option that has it.
        from: String,
        /// The setting, and what is wrong with it.
        wrong: Wrong,
    },
    /// A policy is unknown, or cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A machine is unknown, or its file is wrong.
    #[error(transparent)]
    Machine(#[from] ReadError),
    /// The model cannot run a program or a machine.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A trace cannot be played on a machine.
    #[error(transparent)]
    Trace(#[from] numaherd_trace::Error),
    /// The oracle places by an analysis of the trace, but got none.
    #[error("the oracle needs an analysis of the trace")]
    NoAnalysis,
    /// The machine has no CPU to place threads on.
    #[error("{machine} has no CPU to place threads on")]
    NoCpu {
        /// The machine.
        machine: String,
    },
    /// The folder for ledgers cannot be created.
    #[error("cannot create {}: {why}", folder.display())]
    Ledgers {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        why: std::io::Error,
    },
    /// The loop cannot run, or its ledger cannot be written.
    #[error(transparent)]
    Herd(#[from] HerdError),
    /// The loop gave up before the end.
    #[error("{policy} broke off: {why}")]
    BrokeOff {
        /// The policy.
        policy: String,
        /// What went wrong.
        why: String,
    },
}
