//! One trial, as it is carried out inside the guest (`numaherd lab trial`, which `lab compare` runs).
//!
//! All programs set up first, in real time; those that others need are then ready. The policy or peer takes effect,
//! and the modelled hardware is switched on. `numaherd run` starts observing (with the policy `linux` where no policy
//! places, so that every trial is observed by the same means and at the same cost), and all other programs are
//! released at one moment. When the last measured program has ended, or the scenario's time is over, the others are
//! ended too.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use numaherd_experiment::scenario::Ours;
use numaherd_experiment::{Scenario, Trial};
use numaherd_herd::Summary;
use numaherd_model::Until;
use numaherd_world::Enforcement;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::cgroup::{self, Cgroups};
use super::launch::{Site, step};
use super::member::Member;
use super::observing_policy;
use super::outcome::{Failure, Outcome, Step};
use super::peer::{Ground, Peer};
use crate::guest::{Model, Scratch};
use crate::held::{SETUP_LIMIT, release};
use crate::lab::herding_program;

/// What the guest's kernel counts.
const VMSTAT: &str = "/proc/vmstat";

/// Carries out one trial, with the menagerie's program in this file.
///
/// # Errors
/// A program, the scheduler or the guest itself failed; the message says which and how, and how far the trial had
/// come.
pub fn run(
    scenario: &Scenario,
    trial: &Trial,
    menagerie: &Path,
    ground: &Ground,
) -> Result<Outcome, Failure> {
    let failed = |at| {
        move |error: anyhow::Error| Failure {
            at,
            error: format!("{error:#}"),
        }
    };
    let mut peer = Peer::of(&trial.policy, ground).map_err(failed(Step::Peer))?;
    let scratch = Scratch::new().map_err(failed(Step::SetUp))?;
    let cgroups = Cgroups::new(Path::new(cgroup::ROOT)).map_err(failed(Step::SetUp))?;
    let dir = own_directory(&scratch).map_err(failed(Step::SetUp))?;
    peer.prepare().map_err(failed(Step::SetUp))?;
    let site = Site {
        cgroups: &cgroups,
        scratch: &scratch.0,
        dir: &dir,
        search_path: &search_path(menagerie),
        limit: SETUP_LIMIT,
    };
    let members = set_up(scenario, &peer, &site).map_err(failed(Step::SetUp))?;
    let measured = measure(scenario, trial, &mut peer, &site, members);
    measured.map_err(failed(Step::Measured))
}

/// Creates the trial's own directory, which its programs can use whoever they run as.
fn own_directory(scratch: &Scratch) -> Result<String> {
    let dir = scratch.0.join("dir");
    let made = fs::create_dir(&dir)
        .and_then(|()| fs::set_permissions(&dir, Permissions::from_mode(0o1777)));
    made.with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = dir.into_os_string().into_string();
    dir.ok()
        .context("the path of the directory for temporary files is not UTF-8")
}

/// Starts all programs and waits until they are ready.
fn set_up<'a>(
    scenario: &'a Scenario,
    peer: &Peer<'_>,
    site: &'a Site<'a>,
) -> Result<Vec<Member<'a>>> {
    let mut members = Vec::new();
    for (number, program) in scenario.programs.iter().enumerate() {
        for copy in 0..program.copies {
            members.push(Member::start(site, peer, program, number, copy)?);
        }
    }
    for member in &mut members {
        member.wait_until_held()?;
    }
    Ok(members)
}

/// Releases the programs in modelled time, and returns the result.
fn measure(
    scenario: &Scenario,
    trial: &Trial,
    peer: &mut Peer<'_>,
    site: &Site<'_>,
    mut members: Vec<Member<'_>>,
) -> Result<Outcome> {
    let settings = peer.settings();
    // Only now: nothing may move before the clock starts.
    step("what places threads and pages has not started");
    peer.start(site.scratch)?;
    let pages_before = vmstat("pgmigrate_success")?;
    // As if it had run before: its first interval does not wait for its own file.
    fs::read(herding_program()?).context("cannot read the program that herds")?;
    step("the modelled hardware is not on");
    let model = Model::on()?;
    members.iter_mut().for_each(Member::count_moves);
    step("numaherd run is not ready");
    let mut observer = Observer::start(scenario, trial, site)?;
    step("the programs are not released");
    // At once: its first interval has begun, and threads that wait in it look idle.
    let began = Instant::now();
    release(&site.scratch.join("go"))?;
    let counted = |members: &[Member<'_>]| -> Result<Vec<(Instant, Option<f64>)>> {
        let count = |member: &Member<'_>| Ok((Instant::now(), member.counter()?));
        members.iter().map(count).collect()
    };
    let first = counted(&members)?;
    let until = match scenario.until {
        Until::Time(time) => Some(began + time),
        Until::Completions(_) => None,
    };
    wait(&mut members, until)?;
    let last = counted(&members)?;
    members.iter().for_each(Member::end);
    let mut programs = Vec::new();
    for (member, (first, last)) in members.into_iter().zip(first.into_iter().zip(last)) {
        let seconds = (last.0 - first.0).as_secs_f64();
        let per_second = first
            .1
            .zip(last.1)
            .map(|(first, last)| (last - first) / seconds);
        programs.push(member.finish(began, per_second)?);
    }
    drop(model);
    let pages_after = vmstat("pgmigrate_success")?;
    let seen = observer.finish()?;
    peer.check()?;
    Ok(Outcome {
        policy: trial.policy.clone(),
        settings,
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

/// Waits until all awaited programs have ended, or the time is over.
///
/// # Errors
/// That of [`Member::look`].
pub fn wait(members: &mut [Member<'_>], until: Option<Instant>) -> Result<()> {
    let ends = members
        .iter()
        .map(|member| pidfd_open(member.pid(), PidfdFlags::empty()));
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let full = members.iter().map(|member| member.cgroup().events());
    let full = full.collect::<Result<Vec<_>>>()?;
    loop {
        let now = Instant::now();
        for member in members.iter_mut().filter(|member| !member.has_ended()) {
            member.look(now)?;
        }
        let awaited = members.iter().filter(|member| member.is_awaited());
        let awaited: Vec<&str> = awaited.map(Member::who).collect();
        let left = until.map(|until| until.saturating_duration_since(now));
        let is_over = match left {
            // Counters count to the end of the time.
            Some(left) => {
                left.is_zero() || (awaited.is_empty() && !members.iter().any(Member::is_counted))
            }
            None => awaited.is_empty(),
        };
        if is_over {
            return Ok(());
        }
        match awaited.is_empty() {
            true => step("the scenario's time (`until`) is not over"),
            false => step(&format!("not ended: {}", awaited.join(", "))),
        }
        let running = (0..members.len()).filter(|&at| !members[at].has_ended());
        let mut awaited: Vec<PollFd<'_>> = running
            .flat_map(|at| {
                let full = PollFd::new(&full[at], PollFlags::PRI);
                [PollFd::new(&ends[at], PollFlags::IN), full]
            })
            .collect();
        let left = left.map(Timespec::try_from).transpose()?;
        match poll(&mut awaited, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the programs"),
        }
    }
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
    fn start(scenario: &Scenario, trial: &Trial, site: &Site<'_>) -> Result<Self> {
        let scratch = site.scratch;
        let socket = scratch.join("notify");
        let notified = UnixDatagram::bind(&socket)
            .with_context(|| format!("cannot bind {}", socket.display()))?;
        notified.set_read_timeout(Some(SETUP_LIMIT))?;
        let config = scratch.join("numaherd.toml");
        let settings = toml::to_string(&scenario.configuration())?;
        fs::write(&config, settings)
            .with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(herding_program()?);
        command
            .args(["run", "--json", "--policy", observing_policy(&trial.policy)])
            .args(["--cgroup", &site.cgroups.name])
            .args(["--seed", &trial.repeat.to_string()])
            .arg("--config")
            .arg(&config)
            .arg("--journal")
            .arg(scratch.join("journal"));
        if Ours::of(&trial.policy).enforcement == Enforcement::Scx {
            command.args(["--enforce", "scx"]);
        }
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

    /// Ends it, and reads its summary.
    fn finish(&mut self) -> Result<Summary> {
        let asked = kill_process(Pid::from_child(&self.process), Signal::TERM);
        asked.context("cannot end numaherd run")?;
        let (printed, status) = printed(&mut self.process, "numaherd run")?;
        if !status.success() {
            bail!("numaherd run failed with {status}; it printed {printed:?}");
        }
        serde_json::from_str(&printed)
            .with_context(|| format!("numaherd run printed no summary but {printed:?}"))
    }
}
