//! `numaherd explain`: what was seen, decided and done, from a ledger.

use std::io::ErrorKind;

use anyhow::Result;
use numaherd_herd::HerdError;
use numaherd_herd::ledger::Ledger;
use numaherd_show::explain::{Choice, explain as explained, text};

use crate::cli::Explain;
use crate::exit::{Exit, ended};
use crate::print;

/// Prints what a ledger tells. Of a damaged one, what is whole, and where the damage is.
///
/// # Errors
/// The file cannot be read, is no ledger or that of a later program, or does not hold the process or
/// thread that was asked for; the message says which there are.
pub fn explain(options: &Explain) -> Result<()> {
    let ledger = Ledger::read(&options.ledger).map_err(unreadable)?;
    let chosen = Choice {
        pid: options.pid,
        tid: options.tid,
    };
    let explanation = explained(&ledger, chosen).map_err(|error| ended(Exit::Usage, error))?;
    print::shown(options.json, &explanation, || text(&explanation))
}

/// Why a ledger cannot be read at all, with its exit code.
pub fn unreadable(error: HerdError) -> anyhow::Error {
    let exit = match &error {
        HerdError::NotOurs { .. } | HerdError::Newer { .. } => Exit::Usage,
        HerdError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::IsADirectory => Exit::Usage,
            ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Failure,
        },
        _ => Exit::Failure,
    };
    ended(exit, error)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use numaherd_herd::ledger::Writer;

    use super::*;
    use crate::exit::Ended;

    fn refused(path: &Path) -> (Exit, String) {
        let options = Explain {
            ledger: path.to_owned(),
            pid: None,
            tid: None,
            json: false,
        };
        let error = explain(&options).unwrap_err();
        let ended = error
            .downcast_ref::<Ended>()
            .expect("it has an exit code of its own");
        (ended.exit, ended.message.clone())
    }

    #[test]
    fn what_is_no_ledger_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        let (exit, message) = refused(&path);
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains("check the path"), "{message}");
        std::fs::write(&path, "milk, bread\n").unwrap();
        let (exit, message) = refused(&path);
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains("not a ledger's header"), "{message}");
        assert_eq!(refused(directory.path()).0, Exit::Usage);
    }

    #[test]
    fn the_ledger_of_a_later_program_is_refused_by_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        std::fs::write(&path, "{\"numaherd-ledger\":9}\n").unwrap();
        let (exit, message) = refused(&path);
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains("format version 9"), "{message}");
    }

    #[test]
    fn who_is_not_in_it_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        drop(Writer::create(&path, "test", None, 1 << 20).unwrap());
        let options = Explain {
            ledger: path,
            pid: Some(7),
            tid: None,
            json: false,
        };
        let error = explain(&options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the ledger holds no process 7; it holds no processes at all"
        );
    }
}
