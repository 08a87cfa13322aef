//! What a placed process starts is nobody's to keep bound: on this machine, with real processes and affinities.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{mask, wait_until};

/// A busy process that starts a daemon of another name when told to, whose parent ends at once.
struct Parent {
    folder: tempfile::TempDir,
    child: Child,
    found: String,
    daemons: Vec<u32>,
}

impl Parent {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Busy, or nobody places it.
        let script = "
            while :; do
                if [ -e go ]; then
                    read name < go; rm go
                    (setsid sh -c 'echo $$ > \"$0\".new; mv \"$0\".new \"$0\"; exec sleep 1000' \"$name\" &)
                fi
            done";
        let child = Command::new("sh")
            .args(["-c", script])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            found: mask(child.id()),
            folder,
            child,
            daemons: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a daemon; its number.
    fn daemon(&mut self, name: &str) -> u32 {
        fs::write(self.path("go.new"), format!("{name}\n")).unwrap();
        fs::rename(self.path("go.new"), self.path("go")).unwrap();
        let path = self.path(name);
        wait_until("the daemon starts", || path.exists());
        let pid = fs::read_to_string(path).unwrap().trim().parse().unwrap();
        self.daemons.push(pid);
        pid
    }

    /// Has a herd place the parent, which it names by its number, and nothing else.
    fn herd(&self, interval: &str) -> Child {
        let herd = Command::new(env!("CARGO_BIN_EXE_numaherd"))
            .args([
                "run", "--config", "none", "--policy", "random", "--scope", "core",
            ])
            .args(["--interval", interval])
            .args(["--pid", &self.child.id().to_string()])
            .args([Path::new("--journal"), &self.path("journal")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("it is placed", || mask(self.child.id()) != self.found);
        herd
    }

    fn release(&self) -> Output {
        Command::new(env!("CARGO_BIN_EXE_numaherd"))
            .args([
                Path::new("release"),
                Path::new("--json"),
                Path::new("--journal"),
            ])
            .arg(self.path("journal"))
            .output()
            .unwrap()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let number = |pid: u32| Pid::from_raw(pid.cast_signed());
        for &pid in &self.daemons {
            let _ = number(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        let _ = number(self.child.id()).map(|pid| kill_process(pid, Signal::KILL));
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

// One after the other: an orphan that another herd's program started cannot be told from one of its own where both are
// in one cgroup.
#[test]
fn heirs_get_their_affinity_back() {
    release_finds_what_was_started_since_the_last_interval_of_a_killed_run();
    for interval in ["20ms", "1h"] {
        a_running_herd_gives_back_what_started_outside_its_selection(interval);
    }
}

fn release_finds_what_was_started_since_the_last_interval_of_a_killed_run() {
    let mut parent = Parent::start();
    let mut herd = parent.herd("20ms");
    // From here on it sees nothing any more.
    signal(&herd, Signal::STOP);
    let daemon = parent.daemon("daemon");
    signal(&herd, Signal::KILL);
    herd.wait().unwrap();
    assert_ne!(mask(daemon), parent.found, "it has inherited its mask");
    let released = parent.release();
    assert!(released.status.success(), "{released:?}");
    assert_eq!(mask(daemon), parent.found);
    assert_eq!(mask(parent.child.id()), parent.found);
    let report: serde_json::Value = serde_json::from_slice(&released.stdout).unwrap();
    assert!(report["heirs"].as_u64() >= Some(1), "{report}");
}

fn a_running_herd_gives_back_what_started_outside_its_selection(interval: &str) {
    let mut parent = Parent::start();
    let mut herd = parent.herd(interval);
    let daemon = parent.daemon("daemon");
    wait_until("it is given back", || mask(daemon) == parent.found);
    signal(&herd, Signal::TERM);
    let last = parent.daemon("last");
    assert!(herd.wait().unwrap().success());
    assert_eq!(mask(last), parent.found);
    assert_eq!(mask(parent.child.id()), parent.found);
    assert!(!parent.path("journal").exists(), "nothing is owed");
}
