//! What the governor lets through, as it can be set, and why each default is what it is.
//!
//! Every limit is of time or of what is done at once, never of a number of intervals: it means the same
//! whether threads are placed once a second or a hundred times. Two belong to the cadence all the same:
//! [`Limits::moves_per_interval`] bounds what is done at one moment, and
//! [`Limits::thread_bounce_limit`] follows how often a placement asks to decide.

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
    /// What any policy may do to the machine, however much it asks for. The ledger records what a limit
    /// refuses, with the limit's name.
    pub struct Limits {
        /// The CPUs that threads may be given, as a list such as "0-7,16-23". Threads found elsewhere are
        /// not driven away until their policy moves them.
        cpus: Option<CpuSet>, left_out: "all CPUs", example: "\"0-7,16-23\"";
        /// The nodes that pages may be moved to, as a list such as "0-1".
        nodes: Option<NodeSet>, left_out: "all nodes", example: "\"0-1\"";
        /// How far from its assigned core a thread may run. Within that the kernel goes on
        /// balancing.
        scope (was "stray"): Option<AffinityScope>,
            left_out: "as far as the policy's source says (brm: \"node\"), or else \"domain\"", example: "\"domain\"";
        /// Also steer threads whose affinity their users have set. Otherwise they are observed and left alone.
        take_over: bool = false, restart: true;
        /// Most thread moves in one interval: what may happen at one moment.
        moves_per_interval: u32 = 128, unit: "moves";
        /// Most thread moves per second, on average; up to one second's worth may come at once.
        moves_per_second: f64 = 128.0, unit: "moves per second", range: 0.0..=MOST;
        /// Most moves per second of the threads of one virtual machine, on average; up to one second's
        /// worth may come at once. A guest does not see that its CPU has gone, and one whose CPU holds a
        /// lock makes the others wait. The default, a quarter of `moves_per_second`, lets four virtual
        /// machines be looked after at once.
        vm_moves_per_second (was "machine_moves_per_second"): f64 = 32.0, unit: "moves per second", range: 0.0..=MOST;
        /// What was moved this often between the same two places within `bounce_window_s` stays where it is
        /// for `freeze_s`: pages between two nodes, threads between two memory domains (unless
        /// `thread_bounce_limit` says otherwise). The figure is that of DINO's authors (Clavis).
        bounce_limit: u32 = 5, unit: "moves", range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING;
        // It follows the policy's cadence. Clavis decides once a second, so that its 5 in a minute are one
        // move in twelve decisions; a placement whose source decides every 10 ms and tries nodes out by
        // design (BRM) has 500 in a minute, the same one in twelve. By Algorithm 1 a thread whose every
        // node looks worse than the other moves once in 12.2 decisions on average, so that only one that
        // does nothing else for a minute comes near. With 4 ms to fill a cache of 12 MiB anew, 8.3 moves a
        // second take 3.3 % of the thread's time. A cadence that the user sets changes nothing.
        //
        /// The bounce limit for threads, where it is not `bounce_limit`.
        thread_bounce_limit: Option<u32>, unit: "moves", range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING,
            left_out: "`bounce_limit` times how often in a second the policy's source decides (brm: 500)",
            example: "5";
        /// The time within which bounces are counted: see `bounce_limit`.
        bounce_window_s: f64 = 60.0, unit: "s", range: 0.0..=MOST;
        /// How long what bounced stays where it is; also how long a thread stays after a move of it was
        /// undone.
        freeze_s: f64 = 60.0, unit: "s", range: 0.0..=MOST;
        /// Most page traffic for all processes together.
        pages_mib_per_s: f64 = 1024.0, unit: "MiB/s", range: 0.0..=MOST;
        /// Most page traffic for one process.
        process_pages_mib_per_s: f64 = 512.0, unit: "MiB/s", range: 0.0..=MOST;
        /// Most page traffic for one process that runs a virtual machine, in place of
        /// `process_pages_mib_per_s`. A page of a guest is taken out of two page tables, and the guest's
        /// next access to it leaves the guest and comes back.
        vm_pages_mib_per_s (was "machine_pages_mib_per_s"): f64 = 256.0, unit: "MiB/s", range: 0.0..=MOST;
        /// How much page traffic may come at once after a pause, as a time at the full rate.
        pages_burst_ms: u64 = 100, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
        /// Share of a node's memory that page moves leave free.
        node_reserve: f64 = 0.05, unit: "share", range: 0.0..=1.0;
        /// When a move made a thread slower, and whether it is undone.
        worse: Worse;
        /// When a thread that waits is given to an idle node.
        steal: Steal;
        /// What is otherwise for the threads of a group, by its name.
        groups: BTreeMap<String, GroupLimits>, internal: true;
    }
}

settings! {
    /// What may be otherwise for the threads of a group ([`numaherd_world::Process::group`]).
    pub struct GroupLimits {
        /// As [`Limits::scope`]. Left out: as that where the user set it, or else as far as the group's
        /// own placement says, or else within the memory domain.
        scope (was "stray"): Option<AffinityScope>;
        /// As [`Limits::thread_bounce_limit`]. Left out: as that where the user set it, or else by how
        /// often the group's own placement asks to decide.
        thread_bounce_limit: Option<u32>, range: 1.0..=f64::MAX, because: TO_MOVE_NOTHING;
    }
}

settings! {
    /// When a move counts as having made a thread slower; such a move is undone.
    #[derive(Copy)]
    pub struct Worse {
        /// Whether a move that made its thread slower is undone. Set it to false to measure a policy as it
        /// was published; then nothing looks for such moves either.
        undo: bool = true;
        /// Share of its speed that a thread must have lost.
        share: f64 = 0.3, unit: "share", range: 0.0..=1.0;
        /// How long a span is over which a speed is measured: as many intervals as fill it, or one that is
        /// longer.
        span_ms: u64 = 1000, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
        /// How many spans are compared on either side of the move.
        intervals: usize = 3, unit: "spans", range: 1.0..=MOST_SPANS,
            because: " (to never undo, set `undo` to false)";
        /// How many spans after the move are passed over: caches fill and pages follow.
        settle: usize = 2, unit: "spans", range: 0.0..=MOST_SPANS;
    }
}

settings! {
    /// When a thread that is held to a busy node, and waits, is given to an idle one (BRM 4.4).
    #[derive(Copy)]
    pub struct Steal {
        /// Whose threads are given to idle nodes.
        when: StealWhen;
        /// How much must wait for CPUs of a node, on average. Less than the default is what the kernel's own
        /// time slices cause among threads that sleep and wake.
        least_wait: f64 = 0.5, unit: "CPUs", range: 0.0..=MOST;
        /// For how long threads must wait, and the other node be idle. The default is ten samples of 10 ms: as
        /// long as the kernel lets a thread wait when a CPU has some ten of them.
        over_ms: u64 = 100, unit: "ms", range: 0.0..=DAY_MS, because: ", a day";
    }
}

choices! {
    /// Whose threads are given to idle nodes.
    pub enum StealWhen {
        /// Those that may run within a whole node: their policy leaves the load to the kernel, which can
        /// balance it within a node only. A policy that chooses a core or domain for each thread balances
        /// itself, and would be fought.
        #[default]
        Node = "node",
        /// All that are held.
        Always = "always",
        /// Nobody's.
        Never = "never",
    }
}

impl Limits {
    /// Fills in what is left out and is the placement's own affair, or else the usual.
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

    /// The limit of bounces for the threads of a placement, by how often it asks to decide.
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

    /// The limit of bounces for the threads of a group, or of none.
    pub(crate) fn thread_bounces_of(&self, group: Option<&str>) -> u32 {
        let own = group.and_then(|group| self.groups.get(group)?.thread_bounce_limit);
        own.unwrap_or_else(|| self.thread_bounces())
    }

    /// The limit of bounces for threads that are in no group.
    pub(crate) fn thread_bounces(&self) -> u32 {
        self.thread_bounce_limit.unwrap_or(self.bounce_limit)
    }
}
