//! All policies by name: those of the tables below, and those that [`crate::added`] finds.
//!
//! A name is that of a policy (`dino`), or a placement and a paging joined by `+`
//! (`dino+whole-set`, `di+window`). Before the `+` the name of a policy stands for its placement,
//! so `dino+stay` is `dino` with another paging.

use std::sync::{Arc, LazyLock};

use numaherd_files::{nearest, shortened};
use numaherd_world::{NewPages, Signal};

use crate::added::{ALL, Added};
use crate::cost_model::{Means, NoCosts};
use crate::error::PolicyError;
use crate::paging::by_use::{self, ByUse};
use crate::paging::counted::{self, Kmaf, Sampled};
use crate::paging::driver::Driven;
use crate::paging::next_touch::{self, NextTouch};
use crate::paging::numa_balancing::{self, NumaBalancing};
use crate::paging::residency::{self, IntensePages};
use crate::paging::stay::Stay;
use crate::paging::tiered::{self, Tiered};
use crate::paging::tlb_miss::{self, TlbMiss, TlbMissHistory};
use crate::paging::whole_set::WholeSet;
use crate::paging::window::Window;
use crate::paging::{whole_set, window};
use crate::placement::adaptive::{self, Adaptive};
use crate::placement::brm::{self, Brm};
use crate::placement::di::{self, DistributedIntensity};
use crate::placement::dino::{self, Dino};
use crate::placement::joint_oracle;
use crate::placement::linux::Linux;
use crate::placement::n_mass::{self, NMass, Steps};
use crate::placement::oracle::{self, Oracle};
use crate::placement::random::{self, RandomCore};
use crate::placement::sharing::{self, BySharing};
use crate::policy::{Paging, Place, Policy};
use crate::rules::Rule;
use crate::settings::Settings;
use crate::stage::{PlacementRule, Staged};

/// A policy: a placement joined with a paging, under a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    /// Its name.
    pub name: &'static str,
    /// The name of its placement, in [`PLACEMENTS`].
    pub placement: &'static str,
    /// The name of its paging, in [`PAGINGS`].
    pub paging: &'static str,
    /// Where pages go when they are first touched.
    pub new_pages: NewPages,
    /// The worlds that it can run in.
    pub worlds: Worlds,
    /// What it does, in one line.
    pub about: &'static str,
    /// Where it is from.
    pub source: &'static str,
}

/// The worlds that a policy can run in, as far as they have the signals that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worlds {
    /// Live machines, the contention model and traces.
    All,
    /// The contention model and traces.
    Simulated,
    /// The contention model alone.
    Model,
    /// Traces alone.
    Traces,
}

/// One half of a policy, with what makes it.
#[derive(Clone, Copy, Debug)]
pub struct Half<Maker> {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// The rules that its plans name.
    pub rules: &'static [Rule],
    /// The settings that it uses: keys (`n_mass.threshold`) or whole tables (`n_mass`).
    pub settings: &'static [&'static str],
    /// Makes one that has seen nothing yet.
    pub make: Maker,
}

/// Makes a placement; `None` if the means that it needs are missing.
pub type MakePlacement = fn(&Settings, &Means) -> Option<Box<dyn Place>>;
/// The placement that follows this rule, as a [`MakePlacement`] returns it.
pub fn staged(settings: &Settings, rule: impl PlacementRule + 'static) -> Option<Box<dyn Place>> {
    Some(Box::new(Staged::new(settings, rule)))
}

/// Makes a paging.
pub type MakePaging = fn(&Settings) -> Box<dyn Paging>;

const FIRST_TOUCH: NewPages = NewPages::FirstTouch;
const ALL_WORLDS: Worlds = Worlds::All;

/// All policies, in the order people are shown them: those that do more come later, the oracles last. What
/// files add comes right after `linux`.
pub static POLICIES: LazyLock<Vec<NamedPolicy>> = LazyLock::new(|| of_all(|list| list.policies));

/// All placements.
pub static PLACEMENTS: LazyLock<Vec<Half<MakePlacement>>> =
    LazyLock::new(|| of_all(|list| list.placements));

/// All pagings.
pub static PAGINGS: LazyLock<Vec<Half<MakePaging>>> = LazyLock::new(|| of_all(|list| list.pagings));

fn of_all<T: Copy + 'static>(items: impl Fn(&Added) -> &'static [T]) -> Vec<T> {
    ALL.iter().flat_map(items).copied().collect()
}

/// What stands before the added policies: the kernel's own, and all halves of the tree.
pub(crate) const BASELINE: Added = Added {
    policies: &[LINUX],
    placements: OUR_PLACEMENTS,
    pagings: OUR_PAGINGS,
    ..Added::NOTHING
};

/// What stands after them.
pub(crate) const PUBLISHED: Added = Added {
    policies: OUR_POLICIES,
    ..Added::NOTHING
};

#[rustfmt::skip]
const LINUX: NamedPolicy = NamedPolicy { name: "linux", placement: "linux", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "The kernel places threads and pages; Numaherd only watches", source: "baseline" };

#[rustfmt::skip]
const OUR_POLICIES: &[NamedPolicy] = &[
    NamedPolicy { name: "first-touch", placement: "linux", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "As linux: new pages go to the node of the thread that touches them first", source: "baseline of the papers" },
    NamedPolicy { name: "interleave", placement: "linux", paging: "stay", new_pages: NewPages::Interleave, worlds: ALL_WORLDS, about: "New pages go to all nodes in turn; the kernel places threads", source: "IPM 5.2" },
    NamedPolicy { name: "random-mapping", placement: "random", paging: "stay", new_pages: NewPages::Random, worlds: Worlds::Traces, about: "Threads on random cores, new pages on random nodes; for modelled worlds", source: "IPM 5.3" },
    NamedPolicy { name: "next-touch", placement: "linux", paging: "next-touch", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Each page goes once to the node of the thread that touches it next", source: "Löf and Holmgren, ICS 2005; IPM 2.1" },
    NamedPolicy { name: "sampled", placement: "linux", paging: "sampled", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Each page goes to the node with most memory samples of it", source: "IPM 3.1, 3.3" },
    NamedPolicy { name: "tiered", placement: "linux", paging: "tiered", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Cold memory goes to nodes without CPUs where others are short of memory, and comes back when it is used; the kernel places threads", source: "TPP, Colloid; counts chosen here" },
    NamedPolicy { name: "numa-balancing", placement: "linux", paging: "numa-balancing", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Pages go where two faults in a row came from, as in the kernel", source: "Linux 6.x" },
    NamedPolicy { name: "tlb-miss", placement: "linux", paging: "tlb-miss", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Each page goes to the node that missed on it in its TLB", source: "IPM 5.2" },
    NamedPolicy { name: "kmaf", placement: "kmaf", paging: "kmaf", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Pages go to the node that has nearly all faults on them; threads that share pages go together", source: "kMAF, PACT 2014" },
    NamedPolicy { name: "tlb-miss-history", placement: "tlb-miss-history", paging: "tlb-miss-history", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "As ipm, by TLB misses in place of residency", source: "IPM 5.2" },
    NamedPolicy { name: "random", placement: "random", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Each thread gets a random core once and keeps it", source: "baseline of the papers" },
    NamedPolicy { name: "maximum-local", placement: "maximum-local", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Threads run where their memory is, those of the highest NUMA penalty first", source: "N-MASS 3.3, Algorithm 2" },
    NamedPolicy { name: "n-mass-regression", placement: "n-mass-regression", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "As n-mass, with NUMA penalties estimated by miss rates alone", source: "N-MASS 4.5" },
    NamedPolicy { name: "n-mass", placement: "n-mass", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "As maximum-local, but threads leave caches that are pressed too hard", source: "N-MASS 3.3, Algorithms 1 to 3" },
    NamedPolicy { name: "di-plain", placement: "di", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Spreads miss rates over the memory domains; memory stays behind", source: "DINO 3.1" },
    NamedPolicy { name: "di-migrate", placement: "di", paging: "window", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Spreads miss rates over the memory domains; memory follows", source: "DINO 3.2" },
    NamedPolicy { name: "dino", placement: "dino", paging: "window", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Spreads classes of miss rates with the fewest moves; memory follows", source: "DINO 3.3, 4" },
    NamedPolicy { name: "brm", placement: "brm", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Threads that wait much for the uncore try nodes at random and tend to where all wait least; for virtual CPUs above all", source: "BRM 4, Algorithm 1" },
    NamedPolicy { name: "brm-in-turn", placement: "brm-in-turn", paging: "stay", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "As brm, but one candidate at a time, until its effect is seen", source: "chosen here" },
    NamedPolicy { name: "ipm", placement: "ipm", paging: "residency", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Pages go to the node that holds them longest in its TLBs; threads that share pages go together", source: "IPM 4" },
    NamedPolicy { name: "adaptive", placement: "adaptive", paging: "by-use", new_pages: FIRST_TOUCH, worlds: ALL_WORLDS, about: "Acts where it expects fewer cores to be lost to caches and memory, verifies that, and is Linux elsewhere", source: "designed here" },
    NamedPolicy { name: "oracle", placement: "oracle", paging: "stay", new_pages: FIRST_TOUCH, worlds: Worlds::Simulated, about: "The layout of threads that would cost least; for modelled worlds only", source: "baseline of the papers" },
    NamedPolicy { name: "joint-oracle", placement: "joint-oracle", paging: "stay", new_pages: FIRST_TOUCH, worlds: Worlds::Model, about: "The threads' layout and the pages' nodes that would together cost least; for modelled worlds only", source: "chosen here" },
];

#[rustfmt::skip]
const OUR_PLACEMENTS: &[Half<MakePlacement>] = &[
    Half { name: "linux", about: "The kernel's own", source: "baseline", rules: &[], settings: &[], make: |_, _| Some(Box::new(Linux)) },
    Half { name: "random", about: "A random core for each thread, drawn once", source: "baseline of the papers", rules: random::RULES, settings: &[], make: |settings, _| staged(settings, RandomCore::default()) },
    Half { name: "di", about: "Distributed Intensity: threads dealt to domains by miss rate", source: "DINO 3.1", rules: di::RULES, settings: &["di", "placement"], make: |settings, _| staged(settings, DistributedIntensity { settings: settings.di }) },
    Half { name: "dino", about: "Classes dealt to cores, fewest migrations, processes grouped", source: "DINO 3.3.3", rules: dino::RULES, settings: &["classes", "placement"], make: |settings, _| staged(settings, Dino) },
    Half { name: "maximum-local", about: "Homes first, by NUMA penalty", source: "N-MASS 3.3, Algorithm 2", rules: n_mass::MAXIMUM_LOCAL_RULES, settings: &["n_mass.changed_by", "penalty", "placement"], make: |settings, _| staged(settings, NMass::new(settings, Steps::MaximumLocal)) },
    Half { name: "n-mass", about: "Homes first, refined by pressure", source: "N-MASS 3.3, Algorithms 1 to 3", rules: n_mass::N_MASS_RULES, settings: &["n_mass", "penalty", "placement"], make: |settings, _| staged(settings, NMass::new(settings, Steps::All)) },
    Half { name: "n-mass-regression", about: "The same with the regression's NUMA penalty for all", source: "N-MASS 4.5", rules: n_mass::N_MASS_RULES, settings: &["n_mass", "penalty.intercept", "penalty.slope", "penalty.miss_rates", "placement"], make: |settings, _| staged(settings, NMass::with_regression(settings)) },
    Half { name: "brm", about: "Bias random migration by uncore penalty", source: "BRM 4, Algorithm 1", rules: brm::RULES, settings: &["brm"], make: |settings, _| staged(settings, Brm::new(settings)) },
    Half { name: "brm-in-turn", about: "The same, one candidate at a time", source: "chosen here", rules: brm::IN_TURN_RULES, settings: &["brm"], make: |settings, _| staged(settings, Brm::in_turn(settings)) },
    Half { name: "ipm", about: "Threads that share pages close together, by EagerMap", source: "IPM 4.4.4", rules: sharing::IPM_RULES, settings: &["ipm.age", "ipm.changed_by", "ipm.mapper", "ipm.evidence", "placement"], make: |settings, _| staged(settings, BySharing::ipm(settings)) },
    Half { name: "tlb-miss-history", about: "The same by TLB misses on the same pages", source: "IPM 5.2", rules: sharing::MISS_RULES, settings: &["ipm.age", "ipm.changed_by", "ipm.mapper", "placement"], make: |settings, _| staged(settings, BySharing::tlb_miss_history(settings)) },
    Half { name: "kmaf", about: "The same by faults on the same pages, mapped at every call", source: "kMAF, PACT 2014", rules: sharing::KMAF_RULES, settings: &["placement"], make: |settings, _| staged(settings, BySharing::kmaf(settings)) },
    Half { name: "adaptive", about: "The layout that loses fewest cores by estimates from counters, where that gains", source: "designed here", rules: adaptive::RULES, settings: &["adaptive", "classes", "di", "n_mass", "penalty", "placement"], make: |settings, _| staged(settings, Adaptive::new(settings)) },
    Half { name: "oracle", about: "The layout of threads that would cost least", source: "baseline of the papers", rules: oracle::RULES, settings: &["oracle", "n_mass.threshold", "n_mass.most_moved", "n_mass.exchange", "penalty", "placement"], make: |settings, means| staged(settings, Oracle::new(settings, means.cost_model.clone()?)) },
    Half { name: "joint-oracle", about: "The threads' layout and the pages' nodes that would together cost least", source: "chosen here", rules: joint_oracle::RULES, settings: &["oracle", "n_mass.threshold", "n_mass.most_moved", "n_mass.exchange", "penalty", "placement"], make: |settings, means| staged(settings, Oracle::joint(settings, means.cost_model.clone()?)) },
];

#[rustfmt::skip]
const OUR_PAGINGS: &[Half<MakePaging>] = &[
    Half { name: "stay", about: "Pages stay where they are", source: "DINO 3.1", rules: &[], settings: &[], make: |_| Box::new(Stay) },
    Half { name: "whole-set", about: "All pages of a process follow its threads", source: "DINO 4", rules: whole_set::RULES, settings: &[], make: |_| Box::new(WholeSet) },
    Half { name: "window", about: "K pages around each sampled remote access follow the thread", source: "DINO 4.1, 4.2", rules: window::RULES, settings: &["paging"], make: |settings| Box::new(Window::paging(settings)) },
    Half { name: "by-use", about: "Pages that one node uses go there, those that several use are spread", source: "Carrefour; counts chosen here", rules: by_use::RULES, settings: &["paging.thaw_after_s", "by_use"], make: |settings| Box::new(ByUse::paging(settings)) },
    Half { name: "tiered", about: "Cold memory goes to nodes without CPUs, and comes back when it is used", source: "TPP, Colloid; counts chosen here", rules: tiered::RULES, settings: &["tiered"], make: |settings| Box::new(Tiered::new(settings)) },
    Half { name: "residency", about: "Pages go to the node that holds them longest in its TLBs", source: "IPM 4.3.3", rules: residency::RULES, settings: &["ipm.evidence", "ipm.cr_aging", "ipm.cr_mig", "paging.bounce_limit", "paging.thaw_after_s"], make: |settings| Box::new(Driven::guarded(settings, IntensePages::new(settings))) },
    Half { name: "tlb-miss", about: "Pages go to the node that missed on them last", source: "IPM 5.2", rules: tlb_miss::RULES, settings: &[], make: |_| Box::new(Driven::new(TlbMiss)) },
    Half { name: "tlb-miss-history", about: "Pages go to the node that missed on them far more", source: "IPM 5.2", rules: tlb_miss::HISTORY_RULES, settings: &["ipm.cr_aging", "ipm.cr_mig"], make: |settings| Box::new(Driven::new(TlbMissHistory::new(settings))) },
    Half { name: "numa-balancing", about: "Pages go where two faults in a row came from", source: "Linux 6.x", rules: numa_balancing::RULES, settings: &[], make: |_| Box::new(Driven::new(NumaBalancing::default())) },
    Half { name: "kmaf", about: "Pages go to the node that has nearly all faults on them", source: "kMAF, PACT 2014", rules: counted::KMAF_RULES, settings: &["kmaf"], make: |settings| Box::new(Driven::new(Kmaf::new(settings))) },
    Half { name: "next-touch", about: "Each page goes once to the node of the thread that touches it next", source: "Löf and Holmgren, ICS 2005", rules: next_touch::RULES, settings: &[], make: |_| Box::new(Driven::new(NextTouch::default())) },
    Half { name: "sampled", about: "Pages go to the node with most samples of them", source: "IPM 3.1, 3.3", rules: counted::SAMPLED_RULES, settings: &[], make: |_| Box::new(Driven::new(Sampled::default())) },
];

/// Every rule of every policy, placements first, each once however many policies share it.
pub fn rules() -> Vec<&'static Rule> {
    let placements = PLACEMENTS.iter().flat_map(|half| half.rules);
    let pagings = PAGINGS.iter().flat_map(|half| half.rules);
    let mut rules: Vec<&Rule> = Vec::new();
    for rule in crate::stage::RULES.iter().chain(placements).chain(pagings) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// The policy of that name, which has seen nothing yet, for any world.
///
/// # Errors
/// [`PolicyError::Unknown`] with the nearest known name; [`PolicyError::NeedsCostModel`] for policies that
/// only a modelled world can have; [`PolicyError::NeedsFoundSharing`] if the paging does not find out what
/// the placement needs.
pub fn build(name: &str, settings: &Settings) -> Result<Policy, PolicyError> {
    build_with(name, settings, &Means::default())
}

/// The policy of that name, which has seen nothing yet, with the means that a world provides.
///
/// # Errors
/// As [`build`].
pub fn build_with(name: &str, settings: &Settings, means: &Means) -> Result<Policy, PolicyError> {
    let (placement, paging) = halves(name)?;
    let needs_cost_model = || PolicyError::NeedsCostModel {
        asked: name.to_owned(),
    };
    let (placement_name, paging_name) = (placement.name, paging.name);
    let placement = (placement.make)(settings, means).ok_or_else(needs_cost_model)?;
    let paging = (paging.make)(settings);
    if placement.needs().found_sharing && !paging.needs().finds_sharing {
        return Err(PolicyError::NeedsFoundSharing {
            asked: name.to_owned(),
            placement: placement_name,
            paging: paging_name,
            finders: finders(settings),
        });
    }
    Ok(Policy {
        name: name.to_owned(),
        placement,
        paging,
        new_pages: new_pages(name),
    })
}

/// The pagings that find out which threads share pages.
fn finders(settings: &Settings) -> Vec<&'static str> {
    let finds = |half: &&Half<MakePaging>| (half.make)(settings).needs().finds_sharing;
    PAGINGS.iter().filter(finds).map(|half| half.name).collect()
}

/// Where the policy of a name wants pages that are touched for the first time. In a joined name
/// (`interleave+window`), the first of the two decides.
fn new_pages(name: &str) -> NewPages {
    let placement = name.split_once('+').map_or(name, |(before, _)| before);
    let entry = POLICIES.iter().find(|entry| entry.name == placement);
    entry.map_or(NewPages::FirstTouch, |entry| entry.new_pages)
}

type Halves = (&'static Half<MakePlacement>, &'static Half<MakePaging>);

/// The halves that a name stands for.
///
/// # Errors
/// [`PolicyError::Unknown`] with the nearest known name.
pub fn halves(name: &str) -> Result<Halves, PolicyError> {
    let policy = |name: &str| POLICIES.iter().find(|entry| entry.name == name);
    if let Some((before, after)) = name.split_once('+') {
        let asked = policy(before).map_or(before, |entry| entry.placement);
        let placement = PLACEMENTS.iter().find(|half| half.name == asked);
        let placement = placement.ok_or_else(|| unknown("placement", before, placements()))?;
        let paging = PAGINGS.iter().find(|half| half.name == after);
        let names = PAGINGS.iter().map(|half| half.name).collect();
        return Ok((
            placement,
            paging.ok_or_else(|| unknown("paging", after, names))?,
        ));
    }
    let names = POLICIES.iter().map(|entry| entry.name).collect();
    let entry = policy(name).ok_or_else(|| unknown("policy", name, names))?;
    halves(&format!("{}+{}", entry.placement, entry.paging))
}

/// The policies that a live machine can run.
pub fn for_live_machines() -> impl DoubleEndedIterator<Item = &'static NamedPolicy> {
    let policies = POLICIES.iter();
    policies.filter(|policy| policy.worlds == Worlds::All)
}

/// What may stand before the `+`.
fn placements() -> Vec<&'static str> {
    let own = PLACEMENTS.iter().map(|half| half.name);
    let mut names: Vec<_> = own.chain(POLICIES.iter().map(|entry| entry.name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The signals that a policy cannot do without.
///
/// # Errors
/// As [`halves`].
pub fn needs(name: &str) -> Result<Vec<Signal>, PolicyError> {
    Ok(unseen(name)?.needs())
}

/// The setting that lets policies that need this signal run where a machine lacks it, if there is one.
pub fn setting_without(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::TlbResidency => Some(
            "for ipm, memory samples in place of residency, which is weaker evidence: set evidence = \"samples\" \
             under [policies.ipm]",
        ),
        _ => None,
    }
}

/// The signals that a policy uses where they are available.
///
/// # Errors
/// As [`halves`].
pub fn also(name: &str) -> Result<Vec<Signal>, PolicyError> {
    let also = unseen(name)?.also().into_iter();
    Ok(also.map(|also| also.signal).collect())
}

/// A policy made only to ask what it uses.
fn unseen(name: &str) -> Result<Policy, PolicyError> {
    let means = Means {
        cost_model: Some(Arc::new(NoCosts)),
    };
    build_with(name, &Settings::default(), &means)
}

fn unknown(kind: &'static str, asked: &str, known: Vec<&'static str>) -> PolicyError {
    PolicyError::Unknown {
        kind,
        asked: shortened(asked),
        nearest: nearest(asked, known.iter().copied()).first().copied(),
        known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_built_and_names_its_needs() {
        let without_costs = POLICIES.iter().filter(|entry| entry.placement != "oracle");
        let without_costs = without_costs.filter(|entry| entry.worlds != Worlds::Model);
        let told: Vec<String> = without_costs
            .map(|entry| {
                let policy = build(entry.name, &Settings::default()).unwrap();
                assert_eq!(policy.needs(), needs(entry.name).unwrap());
                let signals: Vec<String> = policy.needs().iter().map(ToString::to_string).collect();
                format!("{}: {}", policy.name, signals.join(", "))
            })
            .collect();
        let ours = |told: &&String| {
            OUR_POLICIES.iter().any(|entry| {
                told.split_once(':')
                    .is_some_and(|(name, _)| name == entry.name)
            })
        };
        assert_eq!(
            told.iter().filter(ours).collect::<Vec<_>>(),
            [
                "first-touch: ",
                "interleave: ",
                "random-mapping: ",
                "next-touch: hint faults",
                "sampled: memory samples",
                "tiered: ",
                "numa-balancing: hint faults",
                "tlb-miss: TLB misses",
                "kmaf: hint faults",
                "tlb-miss-history: TLB misses",
                "random: ",
                "maximum-local: CPU use, miss rate, page residency",
                "n-mass-regression: CPU use, miss rate, page residency",
                "n-mass: CPU use, miss rate, page residency",
                "di-plain: CPU use, miss rate",
                "di-migrate: CPU use, miss rate, memory samples",
                "dino: CPU use, miss rate, memory samples",
                "brm: CPU use, uncore penalty",
                "brm-in-turn: CPU use, uncore penalty",
                "ipm: TLB residency",
                "adaptive: CPU use",
            ]
        );
    }

    #[test]
    fn ipm_makes_do_with_samples_when_told_so() {
        let settings = Settings::parse("[ipm]\nevidence = \"samples\"").unwrap();
        let policy = build("ipm", &settings).unwrap();
        assert_eq!(policy.needs(), [Signal::MemorySamples]);
    }

    #[test]
    fn a_placement_by_found_sharing_is_joined_with_who_finds_it() {
        let samples = Settings::parse("[ipm]\nevidence = \"samples\"").unwrap();
        let refused = |name: &str, settings: &Settings| {
            build(name, settings).err().map(|error| error.to_string())
        };
        assert_eq!(
            refused("kmaf+stay", &Settings::default()).unwrap(),
            "\"kmaf+stay\" is not possible: the placement kmaf needs to know which threads share pages, \
             but the paging stay does not measure that; combine it with one that does: \
             tlb-miss-history, kmaf"
        );
        assert!(refused("ipm+window", &samples).is_some_and(|told| told.contains("residency, ")));
        // The unit at the TLBs finds it out by itself.
        assert_eq!(refused("ipm+window", &Settings::default()), None);
    }

    #[test]
    fn new_pages_go_where_the_policy_before_the_plus_says() {
        let rule = |name| build(name, &Settings::default()).unwrap().new_pages;
        assert_eq!(rule("interleave"), NewPages::Interleave);
        assert_eq!(rule("interleave+sampled"), NewPages::Interleave);
        assert_eq!(rule("random-mapping"), NewPages::Random);
        assert_eq!(rule("random"), NewPages::FirstTouch);
        assert_eq!(rule("di+window"), NewPages::FirstTouch);
    }

    #[test]
    fn the_oracle_is_for_modelled_worlds_only() {
        let refused = |name| build(name, &Settings::default()).err().unwrap().to_string();
        assert_eq!(
            refused("oracle+window"),
            "\"oracle+window\" needs the cost of every layout, which only modelled worlds know: \
             simulate it, or choose another policy"
        );
        assert!(
            refused("joint-oracle").starts_with("\"joint-oracle\" needs the cost of every layout")
        );
        let needs: Vec<String> = needs("oracle")
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(needs.join(", "), "CPU use, miss rate, page residency");
    }

    #[test]
    fn placement_and_paging_can_be_joined() {
        let joined = |name| {
            let (placement, paging) = halves(name).unwrap();
            (placement.name, paging.name)
        };
        assert_eq!(joined("dino+whole-set"), ("dino", "whole-set"));
        assert_eq!(joined("di-plain+window"), ("di", "window"));
        assert_eq!(joined("di-migrate"), ("di", "window"));
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest_and_all() {
        let told = |name| halves(name).unwrap_err().to_string();
        let all: Vec<_> = POLICIES.iter().map(|entry| entry.name).collect();
        assert_eq!(
            told("dyno"),
            format!(
                "there is no policy named \"dyno\" (did you mean \"dino\"?); choose one of: {}",
                all.join(", ")
            )
        );
        assert!(told("dino+windows").starts_with(
            "there is no paging named \"windows\" (did you mean \"window\"?); choose one of: stay, \
             whole-set, window, "
        ));
        assert!(told("dine+stay").starts_with("there is no placement named \"dine\" (did"));
        assert!(told("carrefour").starts_with("there is no policy named \"carrefour\"; "));
    }

    #[test]
    fn what_was_added_is_beside_the_others() {
        let names: Vec<_> = POLICIES.iter().map(|entry| entry.name).collect();
        let ours = OUR_POLICIES.iter().map(|entry| entry.name);
        assert_eq!(names[0], "linux");
        assert!(names[1..].contains(&"homeward"));
        assert!(ours.eq(names[names.len() - OUR_POLICIES.len()..].iter().copied()));
        // And its halves can be joined with any others.
        let joined = |name| halves(name).map(|(placement, paging)| (placement.name, paging.name));
        assert_eq!(joined("homeward+window"), Ok(("homeward", "window")));
    }

    #[test]
    fn names_are_given_once() {
        let mut names: Vec<_> = POLICIES.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), POLICIES.len());
        // Policies may share rules, but no two rules a name.
        let mut rules = rules();
        let all = rules.len();
        rules.sort_unstable_by_key(|rule| rule.name);
        rules.dedup_by_key(|rule| rule.name);
        assert_eq!(rules.len(), all);
    }
}
