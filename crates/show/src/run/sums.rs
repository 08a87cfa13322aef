//! Sums since the start, beside the [`Totals`](numaherd_herd::Totals) that every run ends with.

use std::collections::BTreeMap;

use numaherd_herd::Guard;
use numaherd_topology::NodeId;
use serde::{Serialize, Serializer};

use super::Content;
use crate::words::cut;

/// The most rules that are counted each; further ones are counted as [`OTHER_RULES`].
pub const MOST_RULES: usize = 64;

/// The name under which further rules are counted.
pub const OTHER_RULES: &str = "other rules";

/// The most groups of the configuration that are counted each; further ones are counted as
/// [`OTHER_GROUPS`]. A kubelet runs 110 pods unless it is configured otherwise, and each may be a group.
pub const MOST_GROUPS: usize = 256;

/// The name under which further groups are counted.
pub const OTHER_GROUPS: &str = "other groups";

/// The name under which processes are counted that belong to no group.
pub const NO_GROUP: &str = "no group";

/// Sums since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sums {
    /// Snapshots read: with a quick cadence fewer than there were intervals.
    #[serde(skip)]
    pub snapshots: u64,
    /// Most threads in a snapshot.
    #[serde(skip)]
    pub most_threads: usize,
    /// Seconds of CPU time of the threads seen.
    #[serde(skip)]
    pub cpu_s: f64,
    /// Which signals the snapshots hold.
    #[serde(skip)]
    pub content: Content,
    /// Ledger lines read.
    pub lines: u64,
    /// Ledger lines dropped before they were read.
    pub lines_lost: u64,
    /// Threads that each rule wanted elsewhere, and the outcome.
    pub rules: BTreeMap<String, RuleSums>,
    /// The same of page orders.
    #[serde(skip)]
    pub page_rules: BTreeMap<String, RuleSums>,
    /// By guard, what it said the first time.
    #[serde(skip)]
    pub first_refusals: BTreeMap<Guard, String>,
    /// Thread orders that the kernel refused.
    pub failed_orders: u64,
    /// Pages moved, by source and target. `None` where the source cannot be told.
    #[serde(serialize_with = "flows_as_list")]
    pub page_flows: BTreeMap<(Option<NodeId>, NodeId), u64>,
    /// Page orders that a dry run would have sent.
    #[serde(skip)]
    pub planned_page_orders: u64,
    /// Page orders that something stopped.
    pub page_errors: u64,
    /// Pages that were ordered to move and not tried.
    pub pages_not_tried: u64,
    /// Time that moves of pages took.
    pub pages_ns: u64,
    /// The longest single batch of pages: the longest pause that a thread can have seen.
    pub longest_batch_ns: u64,
    /// Memory samples.
    pub samples: u64,
    /// Of these, accesses that left the core's node.
    pub samples_remote: u64,
    /// Moves and losses by the process's group ([`NO_GROUP`] for processes in none).
    pub groups: BTreeMap<String, GroupSums>,
    /// Notices.
    pub notices: u64,
    /// Requests to the loop, by kind (`pause`, `resume`, `change`) and whether they were done.
    #[serde(serialize_with = "requests_as_list")]
    pub requests: BTreeMap<(&'static str, bool), u64>,
    /// Whether the ledger could not be written any more.
    pub ledger_ended: bool,
}

/// What was done to the processes of a group, and what they lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GroupSums {
    /// Times that one of their threads had to leave its CPU.
    pub thread_moves: u64,
    /// Their base pages that were moved.
    pub pages_moved: u64,
    /// CPU seconds that their threads lost to caches and memory, while that was known.
    pub lost_cpu_s: f64,
}

/// What came of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleSums {
    /// Entries of plans.
    pub wanted: u64,
    /// Of these, refused by the governor.
    #[serde(skip)]
    pub refused: u64,
    /// Times that a thread had to leave its CPU for it.
    pub moved: u64,
    /// Its reason, the first time.
    #[serde(skip)]
    pub why: String,
}

/// The sums of a name, or of all further names (`rest`) once there are `most` names.
pub(crate) fn named<'a, T: Default>(
    sums: &'a mut BTreeMap<String, T>,
    name: &str,
    (most, rest): (usize, &str),
) -> &'a mut T {
    let name = cut(name);
    let is_room = sums.len() < most || sums.contains_key(name);
    let name = if is_room { name } else { rest };
    if !sums.contains_key(name) {
        sums.insert(name.to_owned(), T::default());
    }
    sums.get_mut(name).expect("it was put there if it was not")
}

/// The sums of a rule, whose reason is kept the first time.
pub(super) fn rule<'a>(
    rules: &'a mut BTreeMap<String, RuleSums>,
    name: &str,
    why: &str,
) -> &'a mut RuleSums {
    let sums = named(rules, name, (MOST_RULES, OTHER_RULES));
    if sums.why.is_empty() {
        cut(why).clone_into(&mut sums.why);
    }
    sums
}

/// Writes flows of pages as a list of objects, since keys of JSON are strings.
fn flows_as_list<S: Serializer>(
    flows: &BTreeMap<(Option<NodeId>, NodeId), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Flow {
        from: Option<NodeId>,
        to: NodeId,
        pages: u64,
    }
    let flows = flows.iter();
    serializer.collect_seq(flows.map(|(&(from, to), &pages)| Flow { from, to, pages }))
}

/// Writes requests as a list of objects.
fn requests_as_list<S: Serializer>(
    requests: &BTreeMap<(&'static str, bool), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Requests {
        asked: &'static str,
        done: bool,
        requests: u64,
    }
    let each = requests.iter();
    serializer.collect_seq(each.map(|(&(asked, done), &requests)| Requests {
        asked,
        done,
        requests,
    }))
}
