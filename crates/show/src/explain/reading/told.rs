//! Puts together what was read, for those who were chosen.

use std::collections::BTreeMap;

use numaherd_herd::ledger::{Ledger, Start};
use numaherd_policy::registry::{self, POLICIES};
use numaherd_world::ProcessId;

use super::Reading;
use crate::error::ShowError;
use crate::explain::story::Track;
use crate::explain::{About, Choice, Explanation, Machine, ProcessStory, Run, SCHEMA, Source};
use crate::totals::Totals;

/// Most processes or threads that a message names.
const MOST_NAMED: usize = 20;

impl Reading<'_> {
    /// Looks whether who was chosen is there.
    ///
    /// # Errors
    /// See [`crate::explain::explain`].
    pub(in crate::explain) fn check(&self, chosen: Choice) -> Result<(), ShowError> {
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

    /// Puts together what was read.
    pub(in crate::explain) fn explanation(
        mut self,
        ledger: &Ledger,
        chosen: Choice,
    ) -> Explanation {
        let run = self.start.map(|start| self.run(start));
        let topology = self.topology();
        let mut stories: BTreeMap<Option<ProcessId>, ProcessStory> = BTreeMap::new();
        let mut left_out_threads = 0;
        let narrowed = chosen != Choice::default();
        for (id, track) in std::mem::take(&mut self.threads) {
            let chosen = of_process(&track, chosen.pid) && chosen.tid.is_none_or(|t| t == id.tid);
            if !chosen {
                continue;
            }
            if !narrowed && !track.is_told_of() {
                left_out_threads += 1;
                continue;
            }
            let process = track.process;
            let known = process.and_then(|process| self.processes.get(&process));
            let story = stories.entry(process).or_insert_with(|| ProcessStory {
                pid: process.map(|process| process.pid),
                name: known.map(|known| known.name.clone()),
                guest: known.and_then(|known| known.guest.clone()),
                pages: known.and_then(|known| known.pages.clone()),
                threads: Vec::new(),
            });
            story.threads.push(track.told(id, topology));
        }
        Explanation {
            schema: SCHEMA,
            ledger: source(ledger),
            run,
            chosen,
            processes: stories.into_values().collect(),
            left_out_threads,
        }
    }

    fn run(&mut self, start: &Start) -> Run {
        let topology = &start.topology;
        Run {
            machine: Machine {
                name: topology.name().to_owned(),
                nodes: topology.nodes().len(),
                domains: topology.domains().len(),
                cpus: topology.online_cpus().len(),
            },
            about: about(&start.policy),
            policy: start.policy.clone(),
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
