//! `numaherd report --fleet` and `--prometheus`: many machines at once.
//!
//! Ledgers are read as streams, as many at a time as there are CPUs, and reduced to a host's figures at once. A
//! ledger that cannot be read is named, and the others are read. A directory is searched for ledgers; other files in
//! it are counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use numaherd_herd::HerdError;
use numaherd_herd::ledger::{Header, earlier_part};
use numaherd_show::fleet::prometheus::{self, Query};
use numaherd_show::fleet::{Fleet, Gathering, HostRead, Reading, page, text};

use super::{read_all, runs, save, spare_ledgers};
use crate::cli::Report;
use crate::exit::ended;
use crate::http::{Address, Limits, encoded};
use crate::{ledger, print};

/// How deep directories are searched.
const DEEPEST: usize = 8;

/// The limits of one query to a Prometheus.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(30),
    bytes: 64 << 20,
};

/// The default time over which figures are averaged.
const USUAL: Duration = Duration::from_secs(3600);

/// Endings of a ledger's file name that are not part of its host's name.
const ENDINGS: [&str; 4] = [".zst", ".jsonl", ".json", ".ledger"];

/// A ledger and what its host is called.
struct Found {
    path: PathBuf,
    name: String,
    /// Whether it was found in a directory, where there may be other files.
    in_directory: bool,
}

/// Prints what hosts lose, or writes it as a page.
///
/// # Errors
/// No host could be read, the page cannot be written, or Prometheus does not answer. A damaged ledger is an error only
/// after all is shown.
pub fn report(options: &Report) -> Result<()> {
    let fleet = match &options.prometheus {
        Some(url) => of_prometheus(url, options.over.unwrap_or(USUAL))?,
        None => of_ledgers(options)?,
    };
    match &options.output {
        Some(output) => save(output, &page(&fleet))?,
        None => print::shown(options.json, &fleet, || text(&fleet))?,
    }
    let damaged = fleet
        .notes
        .iter()
        .filter(|note| note.what.contains("damage"));
    match damaged.count() {
        0 => Ok(()),
        damaged => Err(ended!(
            Damaged,
            "{damaged} of the ledgers are damaged: they are named above or on the page"
        )),
    }
}

fn of_ledgers(options: &Report) -> Result<Fleet> {
    let found = ledgers(&options.ledgers)?;
    if let Some(output) = &options.output {
        let paths: Vec<PathBuf> = found.iter().map(|found| found.path.clone()).collect();
        spare_ledgers(output, &paths)?;
    }
    let mut gathering = Gathering::default();
    let (mut hosts, mut others) = (0, 0_u64);
    for (found, read) in found.iter().zip(read_all(&found, read)) {
        match read {
            Ok(read) => {
                hosts += 1;
                gathering.host(read);
            }
            Err(HerdError::NotOurs { .. }) if found.in_directory => others += 1,
            Err(error) => gathering.note(&found.name, format!("not read: {error}")),
        }
    }
    if others > 0 {
        let files = numaherd_quantity::counted(others, "file");
        let what = format!("{files} in the directories without a ledger");
        gathering.note("other files", what);
    }
    let fleet = gathering.finish("their ledgers".to_owned());
    if hosts > 0 {
        return Ok(fleet);
    }
    let first = fleet.notes.first();
    let why = first.map(|note| format!(": {}: {}", note.name, note.what));
    let why = why.unwrap_or_default();
    Err(ended!(
        Usage,
        "none of the files is a ledger that can be read{why}"
    ))
}

fn read(found: &Found) -> Result<HostRead, HerdError> {
    let begin = |header: &Header| Reading::new(&found.name, header);
    let read = ledger::read(&found.path, begin, Reading::line)?;
    Ok(read.reading.finish(read.damage.as_ref()))
}

/// The ledgers among these paths and below their directories, in order; each run once.
fn ledgers(paths: &[PathBuf]) -> Result<Vec<Found>> {
    let mut files: Vec<(PathBuf, PathBuf)> = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => search(path, path, DEEPEST, &mut files)
                .with_context(|| format!("cannot search {} for ledgers", path.display()))?,
            false => files.push((path.clone(), PathBuf::new())),
        }
    }
    let all: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    let earlier: Vec<PathBuf> = all.iter().filter_map(|path| earlier_part(path)).collect();
    let runs: Vec<PathBuf> = runs(&all, &earlier);
    let mut files: BTreeMap<PathBuf, PathBuf> = files.into_iter().collect();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let found = runs.into_iter().filter_map(|path| {
        let root = files.remove(&path)?;
        let below = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        let name = host_name(&below);
        *names.entry(name.clone()).or_default() += 1;
        let in_directory = !root.as_os_str().is_empty();
        Some(Found {
            path,
            name,
            in_directory,
        })
    });
    let mut found: Vec<Found> = found.collect();
    // Equal names do not tell hosts apart.
    for found in &mut found {
        if names.get(&found.name).is_some_and(|&times| times > 1) {
            found.name = found.path.display().to_string();
        }
    }
    Ok(found)
}

/// The files below a directory, each with the directory that was named; links to directories are not followed.
fn search(
    root: &Path,
    directory: &Path,
    deeper: usize,
    files: &mut Vec<(PathBuf, PathBuf)>,
) -> std::io::Result<()> {
    let mut entries = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() && deeper > 0 {
            search(root, &entry.path(), deeper - 1, files)?;
        } else if entry.path().is_file() {
            files.push((entry.path(), root.to_owned()));
        }
    }
    Ok(())
}

/// What the host of a ledger is called: `n3` of `n3.jsonl.zst` and of `n3/ledger.zst`.
fn host_name(path: &Path) -> String {
    let mut name = path.to_string_lossy().into_owned();
    while let Some(shorter) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)) {
        if shorter.is_empty() || shorter.ends_with('/') {
            break;
        }
        name = shorter.to_owned();
    }
    match name.strip_suffix("/ledger") {
        Some(host) if !host.is_empty() => host.to_owned(),
        _ => name,
    }
}

/// The figures that a Prometheus has, averaged over a time.
fn of_prometheus(url: &str, over: Duration) -> Result<Fleet> {
    let address = Address::parse(url).context("--prometheus")?;
    let base = address.path.trim_end_matches('/');
    let mut answers = BTreeMap::new();
    for query in Query::ALL {
        let expression = query.expression(over.as_secs());
        let path = format!("{base}/api/v1/query?query={}", encoded(&expression));
        let answer = address.get(&path, LIMITS)?;
        let cannot = format!("cannot ask {url} for {expression}");
        let samples = match (answer.status.as_u16(), prometheus::answer(&answer.body)) {
            (200, Ok(samples)) => samples,
            // With one of these, Prometheus says in JSON what is wrong.
            (200 | 400 | 422 | 503, Err(why)) => bail!("{cannot}: {why}"),
            _ => bail!("{cannot}: it answered {}", answer.status),
        };
        ensure!(
            query != Query::Policy || !samples.is_empty(),
            "{url} has no metrics of a numaherd: add the job of contrib/prometheus/scrape.yml to it"
        );
        answers.insert(query, samples);
    }
    let drawn_from = format!("{url} over the last {}", span(over));
    Ok(prometheus::fleet(drawn_from, &answers))
}

/// `24 h`, `90 min`.
fn span(over: Duration) -> String {
    match over.as_secs() {
        s if s.is_multiple_of(3600) => format!("{} h", s / 3600),
        s if s.is_multiple_of(60) => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_called_as_its_file_or_its_directory() {
        for (path, name) in [
            ("n3.jsonl.zst", "n3"),
            ("n3/ledger.zst", "n3"),
            ("rack 1/n3/ledger.jsonl", "rack 1/n3"),
            ("ledger.zst", "ledger"),
            ("n3", "n3"),
            (".zst", ".zst"),
        ] {
            assert_eq!(host_name(Path::new(path)), name);
        }
    }
}
