//! `numaherd run`: herds this machine's threads and pages, until told to stop.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use numaherd_herd::journal::Journal;
use numaherd_herd::ledger::Writer;
use numaherd_herd::needs::{self, Alternative};
use numaherd_herd::{Ending, Herd, Line, Summary};
use numaherd_host::{Host, HostError, HostOptions, Selection, start_with_new_pages};
use numaherd_policy::registry::{self, Entry, POLICIES};
use numaherd_show::live::Live;
use numaherd_topology::{Topology, sysfs};
use numaherd_world::NewPages;
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Run;
use crate::config::Config;
use crate::doctor;
use crate::exit::{Exit, ended};
use crate::print;
use crate::release::{self, journal_error, usual_journal};

/// The machine that `run` herds.
const ROOT: &str = "/";

/// Largest ledger in bytes, before its older half is let go.
const LEDGER_BYTES: u64 = 1 << 30;

/// Herds until told to stop.
///
/// # Errors
/// The policy or a setting is unknown, the machine lacks what the policy needs, another numaherd
/// is at work, or the kernel does not permit it; nothing has been changed then.
pub fn run(options: &Run) -> Result<ExitCode> {
    let config = Config::of(options)?;
    let policy = registry::build(config.policy(), &config.policies)
        .map_err(|error| ended(Exit::Usage, error))?;
    let topology = Arc::new(sysfs::read(Path::new(ROOT))?);
    let alternatives = alternatives();
    let events = doctor::event_table(config.events.as_deref())?;
    let signals = numaherd_host::signals(Path::new(ROOT), &topology, &events);
    needs::check(&policy, &signals, &alternatives).map_err(journal_error)?;
    let journal = open_journal(options, config.herd.dry_run)?;
    let ledger = options.ledger.as_deref().map(create_ledger).transpose()?;

    // From here on there may be a program that was started for this run.
    let new_pages = if config.herd.dry_run {
        NewPages::FirstTouch
    } else {
        policy.new_pages
    };
    let program = Program::start(&options.program, new_pages, &topology)?;
    let mut host_options = HostOptions::new(selection(options, program.as_ref())?);
    host_options.started_with = new_pages;
    host_options.include_pinned = config.herd.limits.take_over;
    host_options.events = events;
    let mut host = Host::new(host_options, topology).map_err(host_error)?;
    let stop = stop_on_signals(host.stop())?;
    let mut live = (!options.json && std::io::stderr().is_terminal()).then(Live::new);
    let herd = Herd::new(&mut host, policy, config.herd, ledger, journal)
        .or_else(alternatives)
        .watched(move |line: &Line| {
            if let Some(text) = live.as_mut().and_then(|live| live.line(line)) {
                eprintln!("{text}");
            }
        });
    // Whoever waits for it (systemd, a script) may go on now; nobody need be waiting.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    let summary = herd.run(&stop).map_err(journal_error)?;
    let stopped = summary.ending == Ending::Stopped;
    let code = program.map(|program| program.finish(stopped)).transpose()?;
    let printed = Printed::of(&summary);
    print::shown(options.json, &printed, || {
        numaherd_show::summary::summary(&summary)
    })?;
    if let Ending::Failed { error } = &summary.ending {
        return Err(ended(
            Exit::Failure,
            format!("the run ended early: {error}"),
        ));
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// What `--json` prints: the summary, and the ratios that follow from it.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    local_access_ratio: Option<f64>,
    misses_per_1000_instructions: Option<f64>,
    uncore_penalty: Option<f64>,
}

impl<'a> Printed<'a> {
    fn of(summary: &'a Summary) -> Self {
        Self {
            summary,
            local_access_ratio: summary.local_access_ratio(),
            misses_per_1000_instructions: summary.miss_rate(),
            uncore_penalty: summary.uncore_penalty(),
        }
    }
}

/// All policies with what they need, for the message that names one that would work here.
fn alternatives() -> Vec<Alternative> {
    let needs = |name: &str| registry::needs(name).ok();
    let strongest_first = POLICIES.iter().rev();
    let anywhere = |entry: &&Entry| entry.new_pages == NewPages::FirstTouch;
    strongest_first
        .filter(anywhere)
        .filter_map(|entry| {
            Some(Alternative {
                name: entry.name.to_owned(),
                needs: needs(entry.name)?,
            })
        })
        .collect()
}

/// The journal of this run, after what an earlier run owed has been given back. A dry run changes
/// nothing and needs none.
fn open_journal(options: &Run, dry_run: bool) -> Result<Option<Journal>> {
    if dry_run {
        return Ok(None);
    }
    let path = options.journal.clone().unwrap_or_else(usual_journal);
    let owner = format!("numaherd run, process {}", std::process::id());
    let mut journal = Journal::open(&path, &release::boot_id()?, &owner).map_err(journal_error)?;
    let given_back = release::give_back(&mut journal)?;
    for message in given_back {
        eprintln!("numaherd: {message}");
    }
    Ok(Some(journal))
}

fn create_ledger(path: &Path) -> Result<Writer> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let begun = now.and_then(|time| u64::try_from(time.as_millis()).ok());
    let program = concat!("numaherd ", env!("CARGO_PKG_VERSION"));
    Writer::create(path, program, begun, LEDGER_BYTES).map_err(journal_error)
}

fn selection(options: &Run, program: Option<&Program>) -> Result<Selection> {
    let chosen = &options.selection;
    if let Some(program) = program {
        return Ok(Selection::Child {
            pid: program.0.id(),
        });
    }
    if !chosen.pid.is_empty() {
        return Ok(Selection::Processes {
            pids: chosen.pid.clone(),
            descendants: true,
        });
    }
    if let Some(path) = &chosen.cgroup {
        let path = path.to_str().map(str::to_owned);
        let path = path.context("the cgroup's path is not UTF-8, as the kernel's are")?;
        return Ok(Selection::Cgroup { path });
    }
    if let Some(name) = &chosen.name {
        return Ok(Selection::Command { name: name.clone() });
    }
    if let Some(user) = &chosen.user {
        let uid = match user.parse() {
            Ok(uid) => uid,
            Err(_) => numaherd_host::user_number(Path::new(ROOT), user).map_err(host_error)?,
        };
        return Ok(Selection::User { uid });
    }
    Ok(Selection::Machine)
}

fn host_error(error: HostError) -> anyhow::Error {
    let exit = match &error {
        HostError::NoSuchProcess { .. } | HostError::NoSuchUser { .. } => Exit::Usage,
        _ => Exit::Failure,
    };
    ended(exit, error)
}

/// A flag that SIGINT and SIGTERM set, waking the world as well. A second signal ends the program
/// at once; what it owes is in the journal.
fn stop_on_signals(world: numaherd_host::Stop) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot watch for signals")?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            world.ask();
        }
    });
    Ok(stop)
}

/// The program that was started for this run; ended with it when the run cannot begin.
struct Program(Child);

impl Program {
    fn start(
        program: &[OsString],
        new_pages: NewPages,
        topology: &Topology,
    ) -> Result<Option<Self>> {
        let Some((name, arguments)) = program.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(name);
        start_with_new_pages(command.args(arguments), new_pages, topology).map_err(|error| {
            ended(
                Exit::Usage,
                format!("cannot start {}: {}", name.display(), error.reason),
            )
        })?;
        let child = command.spawn().map_err(|error| {
            ended(
                Exit::Usage,
                format!("cannot start {}: {error}", name.display()),
            )
        })?;
        Ok(Some(Self(child)))
    }

    /// Waits for its end, having asked for it when the run was stopped; its exit code.
    fn finish(mut self, stopped: bool) -> Result<ExitCode> {
        if stopped {
            // It may have ended already; then there is nobody to ask.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let status = self.0.wait().context("cannot wait for the program")?;
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        Ok(ExitCode::from(
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        ))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Ended in between: nothing to end.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
