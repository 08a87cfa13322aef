//! `numaherd record`: observes a machine without deciding anything, and records all that `numaherd replay` needs to
//! ask policies later.
//!
//! It is a dry run of `linux` that attends to signals which `linux` does not need: a world measures only what
//! a policy needs, and the policies of later replays are not known yet. Every interval is recorded, whatever the
//! cadence ([`numaherd_herd::Settings::record_interval_ms`] is 0): a policy that keeps averages can be
//! replayed to the bit.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use numaherd_herd::replay::Wants;
use numaherd_herd::{Line, Summary, needs};
use numaherd_policy::groups::Policies;
use numaherd_policy::registry;
use numaherd_policy::{Needs, Place, Policy, Random};
use numaherd_show::replay::{Recorded, recorded};
use numaherd_show::run::{Content, RunModel};
use numaherd_topology::{Topology, sysfs};
use numaherd_world::{Placement, Signal, SignalReport, Snapshot};

use crate::cli::{self, HerdFiles, Run, Steering};
use crate::exit::{Exit, OrExit, coded};
use crate::run::{self, Attached, Group, Purpose};
use crate::{doctor, lock, print};

/// The machine that is recorded.
const ROOT: &str = "/";

/// Observes and records until told to stop, and says what the recording can be replayed with.
///
/// # Errors
/// As `numaherd run`; a policy that is named is unknown, or needs a signal that this machine does not
/// measure.
pub fn record(options: &cli::Record) -> Result<ExitCode> {
    let topology = sysfs::read(Path::new(ROOT))?;
    let events = doctor::event_table(options.events.as_deref())?;
    let signals = numaherd_host::signals(Path::new(ROOT), &topology, &events);
    let attended = attended(&options.for_policies, &signals)?;

    let seen = Arc::new(Mutex::new(RunModel::new()));
    let run = seen.clone();
    let watcher = move |line: &Arc<Line>| lock(&run).take(line);
    let printed = |_: &Summary| {
        let run = lock(&seen);
        let bytes = std::fs::metadata(&options.output).map_or(0, |file| file.len());
        let found = Recorded::of(&run, bytes, &wants(), &signals);
        print::shown(options.json, &found, || recorded(&found))
    };
    let attached = Attached {
        watchers: vec![Box::new(watcher)],
        purpose: Some(Purpose {
            policy: Some(watching(attended)?),
            group: Group::Callers,
            begin: Box::new(drop),
            printed: Box::new(printed),
        }),
        ..Attached::default()
    };
    run::herd(&as_run(options), attached)
}

/// The same as options of `run`.
fn as_run(options: &cli::Record) -> Run {
    Run {
        selection: options.selection.clone(),
        steering: Steering {
            dry_run: true,
            interval: options.interval,
            ..Steering::default()
        },
        length: options.length,
        files: HerdFiles {
            config: Some("none".into()),
            events: options.events.clone(),
            ledger: Some(options.output.clone()),
            journal: None,
        },
        json: options.json,
        program: options.program.clone(),
        ..Run::default()
    }
}

/// The signals to measure: those that placements of these policies use, or all that are measured. Single accesses are
/// not among them: no ledger holds them.
fn attended(policies: &[String], signals: &[SignalReport]) -> Result<Vec<Signal>> {
    let measured = signals.iter().filter(|report| report.is_measured());
    let measured = measured.map(|report| report.signal);
    let measured: Vec<Signal> = measured
        .filter(|&signal| Content::can_hold(signal))
        .collect();
    if policies.is_empty() {
        return Ok(measured);
    }
    let mut attended = Vec::new();
    for name in policies {
        let usual = numaherd_policy::Settings::default();
        let mut policy = registry::build(name.trim(), &usual).or_exit(Exit::Usage)?;
        // The accesses that its paging uses cannot be recorded; `recorded` says so.
        policy.paging = registry::build("linux", &usual)?.paging;
        needs::check(&policy.name, &policy.needs(), signals, &[]).map_err(coded)?;
        let mut attends = Policies::from(policy).attends();
        attends.retain(|signal| measured.contains(signal));
        attended.extend(attends);
    }
    attended.sort_unstable();
    attended.dedup();
    Ok(attended)
}

/// The signals that each policy decides on.
fn wants() -> Vec<Wants> {
    let usual = numaherd_policy::Settings::default();
    let entries = registry::for_live_machines();
    let built = entries.filter_map(|entry| registry::build(entry.name, &usual).ok());
    built.map(|policy| Wants::of(&policy)).collect()
}

/// The policy that observes: `linux`, for which the world measures more.
fn watching(attended: Vec<Signal>) -> Result<Policy> {
    let linux = registry::build("linux", &numaherd_policy::Settings::default())?;
    Ok(Policy {
        placement: Box::new(Watching { attended }),
        ..linux
    })
}

/// Moves nothing.
struct Watching {
    attended: Vec<Signal>,
}

impl Place for Watching {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&self.attended)
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use numaherd_world::SignalState;

    use super::*;

    /// A machine that measures these and nothing else.
    fn signals(measured: &[Signal]) -> Vec<SignalReport> {
        let report = |signal| SignalReport {
            signal,
            state: if measured.contains(&signal) {
                SignalState::Measured {
                    source: "a test".to_owned(),
                    caveat: None,
                }
            } else {
                SignalState::Missing {
                    reason: "nothing counts it".to_owned(),
                    remedy: "a machine that does".to_owned(),
                }
            },
        };
        Signal::ALL.into_iter().map(report).collect()
    }

    #[test]
    fn everything_is_measured_that_there_is_and_a_ledger_holds() {
        let here = signals(&[Signal::CpuUse, Signal::MissRate, Signal::MemorySamples]);
        let attended = attended(&[], &here).unwrap();
        assert_eq!(attended, [Signal::CpuUse, Signal::MissRate]);
        let policy = watching(attended).unwrap();
        assert_eq!(policy.needs(), [Signal::CpuUse, Signal::MissRate]);
    }

    #[test]
    fn for_a_policy_what_its_threads_go_by_is_measured() {
        let here = signals(&[Signal::CpuUse, Signal::MissRate, Signal::Residency]);
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            attended(&names, &here)
        };
        // Its paging uses memory samples, which are not here.
        assert_eq!(
            named(&["dino"]).unwrap(),
            [Signal::CpuUse, Signal::MissRate]
        );
        let both = [Signal::CpuUse, Signal::MissRate, Signal::Residency];
        assert_eq!(named(&["dino", "n-mass"]).unwrap(), both);
        let refused = named(&["brm"]).unwrap_err();
        assert_eq!(crate::exit::of(&refused), Some(Exit::SignalMissing));
        assert!(
            refused
                .to_string()
                .contains("needs the signal uncore penalty"),
            "{refused}"
        );
        assert_eq!(
            crate::exit::of(&named(&["dimo"]).unwrap_err()),
            Some(Exit::Usage)
        );
    }
}
