//! `numaherd release`: restores the affinities that threads had before a run was killed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use numaherd_herd::journal::{self, Journal, Restored};
use numaherd_host::Threads;
use numaherd_quantity::counted;
use numaherd_topology::sysfs;
use numaherd_world::ThreadId;
use serde::Serialize;

use crate::cli::Release;
use crate::config::Effective;
use crate::exit::{Exit, coded, ended};
use crate::print::{self, Shown};

/// The default journal: below `XDG_RUNTIME_DIR`, or below `/run` for root and where that is not set.
pub fn usual_journal() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    let base = own.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    base.join("numaherd/journal")
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    restored: usize,
    heirs: u64,
    as_found: usize,
    gone: u64,
    left_alone: Vec<Left>,
    failed: Vec<Left>,
    problems: Vec<String>,
    messages: Vec<String>,
}

#[derive(Serialize)]
struct Left {
    tid: u32,
    name: String,
    why: String,
}

impl Left {
    fn text(&self, what: &str) -> String {
        format!("thread {} ({}) {what}: {}", self.tid, self.name, self.why)
    }
}

impl From<Restored> for Report {
    fn from(restored: Restored) -> Self {
        let left = |(thread, name, why): (ThreadId, String, String)| Left {
            tid: thread.tid,
            name,
            why,
        };
        let changed = restored.left_alone.into_iter();
        let why = |mask| format!("someone else has set its CPUs to {mask} since");
        Self {
            restored: restored.restored.len(),
            heirs: restored.heirs,
            as_found: restored.as_found.len(),
            gone: restored.gone,
            left_alone: changed
                .map(|(t, name, mask)| left((t, name, why(mask))))
                .collect(),
            failed: restored.failed.into_iter().map(left).collect(),
            problems: restored.problems,
            messages: restored.messages,
        }
    }
}

/// Restores what the journal says is owed, and takes back leftover hints and threads of DAMON.
///
/// # Errors
/// Another numaherd is at work, the journal cannot be read, or something could not be restored.
pub fn release(options: &Release) -> Result<()> {
    let path = options.journal.clone().unwrap_or_else(configured_journal);
    let mut report = Report::from(restore(&path)?);
    match take_back_hints() {
        Ok(0) => {}
        Ok(n) => report.messages.push(format!(
            "{} had a hint of an earlier run; took it back",
            counted(n, "thread")
        )),
        Err(error) => report.problems.push(error.to_string()),
    }
    match numaherd_host::take_down_kdamonds(Path::new("/")) {
        Ok(0) => {}
        Ok(n) => report.messages.push(format!(
            "took down {} of DAMON that an earlier run had left",
            counted(n, "thread")
        )),
        Err(error) => report.problems.push(error.to_string()),
    }
    print::shown(options.json, &report, || text(&report, &path))?;
    let why = match (report.failed.len(), report.problems.len()) {
        (0, 0) => return Ok(()),
        (0, _) => "every affinity that the journal tells of is restored, but see above".to_owned(),
        (n, _) => {
            let threads = counted(n, "thread");
            format!("the affinities of {threads} could not be restored; see above")
        }
    };
    Err(ended(Exit::Failure, why))
}

/// The journal's path: from the configuration, or the default. A wrong configuration is reported, and the default
/// journal is restored all the same.
fn configured_journal() -> PathBuf {
    let configured = Effective::of_file(None).unwrap_or_else(|error| {
        print::say(format!("{error:#}"));
        Effective::default()
    });
    configured.config.journal.unwrap_or_else(usual_journal)
}

/// Takes back hints that a killed run left to a scheduler that still runs.
fn take_back_hints() -> Result<u64> {
    let root = Path::new("/");
    numaherd_host::take_back(root, &sysfs::read(root)?).map_err(coded)
}

fn restore(path: &Path) -> Result<Restored> {
    let owner = format!("numaherd release, process {}", std::process::id());
    journal::restore(path, &boot_id()?, &owner, &mut Threads::new(Path::new("/"))).map_err(coded)
}

/// Restores what an earlier run left in this open journal; returns messages about that.
pub fn give_back(journal: &mut Journal) -> Vec<String> {
    let report = Report::from(journal.restore(&mut Threads::new(Path::new("/"))));
    let mut messages = report.messages;
    messages.extend(report.problems);
    if report.restored > 0 {
        let n = report.restored;
        messages.push(format!(
            "restored the affinities of {} that an earlier run had left placed{}",
            counted(n, "thread"),
            of_these(report.heirs)
        ));
    }
    let left = report.left_alone.iter().chain(&report.failed);
    messages.extend(left.map(|left| left.text("not restored")));
    messages
}

/// The identifier of this boot.
///
/// # Errors
/// The kernel's file for it cannot be read.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(id.trim().to_owned())
}

/// How many of the restored threads are heirs, if any are.
fn of_these(heirs: u64) -> String {
    match heirs {
        0 => String::new(),
        n => format!(" ({n} of them started by others that Numaherd had placed)"),
    }
}

fn text(report: &Report, path: &Path) -> Shown {
    let said = report.messages.iter().chain(&report.problems);
    let mut text: String = said.map(|message| format!("{message}\n")).collect();
    let Report {
        restored,
        heirs,
        as_found,
        gone,
        left_alone,
        failed,
        ..
    } = report;
    if restored + as_found + left_alone.len() + failed.len() == 0 && *gone == 0 {
        if !report.problems.is_empty() {
            return text;
        }
        return text + &format!("Nothing to restore: {} is empty.\n", path.display());
    }
    text += &format!(
        "{} restored{}, {as_found} unchanged, {gone} ended.\n",
        counted(*restored, "thread"),
        of_these(*heirs)
    );
    for left in left_alone {
        text += &(left.text("left alone") + "\n");
    }
    for left in failed {
        text += &(left.text("not restored") + "\n");
    }
    text
}
