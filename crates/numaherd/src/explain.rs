//! `numaherd explain`: what a run observed, decided and did, from its ledger; of a run that still goes on, from what
//! is there by now.

use std::path::{Path, PathBuf};

use anyhow::Result;
use numaherd_herd::ledger::Header;
use numaherd_quantity::nanoseconds;
use numaherd_show::explain::{Choice, Reading, short, text, whole};
use numaherd_show::job::{self, Pinned};

use crate::cli::Explain;
use crate::config::Effective;
use crate::exit::{Coded, Exit, OrExit, coded, ended};
use crate::ledger;
use crate::print::{self, called, quoted};

/// The ledger of a service whose configuration names none.
const USUAL_LEDGER: &str = "/var/lib/numaherd/ledger.zst";

/// Explains a ledger. Of a damaged one, it explains the intact part and says where the damage is.
///
/// # Errors
/// The file cannot be read, is damaged, is not a ledger, comes from a later program, or does not hold the process,
/// thread or decision that was asked for; the message says which there are.
pub fn explain(options: &Explain) -> Result<()> {
    let (path, is_named) = match &options.ledger {
        Some(path) => (path.clone(), true),
        None => (usual_ledger()?, false),
    };
    if let Some(name) = &options.job {
        return job(&path, name, options);
    }
    let chosen = choice(options);
    let is_chosen = chosen != Choice::default();
    let begin = |header: &Header| Reading::new(header, chosen);
    let read = ledger::read(&path, begin, Reading::line).map_err(|error| {
        let advice = if is_named {
            ""
        } else {
            "; `numaherd explain FILE` reads another, and `ledger = \"FILE\"` in the configuration or \
             `--ledger FILE` has a run write one"
        };
        let exit = error.exit();
        ended(exit, format!("{error}{advice}"))
    })?;
    let explanation = read.reading.finish(read.skipped, read.damage.as_ref());
    let explanation = explanation.or_exit(Exit::Usage)?;
    print::shown(options.json, &explanation, || {
        if options.all {
            whole(&explanation)
        } else if is_chosen {
            text(&explanation)
        } else {
            let command = format!("{} explain {}", called(), quoted(&path));
            short(&explanation, &command)
        }
    })?;
    read.damage.map_or(Ok(()), |damage| Err(coded(damage)))
}

/// Prints what the batch job of a ledger lost.
fn job(path: &Path, name: &str, options: &Explain) -> Result<()> {
    let begin = |header: &Header| job::Reading::new(name, header);
    let read = ledger::read(path, begin, job::Reading::line).map_err(coded)?;
    let job = read.reading.finish(read.skipped, read.damage.as_ref());
    let pinned = match options.pinned {
        true => Pinned::Reported,
        false => Pinned::Quiet,
    };
    print::shown(options.json, &job, || job.text(pinned))?;
    read.damage.map_or(Ok(()), |damage| Err(coded(damage)))
}

fn choice(options: &Explain) -> Choice {
    Choice {
        pid: options.pid,
        tid: options.tid,
        name: options.name.clone(),
        decision: options.decision,
        from_ns: options.from.map(nanoseconds),
        to_ns: options.to.map(nanoseconds),
        at_ns: options.at.map(nanoseconds),
    }
}

/// The ledger that the configuration names, or else that of a service by default.
fn usual_ledger() -> Result<PathBuf> {
    let configured = Effective::of_file(None)?.config.ledger;
    Ok(configured.unwrap_or_else(|| PathBuf::from(USUAL_LEDGER)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::time::Duration;

    use clap::Parser;
    use numaherd_herd::ledger::Writer;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::exit::Ended;

    fn options(words: &[&str]) -> Explain {
        let words = ["numaherd"].iter().chain(words);
        match Cli::try_parse_from(words).expect("it is well said").command {
            Command::Explain(options) => options,
            _ => panic!("it is explain"),
        }
    }

    fn refused(path: &Path) -> (Exit, String) {
        let options = options(&["explain", path.to_str().unwrap()]);
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
        let options = options(&["explain", path.to_str().unwrap(), "--pid", "7"]);
        let error = explain(&options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the ledger contains no process 7; it contains no processes"
        );
    }

    #[test]
    fn a_ledger_that_is_cut_off_is_damaged_once_nobody_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let writer = Writer::create(&path, "test", None, 1 << 20).unwrap();
        drop(writer);
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(b"{\"record\":0,\"at_ns\":0,\"kind\":\"not")
            .unwrap();
        let (exit, message) = refused(&path);
        assert_eq!(exit, Exit::Damaged);
        assert!(message.contains("line 2 (byte"), "{message}");
        assert!(message.contains("the line is cut off"), "{message}");
    }

    #[test]
    fn a_file_without_lines_is_refused_without_reading_it_all() {
        let (exit, message) = refused(Path::new("/dev/zero"));
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains("longer than 65536 bytes"), "{message}");
    }

    #[test]
    fn choices_are_read_as_they_are_shown() {
        let chosen = options(&["explain", "x", "--decision", "#412"]);
        assert_eq!(chosen.decision, Some(412));
        let chosen = options(&[
            "explain", "x", "--from", "0s", "--to", "2.5s", "--name", "mcf",
        ]);
        assert_eq!(chosen.from, Some(Duration::ZERO));
        assert_eq!(chosen.to, Some(Duration::from_millis(2500)));
        let wrong = ["numaherd", "explain", "x", "--at", "1s", "--to", "2s"];
        assert!(Cli::try_parse_from(wrong).is_err());
    }
}
