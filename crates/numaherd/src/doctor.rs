//! `numaherd doctor`: what can and cannot be observed and done on a machine, how well it can be herded with that, how
//! much could be gained now, and how the program is installed. Takes little more than half a second.

mod installation;
mod level;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use itertools::Itertools as _;
use numaherd_herd::needs::remedies;
use numaherd_host::{
    Doctor as Machine, EventCheck, EventTable, Finding, Host, HostOptions, Selection, Verdict,
};
use numaherd_policy::losses::{Losses, Observer};
use numaherd_policy::registry::{self, NamedPolicy};
use numaherd_show::entry;
use numaherd_topology::{Topology, sysfs};
use numaherd_world::{NewPages, Signal, SignalReport, SignalState, World};
use serde::Serialize;

use self::level::Level;
use crate::cli::Doctor;
use crate::exit::{Exit, OrExit};
use crate::print::{self, Shown};

/// The version of the `--json` output. It changes when a part is removed or changes its meaning, but not when a part
/// is added.
const SCHEMA: u32 = 1;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct DoctorReport {
    #[serde(rename = "numaherd-doctor")]
    schema: u32,
    accuracy: Accuracy,
    losses: Looked,
    #[serde(flatten)]
    machine: Machine,
    policies: Vec<PolicyCheck>,
    installation: Vec<Finding>,
}

/// How well the machine can be herded.
#[derive(Debug, Serialize)]
struct Accuracy {
    level: Level,
    meaning: &'static str,
    /// What keeps it from the next level.
    because: Vec<String>,
    /// The strongest policy that has what it needs.
    policy: Option<&'static str>,
}

/// What the machine loses just now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Looked {
    /// The losses that were observed.
    Seen(Losses),
    /// Why they could not be observed.
    NotSeen(String),
}

/// Whether a policy can run here.
#[derive(Debug, Serialize)]
struct PolicyCheck {
    name: &'static str,
    runs: bool,
    /// Signals that it needs and that are not measured here.
    lacks: Vec<Signal>,
    /// Signals that it would use, but does without.
    without: Vec<Signal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// How long it observes what the machine loses.
const LOOK: Duration = Duration::from_millis(500);

/// Examines the machine and prints the report. Returns [`Exit::Permission`] where no thread may be placed, so that
/// scripts can tell.
///
/// # Errors
/// The tree below the root is not that of a machine.
pub fn doctor(options: &Doctor) -> Result<ExitCode> {
    let report = report(&options.root, options.events.as_deref())?;
    print::shown(options.json, &report, || text(&report))?;
    Ok(match report.accuracy.level {
        Level::Nothing => ExitCode::from(Exit::Permission as u8),
        _ => ExitCode::SUCCESS,
    })
}

fn report(root: &Path, events: Option<&Path>) -> Result<DoctorReport> {
    let topology = sysfs::read(root).or_exit(Exit::Usage)?;
    let events = event_table(events)?;
    let machine = numaherd_host::doctor(root, &topology, &events);
    let (level, because) = level::of(&machine);
    let policies: Vec<_> = registry::for_live_machines()
        .map(|entry| PolicyCheck::of(entry, &machine))
        .collect();
    // Policies that need no signal are baselines; the strongest policies come last.
    let decides = |check: &&PolicyCheck| check.runs && !needs(check.name).is_empty();
    let policy = policies.iter().rev().find(decides).map(|check| check.name);
    let losses = match losses(root, topology, events) {
        Ok(losses) => Looked::Seen(losses),
        Err(why) => Looked::NotSeen(why.to_string()),
    };
    let installation = installation::look(root, |name| lacks(name, &machine), policy);
    Ok(DoctorReport {
        schema: SCHEMA,
        accuracy: Accuracy {
            level,
            meaning: level.meaning(),
            because,
            policy,
        },
        losses,
        machine,
        policies,
        installation,
    })
}

/// What the machine loses in the next half second, or why that is unknown.
fn losses(root: &Path, topology: Topology, events: EventTable) -> Result<Losses> {
    ensure!(root == Path::new("/"), "nothing runs in a captured tree");
    let topology = Arc::new(topology);
    let mut options = HostOptions::new(Selection::Machine);
    options.samples.enabled = false;
    options.events = events;
    let mut host = Host::new(options, topology.clone())?;
    host.attend(&[Signal::MissRate, Signal::LocalRemote, Signal::UncorePenalty]);
    host.run_for(LOOK);
    let snapshot = host.observe()?;
    let losses = Observer::default().look(&snapshot, &topology, None);
    losses.context("the look was cut short; try again")
}

fn needs(policy: &str) -> Vec<Signal> {
    registry::needs(policy).unwrap_or_default()
}

fn lacks(policy: &str, machine: &Machine) -> Vec<Signal> {
    missing(needs(policy), machine)
}

fn missing(mut signals: Vec<Signal>, machine: &Machine) -> Vec<Signal> {
    signals.retain(|&signal| !level::is_measured(machine, signal));
    signals
}

impl PolicyCheck {
    fn of(entry: &NamedPolicy, machine: &Machine) -> Self {
        let lacks = lacks(entry.name, machine);
        let is_for_start = entry.new_pages != NewPages::FirstTouch;
        let note = is_for_start.then_some("for a program that is started with it");
        Self {
            name: entry.name,
            runs: lacks.is_empty(),
            lacks,
            without: missing(registry::also(entry.name).unwrap_or_default(), machine),
            note,
        }
    }
}

/// The built-in events, with those of a user's file before them.
///
/// # Errors
/// The file cannot be read or is wrong: the message names file and line.
pub fn event_table(path: Option<&Path>) -> Result<EventTable> {
    let Some(path) = path else {
        return Ok(EventTable::default());
    };
    let own = EventTable::read(path).or_exit(Exit::Usage)?;
    Ok(own.before(EventTable::built_in()))
}

fn text(report: &DoctorReport) -> Shown {
    let machine = &report.machine;
    let unknown = "unknown";
    let or_unknown = |text: &str| if text.is_empty() { unknown } else { text }.to_owned();
    let virtual_machine = if machine.virtual_machine {
        " (a virtual machine)"
    } else {
        ""
    };
    let mut text = format!(
        "Machine    {}\nProcessor  {}{virtual_machine}\nKernel     {}\n",
        machine.shape,
        or_unknown(&machine.processor),
        machine.kernel.as_deref().unwrap_or(unknown),
    );
    text += &accuracy_text(&report.accuracy);
    let losses = match &report.losses {
        Looked::Seen(losses) => numaherd_show::losses::sentence(losses),
        Looked::NotSeen(why) => format!("not known: {why}"),
    };
    text += &entry(0, "Losses", TOLD, &losses);
    text += "\nSignals\n";
    let alike = machine
        .signals
        .chunk_by(|one, next| one.state == next.state);
    text.extend(alike.map(signals_text));
    if let Some(check) = &machine.events {
        text += &events_text(check);
    }
    text += "\nPolicies\n";
    for check in &report.policies {
        text += &policy_text(check);
    }
    text += "\nRights and limits\n";
    text.extend(machine.abilities.iter().map(finding_text));
    text += "\nWhat else places threads and pages\n";
    text.extend(machine.others.iter().map(finding_text));
    if machine.others.is_empty() {
        text += "  ok    nothing was found\n";
    }
    text += "\nInstallation\n";
    text.extend(report.installation.iter().map(finding_text));
    text
}

fn accuracy_text(accuracy: &Accuracy) -> String {
    let Accuracy {
        level,
        meaning,
        because,
        policy,
    } = accuracy;
    let mut text = entry(0, "Accuracy", TOLD, &format!("{level}: {meaning}"));
    for reason in because {
        text += &entry(TOLD, "-", TOLD + 2, reason);
    }
    let may_place = *level != Level::Nothing;
    let policy = match policy.filter(|_| may_place) {
        Some(name) => format!("the strongest policy that runs here: {name}"),
        None => "no policy that uses measurements can run here".to_owned(),
    };
    text + &entry(0, "", TOLD, &policy)
}

/// The column at which the text of the first lines begins.
const TOLD: usize = 11;

/// The mark (`  ok    `) and what was found, with any details below it.
fn found_text(mark: &str, found: &str, more: Option<&str>) -> String {
    let mut text = entry(2, mark, 8, found);
    text.extend(more.map(|more| entry(0, "", 10, more)));
    text
}

/// Signals that are in the same state.
fn signals_text(reports: &[SignalReport]) -> String {
    let [SignalReport { signal, state }, ..] = reports else {
        return String::new();
    };
    let signals = reports.iter().map(|report| report.signal).join(", ");
    match state {
        SignalState::Measured { source, caveat } => {
            found_text("ok", &format!("{signals}: by {source}"), caveat.as_deref())
        }
        SignalState::Missing { reason, remedy } => {
            let remedy = format!("remedy: {}", remedies(*signal, remedy));
            found_text("no", &format!("{signals}: {reason}"), Some(&remedy))
        }
    }
}

fn events_text(check: &EventCheck) -> String {
    let EventCheck {
        set,
        because,
        source,
        findings,
    } = check;
    let mut text = format!("\nEvents of {set}\n");
    text += &entry(0, "", 2, &format!("{because}; codes: {source}"));
    text.extend(findings.iter().map(finding_text));
    text
}

fn policy_text(check: &PolicyCheck) -> String {
    let PolicyCheck {
        name,
        runs,
        lacks,
        without,
        note,
    } = check;
    let mark = if *runs { "ok" } else { "no" };
    let names = |signals: &[Signal]| signals.iter().join(", ");
    let why = match (lacks.as_slice(), without.as_slice(), note) {
        ([], [], None) => String::new(),
        ([], [], Some(note)) => format!(": {note}"),
        ([], without, _) => format!(": without {}", names(without)),
        (lacks, ..) => format!(": lacks {}", names(lacks)),
    };
    entry(2, mark, 8, &format!("{name}{why}"))
}

fn finding_text(finding: &Finding) -> String {
    let mark = match finding.verdict {
        Verdict::Good => "ok",
        Verdict::Weak => "weak",
        Verdict::Bad => "no",
    };
    let remedy = finding.remedy.as_ref();
    let remedy = remedy.map(|remedy| format!("remedy: {remedy}"));
    let found = format!("{}: {}", finding.subject, finding.found);
    found_text(mark, &found, remedy.as_deref())
}

#[cfg(test)]
mod tests;
