//! When to act where nothing is counted.
//!
//! Problem: only counters show the outcome of an action. Without them, no action is verified, refunded or undone, and
//! threads would for ever follow loads that come and go. Rule: an action that cannot be verified counts as one without a
//! gain. A process is acted on only if every look over 10 s wanted the same of the same threads; then it rests, for
//! twice as long each time. A held thread is let go if threads wait for its domain's CPUs while another domain has some.
//!
//! Properties: a process that has been seen for `s` seconds was acted on at most `log2(s)` times.

use std::collections::BTreeMap;
use std::time::Duration;

use numaherd_world::{ProcessId, ThreadId};

use super::search::{Candidate, ROOM};
use crate::estimate::{Load, Picture};

/// For how long the same must have been wanted; a process then rests for twice as long at first (chosen here).
pub(super) const SEEN: Duration = Duration::from_secs(10);

/// What is wanted of a thread: its domain, and whether its process's memory follows.
type Aim = (usize, bool);

/// What was wanted, and what was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Uncounted {
    /// For each thread of the last look's layout: what is wanted of it, and since when, in ns.
    wanted: BTreeMap<ThreadId, (Aim, u64)>,
    /// How often a process was acted on, and until when it rests, in ns.
    acted: BTreeMap<ProcessId, (u32, u64)>,
}

impl Uncounted {
    /// Whether a process rests.
    pub(super) fn rests(&self, process: ProcessId, now_ns: u64) -> bool {
        self.acted
            .get(&process)
            .is_some_and(|&(_, until_ns)| now_ns < until_ns)
    }

    /// Begins a look: nothing is wanted yet. Returns what the last look wanted, for [`Self::has_lasted`].
    pub(super) fn begin(&mut self, picture: &Picture) -> Self {
        self.acted
            .retain(|&process, _| picture.processes.iter().any(|owner| owner.id == process));
        Self {
            wanted: std::mem::take(&mut self.wanted),
            acted: BTreeMap::new(),
        }
    }

    /// Whether all that a layout wants has been wanted for long enough. `before` is what the last look wanted.
    pub(super) fn has_lasted(
        &mut self,
        before: &Self,
        picture: &Picture,
        layout: &Candidate,
        now_ns: u64,
    ) -> bool {
        for (load, aim) in aims(picture, layout) {
            let known = before.wanted.get(&load.id).filter(|(was, _)| *was == aim);
            let since_ns = known.map_or(now_ns, |&(_, since_ns)| since_ns);
            self.wanted.insert(load.id, (aim, since_ns));
        }
        let lasted = |&(_, since_ns): &(Aim, u64)| u128::from(now_ns - since_ns) >= SEEN.as_nanos();
        self.wanted.values().all(lasted)
    }

    /// Notes that a layout is carried out: its processes rest.
    pub(super) fn act(&mut self, picture: &Picture, layout: &Candidate, now_ns: u64) {
        let mut processes: Vec<ProcessId> = aims(picture, layout)
            .map(|(load, _)| picture.processes[load.process].id)
            .collect();
        processes.dedup();
        for process in processes {
            let (times, until_ns) = self.acted.entry(process).or_default();
            *times += 1;
            // Casts and powers saturate: it then rests for ever.
            let rest_ns = SEEN.as_nanos() as u64;
            *until_ns = now_ns.saturating_add(rest_ns.saturating_mul(2u64.saturating_pow(*times)));
        }
        self.wanted.clear();
    }
}

/// What a layout does with threads that it may place.
fn aims<'a>(picture: &'a Picture, layout: &'a Candidate) -> impl Iterator<Item = (&'a Load, Aim)> {
    let threads = picture.threads.iter().zip(&layout.cpus);
    threads.filter_map(|(load, &cpu)| {
        let follows = layout.memory[load.process].moves();
        let is_wanted = load.is_free && (follows || picture.is_move(load, cpu));
        let seat = picture.seat(cpu).filter(|_| is_wanted)?;
        Some((load, (seat.domain, follows)))
    })
}

/// Whether threads wait for the CPUs of a domain while another has some to spare.
pub(super) fn is_short(picture: &Picture, wanted: &[f64], domain: usize) -> bool {
    let cpus = picture.cores.cpus();
    let spare = |other: usize| wanted[other] + 1.0 <= cpus[other] + ROOM;
    wanted[domain] > cpus[domain] + ROOM && (0..cpus.len()).any(spare)
}
