//! Policies for groups of processes: some groups have one of their own, and one is for the rest.
//!
//! Problem: a machine runs databases that gain by one policy, a batch that gains by another, and a
//! service that is to be left alone. One loop serves all, since they share cores, caches and memory.
//!
//! Rule: each process belongs to the group that the world says ([`Process::group`]), or to the rest.
//! This module defines which policies run together ([`Policies`]) and which cannot; the loop asks each part
//! (`numaherd_herd`, `groups`). A group without a policy of its own belongs to the rest. The world decides which
//! groups are left alone: it shows their threads as unmanaged, so no policy steers them.
//!
//! What cannot run together is refused: policies that want new pages placed by different rules, since a world has
//! one; and pagings that need different kinds of samples (TLB misses, hint faults, memory samples), since a world
//! hands out one kind ([`numaherd_world::World::attend`]) and none must be taken for another.
//!
//! Source: chosen here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use numaherd_world::{NewPages, Process, Signal, SignalReport, SignalState};

use crate::error::PolicyError;
use crate::policy::{Optional, Own, Paging, Place, Policy};

/// How often a placement decides if nothing else is said: once a second (DINO §3.3.3).
const USUAL: Duration = Duration::from_secs(1);

/// A group and its policy.
pub struct Member {
    /// Its name, as processes have it in [`Process::group`].
    pub name: Arc<str>,
    /// Its policy.
    pub policy: Policy,
    /// How often the user wants it to decide; `None`: as often as its placement says itself, or else
    /// once a second.
    pub interval: Option<Duration>,
}

/// Which processes a policy steers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, whatever their groups: the only policy there is.
    All,
    /// Those of a group.
    Group(Arc<str>),
    /// Those that are in none of these groups.
    Rest(Vec<Arc<str>>),
}

impl Scope {
    /// Whether a process is among them.
    pub fn has(&self, process: &Process) -> bool {
        match self {
            Self::All => true,
            Self::Group(name) => process.group.as_ref() == Some(name),
            Self::Rest(others) => !process.group.as_ref().is_some_and(|of| others.contains(of)),
        }
    }
}

/// A policy and what it steers.
pub struct Part {
    /// Which processes.
    pub scope: Scope,
    /// Which core each of their threads runs on.
    pub placement: Box<dyn Place>,
    /// Which node each of their pages lives on.
    pub paging: Box<dyn Paging>,
    /// How often the user wants it to decide.
    pub interval: Option<Duration>,
}

impl Part {
    fn of(scope: Scope, policy: Policy, interval: Option<Duration>) -> Self {
        Self {
            scope,
            placement: policy.placement,
            paging: policy.paging,
            interval,
        }
    }

    /// How often it decides: as the user says, or itself, or else once a second.
    pub fn cadence(&self) -> Duration {
        self.own().interval.unwrap_or(USUAL)
    }

    /// How its placement is to be run, with the user's cadence.
    fn own(&self) -> Own {
        let own = self.placement.needs().own;
        Own {
            interval: self.interval.or(own.interval),
            ..own
        }
    }
}

/// The policies of a run.
pub struct Policies {
    /// Named after all of them: `dino; databases: brm`.
    pub name: String,
    /// Where pages go when they are first touched.
    pub new_pages: NewPages,
    /// The groups that have a policy, in their order, and then the rest; or one for all.
    pub parts: Vec<Part>,
}

/// How the placements of a run are to be run, unless the user says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnOfAll {
    /// How often the quickest of them decides.
    pub interval: Option<Duration>,
    /// What holds for threads that are in no group.
    pub rest: Own,
    /// What holds for each group that has a policy.
    pub groups: Vec<(Arc<str>, Own)>,
}

impl From<Own> for OwnOfAll {
    /// What the only placement of a run says.
    fn from(rest: Own) -> Self {
        Self {
            interval: rest.interval,
            rest,
            groups: Vec::new(),
        }
    }
}

impl From<Policy> for Policies {
    /// One policy for all processes.
    fn from(policy: Policy) -> Self {
        Self {
            name: policy.name.clone(),
            new_pages: policy.new_pages,
            parts: vec![Part::of(Scope::All, policy, None)],
        }
    }
}

impl Policies {
    /// The groups' policies and that of the rest. `interval` is for the rest what [`Member::interval`]
    /// is for a group.
    ///
    /// # Errors
    /// [`PolicyError::Groups`] when a group is named twice, or when the policies cannot run together.
    pub fn of_groups(
        rest: Policy,
        interval: Option<Duration>,
        groups: Vec<Member>,
    ) -> Result<Self, PolicyError> {
        check(&rest, &groups)?;
        let mut name = rest.name.clone();
        let new_pages = rest.new_pages;
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for member in groups {
            name.push_str(&format!("; {}: {}", member.name, member.policy.name));
            others.push(member.name.clone());
            let group = Scope::Group(member.name);
            parts.push(Part::of(group, member.policy, member.interval));
        }
        parts.push(Part::of(Scope::Rest(others), rest, interval));
        Ok(Self {
            name,
            new_pages,
            parts,
        })
    }

    /// All signals that they cannot do without, each once.
    pub fn needs(&self) -> Vec<Signal> {
        let halves =
            |part: &Part| [part.placement.needs().signals, part.paging.needs().signals].concat();
        let mut needs: Vec<Signal> = self.parts.iter().flat_map(halves).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Whether any of them moves pages, or decides by where they are.
    pub fn use_memory(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.paging.moves_pages()) || self.attends().contains(&Signal::Residency)
    }

    /// The signals that they use where they are available.
    fn also(&self) -> impl Iterator<Item = Optional> {
        let of = |part: &Part| [part.placement.needs().also, part.paging.needs().also].concat();
        self.parts.iter().flat_map(of)
    }

    /// All signals that they use where they are available, including those that they need, each once.
    pub fn attends(&self) -> Vec<Signal> {
        let also = self.also().map(|also| also.signal);
        let mut attends: Vec<Signal> = self.needs().into_iter().chain(also).collect();
        attends.sort_unstable();
        attends.dedup();
        attends
    }

    /// What a person should know about the signals that they use, given which of them are reported as available;
    /// each sentence once.
    pub fn caveats(&self, signals: &[SignalReport]) -> Vec<String> {
        let of_paging = |part: &Part| part.paging.needs().caveat.map(str::to_owned);
        let of_paging = self.parts.iter().filter_map(of_paging);
        let missing = |also: Optional| {
            let report = signals.iter().find(|report| report.signal == also.signal);
            let why = match report.map(|report| &report.state) {
                Some(SignalState::Measured { .. }) => return None,
                Some(SignalState::Missing { reason, .. }) => reason.trim_end_matches('.'),
                None => "this kind of machine does not have it",
            };
            let Optional { signal, without } = also;
            Some(format!(
                "the signal {signal} is not available here: {why}. {without}"
            ))
        };
        let mut caveats: Vec<String> = of_paging.chain(self.also().filter_map(missing)).collect();
        let mut said = BTreeSet::new();
        caveats.retain(|caveat| said.insert(caveat.clone()));
        caveats
    }

    /// How their placements are to be run.
    pub fn own(&self) -> OwnOfAll {
        if let [only] = &*self.parts
            && only.scope == Scope::All
        {
            return only.own().into();
        }
        let mut own = OwnOfAll {
            interval: self.parts.iter().map(Part::cadence).min(),
            ..OwnOfAll::default()
        };
        for part in &self.parts {
            match &part.scope {
                Scope::Group(name) => own.groups.push((name.clone(), part.own())),
                Scope::All | Scope::Rest(_) => own.rest = part.own(),
            }
        }
        own
    }
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
        let policy = &group.policy;
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
                    "{name} needs {kind} and {who} needs {other}, but a machine provides one kind of samples at a time; choose pagings that need the same kind, or stay"
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

/// The kind of samples that a paging needs, in the order in which a world looks at needs.
fn kind_of_samples(paging: &dyn Paging) -> Option<Signal> {
    let kinds = [Signal::TlbMisses, Signal::HintFaults, Signal::MemorySamples];
    let needs = paging.needs();
    let uses = |kind: &Signal| {
        needs.signals.contains(kind) || needs.also.iter().any(|also| also.signal == *kind)
    };
    kinds.into_iter().find(uses)
}
