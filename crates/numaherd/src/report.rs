//! `numaherd report`: a page of HTML drawn from ledgers; or many machines at once ([`fleet`]).

mod fleet;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result};
use numaherd_herd::ledger::{Header, earlier_part};
use numaherd_show::report::{Reading, Run, page};

use crate::cli::Report;
use crate::exit::{Exit, coded, ended};
use crate::{ledger, print};

/// Writes the page, whole or not at all. Ledgers are read line by line, several at once.
///
/// # Errors
/// A ledger cannot be read, is damaged, is not a ledger or comes from a later program; the page cannot be written, or
/// would overwrite a ledger that it is drawn from. As [`fleet::report`] for a fleet.
pub fn report(options: &Report) -> Result<()> {
    // The command line requires a page unless it asks for a fleet.
    let output = match &options.output {
        Some(output) if !options.fleet && options.prometheus.is_none() => output,
        _ => return fleet::report(options),
    };
    let earlier: Vec<PathBuf> = (options.ledgers.iter())
        .filter_map(|path| earlier_part(path))
        .collect();
    spare_ledgers(output, &options.ledgers)?;
    spare_ledgers(output, &earlier)?;
    let ledgers = runs(&options.ledgers, &earlier);
    let named: Vec<(&PathBuf, String)> = ledgers.iter().zip(names(&ledgers)).collect();
    let runs: Vec<Run> =
        read_all(&named, |(path, name)| read(path, name)).collect::<Result<_>>()?;
    save(output, &page(&runs))?;
    let damaged = ledgers.iter().zip(&runs);
    let damaged = damaged.filter_map(|(path, run)| Some((path.display(), run.damage()?)));
    let damaged: Vec<String> = damaged
        .map(|(path, damage)| format!("drawn up to the damage of {path}: {damage}"))
        .collect();
    if damaged.is_empty() {
        return Ok(());
    }
    Err(ended(Exit::Damaged, damaged.join("\nnumaherd: ")))
}

/// Writes a page, or prints it where the file is `-`.
fn save(output: &Path, page: &str) -> Result<()> {
    if output == Path::new("-") {
        return print::out(page);
    }
    write(output, page.as_bytes())
        .with_context(|| format!("cannot write the page {}", output.display()))
}

/// The names by which ledgers are shown: their files' names, or whole paths if names repeat.
fn names(ledgers: &[PathBuf]) -> Vec<String> {
    let mut names: Vec<&OsStr> = ledgers.iter().filter_map(|path| path.file_name()).collect();
    names.sort_unstable();
    names.dedup();
    let is_enough = names.len() == ledgers.len();
    let shown = |path: &PathBuf| match path.file_name() {
        Some(name) if is_enough => name.to_string_lossy().into_owned(),
        _ => path.display().to_string(),
    };
    ledgers.iter().map(shown).collect()
}

/// Reads each of these, as many at a time as there are CPUs; the results are in their order.
fn read_all<T: Sync, R: Send>(all: &[T], read: impl Fn(&T) -> R + Sync) -> impl Iterator<Item = R> {
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    all.chunks(at_once).flat_map(move |part| {
        let read = &read;
        thread::scope(|scope| {
            let start = |one| scope.spawn(move || read(one));
            let threads: Vec<_> = part.iter().map(start).collect();
            let end = |thread: ScopedJoinHandle<'_, R>| {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            threads.into_iter().map(end).collect::<Vec<R>>()
        })
    })
}

fn read(path: &Path, name: &str) -> Result<Run> {
    let begin = |header: &Header| Reading::new(name, header);
    let read = ledger::read(path, begin, Reading::line).map_err(coded)?;
    Ok(read.reading.finish(read.skipped, read.damage.as_ref()))
}

/// The ledgers without the `earlier` parts of others, which are read with those.
fn runs(ledgers: &[PathBuf], earlier: &[PathBuf]) -> Vec<PathBuf> {
    let file = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let earlier: Vec<PathBuf> = earlier.iter().map(file).collect();
    let is_run = |path: &&PathBuf| !earlier.contains(&file(path));
    ledgers.iter().filter(is_run).cloned().collect()
}

/// Refuses to write over a ledger that the page is drawn from.
fn spare_ledgers(output: &Path, ledgers: &[PathBuf]) -> Result<()> {
    let output = match output.canonicalize() {
        Ok(file) if output != Path::new("-") => file,
        _ => return Ok(()),
    };
    let same = ledgers
        .iter()
        .find(|ledger| ledger.canonicalize().is_ok_and(|ledger| ledger == output));
    match same {
        Some(ledger) => Err(ended!(
            Usage,
            "the page would be written over the ledger {}; choose another name for --output",
            ledger.display()
        )),
        None => Ok(()),
    }
}

/// Writes a file atomically: under another name, which is renamed once all is on disk. If `path` exists and is not a
/// regular file (a device, a pipe), writes into it instead.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    // A link stays a link; its target is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = path.with_file_name(unfinished);
    let written = write_new(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    /// A file with this text, and its folder.
    fn folder_with(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    /// Options that ask for a page here.
    fn to(output: &Path) -> Report {
        Report {
            ledgers: Vec::new(),
            output: Some(output.to_owned()),
            fleet: false,
            prometheus: None,
            over: None,
            json: false,
        }
    }

    fn entries(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_no_ledger_leaves_no_page() {
        let (folder, notes) = folder_with("notes", "milk, bread\n");
        let options = Report {
            ledgers: vec![notes],
            ..to(&folder.path().join("page.html"))
        };
        let error = report(&options).unwrap_err();
        assert_eq!(exit::of(&error), Some(Exit::Usage));
        assert!(
            error.to_string().contains("not a ledger's header"),
            "{error}"
        );
        assert_eq!(entries(folder.path()), ["notes"]);
    }

    #[test]
    fn ledgers_are_shown_by_what_tells_them_apart() {
        let paths = |these: &[&str]| these.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(names(&paths(&["runs/a", "runs/b"])), ["a", "b"]);
        assert_eq!(names(&paths(&["one/a", "two/a"])), ["one/a", "two/a"]);
    }

    #[test]
    fn a_page_takes_the_place_of_another_and_leaves_nothing_beside_it() {
        let (folder, path) = folder_with("page.html", "the one before");
        write(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(entries(folder.path()), ["page.html"]);
    }

    #[test]
    fn a_link_stays_one() {
        let (folder, path) = folder_with("page.html", "the one before");
        let link = folder.path().join("latest.html");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_page_that_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write(&folder.path().join("missing/page.html"), b"whole").is_err());
        assert!(write(folder.path(), b"whole").is_err());
        assert!(entries(folder.path()).is_empty());
    }

    #[test]
    fn a_ledger_is_not_written_over() {
        let (_folder, ledger) = folder_with("run.ledger", "{}");
        let options = Report {
            ledgers: vec![ledger.clone()],
            ..to(&ledger)
        };
        let error = report(&options).unwrap_err();
        assert!(
            error.to_string().contains("written over the ledger"),
            "{error}"
        );
        assert_eq!(fs::read(&ledger).unwrap(), b"{}");
    }
}
