//! `numaherd run`: herds this machine's threads and pages, until told to stop.

mod groups;
pub mod machine_lock;
mod program;
mod reload;
mod selection;
pub(crate) mod service;
mod signals;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use numaherd_herd::journal::Journal;
use numaherd_herd::needs::{self, Alternative};
use numaherd_herd::{Control, Ending, Herd, Line, Record, Requests, Summary, control};
use numaherd_host::{
    Confined, Damon, EventTable, Hints, Host, HostOptions, Moved, Reach, SCX_LAYERED, Scheduler,
    Selection,
};
use numaherd_policy::Policy;
use numaherd_policy::groups::Policies;
use numaherd_policy::registry::{self, NamedPolicy};
use numaherd_show::live::Live;
use numaherd_topology::{Topology, sysfs};
use numaherd_world::{Enforcement, NewPages};
use serde::Serialize;

use crate::cli::Run;
use crate::config::file::steering;
use crate::config::{Config, Effective};
use crate::doctor;
use crate::exit::{self, Exit, OrExit, coded, ended};
use crate::release::{self, usual_journal};
use crate::{ledger, print, priority, privileges};
pub use program::Group;
use program::Program;
pub use reload::Reload;
pub use signals::{Ender, stop};

/// The machine that `run` herds.
const ROOT: &str = "/";

/// The rules whose orders DAMON can carry out, and the part of each order that it moves.
const BY_DAMON: &[(&str, Moved)] = &[
    ("tiered: cold", Moved::Unused),
    ("tiered: used", Moved::All),
    ("tiered: loaded", Moved::All),
];

/// The least size limit, in MiB, of the ledger of a run with a purpose, so that a recording is whole (chosen here).
const RECORDING_MIB: u64 = 1024;

/// Sees every line of the ledger as it is recorded. The loop calls it, so it must hand the line on and return without
/// waiting.
pub type Watcher<'a> = Box<dyn FnMut(&Arc<Line>) + 'a>;

/// What takes part in a run besides the loop.
#[derive(Default)]
pub struct Attached<'a> {
    /// Who sees each line, in this order.
    pub watchers: Vec<Watcher<'a>>,
    /// Both ends of the herd's control, if the caller has created them already to keep one.
    pub control: Option<(Control, Requests)>,
    /// Reads the configuration again once the herd runs. A clone of it can request that.
    pub reload: Reload,
    /// Makes it something else than a run: a recording for later replays, a trial.
    pub purpose: Option<Purpose<'a>>,
}

/// Prints the outcome of a run.
pub type Print<'a> = Box<dyn FnOnce(&Summary) -> Result<()> + 'a>;

/// What replaces the configured settings in a recording or a trial. It records every interval.
pub struct Purpose<'a> {
    /// In place of the configured policy.
    pub policy: Option<Policy>,
    /// The process group of the program that is started.
    pub group: Group,
    /// Starts the other participants, just before the loop starts; may end the run.
    pub begin: Box<dyn FnOnce(Ender) + 'a>,
    /// Prints the outcome.
    pub printed: Print<'a>,
}

/// `numaherd run`: herds until told to stop, and reports what happens on standard error if that is a terminal.
///
/// # Errors
/// As [`herd`].
pub fn run(options: &Run) -> Result<ExitCode> {
    let mut attached = Attached::default();
    if !options.json && std::io::stderr().is_terminal() {
        let mut live = Live::new();
        attached.watchers.push(Box::new(move |line: &Arc<Line>| {
            if let Some(text) = live.line(line) {
                print::aside(&format!("{text}\n"));
            }
        }));
    }
    herd(options, attached)
}

/// The configuration at the start; printed if it is a file's. Other programs write the files with further groups: if
/// one is wrong, the herd begins without them, and a reload takes them in once they are right.
fn effective(options: &Run) -> Result<Effective> {
    let effective = match Effective::of(options) {
        Ok(effective) => effective,
        Err(error) => match Effective::without_drop_ins(options) {
            Ok(own) if own.config.groups_from.is_some() => {
                print::say(format!("{error:#}; herding without these further groups"));
                own
            }
            _ => return Err(error),
        },
    };
    if effective.file.is_some() {
        print::say(&effective);
        for notice in &effective.notices {
            print::say(notice);
        }
    }
    Ok(effective)
}

/// Herds until told to stop, and prints the outcome.
///
/// # Errors
/// The policy or a setting is unknown, the machine lacks what the policy needs, another numaherd
/// is at work, or the kernel does not permit it; nothing has been changed then.
pub fn herd(options: &Run, attached: Attached<'_>) -> Result<ExitCode> {
    let effective = effective(options)?;
    let Attached {
        mut watchers,
        control,
        reload,
        mut purpose,
    } = attached;
    let mut config = effective.config.clone();
    if purpose.is_some() {
        config.herd.record_interval_ms = 0;
        config.ledger_mib = config.ledger_mib.max(RECORDING_MIB);
    }
    let own_policy = purpose.as_mut().and_then(|purpose| purpose.policy.take());
    let group = purpose.as_ref().map_or(Group::Callers, |p| p.group);
    let Checked {
        policy,
        topology,
        events,
        alternatives,
    } = Checked::of(&config, own_policy)?;
    effective.check_limits(&topology)?;
    let rights = Rights::of(&config, &policy);
    let select = |program: Option<&Program>| {
        let pids = &options.selection.pid;
        let chosen = &config.selection;
        selection::selection(Path::new(ROOT), pids, chosen, program, rights.confined)
    };
    if options.program.is_empty() {
        // Fails before anything is created.
        select(None)?;
    }
    let lock = (!config.herd.dry_run)
        .then(|| machine_lock::lock(config.herd.limits.take_over))
        .transpose()?;
    let journal = open_journal(&config)?;
    // The scheduler runs as long as this is held.
    let (_scheduler, hints) = scheduler(&config, &topology)?.unzip();
    let ledger = config.ledger.as_deref();
    let ledger = ledger
        .map(|path| ledger::create(path, config.ledger_mib << 20))
        .transpose()?;

    // From here on there may be a program that was started for this run.
    let new_pages = match config.herd.dry_run {
        true => NewPages::FirstTouch,
        false => policy.new_pages,
    };
    let stop = stop()?;
    let program = Program::start(&options.program, new_pages, &topology, group)?;
    priority::raise();
    privileges::keep(match program {
        Some(_) => privileges::PLACING | privileges::ENDING,
        None => privileges::PLACING,
    });
    let selected = selected(select(program.as_ref())?, &config, rights.confined);
    watchers.push(says_who_is_awaited(&selected));
    let host_options = HostOptions {
        only_user: rights.confined.map(|own| own.user),
        groups: groups::rules(Path::new(ROOT), &config.group)?,
        started_with: new_pages,
        include_pinned: config.herd.limits.take_over,
        events,
        ..HostOptions::new(selected)
    };
    let mut host = Host::new(host_options, topology).map_err(coded)?;
    if let Some(hints) = hints {
        host = host.with_hints(hints);
    }
    if let Some(damon) = damon(&config) {
        host = host.with_damon(damon);
    }
    let (control, requests) = control.unwrap_or_else(control::pair);
    let world = host.stop();
    signals::watch(Ender::of(&stop, world.clone()), reload.clone())?;
    let mut service = service::Service::new();
    let (groups, settings) = (host.groups(), steering::settings(&config));
    let herd = Herd::new(&mut host, policy)
        .settings(settings)
        .ledger(ledger)
        .journal(journal)
        .or_else(alternatives)
        .with_losses()
        .controlled(requests)
        .watched_by(Box::new(move |line: &Arc<Line>| {
            for watcher in &mut watchers {
                watcher(line);
            }
            if let Some(service) = &mut service {
                service.line(line);
            }
        }));
    let printed: Print<'_> = match purpose {
        Some(purpose) => {
            (purpose.begin)(Ender::of(&stop, world));
            purpose.printed
        }
        None => {
            reload.begin(options, effective, control, groups, rights.lacks_memory);
            Box::new(|summary: &Summary| print_summary(options, summary))
        }
    };
    let summary = herd.run(&stop).map_err(coded)?;
    drop(lock);
    finish(&summary, program, printed)
}

/// Ends the program that was started for a run, and prints the run's outcome. Returns the program's exit code.
fn finish(summary: &Summary, program: Option<Program>, printed: Print<'_>) -> Result<ExitCode> {
    if let Some(program) = &program
        && summary.ending == Ending::Stopped
    {
        program.stop();
    }
    let code = program.map(Program::finish).transpose()?;
    printed(summary)?;
    if let Ending::Failed { error } = &summary.ending {
        return Err(ended!(Failure, "the run ended early: {error}"));
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

fn print_summary(options: &Run, summary: &Summary) -> Result<()> {
    print::shown(options.json, &Printed::of(summary), || {
        numaherd_show::summary::summary(summary)
    })
}

/// What a run needs of configuration and machine, checked before anything is created.
struct Checked {
    policy: Policies,
    topology: Arc<Topology>,
    events: EventTable,
    alternatives: Vec<Alternative>,
}

impl Checked {
    /// With `own` in place of the configured policy.
    fn of(config: &Config, own: Option<Policy>) -> Result<Self> {
        let policy = match own {
            Some(policy) => policy.into(),
            None => steering::policy(config).or_exit(Exit::Usage)?,
        };
        let topology = Arc::new(sysfs::read(Path::new(ROOT))?);
        let alternatives = alternatives();
        let events = doctor::event_table(config.events.as_deref())?;
        let signals = numaherd_host::signals(Path::new(ROOT), &topology, &events);
        needs::check(&policy.name, &policy.needs(), &signals, &alternatives).map_err(coded)?;
        Ok(Self {
            policy,
            topology,
            events,
            alternatives,
        })
    }
}

/// Whose processes this user may steer.
struct Rights {
    /// The user to whose processes alone the policy is confined, if to one.
    confined: Option<Confined>,
    /// The same for policies that use memory, if this one does not.
    lacks_memory: Option<Confined>,
}

impl Rights {
    /// A dry run may observe all processes.
    fn of(config: &Config, policy: &Policies) -> Self {
        let confined = |reach| match config.herd.dry_run {
            true => None,
            false => numaherd_host::confined_to(Path::new(ROOT), reach),
        };
        let (by_threads, by_memory) = (confined(Reach::Threads), confined(Reach::Memory));
        match policy.use_memory() {
            true => Self {
                confined: by_memory,
                lacks_memory: None,
            },
            false => Self {
                confined: by_threads,
                lacks_memory: by_memory.filter(|_| by_threads.is_none()),
            },
        }
    }
}

/// The scheduler that carries placements out by hints, and its map of hints; `None` if the run does not use hints.
fn scheduler(config: &Config, topology: &Topology) -> Result<Option<(Scheduler, Hints)>> {
    if config.herd.dry_run || config.herd.enforce != Enforcement::Scx {
        return Ok(None);
    }
    let started = Scheduler::start(Path::new(ROOT), topology, Path::new(SCX_LAYERED));
    started.map(Some).map_err(coded)
}

/// DAMON, if it moves the pages that `tiered` orders.
fn damon(config: &Config) -> Option<Damon> {
    if config.herd.dry_run || !config.damon {
        return None;
    }
    let found = Damon::find(Path::new(ROOT), BY_DAMON);
    found
        .map_err(|error| print::say(format!("{error}; pages are moved by move_pages")))
        .ok()
}

/// The selection; a message says so if only a lack of rights limits it to the user's own processes.
fn selected(selection: Selection, config: &Config, confined: Option<Confined>) -> Selection {
    if let Some(Confined { user, lacks }) = confined
        && selection == (Selection::User { uid: user })
        && config.selection.user.is_none()
    {
        print::say(format!(
            "only processes of this user ({user}) are herded: those of others need {lacks}"
        ));
    }
    selection
}

/// Says so if no thread is selected in the first interval.
fn says_who_is_awaited(selection: &Selection) -> Watcher<'static> {
    let mut awaited = selection::awaited(selection);
    Box::new(move |line: &Arc<Line>| {
        if let Record::Snapshot(snapshot) = &line.record
            && let Some(awaited) = awaited.take()
            && snapshot.threads.is_empty()
        {
            print::say(awaited);
        }
    })
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
            local_access_ratio: summary.totals.counted.local_access_ratio(),
            misses_per_1000_instructions: summary.totals.counted.miss_rate(),
            uncore_penalty: summary.totals.counted.uncore_penalty(),
        }
    }
}

/// All policies with what they need, for the message that names one that would work here.
fn alternatives() -> Vec<Alternative> {
    let needs = |name: &str| registry::needs(name).ok();
    let strongest_first = registry::for_live_machines().rev();
    let anywhere = |entry: &&NamedPolicy| entry.new_pages == NewPages::FirstTouch;
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

/// The journal of this run, after restoring what an earlier run owed. A dry run changes nothing and needs none.
fn open_journal(config: &Config) -> Result<Option<Journal>> {
    if config.herd.dry_run {
        return Ok(None);
    }
    let path = config.journal.clone().unwrap_or_else(usual_journal);
    let owner = format!("numaherd run, process {}", std::process::id());
    let opened = Journal::open(&path, &release::boot_id()?, &owner).map_err(coded);
    let mut journal = opened.map_err(|error| match config.journal {
        Some(_) => error,
        None => elsewhere(error),
    })?;
    for message in release::give_back(&mut journal) {
        print::say(message);
    }
    Ok(Some(journal))
}

/// An error about the default journal, with advice to put it elsewhere.
fn elsewhere(error: anyhow::Error) -> anyhow::Error {
    let exit = exit::of(&error).unwrap_or(Exit::Failure);
    if exit == Exit::Busy {
        return error;
    }
    let advice = "--journal FILE, or `journal = \"FILE\"` in the configuration, puts it elsewhere";
    ended(exit, format!("{error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::BY_DAMON;

    #[test]
    fn damon_carries_out_every_rule_of_tiered() {
        let rules = numaherd_policy::paging::tiered::RULES.iter();
        let by_damon = BY_DAMON.iter().map(|(rule, _)| *rule);
        assert!(rules.map(|rule| rule.name).eq(by_damon));
    }
}
