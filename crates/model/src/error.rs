//! What can go wrong before a model runs.

use std::path::PathBuf;

/// Why a model, or a part of one, cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The machine file lacks figures that the model needs, or describes no machine.
    #[error(
        "the machine {machine} cannot be modelled: {reason}; take another machine, or mend this in \
         a file of your own"
    )]
    Machine {
        /// The machine's name.
        machine: String,
        /// What is missing or wrong, with the keys of the machine file.
        reason: String,
    },
    /// A curve of lines against cache that cannot be.
    #[error("no curve of lines against cache: {why}")]
    Curve {
        /// What is wrong with it.
        why: String,
    },
    /// A file of program profiles cannot be read.
    #[error("cannot read the program profiles in {path}: {why}", path = path.display())]
    ReadProfiles {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        why: String,
    },
    /// A file of program profiles is larger than any honest one.
    #[error(
        "{path} is larger than {limit} bytes, which no file of program profiles is; nothing was \
         read: split it, or check that it is the right file", path = path.display()
    )]
    ProfilesTooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// A file of program profiles is not valid TOML, lacks a key, or has one that cannot be.
    #[error("{path}:{line}: {key}: {why}", path = path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The program and the key, or the text of the line where there is no key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
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
    /// An option that cannot be.
    #[error("the model cannot run so: {reason}")]
    Option {
        /// Which option, its value and what it must be.
        reason: String,
    },
}
