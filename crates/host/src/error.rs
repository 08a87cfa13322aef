//! Why a host is unavailable as a whole. A failure on a single thread, page or event is no such
//! error: it is a gap in a snapshot, an outcome, or a missing signal.

use std::path::PathBuf;

use std::io;

use numaherd_files::FileError;
use rustix::io::Errno;

use crate::files::Root;

/// Why the host cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A file that every Linux has cannot be read.
    #[error("cannot read {path}: {source}; {remedy}")]
    Read {
        /// The file, under its root.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A file does not say what it should.
    #[error("cannot understand {path}: {reason}; is it from another kernel?")]
    Format {
        /// The file, under its root.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A selected process does not exist.
    #[error("cannot watch process {pid}: there is no such process; it may have ended")]
    NoSuchProcess {
        /// The requested number.
        pid: u32,
    },
    /// A user is unknown.
    #[error("cannot watch user {name:?}: {path} does not name it; give the number instead")]
    NoSuchUser {
        /// The requested name.
        name: String,
        /// Where it was looked up.
        path: PathBuf,
    },
    /// The kernel gave no event descriptor.
    #[error("cannot make an event descriptor: {errno}; raise the limit of open files (ulimit -n)")]
    Wake {
        /// The kernel's error.
        errno: Errno,
    },
    /// A file of events is unreadable or wrong.
    #[error("{0}; the events that come with numaherd (data/events) are examples")]
    Events(#[from] FileError),
    /// The agent in a guest cannot reach its host.
    #[error("cannot reach the host through {path}: {reason}; {remedy}")]
    AgentPort {
        /// The port.
        path: PathBuf,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// Placements cannot be carried out by hints.
    #[error("cannot carry out placements by hints to a scheduler: {reason}; {remedy}")]
    Scx {
        /// What is missing or in the way.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// Pages cannot be moved by DAMON.
    #[error("cannot move pages by DAMON: {reason}")]
    Damon {
        /// What is missing or in the way, and what to do.
        reason: String,
    },
    /// The kernel gave no thread.
    #[error("cannot start a thread: {source}; raise the limit of processes (ulimit -u)")]
    Thread {
        /// The kernel's error.
        source: io::Error,
    },
}

impl HostError {
    /// The error for an unreadable file under a root.
    pub(crate) fn read(
        root: &Root,
        path: &str,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = root.path(path);
        move |source| Self::Read {
            path,
            source,
            remedy,
        }
    }
}
