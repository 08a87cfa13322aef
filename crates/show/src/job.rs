//! What a batch job lost to where its threads and its memory were, in a few lines for the end of the job: how much of
//! the CPU time that it wanted, to what, how much another binding could have saved, and which option of `srun` does so.
//!
//! It is drawn from the ledger of a run that saw the job's processes and no others. By default there is no report on a
//! job that bound its threads itself and had the machine to itself ([`Pinned::Quiet`]): its user has decided. A batch
//! system binds jobs, too; a job that has the machine to itself may run on every CPU.
//!
//! The option follows from the largest loss: against remote memory, each task is bound where its memory is; against
//! caches and controllers, tasks are dealt to sockets in turn. The result of a search for another placement is an upper
//! bound for a binding, because the search knows what the threads did later.
//!
//! Terms: *bound*, of a thread: its affinity is smaller than its cpuset. Shares are of the CPU time that the judged
//! threads wanted ([`numaherd_policy::losses`]).

use std::collections::BTreeMap;

use numaherd_herd::HerdError;
use numaherd_herd::ledger::Header;
use numaherd_policy::losses::{Basis, Losses, Unknown};
use numaherd_topology::CpuSet;
use numaherd_world::Snapshot;
use serde::Serialize;

use crate::losses::{LostTime, LostTimes, by, main, why};
use crate::reading::{Read, Source};
use crate::run::{History, RunModel};
use crate::words::{listed, percent, short};

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// A thread that uses less of a CPU says nothing about how the job is bound.
const BUSY: f64 = 0.1;
/// This share of a job's CPU time counts as the whole job.
const NEARLY_ALL: f64 = 0.9;
/// The least share of the CPU time that is worth an option (chosen here).
const WORTH_AN_OPTION: f64 = 0.01;

/// Whether to report on jobs that bind their threads and have the machine to themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinned {
    /// No report on them.
    #[default]
    Quiet,
    /// They are reported as others are.
    Reported,
}

/// What a job lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What it is called.
    pub name: String,
    /// The ledger that this is drawn from.
    pub ledger: Source,
    /// CPUs of the machine that are online.
    pub cpus: usize,
    /// CPU seconds of its threads.
    pub cpu_s: f64,
    /// The share of these, 0 to 1, in which its threads were bound by their user.
    pub bound: f64,
    /// Whether its threads together were allowed to run on every CPU of the machine.
    pub has_all_cpus: bool,
    /// The most processes that were busy at once.
    pub tasks: usize,
    /// What it lost, by what that is estimated from.
    pub lost: BTreeMap<Basis, LostTime>,
    /// Why lost cores are unknown, if they were at any time.
    pub unknown: Option<Unknown>,
    /// The option of `srun` that could have saved part of it.
    pub option: Option<&'static str>,
}

/// A ledger while it is read.
pub type Reading = Read<Past>;

/// What is kept of the past.
#[derive(Debug, Default)]
pub struct Past {
    cpu_s: f64,
    bound_s: f64,
    /// CPUs that any of its threads was allowed to run on; then the online CPUs of the machine.
    reach: CpuSet,
    online: CpuSet,
    tasks: usize,
    lost: LostTimes,
}

impl Reading {
    /// Begins with a ledger's first line; `name` is the job's name: `job 4711 on node n3`.
    pub fn new(name: &str, header: &Header) -> Self {
        Self::begin(name, header, Past::default())
    }

    /// Ends the reading. `skipped` is the number of records of unknown kind; `damage` is what stopped the reading
    /// before the end of the file.
    pub fn finish(mut self, skipped: u64, damage: Option<&HerdError>) -> Job {
        self.end(skipped, damage);
        let past = self.past;
        let share = |seconds: f64| match past.cpu_s > 0.0 {
            true => seconds / past.cpu_s,
            false => 0.0,
        };
        let mut job = Job {
            schema: SCHEMA,
            name: self.name,
            ledger: self.source,
            cpus: self.model.machine.map_or(0, |machine| machine.cpus),
            cpu_s: past.cpu_s,
            bound: share(past.bound_s),
            has_all_cpus: past.online.is_subset(&past.reach),
            tasks: past.tasks,
            lost: past.lost.by_basis,
            unknown: past.lost.unknown,
            option: None,
        };
        job.option = job.main().and_then(|(_, lost)| option(lost, job.tasks));
        job
    }
}

impl History for Past {
    fn interval(&mut self, _: &RunModel, snapshot: &Snapshot) {
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let mut busy = Vec::new();
        self.online.clone_from(&snapshot.online);
        for thread in &snapshot.threads {
            let share = thread.cpu_share.clamp(0.0, 1.0);
            if share < BUSY {
                continue;
            }
            busy.push(thread.process);
            self.cpu_s += share * seconds;
            let may = thread.cpuset.intersection(&snapshot.online);
            if !may.is_subset(&thread.affinity) {
                self.bound_s += share * seconds;
            }
            self.reach.extend_from(&may.intersection(&thread.affinity));
        }
        busy.sort_unstable();
        busy.dedup();
        self.tasks = self.tasks.max(busy.len());
    }

    fn lost(&mut self, model: &RunModel, losses: &Losses) {
        self.lost.add(losses, model.interval_ns as f64 / 1e9);
    }
}

impl Job {
    /// The estimate that was known for most of the time.
    fn main(&self) -> Option<(Basis, &LostTime)> {
        main(&self.lost)
    }

    /// Whether its user has decided where its threads run, and nobody else is there.
    pub fn is_pinned(&self) -> bool {
        self.bound >= NEARLY_ALL && self.has_all_cpus
    }

    /// Its report, one sentence per line; empty if there is nothing to report.
    pub fn text(&self, pinned: Pinned) -> String {
        if self.is_pinned() && pinned == Pinned::Quiet {
            return String::new();
        }
        let mut lines = vec![format!("{} {}", self.name, self.lost())];
        lines.extend(self.had());
        if let Some(damage) = &self.ledger.damage {
            lines.push(format!(
                "The ledger is damaged, and read up to there: {damage}"
            ));
        }
        lines.join("\n") + "\n"
    }

    /// What it lost, after its name.
    fn lost(&self) -> String {
        let Some((basis, lost)) = self.main() else {
            return match self.unknown {
                Some(unknown) => format!("lost a part that is not known: {}.", why(unknown)),
                None if self.cpu_s > 0.0 => {
                    "used too little CPU time to lose any of it.".to_owned()
                }
                None => "ended before anything was seen of it.".to_owned(),
            };
        };
        let cores = lost.wanted / lost.seconds;
        let of = format!(
            "the {} that it wanted ({}, {})",
            counted_s(lost.wanted),
            short_cores(cores),
            by(basis)
        );
        let Some(mean) = lost.lost.mean else {
            let most = percent(lost.lost.most / lost.wanted);
            let what = match basis {
                Basis::Residency => "remote memory",
                _ => "caches and memory",
            };
            return format!("lost at most {most} of {of} to {what}.");
        };
        if mean <= 0.0005 * lost.wanted {
            return format!("lost nothing of {of} to caches and memory.");
        }
        let parts = lost.parts;
        let mut parts = vec![
            (parts.remote, "remote memory"),
            (parts.caches, "shared caches"),
            (parts.controllers, "busy memory controllers"),
            (parts.cpus, "waits for CPUs"),
        ];
        parts.retain(|(part, _)| *part >= 0.005 * lost.wanted);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let to = match parts.is_empty() {
            true => " to caches and memory".to_owned(),
            false => {
                let share =
                    |(part, to): &(f64, &str)| format!("{} to {to}", percent(part / lost.wanted));
                format!(": {}", listed(parts.iter().map(share)))
            }
        };
        format!("lost {} of {of}{to}.", percent(mean / lost.wanted))
    }

    /// What could have been saved, and how.
    fn had(&self) -> Option<String> {
        let (basis, lost) = self.main()?;
        let Some(had) = lost.recoverable_share() else {
            let lacks = match basis {
                Basis::Residency => {
                    "what caches and controllers cost, and what another placement would have recovered,"
                }
                _ => "what another placement would have recovered",
            };
            let counters = match basis {
                Basis::Uncore => return None,
                Basis::Counters => "the uncore penalty",
                Basis::Residency => "counters",
            };
            return Some(format!("Without {counters}, {lacks} is not known."));
        };
        if had < WORTH_AN_OPTION {
            return Some("No other placement would have recovered much of it.".to_owned());
        }
        let had = percent(had);
        Some(match self.option {
            Some(option) => format!("srun {option} could have recovered up to {had}."),
            None => format!("Another placement of its threads could have recovered up to {had}."),
        })
    }
}

/// The option of `srun` against the largest loss. A single task's threads are bound by its own program.
fn option(lost: &LostTime, tasks: usize) -> Option<&'static str> {
    let parts = lost.parts;
    let worth = lost
        .recoverable_share()
        .is_some_and(|had| had >= WORTH_AN_OPTION);
    let largest = parts.remote.max(parts.caches).max(parts.controllers);
    if !worth || largest <= parts.cpus {
        return None;
    }
    let is_remote = parts.remote == largest;
    match (is_remote, tasks) {
        (true, 1) => Some("--cpu-bind=ldoms --mem-bind=local"),
        (true, _) => Some("--cpu-bind=cores --mem-bind=local"),
        (false, 1) => None,
        (false, _) => Some("--distribution=block:cyclic --cpu-bind=cores --mem-bind=local"),
    }
}

/// `31 s of CPU time`.
fn counted_s(seconds: f64) -> String {
    format!("{} s of CPU time", short(seconds))
}

/// `4 cores`.
fn short_cores(cores: f64) -> String {
    match (cores - 1.0).abs() < 0.05 {
        true => "1 core".to_owned(),
        false => format!("{} cores", short(cores)),
    }
}
