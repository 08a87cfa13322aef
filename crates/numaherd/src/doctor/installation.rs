//! How the program is installed: its configuration, its service, what a killed run left behind.
//!
//! It only reads files, under a root, and neither changes nor locks anything: `doctor` must not be in the way of a
//! herd that starts.

use std::fs;
use std::path::{Path, PathBuf};

use itertools::Itertools as _;
use numaherd_herd::journal::owed;
use numaherd_host::{Finding, Verdict};
use numaherd_quantity::counted;
use numaherd_world::Signal;

use crate::config::{Effective, USUAL_FILE};
use crate::release::usual_journal;
use crate::run::machine_lock::{HERDS_LOCK, holders, shown};

/// All findings. `lacks` gives the signals that a policy needs but that are not measured here; `instead` is a policy
/// that runs.
pub fn look(
    root: &Path,
    lacks: impl Fn(&str) -> Vec<Signal>,
    instead: Option<&str>,
) -> Vec<Finding> {
    let mut findings = vec![
        configuration(root, lacks, instead),
        service(root),
        journal(root),
    ];
    findings.extend(other_herds(root));
    findings
}

fn finding(subject: &str, verdict: Verdict, found: String, remedy: Option<&str>) -> Finding {
    Finding {
        subject: subject.to_owned(),
        verdict,
        found,
        remedy: remedy.map(str::to_owned),
    }
}

/// A path of the machine, under the root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn configuration(
    root: &Path,
    lacks: impl Fn(&str) -> Vec<Signal>,
    instead: Option<&str>,
) -> Finding {
    let path = below(root, Path::new(USUAL_FILE));
    let say = |verdict, found, remedy| finding("configuration", verdict, found, remedy);
    let (effective, told) = if path.exists() {
        match Effective::of_named(&path) {
            Ok(effective) => (effective, format!("{USUAL_FILE} is correct")),
            Err(error) => {
                let remedy = "fix the file; until then, no run starts with it, and a running one keeps its settings";
                return say(Verdict::Bad, error.to_string(), Some(remedy));
            }
        }
    } else {
        let told = format!("there is no {USUAL_FILE}, so the built-in settings apply");
        (Effective::default(), told)
    };
    let policy = effective.config.policy();
    let lacking = lacks(policy);
    if lacking.is_empty() {
        return say(Verdict::Good, format!("{told}; policy {policy}"), None);
    }
    let lacking = lacking.iter().format(", ");
    let found = format!("{told}, but its policy {policy} cannot run here: it lacks {lacking}");
    let remedy = instead.map(|name| format!("policy = \"{name}\" in {USUAL_FILE}"));
    say(Verdict::Bad, found, remedy.as_deref())
}

/// Where units are, the administrator's first.
const UNITS: [&str; 3] = [
    "etc/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

fn service(root: &Path) -> Finding {
    let unit = "numaherd.service";
    let installed = UNITS
        .iter()
        .any(|place| root.join(place).join(unit).exists());
    let wanted = root
        .join("etc/systemd/system/multi-user.target.wants")
        .join(unit);
    // The link may lead out of a captured tree; only its existence counts.
    let is_enabled = wanted.symlink_metadata().is_ok();
    let group = root.join("sys/fs/cgroup/system.slice").join(unit);
    let is_at_work = fs::read_to_string(group.join("cgroup.procs"))
        .is_ok_and(|processes| !processes.trim().is_empty());
    let (verdict, found, remedy) = match (installed, is_at_work, is_enabled) {
        (false, ..) => (
            Verdict::Good,
            "not installed; `numaherd run` does not need it",
            None,
        ),
        (true, true, true) => (Verdict::Good, "running, and enabled at boot", None),
        (true, true, false) => (
            Verdict::Weak,
            "running, but not enabled at boot",
            Some("systemctl enable numaherd"),
        ),
        (true, false, true) => (
            Verdict::Bad,
            "enabled at boot, but not running",
            Some("see journalctl -u numaherd -b for the reason; then systemctl start numaherd"),
        ),
        (true, false, false) => (
            Verdict::Good,
            "installed, but not enabled",
            Some("systemctl enable --now numaherd"),
        ),
    };
    finding("service", verdict, found.to_owned(), remedy)
}

/// A file beside the usual journal.
fn beside_journal(root: &Path, name: &str) -> PathBuf {
    let journal = match root == Path::new("/") {
        true => usual_journal(),
        false => root.join("run/numaherd/journal"),
    };
    journal.with_file_name(name)
}

/// Herds whose journals are elsewhere.
fn other_herds(root: &Path) -> Option<Finding> {
    let usual = holders(root, &beside_journal(root, "journal.lock"));
    let mut herds = holders(root, &beside_journal(root, HERDS_LOCK));
    herds.retain(|herd| !usual.contains(herd));
    if herds.is_empty() {
        return None;
    }
    let found = format!("running with a journal of its own: {}", shown(&herds));
    let remedy =
        "its threads are left alone by a second herd without --take-over; to place them, stop it";
    Some(finding("another herd", Verdict::Weak, found, Some(remedy)))
}

fn journal(root: &Path) -> Finding {
    let path = beside_journal(root, "journal");
    let say = |verdict, found, remedy| finding("journal", verdict, found, remedy);
    let lock = path.with_file_name("journal.lock");
    if !holders(root, &lock).is_empty() {
        let owner = fs::read_to_string(&lock).unwrap_or_default();
        let owner = match owner.trim() {
            "" => "another program",
            owner => owner,
        };
        return say(
            Verdict::Good,
            format!("{owner} is running; a second one would be refused"),
            None,
        );
    }
    let shown = path.display();
    if !path.exists() {
        return say(
            Verdict::Good,
            "there is nothing to restore".to_owned(),
            None,
        );
    }
    let boot = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"));
    // A file that is not a journal has nothing to restore; the run that would write there reports it.
    match owed(&path, boot.unwrap_or_default().trim()).unwrap_or(0) {
        0 => say(
            Verdict::Good,
            format!("{shown} has nothing to restore"),
            None,
        ),
        threads => say(
            Verdict::Bad,
            format!(
                "a killed run has left {} placed ({shown})",
                counted(threads, "thread")
            ),
            Some("numaherd release; the next run does the same"),
        ),
    }
}
