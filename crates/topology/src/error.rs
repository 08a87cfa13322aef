//! Why a description of a machine cannot be read: one error for all readers.
//!
//! Each says what was read, what was found in it, why that is wrong and what to do. The text is
//! complete without a `source` chain, so it is the same in whatever way a program prints it.

use std::path::{Path, PathBuf};

use numaherd_files::{FileError, shortened};

use crate::topology::Invalid;

/// Why a description of a machine cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A file or directory cannot be opened or read.
    #[error("cannot read {path}: {why}; {hint}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        why: String,
        /// What to do.
        hint: &'static str,
    },
    /// A file that people write cannot be read, or is wrong at a line and key.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not have the contents that it must have.
    #[error("{path} holds {found:?}: {why}", path = path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What was found (shortened).
        found: String,
        /// What is wrong with it.
        why: String,
    },
    /// An XML file cannot be read as hwloc's.
    #[error("{path}:{line}: {why}", path = path.display())]
    Xml {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u32,
        /// What is wrong.
        why: String,
    },
    /// A synthetic string cannot be read.
    #[error("cannot read {text:?} as an hwloc synthetic string: at character {position}: {why}")]
    Synthetic {
        /// The whole string.
        text: String,
        /// Where it is wrong, in characters from 1.
        position: usize,
        /// What is wrong.
        why: String,
    },
    /// There is no preset of that name.
    #[error("there is no preset {name:?}; the presets are {presets}")]
    NoPreset {
        /// The name asked for.
        name: String,
        /// All names.
        presets: String,
    },
    /// The description is well-formed, but no such machine is possible.
    #[error("{path}: {why}", path = path.display())]
    Invalid {
        /// The file, directory or name.
        path: PathBuf,
        /// What is impossible.
        why: Invalid,
    },
    /// The user's words for a topology fit no reader.
    #[error("cannot identify {spec:?}: {tried}")]
    Unrecognised {
        /// The words.
        spec: String,
        /// What was tried, and why each did not fit.
        tried: String,
    },
}

impl ReadError {
    /// An [`Invalid`] with its source.
    pub fn invalid(path: impl Into<PathBuf>, why: Invalid) -> Self {
        Self::Invalid {
            path: path.into(),
            why,
        }
    }

    /// A file whose contents are wrong; what was found is shortened to one line.
    pub(crate) fn contents(path: &Path, found: &str, why: impl Into<String>) -> Self {
        Self::Contents {
            path: path.to_owned(),
            found: shortened(found),
            why: why.into(),
        }
    }
}
