//! Groups of processes with a policy of their own, or with none: `[[group]]` of a configuration.
//!
//! A process belongs to the first group, in the order of the file, that it fits: of command names, users,
//! control groups and numbers every kind that is given must name it. Whoever is in no group is under the
//! policy of all.

use std::collections::BTreeSet;

use numaherd_herd::Stray;
use serde::{Deserialize, Serialize};

/// What a group's policy is called when its processes are left alone.
pub const NO_POLICY: &str = "none";

/// The longest that an interval may be, in ms: a day.
const DAY_MS: u64 = 86_400_000;

/// A group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// What it is called, in what people see. Each name once.
    pub name: String,
    /// Processes of these command names, as `/proc/PID/comm` has them; `*` stands for any letters, `?` for
    /// one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Processes of these users, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Processes in these control groups or below them, as `/proc/PID/cgroup` has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// These processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Its policy: a name, or [`NO_POLICY`]; that of all others when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How often its threads are placed, in ms; as often as its policy's source has it, or else once a
    /// second, when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_interval_ms: Option<u64>,
    /// How far its threads may stray; as `herd.limits.stray`, or else as its policy's source has it, when
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stray: Option<Stray>,
    /// Its limit of bounces for threads; as `herd.limits.thread_bounce_limit`, or else by its policy's
    /// cadence, when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_bounce_limit: Option<u32>,
}

impl Group {
    /// Whether its processes are left alone.
    pub fn left_alone(&self) -> bool {
        self.policy.as_deref() == Some(NO_POLICY)
    }
}

/// A key of a group whose value cannot be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongGroup {
    /// Which group, from 0.
    pub group: usize,
    /// Which of its keys; the group itself when empty.
    pub key: &'static str,
    /// What is wrong: what follows the key in a sentence.
    pub what: String,
}

/// Groups that cannot be.
pub fn check(groups: &[Group]) -> Vec<WrongGroup> {
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let mut say = |key, what: String| {
            wrong.push(WrongGroup {
                group: number,
                key,
                what,
            });
        };
        if group.name.trim().is_empty() {
            say("", "needs a name: name = \"…\"".to_owned());
        } else if !names.insert(&group.name) {
            let what = format!("is {:?}, as that of a group before it", group.name);
            say("name", what);
        }
        let members = [&group.names, &group.users, &group.cgroups];
        if members.iter().all(|all| all.is_empty()) && group.pids.is_empty() {
            let what = "names no process: give it names, users, cgroups or pids";
            say("", what.to_owned());
        }
        for (key, all) in [("names", &group.names), ("users", &group.users)] {
            if all.iter().any(|one| one.trim().is_empty()) {
                say(key, "has an empty one".to_owned());
            }
        }
        if let Some(path) = group.cgroups.iter().find(|path| !path.starts_with('/')) {
            let what = format!("has {path:?}: the path of a control group begins with a slash");
            say("cgroups", what);
        }
        if group.pids.contains(&0) {
            say("pids", "has 0, which is no process".to_owned());
        }
        if let Some(interval) = group.placement_interval_ms
            && !(1..=DAY_MS).contains(&interval)
        {
            let what = format!("is {interval}: it must be from 1 to {DAY_MS}, a day");
            say("placement_interval_ms", what);
        }
        if group.thread_bounce_limit == Some(0) {
            let what = "is 0: it must be 1 or more; to let nothing move, use the policy \"none\"";
            say("thread_bounce_limit", what.to_owned());
        }
    }
    wrong
}
