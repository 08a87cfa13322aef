//! The half of the governor that lets pages move.
//!
//! It runs with the paging, at the paging cadence, and knows the latest snapshot shown to it. It refuses a window of
//! pages that cannot move now: by the next round its samples are stale. An order for all pages of a process, or for
//! those of a kind, is given only once, and waits in line for bandwidth; a later one for the same process and thread
//! and some of the same pages takes its place.

mod ordered;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use numaherd_topology::{Node, NodeId, Topology};
use numaherd_world::{
    MemoryKind, NodeState, PageOrder, PageOutcome, Pages, Part, Process, ProcessId, Snapshot,
    Unmanaged,
};

use super::bounce::{BounceLimit, Bounces};
use super::rate::TokenBucket;
use super::threads::nanoseconds;
use super::{Guard, Objection, Refusal, Verdict, unless};
use crate::settings::Limits;
use ordered::{Ordered, overlap};

/// The unit in which memory is followed for bounces, in base pages: 2 MiB of 4 KiB pages, so that two threads at work
/// in two places of a window do not look like a bounce. Smaller orders are followed page by page: neighbours may well
/// belong to different nodes.
const PIECE_PAGES: u64 = 512;

const MIB: f64 = 1_048_576.0;

/// What came of page orders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GovernedPages {
    /// What to carry out: first waiting orders whose turn has come, then new ones.
    pub orders: Vec<PageOrder>,
    /// What was refused.
    pub refusals: Vec<Refusal>,
    /// Orders of this plan that wait for bandwidth, as indices into it.
    pub waiting: Vec<usize>,
}

/// Lets pages move, within the limits.
#[derive(Debug)]
pub struct PageGovernor {
    limits: Limits,
    topology: Arc<Topology>,
    now_ns: u64,
    snapshot: Option<Arc<Snapshot>>,
    sent_bytes: BTreeMap<NodeId, u64>,
    whole: Option<TokenBucket>,
    processes: BTreeMap<ProcessId, TokenBucket>,
    bounces: Bounces<(ProcessId, Followed), NodeId>,
    line: VecDeque<PageOrder>,
}

impl PageGovernor {
    /// A governor that has let nothing through yet.
    pub fn new(limits: &Limits, topology: &Arc<Topology>) -> Self {
        Self {
            limits: limits.clone(),
            topology: topology.clone(),
            now_ns: 0,
            snapshot: None,
            sent_bytes: BTreeMap::new(),
            whole: None,
            processes: BTreeMap::new(),
            bounces: Bounces::new(bounce_limit(limits)),
            line: VecDeque::new(),
        }
    }

    /// Sets other limits. What was moved still counts: budgets are not refilled.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.limits = limits.clone();
        self.bounces.set_limit(bounce_limit(limits));
        // The time until now was filled at the former rates.
        for bucket in self.whole.iter_mut().chain(self.processes.values_mut()) {
            bucket.advance(self.now_ns);
        }
        if let Some(whole) = &mut self.whole {
            let rate = limits.pages_mib_per_s;
            whole.set(rate * MIB, burst_bytes(limits, rate));
        }
    }

    /// Refuses the orders that wait in line: the policy that gave them no longer decides.
    pub fn refuse_waiting(&mut self) -> Vec<Refusal> {
        let waiting = std::mem::take(&mut self.line);
        let refused = |order: &PageOrder| {
            let why = "another policy decides now".to_owned();
            refusal(None, order, Guard::Superseded, why)
        };
        waiting.iter().map(refused).collect()
    }

    /// The latest time it knows, in ns since the world began.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Whether orders wait in line for bandwidth.
    pub fn has_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// Lets time pass; an earlier time changes nothing.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Takes in a new snapshot.
    pub fn see(&mut self, snapshot: Arc<Snapshot>) {
        self.advance(snapshot.time_ns);
        self.processes
            .retain(|&process, _| snapshot.process(process).is_some());
        self.bounces.keep(self.now_ns, |(process, _)| {
            snapshot.process(process).is_some()
        });
        self.sent_bytes.clear();
        self.snapshot = Some(snapshot);
    }

    /// Turns each page order of a plan into an order, a refusal or a waiting order.
    pub fn govern(&mut self, plan: &[PageOrder]) -> GovernedPages {
        let mut governed = GovernedPages::default();
        let mut ordered = Ordered::default();
        self.serve_the_line(&mut governed, &mut ordered);
        for (entry, order) in plan.iter().enumerate() {
            match self.check(&ordered, order) {
                Ok(()) => ordered.push(order.clone()),
                Err((guard, _)) if guard.is_for_bandwidth() && waits(&order.pages) => {
                    governed.refusals.extend(self.wait(order));
                    governed.waiting.push(entry);
                }
                Err((guard, why)) => {
                    let refusal = refusal(Some(entry), order, guard, why);
                    governed.refusals.push(refusal);
                }
            }
        }
        governed.orders = ordered.into_orders();
        governed
    }

    /// Takes in outcomes of orders: what was not moved does not count against the bandwidth, and what was moved counts
    /// for bounces.
    pub fn carried_out(&mut self, orders: &[PageOrder], outcomes: &[PageOutcome]) {
        for (order, outcome) in orders.iter().zip(outcomes) {
            let page_bytes = self.snapshot.as_ref().map_or(0, |s| s.page_bytes);
            let charged = self.size_bytes(order).unwrap_or(0) as f64;
            let used = outcome.moved.saturating_mul(page_bytes) as f64;
            self.charge(order.process, used - charged);
            if outcome.moved > 0 {
                for followed in followed(&order.pages) {
                    self.note_moved((order.process, followed), order.to);
                }
            }
        }
    }

    /// The guards, in their order.
    fn check(&mut self, ordered: &Ordered, order: &PageOrder) -> Verdict {
        let snapshot = self.snapshot.clone().ok_or_else(|| {
            let why = "nothing has been observed yet".to_owned();
            (Guard::UnknownProcess, why)
        })?;
        let process = known_process(&snapshot, order.process)?;
        may_be_touched(&snapshot, order, process)?;
        has_pages(order)?;
        has_memory(&self.topology, order.to)?;
        within_allowed_nodes(process, order.to)?;
        others_allow_it(&snapshot, order)?;
        within_limits(&self.limits, order.to)?;
        not_ordered_elsewhere(ordered, order)?;
        self.does_not_bounce(order)?;
        let size = self.size_bytes(order);
        self.target_has_room(&snapshot, order.to, size)?;
        self.within_bandwidth(process)?;
        let size = size.unwrap_or(0);
        self.charge(order.process, size as f64);
        let sent = self.sent_bytes.entry(order.to).or_default();
        *sent = sent.saturating_add(size);
        Ok(())
    }

    fn serve_the_line(&mut self, governed: &mut GovernedPages, ordered: &mut Ordered) {
        for _ in 0..self.line.len() {
            let Some(order) = self.line.pop_front() else {
                break;
            };
            match self.check(ordered, &order) {
                Ok(()) => ordered.push(order),
                Err((guard, _)) if guard.is_for_bandwidth() => self.line.push_back(order),
                Err((guard, why)) => governed.refusals.push(refusal(None, &order, guard, why)),
            }
        }
    }

    /// Puts an order in line; returns the refusal of the order that it replaces.
    fn wait(&mut self, order: &PageOrder) -> Option<Refusal> {
        let same = |other: &&mut PageOrder| {
            (other.process, other.thread) == (order.process, order.thread)
                && overlap(&other.pages, &order.pages)
        };
        match self.line.iter_mut().find(same) {
            Some(place) => {
                let earlier = std::mem::replace(place, order.clone());
                let why = "a later order for these pages of this process has come".to_owned();
                Some(refusal(None, &earlier, Guard::Superseded, why))
            }
            None => {
                self.line.push_back(order.clone());
                None
            }
        }
    }

    fn does_not_bounce(&mut self, order: &PageOrder) -> Verdict {
        let (mut frozen, mut all) = (0u64, 0u64);
        for followed in followed(&order.pages) {
            all += 1;
            let key = (order.process, followed);
            let from = self.bounces.last_place(key).filter(|&at| at != order.to);
            let goes = from.map(|from| self.bounces.may_move(key, from, order.to, self.now_ns));
            frozen += u64::from(matches!(goes, Some(Err(_))));
        }
        unless(frozen * 2 <= all, Guard::Bounce, || {
            format!(
                "most of these pages went to and fro {} times within {} s; they stay for {} s",
                self.limits.bounce_limit, self.limits.bounce_window_s, self.limits.freeze_s
            )
        })
    }

    fn note_moved(&mut self, key: (ProcessId, Followed), to: NodeId) {
        // Its first origin is unknown: the first move counts as from its target.
        let from = self.bounces.last_place(key).unwrap_or(to);
        if from != to || self.bounces.last_place(key).is_none() {
            self.bounces.moved(key, from, to, self.now_ns);
        }
    }

    fn target_has_room(&self, snapshot: &Snapshot, to: NodeId, size: Option<u64>) -> Verdict {
        let Some(node) = snapshot.nodes.iter().find(|node| node.id == to) else {
            // The world did not see this node's memory; the kernel still refuses what does not fit.
            return Ok(());
        };
        let sent = self.sent_bytes.get(&to).copied().unwrap_or(0);
        let left = node.free_bytes.saturating_sub(sent);
        let reserve = reserve_bytes(node, self.limits.node_reserve);
        let needed = reserve.saturating_add(size.unwrap_or(0));
        unless(left >= needed, Guard::FullNode, || {
            format!(
                "node {to} has {} MiB free, of which {} MiB are kept free, and {} MiB would come",
                left >> 20,
                reserve >> 20,
                size.unwrap_or(0) >> 20
            )
        })
    }

    fn within_bandwidth(&mut self, process: &Process) -> Verdict {
        let (now, limits) = (self.now_ns, &self.limits);
        let whole = limits.pages_mib_per_s;
        let all = self.whole.get_or_insert_with(|| bucket(limits, whole, now));
        all.advance(now);
        unless(all.allows(), Guard::Bandwidth, || {
            format!("page moves are limited to {whole} MiB/s")
        })?;
        let (own, guard) = match &process.machine {
            None => (limits.process_pages_mib_per_s, Guard::Bandwidth),
            Some(_) => (limits.vm_pages_mib_per_s, Guard::VmBandwidth),
        };
        let one = self
            .processes
            .entry(process.id)
            .or_insert_with(|| bucket(limits, own, now));
        // The process may have turned out to run a machine since.
        one.set(own * MIB, burst_bytes(limits, own));
        one.advance(now);
        unless(one.allows(), guard, || match &process.machine {
            None => format!("page moves of one process are limited to {own} MiB/s"),
            Some(machine) => format!(
                "page moves of one virtual machine are limited to {own} MiB/s, and it is of {}",
                machine.name
            ),
        })
    }

    fn charge(&mut self, process: ProcessId, bytes: f64) {
        let buckets = self
            .whole
            .iter_mut()
            .chain(self.processes.get_mut(&process));
        for bucket in buckets {
            if bytes >= 0.0 {
                bucket.take(bytes);
            } else {
                bucket.give_back(-bytes);
            }
        }
    }

    /// The most base pages that these orders can move, where residency is known.
    pub fn pages_in(&self, orders: &[PageOrder]) -> u64 {
        let pages = orders.iter().filter_map(|order| self.size_pages(order));
        pages.fold(0, u64::saturating_add)
    }

    /// The most that an order can move, in base pages; `None` where residency is not known.
    fn size_pages(&self, order: &PageOrder) -> Option<u64> {
        match order.pages {
            Pages::Window { count, .. } => Some(count),
            Pages::All => {
                let process = self.snapshot.as_ref()?.process(order.process)?;
                let residency = process.residency.as_ref()?;
                Some(residency.total() - residency.on(order.to))
            }
            Pages::OfKind { kind, part } => {
                let process = self.snapshot.as_ref()?.process(order.process)?;
                let pages = process.residency.as_ref()?.of_kind(kind)?;
                let elsewhere = pages.total() - pages.on(order.to);
                Some(elsewhere.min(part.share_of(pages.total())))
            }
        }
    }

    /// The most that an order can move, in bytes; `None` where residency is not known.
    fn size_bytes(&self, order: &PageOrder) -> Option<u64> {
        let page_bytes = self.snapshot.as_ref()?.page_bytes;
        Some(self.size_pages(order)?.saturating_mul(page_bytes))
    }
}

fn known_process(snapshot: &Snapshot, id: ProcessId) -> Result<&Process, Objection> {
    snapshot.process(id).ok_or_else(|| {
        let why = format!("{id} is not among the processes that were observed");
        (Guard::UnknownProcess, why)
    })
}

/// Memory belongs to its user as CPUs do, but the signs differ: a memory policy for memory, an affinity for CPUs. So
/// pages of threads pinned by their user may move, as under the kernel's own balancing.
fn may_be_touched(snapshot: &Snapshot, order: &PageOrder, process: &Process) -> Verdict {
    if let Some(policy) = &process.memory_policy {
        let why = format!("its memory has a policy of its user's ({policy})");
        return Err((Guard::HandsOff, why));
    }
    let machine = process.machine.as_ref();
    if let Some(fixed) = machine.and_then(|machine| machine.fixed_memory) {
        let why = format!("the memory of the virtual machine stays where it is: {fixed}");
        return Err((Guard::HandsOff, why));
    }
    let Some(thread) = snapshot.thread(order.thread) else {
        let why = format!(
            "{} is not among the threads that were observed",
            order.thread
        );
        return Err((Guard::UnknownThread, why));
    };
    match &thread.unmanaged {
        None | Some(Unmanaged::UserAffinity { .. }) => Ok(()),
        Some(reason) => Err((
            Guard::HandsOff,
            format!("its thread must be left alone: {reason}"),
        )),
    }
}

/// Whether an order waits for bandwidth: one for all pages, or for a kind of them, which is given once.
fn waits(pages: &Pages) -> bool {
    matches!(pages, Pages::All | Pages::OfKind { .. })
}

/// Other processes may share this memory or file. Which ones is not known: every process with pages of this kind that
/// are mapped more than once counts.
fn others_allow_it(snapshot: &Snapshot, order: &PageOrder) -> Verdict {
    let Pages::OfKind { kind, .. } = order.pages else {
        return Ok(());
    };
    let may_have = |process: &&Process| {
        let kinds = process
            .residency
            .as_ref()
            .and_then(|pages| pages.kinds.as_ref());
        kinds.is_some_and(|kinds| match kind {
            MemoryKind::Private => false,
            MemoryKind::Shared => kinds.shared.again,
            MemoryKind::File => kinds.file.again,
        })
    };
    for process in snapshot.processes.iter().filter(may_have) {
        let it = format!("{} may have this memory mapped, too, and", process.id);
        if let Some(policy) = &process.memory_policy {
            let why = format!("{it} its memory has a policy of its user's ({policy})");
            return Err((Guard::HandsOff, why));
        }
        unless(
            process.allowed_nodes.contains(order.to),
            Guard::Cpuset,
            || {
                let (to, allowed) = (order.to, &process.allowed_nodes);
                format!("{it} node {to} is beyond the nodes of its cpuset ({allowed})")
            },
        )?;
    }
    Ok(())
}

fn has_pages(order: &PageOrder) -> Verdict {
    let empty = match order.pages {
        Pages::All => false,
        Pages::Window { count, .. } => count == 0,
        Pages::OfKind { part, .. } => part.count == 0,
    };
    unless(!empty, Guard::Unchanged, || "it names no pages".to_owned())
}

fn has_memory(topology: &Topology, to: NodeId) -> Verdict {
    let node = topology.node(to);
    unless(
        node.is_some_and(Node::has_memory),
        Guard::UnknownNode,
        || match node {
            Some(_) => format!("node {to} has no memory or is offline"),
            None => format!("the machine has no node {to}"),
        },
    )
}

fn within_allowed_nodes(process: &Process, to: NodeId) -> Verdict {
    unless(process.allowed_nodes.contains(to), Guard::Cpuset, || {
        format!(
            "node {to} is beyond the nodes of its cpuset ({})",
            process.allowed_nodes
        )
    })
}

fn within_limits(limits: &Limits, to: NodeId) -> Verdict {
    let within = limits.nodes.as_ref().is_none_or(|nodes| nodes.contains(to));
    unless(within, Guard::Limits, || {
        format!("node {to} is beyond the nodes that may be used")
    })
}

fn not_ordered_elsewhere(ordered: &Ordered, order: &PageOrder) -> Verdict {
    match ordered.elsewhere(order) {
        None => Ok(()),
        Some(other) => Err((
            Guard::Duplicate,
            format!(
                "some of these pages are ordered to node {} already",
                other.to
            ),
        )),
    }
}

/// What is followed as one for bounces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Followed {
    /// All pages of the process.
    All,
    /// A part of those of one kind.
    OfKind(MemoryKind, Part),
    /// A piece of a large order, by its number.
    Piece(u64),
    /// A page of an order smaller than a piece.
    Page(u64),
}

fn followed(pages: &Pages) -> Box<dyn Iterator<Item = Followed>> {
    match *pages {
        Pages::All => Box::new(std::iter::once(Followed::All)),
        Pages::OfKind { kind, part } => Box::new(std::iter::once(Followed::OfKind(kind, part))),
        Pages::Window { first, count } if count < PIECE_PAGES => {
            let end = first.saturating_add(count);
            Box::new((first..end).map(Followed::Page))
        }
        Pages::Window { .. } => Box::new(pieces(pages).map(Followed::Piece)),
    }
}

fn pieces(pages: &Pages) -> RangeInclusive<u64> {
    match *pages {
        Pages::All | Pages::OfKind { .. } => 0..=u64::MAX / PIECE_PAGES,
        Pages::Window { first, count } => {
            let last = first.saturating_add(count.saturating_sub(1));
            first / PIECE_PAGES..=last / PIECE_PAGES
        }
    }
}

fn bounce_limit(limits: &Limits) -> BounceLimit {
    BounceLimit {
        limit: limits.bounce_limit as usize,
        window_ns: nanoseconds(limits.bounce_window_s),
        freeze_ns: nanoseconds(limits.freeze_s),
    }
}

fn bucket(limits: &Limits, mib_per_s: f64, now_ns: u64) -> TokenBucket {
    TokenBucket::full(mib_per_s * MIB, burst_bytes(limits, mib_per_s), now_ns)
}

fn burst_bytes(limits: &Limits, mib_per_s: f64) -> f64 {
    mib_per_s * MIB * limits.pages_burst_ms as f64 / 1000.0
}

fn reserve_bytes(node: &NodeState, share: f64) -> u64 {
    // A cast from float saturates, and the share is at most 1.
    (node.total_bytes as f64 * share) as u64
}

fn refusal(entry: Option<usize>, order: &PageOrder, guard: Guard, why: String) -> Refusal {
    Refusal {
        entry,
        thread: order.thread,
        guard,
        why,
    }
}
