//! `numaherd doctor`: what can and cannot be seen and done on a machine.

use std::path::Path;

use anyhow::Result;
use numaherd_host::{Doctor as Report, EventCheck, EventTable, Finding, Verdict};
use numaherd_policy::registry::{self, Entry, POLICIES};
use numaherd_topology::sysfs;
use numaherd_world::{NewPages, SignalReport, SignalState};

use crate::cli::Doctor;
use crate::exit::{Exit, ended};
use crate::print::{self, Shown};

/// Looks and tells.
///
/// # Errors
/// The tree below the root is not that of a machine.
pub fn doctor(options: &Doctor) -> Result<()> {
    let topology = sysfs::read(&options.root).map_err(|error| ended(Exit::Usage, error))?;
    let events = event_table(options.events.as_deref())?;
    let report = numaherd_host::doctor(&options.root, &topology, &events);
    print::shown(options.json, &report, || text(&report))
}

/// The built-in events, with those of a user's file before them.
///
/// # Errors
/// The file cannot be read or is wrong: the message names file and line.
pub fn event_table(path: Option<&Path>) -> Result<EventTable> {
    let Some(path) = path else {
        return Ok(EventTable::default());
    };
    let own = EventTable::read(path).map_err(|error| ended(Exit::Usage, error))?;
    Ok(own.before(EventTable::built_in()))
}

fn text(report: &Report) -> Shown {
    let unknown = "unknown";
    let or_unknown = |text: &str| if text.is_empty() { unknown } else { text }.to_owned();
    let virtual_machine = if report.virtual_machine {
        " (a virtual machine)"
    } else {
        ""
    };
    let mut text = format!(
        "Machine    {}\nProcessor  {}{virtual_machine}\nKernel     {}\n\nSignals\n",
        report.shape,
        or_unknown(&report.processor),
        report.kernel.as_deref().unwrap_or(unknown),
    );
    for signal in &report.signals {
        text += &signal_text(signal);
    }
    if let Some(check) = &report.events {
        text += &events_text(check);
    }
    text += "\nPolicies\n";
    for entry in POLICIES {
        text += &policy_text(entry, &report.signals);
    }
    text += "\nRights and limits\n";
    text.extend(report.abilities.iter().map(finding_text));
    text += "\nWho else steers\n";
    text.extend(report.others.iter().map(finding_text));
    if report.others.is_empty() {
        text += "  ok    nobody was found\n";
    }
    text
}

fn signal_text(report: &SignalReport) -> String {
    match &report.state {
        SignalState::Measured { source, caveat } => {
            let caveat = caveat
                .as_ref()
                .map(|c| format!("\n          {c}"))
                .unwrap_or_default();
            format!("  ok    {}: by {source}{caveat}\n", report.signal)
        }
        SignalState::Missing { reason, remedy } => {
            format!(
                "  no    {}: {reason}\n          what would help: {remedy}\n",
                report.signal
            )
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
    let mut text = format!("\nEvents of {set}\n  {because}; codes: {source}\n");
    text.extend(findings.iter().map(finding_text));
    text
}

fn policy_text(entry: &Entry, signals: &[SignalReport]) -> String {
    let name = entry.name;
    let needs = registry::needs(name).unwrap_or_default();
    let measured = |need| signals.iter().any(|s| s.signal == need && s.is_measured());
    let missing: Vec<String> = needs
        .into_iter()
        .filter(|&need| !measured(need))
        .map(|need| need.to_string())
        .collect();
    if !missing.is_empty() {
        return format!("  no    {name}: lacks {}\n", missing.join(", "));
    }
    match entry.new_pages {
        NewPages::FirstTouch => format!("  ok    {name}\n"),
        NewPages::Interleave => format!("  ok    {name}: for a program that is started with it\n"),
        NewPages::Random => {
            format!("  no    {name}: the kernel places no new pages at random\n")
        }
    }
}

fn finding_text(finding: &Finding) -> String {
    let mark = match finding.verdict {
        Verdict::Good => "ok  ",
        Verdict::Weak => "weak",
        Verdict::Bad => "no  ",
    };
    let remedy = finding.remedy.as_ref();
    let remedy = remedy
        .map(|r| format!("\n          what would help: {r}"))
        .unwrap_or_default();
    format!("  {mark}  {}: {}{remedy}\n", finding.subject, finding.found)
}
