//! Slurm's Prolog and Epilog (contrib/slurm/numaherd-job) without a Slurm: whatever is wrong, they end with 0 and leave
//! nothing behind, since a Prolog that fails drains its node. `scripts/slurm-trial.sh` tries them with the real Slurm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd");

/// The script with settings of its own.
struct Script(tempfile::TempDir);

impl Script {
    fn with(settings: &str) -> Self {
        let script = Self(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm/numaherd-job");
        let text = fs::read_to_string(source).unwrap();
        let own = format!("settings={}", script.path("settings").display());
        let lines = text
            .lines()
            .map(|line| match line.starts_with("settings=") {
                true => own.as_str(),
                false => line,
            });
        let text: Vec<&str> = lines.collect();
        fs::write(script.path("job"), text.join("\n") + "\n").unwrap();
        let usual = format!(
            "RUN={} REPORTS={} NUMAHERD={PROGRAM}\n",
            script.path("run").display(),
            script.path("reports").display()
        );
        fs::write(script.path("settings"), usual + settings).unwrap();
        script
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Calls it as slurmd does, for job 7.
    #[track_caller]
    fn calls(&self, context: &str) -> Output {
        let output = Command::new("sh")
            .arg(self.path("job"))
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_SCRIPT_CONTEXT", context)
            .env("SLURMD_NODENAME", "n3")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{context}: {output:?}");
        assert!(output.stdout.is_empty(), "{context}: {output:?}");
        output
    }

    fn whole_job(&self) {
        self.calls("prolog_slurmd");
        self.calls("epilog_slurmd");
        let left = fs::read_dir(self.path("run")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "the job's directory is left");
    }
}

#[test]
fn whatever_is_wrong_no_node_is_drained_and_nothing_is_left() {
    for settings in [
        "NUMAHERD=/nonexistent",
        "NUMAHERD=false",
        "NUMAHERD=true",
        "RUN=/proc/nowhere",
        "REPORTS=/proc/nowhere",
        "LIMIT=never",
        "MOST=0",
        "if then (",
        "exit 3",
        "unknown command",
        "X=${MISSING:?}",
    ] {
        Script::with(settings).whole_job();
    }
}

#[test]
fn an_epilog_without_a_prolog_and_other_contexts_do_nothing() {
    let script = Script::with("");
    for context in ["epilog_slurmd", "prolog_slurmctld", ""] {
        script.calls(context);
    }
    assert!(!script.path("run").exists());
}

#[test]
fn the_ledger_of_an_observer_becomes_a_report() {
    let script = Script::with("");
    let job = script.path("run/7");
    fs::create_dir_all(&job).unwrap();
    let ledger = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/devils.jsonl");
    fs::copy(ledger, job.join("ledger.zst")).unwrap();
    // The number of a process that is none, as after a kill.
    fs::write(job.join("pid"), "4194304000\n").unwrap();
    script.calls("epilog_slurmd");
    assert!(!job.exists());
    let report = fs::read_to_string(script.path("reports/job-7-n3.txt")).unwrap();
    assert!(report.starts_with("job 7 on node n3 "), "{report}");
}
