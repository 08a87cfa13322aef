//! What can go wrong before a model runs.

use numaherd_contention::CurveError;
use numaherd_files::FileError;
use numaherd_files::setting::Wrong;

/// Why a model, or a part of one, cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The machine file lacks figures that the model needs, or describes no machine.
    #[error(
        "the machine {machine} cannot be modelled: {reason}; use another machine, or add the figure in a file of your own"
    )]
    Machine {
        /// The machine's name.
        machine: String,
        /// What is missing or wrong, with the keys of the machine file.
        reason: String,
    },
    /// A curve of lines against cache is invalid.
    #[error(transparent)]
    Curve(#[from] CurveError),
    /// A file of program profiles cannot be read, or is wrong at a line and key.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no program of that name.
    #[error("there is no program {name:?}; {hint}")]
    NoProgram {
        /// The name asked for.
        name: String,
        /// The nearest name, or all of them.
        hint: String,
    },
    /// The jobs cannot be run on the machine.
    #[error("the jobs cannot be run: {reason}")]
    Jobs {
        /// Which job, and why not.
        reason: String,
    },
    /// An option is invalid.
    #[error("the model cannot run: {0}")]
    Option(Wrong),
}
