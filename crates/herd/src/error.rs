//! Errors before or around the loop: one type for the crate.
//!
//! A failure on one thread or page is no error but a refusal or an outcome, and ends up in the
//! ledger.

use std::io;
use std::path::{Path, PathBuf};

use numaherd_world::NewPages;

/// Why herding cannot start, or a journal or ledger cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HerdError {
    /// The policy needs a signal that this world cannot measure. See [`crate::needs`].
    #[error("{0}")]
    MissingSignals(crate::needs::MissingSignals),
    /// The policy wants new pages placed by a rule that this world cannot follow.
    #[error(
        "the policy {policy} places new pages by the rule {rule}, which {world} does not support: \
         {reason}; or choose a policy that leaves new pages where they are first touched, such as linux"
    )]
    NewPages {
        /// The policy.
        policy: String,
        /// Its rule.
        rule: NewPages,
        /// Which world.
        world: String,
        /// What it says: why not, and what to do.
        reason: String,
    },
    /// Another instance holds the journal.
    #[error(
        "cannot use the journal {path}: a herd is already running ({owner}); stop it first, or use a \
         different journal and different threads", path = path.display()
    )]
    JournalHeld {
        /// The journal.
        path: PathBuf,
        /// The process that holds it, as it named itself.
        owner: String,
    },
    /// Something else exists under the journal's or ledger's name.
    #[error("cannot use {path} as {what}: {why}", path = path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: &'static str,
        /// What was found, and what to do.
        why: String,
    },
    /// A journal or ledger of a later version of the format.
    #[error(
        "{path} is {what} with format version {version}, but this program reads versions up to {known}; \
         use the program that wrote it", path = path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// A journal or a ledger.
        what: &'static str,
        /// Its version.
        version: u64,
        /// The latest version this program reads.
        known: u64,
    },
    /// The ledger cannot be read further. All before the damage is intact.
    #[error(
        "{path} is damaged at line {line} (byte {byte}): {why}; everything before that is intact",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Where the line begins, in bytes from 0.
        byte: u64,
        /// What is wrong.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {doing} {path}: {source}{hint}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do, after a semicolon; may be empty.
        hint: &'static str,
    },
}

impl HerdError {
    /// An I/O error with what was tried, on what, and what to do about it.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                "; run as root or as its owner, or choose another path"
            }
            io::ErrorKind::StorageFull => "; make room there, or choose another path",
            io::ErrorKind::NotFound => "; check the path",
            io::ErrorKind::ReadOnlyFilesystem => "; choose a path that can be written",
            _ => "",
        };
        Self::Io {
            doing,
            path: path.to_owned(),
            source,
            hint,
        }
    }
}
