//! The placements of groups: what each is shown, when, and how their plans are joined.

use std::time::Duration;

use numaherd_topology::Topology;
use numaherd_world::{Placement, Release, Signal, Snapshot, Stray, Unmanaged};

use super::{FIRST_NS, Name, all_needs, interval_of, is_of};
use crate::policy::{GroupOwn, Own, Place, Random};

/// The placements of several groups and of the rest, the rest last.
pub(super) struct GroupsPlacement {
    parts: Vec<Part>,
    needs: Vec<Signal>,
    /// What the parts that were asked last give back.
    released: Vec<Release>,
}

/// One group's placement, or the rest's.
struct Part {
    name: Name,
    placement: Box<dyn Place>,
    /// How often the user wants it to decide.
    users: Option<Duration>,
    /// How often it decides, in ns.
    interval_ns: u64,
    /// What has happened since it was asked last, if anything has.
    since: Option<Snapshot>,
    asked: bool,
}

impl GroupsPlacement {
    /// Nothing seen yet.
    pub(super) fn new(parts: Vec<(Name, Box<dyn Place>, Option<Duration>)>) -> Self {
        let needs = all_needs(parts.iter().map(|(_, placement, _)| placement.needs()));
        let part = |(name, placement, users): (Name, Box<dyn Place>, Option<Duration>)| Part {
            interval_ns: interval_of(&*placement, users),
            name,
            placement,
            users,
            since: None,
            asked: false,
        };
        Self {
            parts: parts.into_iter().map(part).collect(),
            needs,
            released: Vec::new(),
        }
    }
}

impl Part {
    /// What it is to be shown now: all that happened since it was asked last; `None` when it is not its
    /// turn.
    fn turn(&mut self, snapshot: &Snapshot) -> Option<Snapshot> {
        let since = match self.since.take() {
            Some(since) => since.with_later(snapshot),
            None => snapshot.clone(),
        };
        let wanted_ns = if self.asked {
            self.interval_ns
        } else {
            self.interval_ns.min(FIRST_NS)
        };
        // To the nearest interval.
        if since.interval_ns.saturating_add(snapshot.interval_ns / 2) < wanted_ns {
            self.since = Some(since);
            return None;
        }
        self.asked = true;
        Some(since)
    }

    /// What it says of itself, with the user's cadence.
    fn own(&self) -> Own {
        Own {
            interval: self.users.or_else(|| self.placement.interval()),
            stray: self.placement.stray(),
        }
    }
}

impl Place for GroupsPlacement {
    fn needs(&self) -> &[Signal] {
        &self.needs
    }

    fn needs_found_sharing(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.placement.needs_found_sharing())
    }

    fn interval(&self) -> Option<Duration> {
        let quickest = self.parts.iter().map(|part| part.interval_ns).min();
        quickest.map(Duration::from_nanos)
    }

    fn stray(&self) -> Option<Stray> {
        self.rest().stray
    }

    fn groups(&self) -> Vec<GroupOwn> {
        let group = |part: &Part| {
            let name = part.name.clone()?;
            let own = part.own();
            Some(GroupOwn { name, own })
        };
        self.parts.iter().filter_map(group).collect()
    }

    fn rest(&self) -> Own {
        let rest = self.parts.iter().find(|part| part.name.is_none());
        rest.map(Part::own).unwrap_or_default()
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Placement> {
        let mut plan: Vec<Placement> = Vec::new();
        self.released.clear();
        for part in &mut self.parts {
            let Some(mut seen) = part.turn(snapshot) else {
                continue;
            };
            lay_hands_off(&mut seen, &part.name);
            show_wanted(&mut seen, &plan);
            plan.extend(part.placement.place(&seen, topology, random));
            self.released.extend(part.placement.release(&seen));
        }
        plan
    }

    fn release(&mut self, _: &Snapshot) -> Vec<Release> {
        std::mem::take(&mut self.released)
    }
}

/// Marks every thread that is not of this part's processes as not to be touched. One that is so already
/// keeps its reason.
pub(super) fn lay_hands_off(snapshot: &mut Snapshot, name: &Name) {
    let mut threads = std::mem::take(&mut snapshot.threads);
    for thread in threads.iter_mut().filter(|t| t.unmanaged.is_none()) {
        let process = snapshot.process(thread.process);
        if !process.map_or(name.is_none(), |process| is_of(process, name)) {
            thread.unmanaged = Some(Unmanaged::OtherPolicy);
        }
    }
    snapshot.threads = threads;
}

/// Shows the threads of other parts where these want them.
fn show_wanted(snapshot: &mut Snapshot, plan: &[Placement]) {
    for placement in plan {
        // Threads ascend in a snapshot.
        let threads = &mut snapshot.threads;
        if let Ok(at) = threads.binary_search_by_key(&placement.thread, |thread| thread.id) {
            threads[at].assigned = Some(placement.to);
        }
    }
}

/// A snapshot in which only a part's own threads can be steered.
pub(super) fn of_part(snapshot: &Snapshot, name: &Name) -> Snapshot {
    let mut seen = snapshot.clone();
    lay_hands_off(&mut seen, name);
    seen
}
