//! What came of a storm so far: kept in a file from which it goes on, and shown as a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use numaherd_quantity as quantity;
use serde::{Deserialize, Serialize};

use crate::kinds::Kind;
use crate::machine::Seen;

/// How many findings of a kind are shown.
const SHOWN: usize = 5;

/// A storm so far.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// All tries follow from it and their numbers, as far as time lets them.
    pub seed: u64,
    /// The commit that it tries.
    pub commit: String,
    /// When it began, in ms since 1970.
    pub begun_unix_ms: u64,
    /// By kind.
    pub lines: BTreeMap<String, Line>,
}

/// What came of the tries of one kind.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Line {
    /// How many there were.
    pub tries: u64,
    /// How many have begun; the next has this number.
    #[serde(skip)]
    pub begun: u64,
    /// Those that could not be made here.
    pub skipped: u64,
    /// The calls of the last program that was traced to its end.
    pub calls: u64,
    /// Sums, and the findings with the numbers of their tries.
    pub seen: Seen,
}

/// A finding without stack, and without where its programs lie.
fn brief(finding: &str) -> String {
    let said = finding.split("; stack backtrace").next();
    let word = |word: &str| match word
        .strip_prefix("\"/")
        .and_then(|path| path.rsplit_once('/'))
    {
        Some((_, name)) => format!("\"{name}"),
        None => word.to_owned(),
    };
    let words: Vec<String> = said.unwrap_or_default().split(' ').map(word).collect();
    words.join(" ")
}

impl Record {
    /// The one that a file holds, or a new one.
    ///
    /// # Errors
    /// The file cannot be read, or is of another commit or seed.
    pub fn open(path: Option<&Path>, seed: Option<u64>) -> Result<Self> {
        let commit = git(&["describe", "--always", "--dirty", "--exclude=*"]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let new = Self {
            seed: seed.unwrap_or(now.as_secs()),
            commit,
            begun_unix_ms: now.as_millis() as u64,
            lines: BTreeMap::new(),
        };
        let Some(path) = path else {
            return Ok(new);
        };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            text => {
                text.with_context(|| format!("cannot read the storm's state {}", path.display()))?
            }
        };
        let mut known: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is no state of a storm; name another", path.display()))?;
        if known.commit != new.commit || seed.is_some_and(|seed| seed != known.seed) {
            bail!(
                "{} is the state of a storm on commit {} with seed {}; remove it to begin anew, or name another",
                path.display(),
                known.commit,
                known.seed
            );
        }
        for line in known.lines.values_mut() {
            line.begun = line.tries;
        }
        Ok(known)
    }

    /// Keeps it in a file, in one step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("cannot write the storm's state {}", path.display()))
    }

    /// Adds what came of the try of this number of a kind.
    pub fn add(&mut self, kind: &Kind, number: u64, seen: Seen) {
        let line = self.lines.entry(kind.name.to_owned()).or_default();
        line.tries += 1;
        line.skipped += u64::from(seen.skipped.is_some());
        if seen.kills == 0 || line.calls == 0 {
            line.calls = line.calls.max(seen.calls);
        }
        let sum = &mut line.seen;
        sum.kills += seen.kills;
        sum.ends += seen.ends;
        sum.threads += seen.threads;
        sum.bound_by_kills += seen.bound_by_kills;
        sum.bound += seen.bound;
        sum.restored += seen.restored;
        sum.heirs += seen.heirs;
        sum.cpu_ms += seen.cpu_ms;
        sum.wall_ms += seen.wall_ms;
        sum.memory_kib = sum.memory_kib.max(seen.memory_kib);
        sum.gave_up += seen.gave_up;
        sum.skipped = seen.skipped.or(sum.skipped.take());
        let named = |finding| format!("try {number}: {finding}");
        sum.findings.extend(seen.findings.into_iter().map(named));
    }

    /// How many things were found that should not have been.
    pub fn findings(&self) -> usize {
        self.lines
            .values()
            .map(|line| line.seen.findings.len())
            .sum()
    }

    /// The table, in Markdown.
    pub fn table(&self, kinds: &[Kind]) -> String {
        let mut table = "| storm | before | tries | kills | clean ends | threads looked at | bound by kills | heirs \
                         restored | left bound | findings | processor | memory |\n\
                         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
        let mut sum = Line::default();
        for kind in kinds {
            let Some(line) = self.lines.get(kind.name) else {
                continue;
            };
            row(
                &mut table,
                &format!("**{}**: {}", kind.name, kind.what),
                kind.before,
                line,
            );
            sum.tries += line.tries;
            sum.skipped += line.skipped;
            let (all, seen) = (&mut sum.seen, &line.seen);
            all.kills += seen.kills;
            all.ends += seen.ends;
            all.threads += seen.threads;
            all.bound_by_kills += seen.bound_by_kills;
            all.bound += seen.bound;
            all.heirs += seen.heirs;
            all.memory_kib = all.memory_kib.max(seen.memory_kib);
            all.findings.extend_from_slice(&seen.findings);
        }
        row(&mut table, "all", "", &sum);
        table
    }

    /// What else is to be said of kinds, what was found and what was skipped, a line each.
    pub fn remarks(&self) -> String {
        let mut text = String::new();
        for (name, line) in &self.lines {
            if line.seen.gave_up > 0 {
                let _ = writeln!(
                    text,
                    "* {name}: {} stops and releases gave up after 10 s, because threads were started faster than they \
                     were given back; another release, once the tenants rested, gave the rest back",
                    quantity::count(line.seen.gave_up)
                );
            }
            if let Some(why) = &line.seen.skipped {
                let why = why.lines().next().unwrap_or_default();
                let _ = writeln!(text, "* {name}: {} skipped: {why}", line.skipped);
            }
            for finding in line.seen.findings.iter().take(SHOWN) {
                let _ = writeln!(text, "* {name}, {}", brief(finding));
            }
            if line.seen.findings.len() > SHOWN {
                let _ = writeln!(text, "* {name}: {} more", line.seen.findings.len() - SHOWN);
            }
        }
        text
    }

    /// The whole page.
    pub fn page(&self, kinds: &[Kind]) -> String {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        format!(
            "{}\nMeasured on {} with commit {}, seed {}, Linux {}, {cpus} CPUs.\n\n{}\n{}",
            include_str!("page.md"),
            quantity::date(self.begun_unix_ms),
            self.commit,
            self.seed,
            kernel.trim(),
            self.table(kinds),
            self.remarks()
        )
        .trim_end()
        .to_owned()
            + "\n"
    }
}

fn row(table: &mut String, name: &str, before: &str, line: &Line) {
    let Line {
        tries,
        skipped,
        seen,
        ..
    } = line;
    let tries = match skipped {
        0 => tries.to_string(),
        skipped => format!("{tries} ({skipped} skipped)"),
    };
    let processor = match seen.wall_ms {
        0 => "–".to_owned(),
        wall => quantity::percent(seen.cpu_ms as f64 / wall as f64),
    };
    let memory = match seen.memory_kib {
        0 => "–".to_owned(),
        kib => quantity::bytes(kib << 10),
    };
    let _ = writeln!(
        table,
        "| {name} | {before} | {tries} | {} | {} | {} | {} | {} | {} | {} | {processor} | {memory} |",
        quantity::count(seen.kills),
        quantity::count(seen.ends),
        quantity::count(seen.threads),
        quantity::count(seen.bound_by_kills),
        quantity::count(seen.heirs),
        quantity::count(seen.bound),
        seen.findings.len(),
    );
}

/// What git says; "unknown" outside of a repository.
fn git(arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
