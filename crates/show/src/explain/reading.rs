//! Reads a ledger line by line, and puts the explanation together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use itertools::Itertools as _;
use numaherd_herd::HerdError;
use numaherd_herd::ledger::{Header, Start};
use numaherd_policy::registry::{self, PAGINGS, PLACEMENTS, POLICIES};
use numaherd_world::ProcessId;

use super::choice::{Choice, Chosen};
use super::followed::Around;
use super::history::Stories;
use super::story::Track;
use super::{About, CitedRule, Explanation, Machine, ProcessStory, Run, SCHEMA, Trend};
use crate::error::ShowError;
use crate::reading::Read;
use crate::run::sum;

/// The most processes or threads that a message names.
const MOST_NAMED: usize = 20;

/// A run while its ledger is read.
pub type Reading = Read<Stories>;

impl Reading {
    /// Begins with a ledger's first line; `choice` says what to explain.
    pub fn new(header: &Header, choice: Choice) -> Self {
        Self::begin("", header, Stories::of(Chosen::of(choice)))
    }

    /// Ends the reading. `skipped` is the number of records of unknown kind; `damage` is what stopped the reading
    /// before the end of the file.
    ///
    /// # Errors
    /// [`ShowError`] if the ledger does not hold what was chosen; the message says what it holds.
    pub fn finish(
        mut self,
        skipped: u64,
        damage: Option<&HerdError>,
    ) -> Result<Explanation, ShowError> {
        self.end(skipped, damage);
        self.past.chosen.check()?;
        self.check_name()?;
        self.check_numbers()?;
        Ok(self.explanation())
    }

    fn choice(&self) -> &Choice {
        &self.past.chosen.choice
    }

    fn check_numbers(&self) -> Result<(), ShowError> {
        let Stories {
            threads, processes, ..
        } = &self.past;
        let (pid, tid) = (self.choice().pid, self.choice().tid);
        if let Some(pid) = pid.filter(|pid| !processes.keys().any(|id| id.pid == *pid)) {
            let names = processes.iter();
            let names = names.map(|(id, track)| format!("{} ({})", id.pid, track.name));
            let known = there_are("processes", names);
            return Err(ShowError::NoSuchProcess { pid, known });
        }
        let of_process = threads.iter().filter(|(_, track)| of_process(track, pid));
        let is_there = |tid: &u32| of_process.clone().any(|(id, _)| id.tid == *tid);
        if let Some(tid) = tid.filter(|tid| !is_there(tid)) {
            let of = pid.map_or_else(String::new, |pid| format!(" in process {pid}"));
            let known = there_are("threads", of_process.map(|(&id, track)| track.shown(id)));
            return Err(ShowError::NoSuchThread { tid, of, known });
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), ShowError> {
        let Some(name) = &self.choice().name else {
            return Ok(());
        };
        let mut threads = self.past.threads.values();
        if threads.any(|track| self.is_named(track)) {
            return Ok(());
        }
        let processes = self.past.processes.values();
        let names: BTreeSet<&String> = processes.map(|process| &process.name).collect();
        Err(ShowError::NoSuchName {
            name: name.clone(),
            known: there_are("processes", names),
        })
    }

    /// Whether a thread, or its process, has the name that is asked for.
    fn is_named(&self, track: &Track) -> bool {
        let Some(name) = &self.choice().name else {
            return true;
        };
        let process = track.process.and_then(|id| self.past.processes.get(&id));
        track.name() == name || process.is_some_and(|process| process.name == *name)
    }

    fn explanation(mut self) -> Explanation {
        let run = self.model.start().cloned().map(|start| self.run(start));
        let choice = self.choice().clone();
        let any_decision = choice.is_of_threads() && !choice.is_of_decisions();
        let mut stories: BTreeMap<Option<ProcessId>, ProcessStory> = BTreeMap::new();
        let mut left_out_threads = 0;
        let text = |shared: Option<&str>| shared.map(str::to_owned);
        for (id, track) in std::mem::take(&mut self.past.threads) {
            let is_chosen = of_process(&track, choice.pid)
                && choice.tid.is_none_or(|tid| tid == id.tid)
                && self.is_named(&track);
            if !is_chosen {
                continue;
            }
            if !any_decision && !track.has_decisions() {
                left_out_threads += 1;
                continue;
            }
            let process = track.process;
            let known = process.and_then(|process| self.past.processes.get(&process));
            let story = stories.entry(process).or_insert_with(|| ProcessStory {
                pid: process.map(|process| process.pid),
                name: known.map(|known| known.name.clone()),
                guest: known.and_then(|known| known.guest.as_deref().cloned()),
                group: text(known.and_then(|known| known.group.as_deref())),
                memory_policy: text(known.and_then(|known| known.memory_policy.as_deref())),
                pages: known.and_then(|known| known.pages.clone()),
                threads: Vec::new(),
            });
            let around = Around {
                topology: self.model.topology(),
                me: id,
                residencies: known.map_or(&[], |known| &known.residencies),
                moved: &self.past.moved,
            };
            story.threads.push(track.finish(&around));
        }
        Explanation {
            schema: SCHEMA,
            ledger: self.source,
            run,
            chosen: choice,
            processes: stories.into_values().collect(),
            left_out_threads,
        }
    }

    fn run(&mut self, start: Start) -> Run {
        let topology = &start.topology;
        let current = self.model.current().unwrap_or(&start);
        Run {
            machine: Machine {
                name: topology.name().to_owned(),
                nodes: topology.nodes().len(),
                domains: topology.domains().len(),
                cpus: topology.online_cpus().len(),
            },
            about: about(&start.policy),
            policy_now: current.policy.clone(),
            paused: current.paused,
            asked: std::mem::take(&mut self.past.asked),
            local_access_ratio: trend(&self.past.accesses),
            seed: start.seed,
            pager: start.pager,
            ending: self.model.ended.clone(),
            totals: self.model.totals.clone(),
            notices: std::mem::take(&mut self.past.notices),
            gaps: std::mem::take(&mut self.past.gaps),
            policy: start.policy,
            settings: start.settings,
            signals: start.signals,
        }
    }
}

/// The local access ratio in the first and in the last tenth of the intervals.
fn trend(accesses: &[(u64, u64)]) -> Option<Trend> {
    let counted: Vec<_> = accesses.iter().filter(|(_, all)| *all > 0).collect();
    let tenth = counted.len().div_ceil(10);
    let ratio = |of: &[&(u64, u64)]| {
        let local = sum(of.iter().map(|(local, _)| *local));
        local as f64 / sum(of.iter().map(|(_, all)| *all)) as f64
    };
    (counted.len() > 1).then(|| Trend {
        first: ratio(&counted[..tenth]),
        last: ratio(&counted[counted.len() - tenth..]),
        intervals: tenth as u64,
    })
}

fn of_process(track: &Track, pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| track.process.is_some_and(|process| process.pid == pid))
}

fn there_are(what: &str, names: impl IntoIterator<Item = impl Display>) -> String {
    let mut names = names.into_iter();
    let first = names.by_ref().take(MOST_NAMED).join(", ");
    match names.count() {
        _ if first.is_empty() => format!("it contains no {what}"),
        0 => format!("{what} there are: {first}"),
        more => format!("{what} there are: {first}, and {more} more"),
    }
}

/// What a policy does, by its name, where this program knows it.
pub(crate) fn about(policy: &str) -> Option<About> {
    if let Some(entry) = POLICIES.iter().find(|entry| entry.name == policy) {
        return Some(About {
            what: entry.about.to_owned(),
            source: entry.source.to_owned(),
        });
    }
    let (placement, paging) = registry::halves(policy).ok()?;
    Some(About {
        what: format!("{}; {}", placement.about, paging.about),
        source: format!("{}; {}", placement.source, paging.source),
    })
}

/// A rule by its name, with its source where this program knows it.
pub(crate) fn cited(name: &str) -> CitedRule {
    let placements = PLACEMENTS.iter().flat_map(|half| half.rules);
    let pagings = PAGINGS.iter().flat_map(|half| half.rules);
    let known = placements.chain(pagings).find(|rule| rule.name == name);
    CitedRule {
        name: name.to_owned(),
        source: known.map(|rule| rule.source),
        what: known.map(|rule| rule.what),
    }
}
