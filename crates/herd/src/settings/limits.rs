//! What the governor lets through, as it can be set, and why each default is what it is.
//!
//! Every limit is of time or of what is done at once, never of a number of intervals: it means the same
//! whether threads are placed once a second or a hundred times. Two belong to the cadence all the same:
//! [`Limits::moves_per_interval`] bounds what is done at one moment, and
//! [`Limits::thread_bounce_limit`] follows how often a placement asks to decide.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use numaherd_policy::groups::OwnOfAll;
use numaherd_policy::policy::Own;
use numaherd_topology::{CpuSet, NodeSet};
use numaherd_world::Stray;
use serde::{Deserialize, Serialize};

use super::DAY_MS;
use crate::error::HerdError;

// Bounds beyond all use, so that what is computed from a setting keeps within its type.

/// The most spans that speeds are remembered for, on one side of a move.
const MOST_SPANS: u64 = 1_000_000;

/// The most that a rate per second or a time in s may be: a billion.
const MOST: f64 = 1e9;

/// What the governor lets through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The CPUs that may be given to threads; all when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// The nodes that pages may be moved to; all when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeSet>,
    /// How far a thread may stray from its core. Left out: as far as the placement says itself
    /// ([`Place::stray`]), or else within its memory domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stray: Option<Stray>,
    /// Steer threads that have an affinity of their own, too.
    pub take_over: bool,
    /// Most thread moves in one interval: what may happen at one moment.
    pub moves_per_interval: u32,
    /// Most thread moves per second, on average; up to one second's worth may come at once.
    pub moves_per_second: f64,
    /// Most moves per second of the threads of one virtual machine, on average; up to one second's
    /// worth may come at once. 32, a quarter of `moves_per_second`: four machines can be looked
    /// after at once, and none takes all there is. Ours: a guest does not see that its CPU has
    /// gone, and one whose CPU holds a lock has the others wait until caches are filled again.
    pub machine_moves_per_second: f64,
    /// A thing moved this often between the same two places within `bounce_window_s` stays where
    /// it is for `freeze_s`: pages between two nodes, threads between two memory domains (unless
    /// `thread_bounce_limit` says otherwise). 5 is Clavis's BOUNCING_LIMIT.
    pub bounce_limit: u32,
    /// The limit for threads, where it is not `bounce_limit`. Left out: `bounce_limit` times how
    /// often in a second the placement asks to decide ([`Place::interval`]; once, where it does not
    /// say). Clavis decides once a second, so that its 5 in a minute are one move in twelve
    /// decisions; a placement whose source decides every 10 ms and tries nodes out by design (BRM)
    /// has 500 in a minute, the same one in twelve. By Algorithm 1 a thread whose every node looks
    /// worse than the other moves once in 12.2 decisions on average, so that only one that does
    /// nothing else for a minute comes near. What that can cost: with 4 ms to fill a cache of 12 MiB anew, 8.3
    /// moves a second take 3.3 % of the thread's time. A cadence that the user sets changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_bounce_limit: Option<u32>,
    /// See `bounce_limit`.
    pub bounce_window_s: f64,
    /// See `bounce_limit`; also how long a thread stays after a move of it was undone.
    pub freeze_s: f64,
    /// Most page traffic for all processes together, in MiB/s.
    pub pages_mib_per_s: f64,
    /// Most page traffic for one process, in MiB/s.
    pub process_pages_mib_per_s: f64,
    /// Most page traffic for one process that runs a virtual machine, in MiB/s: instead of
    /// `process_pages_mib_per_s`. 256, half of that. Ours: a page of a guest is taken out of two
    /// page tables, and the guest's next access to it leaves the guest and comes back.
    pub machine_pages_mib_per_s: f64,
    /// How much page traffic may come at once after a pause, as a time at the full rate, in ms.
    pub pages_burst_ms: u64,
    /// Share of a node's memory that page moves leave free, 0 to 1.
    pub node_reserve: f64,
    /// When a move made a thread slower, and whether it is undone.
    pub worse: Worse,
    /// When a thread that waits is given to an idle node.
    pub steal: Steal,
    /// What is otherwise for the threads of a group, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupLimits>,
}

/// What may be otherwise for the threads of a group ([`numaherd_world::Process::group`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupLimits {
    /// As [`Limits::stray`]. Left out: as that where the user set it, or else as far as the group's
    /// own placement says, or else within the memory domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stray: Option<Stray>,
    /// As [`Limits::thread_bounce_limit`]. Left out: as that where the user set it, or else by how
    /// often the group's own placement asks to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_bounce_limit: Option<u32>,
}

/// When a move counts as having made a thread slower. See [`crate::governor::worse`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worse {
    /// Whether such a move is undone. `false` where a policy is to be measured as it was published;
    /// then nobody looks for such moves either.
    pub undo: bool,
    /// Share of its speed that a thread must have lost, 0 to 1.
    pub share: f64,
    /// How long a span is over which a speed is measured, in ms: as many intervals as make it up,
    /// or one that is longer.
    pub span_ms: u64,
    /// How many spans are compared on either side of the move.
    pub intervals: usize,
    /// How many spans after the move are passed over: caches fill and pages follow.
    pub settle: usize,
}

/// When a thread that is held and waits is given to an idle node. See
/// [`crate::governor::ThreadGovernor`] and BRM §4.4.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steal {
    /// For whom.
    pub when: StealWhen,
    /// How much must wait for CPUs of a node, on average, in CPUs. 0.5, ours: less is no more than
    /// what the kernel's own slices make of threads that sleep and wake.
    pub least_wait: f64,
    /// Over which time it must, and the other node be idle, in ms. 100, ours: ten samples of 10 ms,
    /// as long as the kernel lets a thread wait by its slices when a CPU has some ten of them.
    pub over_ms: u64,
}

/// Whose threads are given to idle nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StealWhen {
    /// Those that may stray within a whole node: their policy leaves the load to the kernel, which
    /// can balance it within a node only. A policy that places each thread on its core or domain
    /// balances itself, and would be fought.
    #[default]
    Node,
    /// All that are held.
    Always,
    /// Nobody's.
    Never,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpus: None,
            nodes: None,
            stray: None,
            take_over: false,
            moves_per_interval: 128,
            moves_per_second: 128.0,
            machine_moves_per_second: 32.0,
            bounce_limit: 5,
            thread_bounce_limit: None,
            bounce_window_s: 60.0,
            freeze_s: 60.0,
            pages_mib_per_s: 1024.0,
            process_pages_mib_per_s: 512.0,
            machine_pages_mib_per_s: 256.0,
            pages_burst_ms: 100,
            node_reserve: 0.05,
            worse: Worse::default(),
            steal: Steal::default(),
            groups: BTreeMap::new(),
        }
    }
}

impl Default for Worse {
    fn default() -> Self {
        Self {
            undo: true,
            share: 0.3,
            span_ms: 1000,
            intervals: 3,
            settle: 2,
        }
    }
}

impl Default for Steal {
    fn default() -> Self {
        Self {
            when: StealWhen::Node,
            least_wait: 0.5,
            over_ms: 100,
        }
    }
}

impl Limits {
    /// Fills in what is left out and is the placement's own affair, or else the usual.
    pub(super) fn resolve(&mut self, policies: &OwnOfAll) {
        for &(ref name, own) in &policies.groups {
            let usual = self.bounces_of(own);
            let (stray, bounces) = (self.stray, self.thread_bounce_limit);
            let group = self.groups.entry(name.to_string()).or_default();
            group
                .stray
                .get_or_insert(stray.or(own.stray).unwrap_or_default());
            group
                .thread_bounce_limit
                .get_or_insert(bounces.unwrap_or(usual));
        }
        let rest = policies.rest;
        let usual = self.bounces_of(rest);
        self.stray.get_or_insert(rest.stray.unwrap_or_default());
        self.thread_bounce_limit.get_or_insert(usual);
    }

    /// The limit of bounces for the threads of a placement, by how often it asks to decide.
    fn bounces_of(&self, own: Own) -> u32 {
        let interval = own.interval.map_or(1.0, |own| own.as_secs_f64());
        let decisions = (1.0 / interval).max(1.0);
        // A cast from float saturates.
        (f64::from(self.bounce_limit) * decisions) as u32
    }

    /// How far the threads of a group, or of none, may stray.
    pub(crate) fn stray_of(&self, group: Option<&str>) -> Stray {
        let own = group.and_then(|group| self.groups.get(group)?.stray);
        own.or(self.stray).unwrap_or_default()
    }

    /// The limit of bounces for the threads of a group, or of none.
    pub(crate) fn thread_bounces_of(&self, group: Option<&str>) -> u32 {
        let own = group.and_then(|group| self.groups.get(group)?.thread_bounce_limit);
        own.unwrap_or_else(|| self.thread_bounces())
    }

    /// The limit of bounces for threads that are in no group.
    pub(crate) fn thread_bounces(&self) -> u32 {
        self.thread_bounce_limit.unwrap_or(self.bounce_limit)
    }

    /// Looks for limits that cannot be.
    pub(super) fn check(&self) -> Result<(), HerdError> {
        let bounces = "it must be 1 or more; to let nothing move, use a dry run";
        let bounce_limits = [
            ("limits.bounce_limit", self.bounce_limit),
            ("limits.thread_bounce_limit", self.thread_bounces()),
        ];
        let of_groups = self.groups.values().map(|group| {
            let limit = group.thread_bounce_limit.unwrap_or(self.bounce_limit);
            ("limits.groups.NAME.thread_bounce_limit", limit)
        });
        for (key, limit) in bounce_limits.into_iter().chain(of_groups) {
            within(key, limit.into(), 1..=u32::MAX.into(), bounces)?;
        }
        let amounts = [
            ("limits.moves_per_second", self.moves_per_second),
            (
                "limits.machine_moves_per_second",
                self.machine_moves_per_second,
            ),
            ("limits.bounce_window_s", self.bounce_window_s),
            ("limits.freeze_s", self.freeze_s),
            ("limits.pages_mib_per_s", self.pages_mib_per_s),
            (
                "limits.process_pages_mib_per_s",
                self.process_pages_mib_per_s,
            ),
            (
                "limits.machine_pages_mib_per_s",
                self.machine_pages_mib_per_s,
            ),
            ("limits.steal.least_wait", self.steal.least_wait),
        ];
        for (key, value) in amounts {
            amount(key, value)?;
        }
        let at_most_a_day = "it must be at most 86400000, a day";
        let times = [
            ("limits.pages_burst_ms", self.pages_burst_ms),
            ("limits.worse.span_ms", self.worse.span_ms),
            ("limits.steal.over_ms", self.steal.over_ms),
        ];
        for (key, value) in times {
            within(key, value, 0..=DAY_MS, at_most_a_day)?;
        }
        share("limits.node_reserve", self.node_reserve)?;
        let worse = &self.worse;
        share("limits.worse.share", worse.share)?;
        within(
            "limits.worse.intervals",
            worse.intervals as u64,
            1..=MOST_SPANS,
            "it must be from 1 to 1000000; to never undo, set limits.worse.undo to false",
        )?;
        within(
            "limits.worse.settle",
            worse.settle as u64,
            0..=MOST_SPANS,
            "it must be at most 1000000",
        )?;
        no_empty("limits.cpus", self.cpus.as_ref().map(CpuSet::is_empty))?;
        no_empty("limits.nodes", self.nodes.as_ref().map(NodeSet::is_empty))
    }
}

pub(super) fn within(
    key: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
    why: &'static str,
) -> Result<(), HerdError> {
    if range.contains(&value) {
        return Ok(());
    }
    let value = value.to_string();
    Err(HerdError::Setting { key, value, why })
}

fn amount(key: &'static str, value: f64) -> Result<(), HerdError> {
    if (0.0..=MOST).contains(&value) {
        return Ok(());
    }
    Err(HerdError::Setting {
        key,
        value: value.to_string(),
        why: "it must be a number from 0 to 1000000000",
    })
}

fn share(key: &'static str, value: f64) -> Result<(), HerdError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(HerdError::Setting {
        key,
        value: value.to_string(),
        why: "it is a share, from 0 to 1",
    })
}

fn no_empty(key: &'static str, empty: Option<bool>) -> Result<(), HerdError> {
    if empty != Some(true) {
        return Ok(());
    }
    Err(HerdError::Setting {
        key,
        value: "empty".to_owned(),
        why: "name at least one, or leave it out for all",
    })
}
