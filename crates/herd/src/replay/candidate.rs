//! A policy that is asked what it would have decided on a recording.
//!
//! There are two ways to ask ([`Basis`]), since after the first different decision a recording shows a
//! machine that the replayed policy would not have met:
//!
//! * *recorded*: each interval is judged from the situation as recorded, including the cores given by the
//!   recorded policy. This compares what the two policies *wanted*. The governor is left out: what it lets
//!   through depends on what was moved before, which is here the recorded policy's doing.
//! * *carried*: the replayed policy's orders are carried on from interval to interval
//!   ([`carried`](super::carried)), through its own governor. This compares where the two *had* the
//!   threads.
//!
//! Properties: with the policy, settings and seed of the recorded run, on a ledger with every interval,
//! both give its own decisions: *recorded* for a dry run, *carried* for a real one.
//!
//! Pages: a paging that depends only on the placement says what it would order. One that needs samples or
//! notices cannot be replayed, as a ledger does not hold them, and is not asked.

use std::sync::Arc;
use std::time::Duration;

use numaherd_policy::groups::Policies;
use numaherd_policy::{PlacedThread, Policy, Random};
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{PageOrder, Placement, Plan, Release, Signal, Snapshot, ThreadId};
use rand::SeedableRng;

use super::carried::Carried;
use super::interval::{Interval, places};
use crate::governor::{Refusal, Stolen, ThreadGovernor, Undone};
use crate::groups::{Placements, halves};
use crate::paging::{News, Observed, PagingHalf, Placed};
use crate::settings::Settings;

/// From which situation a replayed policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Each interval as it was recorded.
    Recorded,
    /// The recorded machine with the replayed policy's own placement so far.
    Carried,
}

/// What a replayed policy decided on an interval.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What it saw: the recorded snapshot, or one with its own placement carried on.
    pub seen: Arc<Snapshot>,
    /// What it wanted.
    pub placements: Vec<Placement>,
    /// What it gave back to the kernel.
    pub releases: Vec<Release>,
    /// What its governor refused; empty without one ([`Basis::Recorded`]).
    pub refusals: Vec<Refusal>,
    /// Moves that its governor undid.
    pub undone: Vec<Undone>,
    /// Threads that its governor gave to idle nodes.
    pub stolen: Vec<Stolen>,
    /// Where it then wants each thread ([`Basis::Recorded`]) or has it ([`Basis::Carried`]), in the order
    /// of the snapshot's threads.
    pub places: Vec<CpuId>,
    /// Page orders that follow from the placement; they are not carried on.
    pub pages: Vec<PageOrder>,
}

/// What a policy decides on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Its name.
    pub policy: String,
    /// The signals that its placement cannot do without.
    pub placement: Vec<Signal>,
    /// Whether its placement depends on which threads share pages, as a paging found from samples: a
    /// recording holds that if the recorded policy's paging found it.
    pub sharing: bool,
    /// The signals without which its paging cannot be asked, none of which a ledger holds; empty if it is
    /// asked.
    pub paging: Vec<Signal>,
}

impl Wants {
    /// What this policy decides on.
    pub fn of(policy: &Policy) -> Self {
        Self {
            policy: policy.name.clone(),
            placement: policy.placement.needs().signals.to_vec(),
            sharing: policy.placement.needs().found_sharing,
            paging: policy.paging.needs().signals.to_vec(),
        }
    }
}

/// A policy that sees a recording.
pub struct Candidate {
    wants: Wants,
    placements: Placements,
    cadence: Option<Duration>,
    random: Random,
    topology: Arc<Topology>,
    paging: Option<PagingHalf>,
    /// Of [`Basis::Carried`].
    carried: Option<(ThreadGovernor, Carried)>,
}

impl Candidate {
    /// A policy that has seen nothing yet. Of the settings, limits, enforcement and seed count.
    pub fn new(
        policy: Policy,
        settings: &Settings,
        topology: &Arc<Topology>,
        basis: Basis,
    ) -> Self {
        let wants = Wants::of(&policy);
        let cadence = policy.placement.needs().own.interval;
        let policies = Policies::from(policy);
        let settings = Settings {
            dry_run: true,
            ..settings.clone().resolved(&policies.own())
        };
        let random = Random::seed_from_u64(settings.seed);
        let mut paging_random = random.clone();
        paging_random.jump();
        let (placements, pagings) = halves(policies.parts);
        let paging = || PagingHalf::new(pagings, &settings, topology.clone(), paging_random);
        let paging = wants.paging.is_empty().then(paging);
        let governor =
            || ThreadGovernor::new(&settings.limits, topology).enforced(settings.enforce);
        Self {
            wants,
            placements,
            cadence,
            random,
            topology: topology.clone(),
            paging,
            carried: (basis == Basis::Carried).then(|| (governor(), Carried::default())),
        }
    }

    /// What it decides on.
    pub fn wants(&self) -> &Wants {
        &self.wants
    }

    /// How often its placement is to be asked, if its source says so: a recording of longer intervals does
    /// not show what it would have done in between.
    pub fn cadence(&self) -> Option<Duration> {
        self.cadence
    }

    /// What it decides in the next interval.
    pub fn decide(&mut self, interval: &Interval) -> Decided {
        let seen = match &mut self.carried {
            Some((_, carried)) => carried.seen(&interval.snapshot),
            None => interval.snapshot.clone(),
        };
        let Plan {
            placements,
            releases,
            pages,
        } = self
            .placements
            .plan(&seen, &self.topology, &mut self.random);
        let mut decided = Decided {
            seen,
            placements,
            releases,
            refusals: Vec::new(),
            undone: Vec::new(),
            stolen: Vec::new(),
            places: Vec::new(),
            pages,
        };
        self.go_to(interval, &mut decided);
        decided.pages = self.page_orders(&decided);
        decided
    }

    /// Where the threads are from here on.
    fn go_to(&mut self, interval: &Interval, decided: &mut Decided) {
        let mut given: Vec<(ThreadId, CpuId)> = match &mut self.carried {
            None => {
                let placed = decided.placements.iter().map(|p| (p.thread, p.to));
                let released = decided.releases.iter().filter_map(|release| {
                    let thread = decided.seen.thread(release.thread)?;
                    Some((thread.id, thread.cpu))
                });
                placed.chain(released).collect()
            }
            Some((governor, carried)) => {
                let plan = Plan {
                    placements: decided.placements.clone(),
                    releases: decided.releases.clone(),
                    pages: Vec::new(),
                };
                let governed = governor.govern(&decided.seen, &plan);
                let orders = governed.orders();
                let outcome = carried.outcomes(interval, &orders);
                governor.carried_out(decided.seen.time_ns, &governed.changes, &outcome.affinities);
                carried.recorded(interval);
                carried.carry(&orders, &outcome);
                (decided.refusals, decided.undone, decided.stolen) =
                    (governed.refusals, governed.undone, governed.stolen);
                carried.given(&decided.seen)
            }
        };
        decided.places = places(&decided.seen, &mut given);
    }

    /// What the paging wants, given where the threads are.
    fn page_orders(&mut self, decided: &Decided) -> Vec<PageOrder> {
        let Some(paging) = &mut self.paging else {
            return decided.pages.clone();
        };
        let topology = &self.topology;
        let named = |thread: ThreadId| decided.placements.iter().any(|p| p.thread == thread);
        let threads = decided
            .seen
            .threads
            .iter()
            .zip(decided.places.iter().copied());
        let placed = threads
            .filter(|&(thread, _)| !decided.releases.iter().any(|r| r.thread == thread.id))
            .filter(|&(thread, core)| {
                thread.assigned.is_some() || core != thread.place() || named(thread.id)
            })
            .filter_map(|(thread, core)| PlacedThread::on(thread, core, topology));
        let told = Placed {
            threads: placed.collect(),
            pages: decided.pages.clone(),
            rations: self.placements.rations(),
            snapshot: decided.seen.clone(),
        };
        let nobody = |_: &[PageOrder]| Vec::new();
        match paging.round(Duration::ZERO, [told], &Observed::default(), nobody) {
            Some(News::Tick { tick, .. }) => tick.plan,
            _ => Vec::new(),
        }
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("wants", &self.wants)
            .finish_non_exhaustive()
    }
}
