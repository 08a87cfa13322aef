//! Groups of processes, each with a policy of its own or none: several policies composed to one.
//!
//! Problem: a machine runs databases that gain by one policy, a batch that gains by another, and a
//! service that is to be left alone. One loop serves all, since they share cores, caches and memory.
//!
//! Rule: each process belongs to the group that the world says ([`Process::group`]), or to the rest.
//! Each group's placement is shown the whole machine, in which its own threads can be steered and all
//! others are there, hands off: they press on caches and hold cores as they do, and it deals with what
//! they leave. The groups are asked in their order, the rest last, and each sees the threads of those
//! before it where these want them, so that no two plans take the same core. Page orders, samples,
//! notices and outcomes go to the paging of their process's group and to no other.
//!
//! Cadence: a group whose placement decides less often than the quickest sees the intervals in between
//! as one ([`Snapshot::with_later`]). It is asked when they make up its own interval, to the nearest,
//! the first time after [`FIRST_NS`].
//!
//! A group without a policy, or one that is not known here, is never steered.
//!
//! What cannot be together is refused: policies that want new pages placed by different rules, since a
//! world has one; and pagings that go by different kinds of samples (TLB misses, hint faults, memory
//! samples), since a world hands out one kind ([`numaherd_world::World::attend`]) and none must be taken
//! for another.
//!
//! Properties: no part names another's threads; with one part that has all processes the plan is what
//! its policy alone would want; the sum of what a slow part is shown is what happened.
//!
//! Source: chosen here.

mod paging;
mod placement;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use numaherd_world::{NewPages, Process, Signal};

use crate::error::PolicyError;
use crate::policy::{Paging, Place, Policy};
use paging::GroupsPaging;
use placement::GroupsPlacement;

/// Where nobody says how often a placement decides, in ns: once a second (DINO §3.3.3).
const USUAL_NS: u64 = 1_000_000_000;

/// After how long a part is asked for the first time, where its interval is longer, in ns: threads that
/// suffer need not wait a whole interval.
const FIRST_NS: u64 = 500_000_000;

/// A group and its policy.
pub struct Member {
    /// Its name, as processes have it in [`Process::group`].
    pub name: Arc<str>,
    /// Its policy; `None` for a group that is left alone.
    pub policy: Option<Policy>,
    /// How often the user wants it to decide; `None`: as often as its placement says itself, or else
    /// once a second.
    pub interval: Option<Duration>,
}

/// Which part a process belongs to: by the name of a group, or to the rest.
type Name = Option<Arc<str>>;

/// Whether a process is a part's.
fn is_of(process: &Process, name: &Name) -> bool {
    process.group == *name
}

/// One policy of the rest's and the groups', named after all of them: `dino; databases: brm; web: none`.
/// `interval` is for the rest what [`Member::interval`] is for a group.
///
/// # Errors
/// [`PolicyError::Groups`] when a group is named twice, or when they cannot be had together.
pub fn compose(
    rest: Policy,
    interval: Option<Duration>,
    groups: Vec<Member>,
) -> Result<Policy, PolicyError> {
    check(&rest, &groups)?;
    let mut name = rest.name.clone();
    let new_pages = rest.new_pages;
    let mut placements = Vec::new();
    let mut pagings: Vec<(Name, Box<dyn Paging>)> = Vec::new();
    for member in groups {
        let policy = member.policy.as_ref().map_or("none", |policy| &policy.name);
        name.push_str(&format!("; {}: {policy}", member.name));
        let Some(policy) = member.policy else {
            continue;
        };
        let group = Some(member.name);
        placements.push((group.clone(), policy.placement, member.interval));
        pagings.push((group, policy.paging));
    }
    placements.push((None, rest.placement, interval));
    pagings.push((None, rest.paging));
    Ok(Policy {
        name,
        placement: Box::new(GroupsPlacement::new(placements)),
        paging: Box::new(GroupsPaging::new(pagings)),
        new_pages,
    })
}

fn check(rest: &Policy, groups: &[Member]) -> Result<(), PolicyError> {
    let mut named = BTreeSet::new();
    if let Some(twice) = groups.iter().find(|group| !named.insert(&group.name)) {
        return Err(refused(format!(
            "the group {} is named twice; give it one policy",
            twice.name
        )));
    }
    let mut sampled = kind_of_samples(&*rest.paging).map(|kind| (kind, "the rest".to_owned()));
    for group in groups {
        let Some(policy) = &group.policy else {
            continue;
        };
        let name = format!("the group {}", group.name);
        if policy.new_pages != rest.new_pages {
            return Err(refused(new_pages_differ(&name, policy, rest.new_pages)));
        }
        let Some(kind) = kind_of_samples(&*policy.paging) else {
            continue;
        };
        match &sampled {
            None => sampled = Some((kind, name)),
            Some((other, _)) if *other == kind => {}
            Some((other, who)) => {
                return Err(refused(format!(
                    "{name} goes by {kind} and {who} by {other}, and a machine hands out one kind of \
                     samples at a time; choose pagings that go by the same, or stay"
                )));
            }
        }
    }
    Ok(())
}

fn new_pages_differ(name: &str, policy: &Policy, rest: NewPages) -> String {
    format!(
        "{name} has the policy {}, which places new pages by the rule {}, and the rest has them placed \
         by the rule {rest}; a machine has one rule for all: choose policies of the same",
        policy.name, policy.new_pages
    )
}

fn refused(why: String) -> PolicyError {
    PolicyError::Groups { why }
}

/// The kind of samples that a paging goes by, in the order in which a world goes by what is needed.
fn kind_of_samples(paging: &dyn Paging) -> Option<Signal> {
    let kinds = [Signal::TlbMisses, Signal::HintFaults, Signal::MemorySamples];
    let needs = paging.needs();
    kinds.into_iter().find(|kind| needs.contains(kind))
}

/// All signals of several parts, each once.
fn all_needs<'a>(of: impl Iterator<Item = &'a [Signal]>) -> Vec<Signal> {
    let mut needs: Vec<Signal> = of.flatten().copied().collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// How often a placement decides: as the user says, or itself, or else once a second.
fn interval_of(placement: &dyn Place, users: Option<Duration>) -> u64 {
    let own = users.or_else(|| placement.interval());
    own.map_or(USUAL_NS, |own| {
        u64::try_from(own.as_nanos()).unwrap_or(u64::MAX)
    })
}
