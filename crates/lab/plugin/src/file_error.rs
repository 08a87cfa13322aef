// SPDX-License-Identifier: GPL-2.0-or-later
//! Why a file that the plugin is given cannot be used.

use std::path::{Path, PathBuf};

use numaherd_hardware::HardwareError;

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {problem}", path.display())]
pub struct FileError {
    /// What the file is to the plugin.
    what: &'static str,
    path: PathBuf,
    /// What is wrong with it.
    pub problem: Box<Problem>,
}

impl FileError {
    /// Names the file to which a problem belongs.
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
    /// It is not the JSON expected.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its table `ipm` is not as expected.
    #[error("ipm: {0}")]
    Ipm(serde_json::Error),
    /// The machine makes no sense.
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
