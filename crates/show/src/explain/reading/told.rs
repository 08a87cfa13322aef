//! Puts together what was read, for those who were chosen.

use std::collections::BTreeMap;

use numaherd_herd::ledger::{Ledger, Start};
use numaherd_policy::registry::{self, POLICIES};
use numaherd_world::ProcessId;

use super::{Accesses, Reading};
use crate::error::ShowError;
use crate::explain::followed::Around;
use crate::explain::story::Track;
use crate::explain::{About, Explanation, Machine, ProcessStory, Run, SCHEMA, Source, Trend};
use crate::totals::{Totals, sum};

/// Most processes or threads that a message names.
const MOST_NAMED: usize = 20;

impl Reading<'_> {
    /// Looks whether who was chosen is there.
    ///
    /// # Errors
    /// See [`crate::explain::explain`].
    pub(in crate::explain) fn check(&self) -> Result<(), ShowError> {
        let chosen = &self.choice;
        self.check_name()?;
        if let Some(pid) = chosen.pid
            && !self.processes.keys().any(|process| process.pid == pid)
        {
            let names: Vec<String> = self
                .processes
                .iter()
                .map(|(id, track)| format!("{} ({})", id.pid, track.name))
                .collect();
            return Err(ShowError::NoSuchProcess {
                pid,
                known: there_are("processes", &names),
            });
        }
        let of_process = |track: &Track| of_process(track, chosen.pid);
        if let Some(tid) = chosen.tid
            && !self
                .threads
                .iter()
                .any(|(id, track)| id.tid == tid && of_process(track))
        {
            let names: Vec<String> = self
                .threads
                .iter()
                .filter(|(_, track)| of_process(track))
                .map(|(&id, track)| track.shown(id))
                .collect();
            return Err(ShowError::NoSuchThread {
                tid,
                of: chosen
                    .pid
                    .map_or_else(String::new, |pid| format!(" in process {pid}")),
                known: there_are("threads", &names),
            });
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), ShowError> {
        let Some(name) = &self.choice.name else {
            return Ok(());
        };
        if self.threads.values().any(|track| self.is_named(track)) {
            return Ok(());
        }
        let mut names: Vec<String> = self.processes.values().map(|p| p.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Err(ShowError::NoSuchName {
            name: name.clone(),
            known: there_are("processes", &names),
        })
    }

    /// Whether a thread is of the name that is asked for, or of a process of that name.
    fn is_named(&self, track: &Track) -> bool {
        let Some(name) = &self.choice.name else {
            return true;
        };
        let process = track.process.and_then(|id| self.processes.get(&id));
        track.name() == name || process.is_some_and(|process| process.name == *name)
    }

    /// Puts together what was read.
    pub(in crate::explain) fn explanation(mut self, ledger: &Ledger) -> Explanation {
        let run = self.start.map(|start| self.run(start));
        let topology = self.topology();
        let mut stories: BTreeMap<Option<ProcessId>, ProcessStory> = BTreeMap::new();
        let mut left_out_threads = 0;
        let choice = self.choice.clone();
        let any_decision = choice.is_of_threads() && !choice.is_of_decisions();
        for (id, track) in std::mem::take(&mut self.threads) {
            let is_chosen = of_process(&track, choice.pid)
                && choice.tid.is_none_or(|tid| tid == id.tid)
                && self.is_named(&track);
            if !is_chosen {
                continue;
            }
            if !any_decision && !track.is_told_of() {
                left_out_threads += 1;
                continue;
            }
            let process = track.process;
            let known = process.and_then(|process| self.processes.get(&process));
            let story = stories.entry(process).or_insert_with(|| ProcessStory {
                pid: process.map(|process| process.pid),
                name: known.map(|known| known.name.clone()),
                guest: known.and_then(|known| known.guest.clone()),
                group: known.and_then(|known| known.group.as_deref().map(str::to_owned)),
                pages: known.and_then(|known| known.pages.clone()),
                threads: Vec::new(),
            });
            let residencies = process.and_then(|process| self.residencies.get(&process));
            let around = Around {
                topology,
                me: id,
                residencies: residencies.map_or(&[], Vec::as_slice),
                moved: &self.moved,
            };
            story.threads.push(track.told(&around));
        }
        Explanation {
            schema: SCHEMA,
            ledger: source(ledger),
            run,
            chosen: choice,
            processes: stories.into_values().collect(),
            left_out_threads,
        }
    }

    fn run(&mut self, start: &Start) -> Run {
        let topology = &start.topology;
        let now = self.now.as_ref().unwrap_or(start);
        Run {
            machine: Machine {
                name: topology.name().to_owned(),
                nodes: topology.nodes().len(),
                domains: topology.domains().len(),
                cpus: topology.online_cpus().len(),
            },
            about: about(&start.policy),
            policy: start.policy.clone(),
            policy_now: now.policy.clone(),
            paused: now.paused,
            asked: std::mem::take(&mut self.asked),
            local_access_ratio: self.trend(),
            seed: start.seed,
            settings: start.settings.clone(),
            pager: start.pager,
            signals: start.signals.clone(),
            ending: self.end.map(|end| end.ending.clone()),
            totals: self.end.map_or_else(|| self.totals.clone(), Totals::from),
            notices: std::mem::take(&mut self.notices),
            gaps: std::mem::take(&mut self.gaps),
        }
    }
}

impl Reading<'_> {
    /// The local access ratio in the first and in the last tenth of the intervals.
    fn trend(&self) -> Option<Trend> {
        let counted: Vec<_> = self.accesses.iter().filter(|a| a.all > 0).collect();
        let tenth = counted.len().div_ceil(10);
        let ratio = |of: &[&Accesses]| {
            let local = sum(of.iter().map(|accesses| accesses.local));
            local as f64 / sum(of.iter().map(|accesses| accesses.all)) as f64
        };
        (counted.len() > 1).then(|| Trend {
            first: ratio(&counted[..tenth]),
            last: ratio(&counted[counted.len() - tenth..]),
            intervals: tenth as u64,
        })
    }
}

fn source(ledger: &Ledger) -> Source {
    Source {
        program: ledger.header.program.clone(),
        begun_unix_ms: ledger.header.begun_unix_ms,
        // A file that was begun when the one before had grown too large goes on counting.
        later_part: ledger.lines.first().is_some_and(|line| line.sequence > 0),
        unknown_records: ledger.skipped,
        damage: ledger.damage.as_ref().map(ToString::to_string),
    }
}

fn of_process(track: &Track, pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| track.process.is_some_and(|process| process.pid == pid))
}

fn there_are(what: &str, names: &[String]) -> String {
    match names.len() {
        0 => format!("it holds no {what} at all"),
        many if many > MOST_NAMED => format!(
            "{what} there are: {}, and {} more",
            names[..MOST_NAMED].join(", "),
            many - MOST_NAMED
        ),
        _ => format!("{what} there are: {}", names.join(", ")),
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
