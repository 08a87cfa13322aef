//! A run whose configuration is written anew and read again, as its service manager and its ledger see
//! it: on this machine, without the lab.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take. Far longer than it does: nothing is learnt from it but that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run under a manager of ours.
struct Managed {
    folder: tempfile::TempDir,
    notified: UnixDatagram,
    child: Child,
}

impl Managed {
    /// Starts `numaherd run` on a program that waits for its input to end, with this configuration.
    fn start(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("numaherd.toml"), configuration).unwrap();
        let notified = UnixDatagram::bind(path("notify")).unwrap();
        notified.set_read_timeout(Some(PATIENCE)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_numaherd"))
            .args(["run", "--interval", "20ms", "--json"])
            .args([Path::new("--config"), &path("numaherd.toml")])
            .args([Path::new("--journal"), &path("journal")])
            .args([Path::new("--ledger"), &path("ledger")])
            .args(["--", "cat"])
            .env("NOTIFY_SOCKET", path("notify"))
            .env("WATCHDOG_USEC", "60000000")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let managed = Self {
            folder,
            notified,
            child,
        };
        managed.wait_for("READY=1");
        managed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a message to the manager that has this in it; all that came until then, it last.
    #[track_caller]
    fn wait_for(&self, wanted: &str) -> Vec<String> {
        let mut bytes = [0; 4096];
        let mut messages = Vec::new();
        loop {
            let length = match self.notified.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) => panic!("{wanted} did not come: {error}; what came is {messages:?}"),
            };
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let found = message.contains(wanted);
            messages.push(message);
            if found {
                return messages;
            }
        }
    }

    /// Writes the configuration anew and has it read. What the manager is told meanwhile; the last of it
    /// is that it is ready again.
    #[track_caller]
    fn reload(&self, configuration: &str) -> Vec<String> {
        fs::write(self.path("numaherd.toml"), configuration).unwrap();
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        let begun = self.wait_for("RELOADING=1").pop().unwrap();
        assert!(begun.contains("MONOTONIC_USEC="), "{begun}");
        self.wait_for("READY=1")
    }

    /// Ends it; what it said and the folder with its ledger.
    fn end(self) -> (Output, tempfile::TempDir) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.wait_for("STOPPING=1");
        let output = self.child.wait_with_output().unwrap();
        (output, self.folder)
    }
}

#[test]
fn a_manager_that_does_not_read_holds_nothing_up() {
    let run = Managed::start("policy = \"linux\"\n");
    // Its queue stays full from now on.
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"X=1\n", run.path("notify")).is_ok() {}
    kill_process(Pid::from_child(&run.child), Signal::TERM).unwrap();
    let (ended, end) = std::sync::mpsc::channel();
    let mut child = run.child;
    let id = Pid::from_child(&child);
    std::thread::spawn(move || ended.send(child.wait()));
    let code = end.recv_timeout(PATIENCE);
    if code.is_err() {
        kill_process(id, Signal::KILL).unwrap();
    }
    assert!(code.expect("it hangs").unwrap().success());
}

/// What was asked of the run, as its ledger has it: by whom, which policy, why.
fn asked(ledger: &Path) -> Vec<(String, Option<String>, String)> {
    let text = fs::read_to_string(ledger).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| {
            let asked = find(&line, "asked")?;
            let text = |key: &str| Some(asked.get(key)?.as_str()?.to_owned());
            Some((text("by")?, text("policy"), text("why").unwrap_or_default()))
        })
        .collect()
}

/// The object that has this key, at whatever depth.
fn find<'v>(value: &'v serde_json::Value, key: &str) -> Option<&'v serde_json::Value> {
    match value {
        serde_json::Value::Object(fields) if fields.contains_key(key) => Some(value),
        serde_json::Value::Object(fields) => fields.values().find_map(|inner| find(inner, key)),
        _ => None,
    }
}

#[test]
fn a_file_that_is_right_holds_from_then_on_and_one_that_is_wrong_changes_nothing() {
    let run = Managed::start("policy = \"linux\"\n");
    run.wait_for("WATCHDOG=1");

    let right = "policy = \"random\"\nevents = \"other.toml\"\n[herd.limits]\nfreeze_s = 5\n";
    let done = run.reload(right);
    assert_eq!(done.last().unwrap(), "READY=1\n");
    let status = |told: &String| told.starts_with("STATUS=random: ");
    assert!(done.iter().any(status), "{done:?}");

    let refused = run.reload("policy = \"linux\"\n[herd.limits]\nfreze_s = 7\n");
    let refused = refused.last().unwrap();
    assert!(
        refused.contains("STATUS=the configuration stays as it was"),
        "{refused}"
    );
    assert!(refused.contains("did you mean `freeze_s`?"), "{refused}");

    // The loop goes on, by what was right.
    run.wait_for("WATCHDOG=1");
    let same = run.reload(right);
    let same = same.last().unwrap();
    assert!(same.contains("was read again: nothing changed"), "{same}");

    let (output, folder) = run.end();
    let said = String::from_utf8_lossy(&output.stderr);
    for expected in [
        "numaherd.toml was read again: herd.limits.freeze_s is 5.0 (was 60.0), policy is \"random\" (was \
         \"linux\"); a restart is needed for events",
        "herd.limits.freze_s: unknown key; did you mean `freeze_s`?",
        "numaherd.toml was read again: nothing changed; a restart is needed for events",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    let asked = asked(&folder.path().join("ledger"));
    let by_hangup = |at: usize| asked.get(at).is_some_and(|(by, ..)| by == "SIGHUP");
    assert!(
        asked.len() == 2 && by_hangup(0) && by_hangup(1),
        "{asked:?}"
    );
    assert_eq!(asked[0].1.as_deref(), Some("random"));
    assert_eq!(asked[1].1, None);
    assert!(asked[1].2.contains("freze_s"), "{asked:?}");
}

/// The groups of the program in the snapshots of a ledger, in order, each change once.
fn groups(ledger: &Path) -> Vec<Option<String>> {
    let text = fs::read_to_string(ledger).unwrap();
    let mut groups: Vec<Option<String>> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| {
            let snapshot = find(&line, "processes")?;
            let cat = snapshot["processes"].as_array()?.first()?;
            Some(
                cat.get("group")
                    .and_then(|group| group.as_str())
                    .map(str::to_owned),
            )
        })
        .collect();
    groups.dedup();
    groups
}

#[test]
fn groups_come_and_go_while_it_runs() {
    let plain = "policy = \"linux\"\n[herd]\nrecord_interval_ms = 0\n";
    let run = Managed::start(plain);
    let grouped =
        format!("{plain}[[group]]\nname = \"left\"\nnames = [\"c?t\"]\npolicy = \"none\"\n");
    // The policy goes on: nothing but who is in which group changes.
    for text in [grouped.as_str(), plain] {
        let told = run.reload(text);
        assert_eq!(told.last().unwrap(), "READY=1\n", "{told:?}");
        // The first may have been on its way already.
        run.wait_for("WATCHDOG=1");
        run.wait_for("WATCHDOG=1");
    }
    let (output, folder) = run.end();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("group[0].policy is \"none\" (was left out)"),
        "{said}"
    );
    let left = Some("left".to_owned());
    assert_eq!(groups(&folder.path().join("ledger")), [None, left, None]);
}

#[test]
fn a_policy_that_the_machine_cannot_follow_is_refused_and_the_old_one_stays() {
    let run = Managed::start("policy = \"linux\"\n");
    // New pages of programs that run already cannot be placed by another rule.
    let refused = run.reload("policy = \"interleave\"\n");
    let refused = refused.last().unwrap();
    assert!(
        refused.contains("STATUS=the configuration stays as it was"),
        "{refused}"
    );
    run.wait_for("WATCHDOG=1");
    let (output, _folder) = run.end();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["policy"], "linux");
}
