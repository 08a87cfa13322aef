//! What the governor lets through, as it can be set, and why each default is what it is.
//!
//! Every limit is a time or a bound on what is done at once, never a number of intervals: it means the same
//! whether threads are placed once a second or a hundred times. Two still belong to the cadence:
//! [`Limits::moves_per_interval`] bounds what is done at one moment, and [`Limits::thread_bounce_limit`] follows
//! how often a placement asks to decide.

use std::collections::BTreeMap;

use numaherd_files::{choices, settings};
use numaherd_policy::Own;
use numaherd_policy::groups::OwnOfAll;
use numaherd_topology::{CpuSet, NodeSet};
use numaherd_world::AffinityScope;

use super::DAY_MS;

// Bounds beyond all use, so that what is computed from a setting keeps within its type.

/// The most spans that speeds are remembered for, on one side of a move.
const MOST_SPANS: f64 = 1_000_000.0;

/// The most that a rate per second or a time in s may be: a billion.
const MOST: f64 = 1e9;

/// What to do in place of a limit of no bounces.
const TO_MOVE_NOTHING: &str = " (to let nothing move, use a dry run)";

settings! {
    /// Limits on what any policy may do to the machine. The ledger records each refusal with the name of the
    /// limit.
    pub struct Limits {
        /// CPUs on which threads may be placed, as a list such as "0-7,16-23". A thread on another CPU stays
        /// there until its policy moves it.
        cpus: Option<CpuSet>, left_out: "all CPUs", example: "\"0-7,16-23\"";
        /// Nodes to which pages may be moved, as a list such as "0-1".
        nodes: Option<NodeSet>, left_out: "all nodes", example: "\"0-1\"";
        /// How far from its assigned core a thread may run. The kernel continues to balance threads within
        /// this scope.
        scope (was "stray"): Option<AffinityScope>,
            left_out: "as far as the policy's source says (brm: \"node\"), or else \"domain\"", example: "\"domain\"";
        /// Also place threads whose affinity a user has set. Otherwise, they are only observed.
        take_over: bool = false, restart: true;
        /// Maximum number of thread moves in one interval.
        moves_per_interval: u32 = 128, unit: "moves";
        /// Maximum number of thread moves per second, on average; bursts of up to one second's worth are
        /// allowed.
        moves_per_second: f64 = 128.0, unit: "moves per second", range: 0.0..=MOST;
        /// Maximum number of moves per second of the threads of one virtual machine, on average; bursts of up
        /// to one second's worth are allowed. A guest does not notice that one of its CPUs is not running; if
        /// that CPU holds a lock, the others wait. The default is a quarter of `moves_per_second`, enough for
        /// four virtual machines at once.
        vm_moves_per_second (was "machine_moves_per_second"): f64 = 32.0, unit: "moves per second", range: 0.0..=MOST;
        /// Pages that were moved this often between the same two nodes within `bounce_window_s` stay where they
        /// are for `freeze_s`; likewise threads between two memory domains, unless `thread_bounce_limit` is set.
        /// The default is that of DINO's authors (Clavis).
        bounce_limit: u32 = 5, unit: "moves", range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING;
        // It follows the policy's cadence. Clavis decides once a second, so that its 5 in a minute are one
        // move in twelve decisions; a placement whose source decides every 10 ms and tries nodes out by
        // design (BRM) has 500 in a minute, the same one in twelve. By Algorithm 1 a thread whose every
        // node looks worse than the other moves once in 12.2 decisions on average, so that only one that
        // does nothing else for a minute comes near. With 4 ms to fill a cache of 12 MiB anew, 8.3 moves a
        // second take 3.3 % of the thread's time. A cadence that the user sets changes nothing.
        //
        /// The bounce limit for threads, if it differs from `bounce_limit`.
        thread_bounce_limit: Option<u32>, unit: "moves", range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING,
            left_out: "`bounce_limit` times the number of decisions per second in the policy's source (brm: 500)",
            example: "5";
        /// The time over which bounces are counted: see `bounce_limit`.
        bounce_window_s: f64 = 60.0, unit: "s", range: 0.0..=MOST;
        /// How long threads and pages stay where they are after they bounced, and threads after one of their
        /// moves was undone.
        freeze_s: f64 = 60.0, unit: "s", range: 0.0..=MOST;
        /// Maximum page traffic of all processes together.
        pages_mib_per_s: f64 = 1024.0, unit: "MiB/s", range: 0.0..=MOST;
        /// Maximum page traffic of one process.
        process_pages_mib_per_s: f64 = 512.0, unit: "MiB/s", range: 0.0..=MOST;
        /// Maximum page traffic of one process that runs a virtual machine, instead of
        /// `process_pages_mib_per_s`. A page of a guest must be removed from two page tables, and the guest's
        /// next access to it exits to the host.
        vm_pages_mib_per_s (was "machine_pages_mib_per_s"): f64 = 256.0, unit: "MiB/s", range: 0.0..=MOST;
        /// The largest burst of page traffic after a pause, as a time at the full rate.
        pages_burst_ms: u64 = 100, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
        /// Share of each node's memory that page moves leave free.
        node_reserve: f64 = 0.05, unit: "share", range: 0.0..=1.0;
        /// When a move counts as having made things worse, and whether it is undone.
        worse: Worse;
        /// When a waiting thread is moved to an idle node.
        steal: Steal;
        /// What differs for the threads of a group, by its name.
        groups: BTreeMap<String, GroupLimits>, internal: true;
    }
}

settings! {
    /// What can differ for the threads of a group ([`numaherd_world::Process::group`]).
    pub struct GroupLimits {
        /// As [`Limits::scope`]. Left out: that of the limits if the user set it, otherwise that of the group's
        /// own placement, otherwise the memory domain.
        scope (was "stray"): Option<AffinityScope>;
        /// As [`Limits::thread_bounce_limit`]. Left out: that of the limits if the user set it, otherwise in
        /// proportion to how often the group's own placement decides.
        thread_bounce_limit: Option<u32>, range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING;
    }
}

settings! {
    /// When a move counts as having made a thread slower. Such a move is undone.
    #[derive(Copy)]
    pub struct Worse {
        /// Whether to undo a move that made its thread slower. To measure a policy as it was published, set it
        /// to false; such moves are then not detected either.
        undo: bool = true;
        /// The share of its speed that a thread must have lost.
        share: f64 = 0.3, unit: "share", range: 0.0..=1.0;
        /// The span over which a speed is measured: as many intervals as fit into it, or a single one that is
        /// longer.
        span_ms: u64 = 1000, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
        /// The number of spans that are compared, before the move and after it.
        intervals: usize = 3, unit: "spans", range: 1.0..=MOST_SPANS,
            because: " (to never undo, set `undo` to false)";
        /// The number of spans after the move that are skipped, while caches fill and pages follow.
        settle: usize = 2, unit: "spans", range: 0.0..=MOST_SPANS;
    }
}

settings! {
    /// When a thread that waits on a busy node is moved to an idle one (BRM 4.4).
    #[derive(Copy)]
    pub struct Steal {
        /// Which threads may be moved to idle nodes.
        when: StealWhen;
        /// How many CPUs the threads of a node must be waiting for, on average. The kernel's own time slices
        /// cause less than the default among threads that sleep and wake.
        least_wait: f64 = 0.5, unit: "CPUs", range: 0.0..=MOST;
        /// How long threads must have waited while the other node was idle. The default is ten samples of
        /// 10 ms, about as long as the kernel lets a thread wait on a CPU with ten threads.
        over_ms: u64 = 100, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
    }
}

choices! {
    /// Which threads may be moved to idle nodes.
    pub enum StealWhen {
        /// Those whose affinity scope is a node: their policy leaves balancing to the kernel, which can
        /// balance only within the node. A policy that chooses a core or a domain balances by itself, and
        /// stealing would work against it.
        #[default]
        Node = "node",
        /// All threads that have been placed.
        Always = "always",
        /// None.
        Never = "never",
    }
}

impl Limits {
    /// Fills in what is left out: with the placement's own value, or else the default.
    pub(super) fn resolve(&mut self, policies: &OwnOfAll) {
        for &(ref name, own) in &policies.groups {
            let usual = self.bounces_of(own);
            let (scope, bounces) = (self.scope, self.thread_bounce_limit);
            let group = self.groups.entry(name.to_string()).or_default();
            group
                .scope
                .get_or_insert(scope.or(own.scope).unwrap_or_default());
            group
                .thread_bounce_limit
                .get_or_insert(bounces.unwrap_or(usual));
        }
        let rest = policies.rest;
        let usual = self.bounces_of(rest);
        self.scope.get_or_insert(rest.scope.unwrap_or_default());
        self.thread_bounce_limit.get_or_insert(usual);
    }

    /// The bounce limit for a placement's threads, by how often it asks to decide.
    fn bounces_of(&self, own: Own) -> u32 {
        let interval = own.interval.map_or(1.0, |own| own.as_secs_f64());
        let decisions = (1.0 / interval).max(1.0);
        // A cast from float saturates.
        (f64::from(self.bounce_limit) * decisions) as u32
    }

    /// The affinity scope of the threads of a group, or of none.
    pub(crate) fn scope_of(&self, group: Option<&str>) -> AffinityScope {
        let own = group.and_then(|group| self.groups.get(group)?.scope);
        own.or(self.scope).unwrap_or_default()
    }

    /// The bounce limit for the threads of a group, or of no group.
    pub(crate) fn thread_bounces_of(&self, group: Option<&str>) -> u32 {
        let own = group.and_then(|group| self.groups.get(group)?.thread_bounce_limit);
        own.unwrap_or_else(|| self.thread_bounces())
    }

    /// The bounce limit for threads in no group.
    pub(crate) fn thread_bounces(&self) -> u32 {
        self.thread_bounce_limit.unwrap_or(self.bounce_limit)
    }
}
