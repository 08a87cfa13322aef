//! What a running daemon has kept of its privileges, its threads' priorities, and what the program that `run` starts
//! has of both: by what the kernel says of each thread. Who tests has few privileges or all; what is kept is never more than
//! what is needed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::daemon::Daemon;

/// Numbers of capabilities (include/uapi/linux/capability.h).
const DAC_OVERRIDE: u64 = 1 << 1;
const SETPCAP: u64 = 1 << 8;
const IPC_LOCK: u64 = 1 << 14;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_NICE: u64 = 1 << 23;
const PERFMON: u64 = 1 << 38;

/// A line of a thread's status.
fn line<'t>(status: &'t str, key: &str) -> &'t str {
    let found = status.lines().find_map(|line| line.strip_prefix(key));
    found
        .unwrap_or_else(|| panic!("no {key} in {status}"))
        .trim()
}

/// A set of capabilities of a thread.
fn set(status: &str, key: &str) -> u64 {
    u64::from_str_radix(line(status, key), 16).unwrap()
}

fn own_status() -> String {
    fs::read_to_string("/proc/thread-self/status").unwrap()
}

#[test]
fn no_thread_keeps_a_privilege_that_it_does_not_need() {
    let own = own_status();
    let has = set(&own, "CapEff:");
    let daemon = Daemon::start(&[]);
    // Each thread has looked at something by then.
    daemon.await_snapshot();
    assert!(daemon.ctl(&["status"]).contains("linux"));
    let tasks = Path::new("/proc")
        .join(daemon.pid().to_string())
        .join("task");
    let mut seen = Vec::new();
    for task in fs::read_dir(tasks).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let name = line(&status, "Name:").to_owned();
        let needed = match name.as_str() {
            "numaherd-fold" => 0,
            "numaherd-serve" => DAC_OVERRIDE,
            _ => SYS_NICE | SYS_PTRACE | PERFMON | IPC_LOCK | DAC_OVERRIDE,
        };
        for key in ["CapPrm:", "CapEff:"] {
            assert_eq!(set(&status, key), has & needed, "{key} of {name}");
        }
        for key in ["CapInh:", "CapAmb:"] {
            assert_eq!(set(&status, key), 0, "{key} of {name}");
        }
        let bounding = match has & SETPCAP {
            0 => set(&own, "CapBnd:"),
            _ => 0,
        };
        assert_eq!(set(&status, "CapBnd:"), bounding, "CapBnd of {name}");
        assert_eq!(line(&status, "NoNewPrivs:"), "1", "{name}");
        seen.push(name);
    }
    for name in ["numaherd", "numaherd-fold", "numaherd-serve", "signals"] {
        assert!(seen.iter().any(|seen| seen == name), "{name}: {seen:?}");
    }
}

/// The nice value in a thread's `stat` (proc(5)): the 17th field after the name.
fn nice(stat: &str) -> i32 {
    let (_, after) = stat.rsplit_once(") ").unwrap();
    after.split(' ').nth(16).unwrap().parse().unwrap()
}

#[test]
fn the_loop_has_more_weight_than_other_programs_where_that_is_permitted() {
    let own = nice(&fs::read_to_string("/proc/thread-self/stat").unwrap());
    let raised = match set(&own_status(), "CapEff:") & SYS_NICE {
        0 => own,
        _ => -5,
    };
    let daemon = Daemon::start(&[]);
    daemon.await_snapshot();
    let tasks = Path::new("/proc").join(daemon.pid().to_string());
    for task in fs::read_dir(tasks.join("task")).unwrap() {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        let expected = match &stat {
            stat if stat.contains("(numaherd-fold)") => 10,
            stat if stat.contains("(numaherd-serve)") => 10,
            _ => raised,
        };
        assert_eq!(nice(&stat), expected, "{stat}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd"))
        .args(["run", "--dry-run", "--policy", "linux", "--"])
        .args(["cat", "/proc/self/stat"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // The summary of the run follows it.
    let started = String::from_utf8(output.stdout).unwrap();
    let stat = started.lines().next().unwrap();
    assert_eq!(nice(stat), own, "{started}");
}

#[test]
fn the_program_that_a_run_starts_has_all_that_its_user_has() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd"))
        .args(["run", "--dry-run", "--policy", "linux", "--"])
        .args(["cat", "/proc/self/status"])
        .env("XDG_CONFIG_HOME", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (started, own) = (String::from_utf8(output.stdout).unwrap(), own_status());
    for key in [
        "CapInh:",
        "CapPrm:",
        "CapEff:",
        "CapBnd:",
        "CapAmb:",
        "NoNewPrivs:",
    ] {
        assert_eq!(line(&started, key), line(&own, key), "{key}");
    }
}
