// SPDX-License-Identifier: GPL-2.0-or-later
//! Why a file that the plugin is given cannot be used.

use std::path::{Path, PathBuf};

use numaherd_hardware::HardwareError;

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {problem}", path.display())]
pub struct FileError {
    /// The file's role for the plugin.
    what: &'static str,
    path: PathBuf,
    /// What is wrong with it.
    pub problem: Box<Problem>,
}

impl FileError {
    /// Adds the file's role and path to a problem.
    pub fn of<E: Into<Problem>>(what: &'static str, path: &Path) -> impl Fn(E) -> Self {
        move |problem| Self {
            what,
            path: path.to_owned(),
            problem: Box::new(problem.into()),
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be opened, read, written or mapped.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is not JSON, or not of the expected form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its member `ipm` is not of the expected form.
    #[error("ipm: {0}")]
    Ipm(serde_json::Error),
    /// The machine is invalid.
    #[error(transparent)]
    Config(#[from] HardwareError),
    /// QEMU and the machine file disagree.
    #[error("it has {cores} cores, but QEMU has at most {vcpus} vCPUs; the numbers must be equal")]
    Cores {
        /// Its cores.
        cores: usize,
        /// QEMU's vCPUs.
        vcpus: usize,
    },
    /// The shared memory is too small.
    #[error("it has {bytes} bytes; {vcpus} vCPUs and {nodes} nodes need {needed}: make it larger")]
    Small {
        /// Its size.
        bytes: u64,
        /// vCPUs to serve.
        vcpus: u64,
        /// Nodes to serve.
        nodes: u64,
        /// Bytes that they take.
        needed: u64,
    },
    /// The trace's first bytes cannot be written.
    #[error(transparent)]
    Trace(#[from] numaherd_trace::Error),
}
