//! One trial, as it is carried out inside the guest (`numaherd lab trial`, which `lab compare` runs).
//!
//! All programs set up first, in real time. Then the modelled hardware is switched on, `numaherd run`
//! starts observing (with the policy `linux` where no policy places, so that every trial is observed by the
//! same means and at the same cost), and all programs are released at one moment.
//! When the last measured program has ended, the others are ended too.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use numaherd::print;
use numaherd_experiment::scenario::{LINUX_BALANCING, Program};
use numaherd_experiment::statistics::mean;
use numaherd_experiment::{Scenario, Trial};
use numaherd_herd::Summary;
use serde::Deserialize;

use super::outcome::{Outcome, ProgramResult};
use super::{NUMAD, observing_policy};
use crate::guest::{Model, Scratch};
use crate::held::{Held, SETUP_LIMIT, release};
use crate::lab::herding_program;

/// Kernel files that a trial reads or sets, in the guest.
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const VMSTAT: &str = "/proc/vmstat";

/// Carries out one trial, with the menagerie's program in this file.
///
/// # Errors
/// A program, the scheduler or the guest itself failed; the message says which and how.
pub fn run(scenario: &Scenario, trial: &Trial, menagerie: &Path) -> Result<Outcome> {
    let scratch = Scratch::new()?;
    set_balancing(false)?;
    let search_path = search_path(menagerie);
    let mut herd_members = Vec::new();
    for program in &scenario.programs {
        for copy in 0..program.copies {
            herd_members.push(Member::start(program, copy, &search_path, &scratch.0)?);
        }
    }
    for member in &mut herd_members {
        member.held.wait_until_ready()?;
    }
    // Only now: nothing may move before the clock starts.
    let numad = (trial.policy == NUMAD).then(Numad::start).transpose()?;
    set_balancing(trial.policy == LINUX_BALANCING)?;
    let pages_before = vmstat("pgmigrate_success")?;
    // As where it has run for a while: its first look does not wait for its own file.
    fs::read(herding_program()?).context("cannot read the program that herds")?;
    let model = Model::on()?;
    let mut observer = Observer::start(scenario, trial, &herd_members, &scratch.0)?;
    // At once: its first interval has begun, and threads that wait in it look idle.
    release(&scratch.0.join("go"))?;
    let mut programs = Vec::new();
    let (measured, others): (Vec<_>, Vec<_>) =
        herd_members.into_iter().partition(|member| member.measured);
    for member in measured {
        programs.push(member.finish()?);
    }
    for member in others {
        member.held.end()?;
        programs.push(member.finish()?);
    }
    drop(model);
    let pages_after = vmstat("pgmigrate_success")?;
    let seen = observer.finish()?;
    drop(numad);
    Ok(Outcome {
        policy: trial.policy.clone(),
        repeat: trial.repeat,
        programs,
        misses_per_1000_instructions: seen.totals.counted.miss_rate(),
        local_access_ratio: seen.totals.counted.local_access_ratio(),
        uncore_penalty: seen.totals.counted.uncore_penalty(),
        thread_moves_ordered: seen.totals.thread_moves,
        pages_moved_ordered: seen.totals.pages_moved,
        pages_moved: pages_after.saturating_sub(pages_before),
    })
}

fn set_balancing(on: bool) -> Result<()> {
    fs::write(BALANCING, if on { "1" } else { "0" })
        .with_context(|| format!("cannot set {BALANCING}"))
}

fn vmstat(name: &str) -> Result<u64> {
    let text = fs::read_to_string(VMSTAT).with_context(|| format!("cannot read {VMSTAT}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.with_context(|| format!("{VMSTAT} has no {name}"))?;
    value
        .trim()
        .parse()
        .with_context(|| format!("{VMSTAT}: {name} is {value:?}, not a number"))
}

/// Debian's numad, running until dropped.
struct Numad;

impl Numad {
    fn start() -> Result<Self> {
        let status = Command::new("numad").stdin(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(Self),
            Ok(status) => bail!("numad did not start: {status}"),
            Err(error) => bail!("cannot run numad: {error}; `make setup` installs it"),
        }
    }
}

impl Drop for Numad {
    fn drop(&mut self) {
        // `-i 0` tells the running numad to end. If it stays, so does its trial's guest state:
        // the next trial of another scheduler would show it, so it is worth a line.
        let status = Command::new("numad")
            .args(["-i", "0"])
            .stdin(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            print::say("numad did not end as `numad -i 0` asked it to");
        }
    }
}

/// The `PATH` of the scenario's programs, on which the menagerie comes first.
fn search_path(menagerie: &Path) -> OsString {
    let mut path = menagerie
        .parent()
        .map_or_else(OsString::new, OsString::from);
    if let Some(rest) = env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

/// One process of the scenario.
struct Member {
    name: String,
    copy: u32,
    measured: bool,
    held: Held,
}

/// What is read of a program's result.
#[derive(Deserialize)]
struct Report {
    complete: bool,
    seconds: f64,
    threads: Vec<ReportThread>,
}

#[derive(Deserialize)]
struct ReportThread {
    seconds: f64,
    migrations: Option<u64>,
}

impl Member {
    fn start(program: &Program, copy: u32, search_path: &OsStr, scratch: &Path) -> Result<Self> {
        let name = &program.name;
        let ready = scratch.join(format!("{name}.{copy}.ready"));
        let path = &program.command[0];
        let mut command = Command::new(path);
        command
            .env("PATH", search_path)
            .args(program.arguments(copy))
            .arg("--json")
            .arg("--ready-file")
            .arg(&ready)
            .arg("--go-file")
            .arg(scratch.join("go"))
            .stdout(Stdio::piped());
        let held = Held::start(format!("{name} {copy}"), &mut command, ready);
        Ok(Self {
            name: name.clone(),
            copy,
            measured: program.measured,
            held: held.with_context(|| format!("cannot start {name} ({path})"))?,
        })
    }

    /// Waits for its end and reads its result.
    fn finish(mut self) -> Result<ProgramResult> {
        let who = format!("{} {}", self.name, self.copy);
        let (printed, status) = printed(&mut self.held.process, &who)?;
        let report: Report = serde_json::from_str(&printed)
            .with_context(|| format!("{who} ended with {status} and no result but {printed:?}"))?;
        if self.measured && !report.complete {
            bail!("{who} was ended before its work was done ({status})");
        }
        Ok(ProgramResult {
            name: self.name,
            copy: self.copy,
            measured: self.measured,
            seconds: report.seconds,
            mean_thread_seconds: mean(report.threads.iter().map(|thread| thread.seconds)),
            complete: report.complete,
            thread_moves: report.threads.iter().map(|thread| thread.migrations).sum(),
        })
    }
}

/// What a process prints until its end, and how it ends.
fn printed(process: &mut Child, who: &str) -> Result<(String, ExitStatus)> {
    let mut printed = String::new();
    let output = process.stdout.as_mut().expect("stdout is a pipe");
    let read = output.read_to_string(&mut printed);
    read.with_context(|| format!("cannot read {who}"))?;
    Ok((printed, process.wait()?))
}

/// `numaherd run` over the scenario's processes.
struct Observer {
    process: Child,
}

impl Observer {
    fn start(
        scenario: &Scenario,
        trial: &Trial,
        members: &[Member],
        scratch: &Path,
    ) -> Result<Self> {
        let socket = scratch.join("notify");
        let notified = UnixDatagram::bind(&socket)
            .with_context(|| format!("cannot bind {}", socket.display()))?;
        notified.set_read_timeout(Some(SETUP_LIMIT))?;
        let config = scratch.join("numaherd.toml");
        let settings = toml::to_string(&scenario.configuration())?;
        fs::write(&config, settings)
            .with_context(|| format!("cannot write {}", config.display()))?;
        let pids: Vec<String> = members
            .iter()
            .map(|m| m.held.process.id().to_string())
            .collect();
        let mut command = Command::new(herding_program()?);
        command
            .args(["run", "--json", "--policy", observing_policy(&trial.policy)])
            .args(["--pid", &pids.join(",")])
            .args(["--seed", &trial.repeat.to_string()])
            .arg("--config")
            .arg(&config)
            .arg("--journal")
            .arg(scratch.join("journal"));
        if let Some(ledger) = &trial.ledger {
            command.arg("--ledger").arg(ledger);
        }
        let mut process = command
            .env("NOTIFY_SOCKET", &socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start numaherd run")?;
        let mut told = [0; 256];
        if let Err(error) = notified.recv(&mut told) {
            let state = process
                .try_wait()?
                .map_or("still runs".to_owned(), |s| s.to_string());
            bail!("numaherd run did not get ready ({error}; it {state})");
        }
        Ok(Self { process })
    }

    /// Waits for it to notice that all processes have ended, and reads its summary.
    fn finish(&mut self) -> Result<Summary> {
        let (printed, status) = printed(&mut self.process, "numaherd run")?;
        if !status.success() {
            bail!("numaherd run failed with {status}; it printed {printed:?}");
        }
        serde_json::from_str(&printed)
            .with_context(|| format!("numaherd run printed no summary but {printed:?}"))
    }
}
