//! By use: memory that one node uses moves there, and memory that several nodes use is spread over them.
//!
//! Problem: the threads of a process run on several nodes, but one of them loaded the memory, so all wait for one
//! controller. Memory that one thread has for itself belongs beside it. Memory that all use has no right node, and is read
//! fastest from all nodes at once.
//!
//! Rule: the paging counts sampled accesses of each process that has placed threads on several nodes and no other busy
//! threads. It counts them by block and by node of the thread.
//! 1. *By its own accesses* a block is judged at the eighth. If at least three quarters of them came from one node, the
//!    block is *private* and moves there. Otherwise it is *shared* by the nodes of the process, except those that hardly
//!    use it (less than half as much as they would if all used it alike). It moves to the sharing node whose memory has the
//!    fewest sampled accesses per thread, if these are then no more than those to what remains where the block was (or, if the
//!    block was hardly used there, to what was there), give or take half a block's. So a block stays beside its users while
//!    controllers are evenly loaded: more local lines do not make up for an overloaded controller. For the same reason, once
//!    all was ordered at once (4), a private block stays if its user's node would then have over an eighth more accesses per
//!    thread than the node where it is. A block also stays while three quarters of its accesses are local: its pages already lie
//!    with their users. A shared block also stays if more of its process's counted lines are local than 3 allows.
//! 2. *By other blocks* of its process a block is judged until then, if these are alike. Two accesses to one block always
//!    come from one node if all memory is private, and only as often as by chance if all is shared. Once 32 pairs of
//!    accesses were seen, the process counts as private or as shared if the share of pairs from one node is within 15 % of
//!    the way between these two. It then also counts as shared if at least four blocks were judged by their own accesses
//!    and two thirds of them are shared. A block that is judged shared in this way goes where 4 says if 4 has been done,
//!    else where 1 says for a block that all nodes use.
//! 3. *A process counts as shared* only if the share of its accesses that are local is no more than half of the way from
//!    chance to all. This must hold for sampled and for counted accesses (half of the latter count 5 s later): samples of a
//!    moment may show only one phase of a program.
//! 4. *All at once*: when a process begins to count as shared, all the rest of its private memory is ordered to the nodes
//!    in turn, 512 pages each time, each as often as it has threads. So memory that is large, or only written, need not be
//!    sampled block by block. From then on, blocks that all nodes use go to the node whose turn they are. If there are
//!    fewer blocks of 512 pages than threads, memory would not be even on the nodes, and is not ordered like this.
//!    Afterwards it takes 32 accesses to judge a block, since threads that pass through it in turn each seem to own it for
//!    a while. Memory that the placement has dealt counts as ordered like this, unless more than an eighth of a node's part
//!    did not get there. If no more than an eighth of a process's private memory would move, it is even enough: it counts
//!    as ordered, and blocks that all nodes use stay.
//!
//! Where the placement gives out rations of a process's pages ([`crate::policy::Place::rations`]), only blocks are ordered,
//! by 1 and 2, and no more pages than the ration: the most used blocks first.
//!
//! A block is ordered once by others' accesses and once by its own, and again only when its node has no thread of the
//! process any more, or after `thaw_after_s`. All the rest at once is ordered once within `thaw_after_s`.
//!
//! Sampling rests after 128 accesses in a row that were local or to blocks that had been ordered. It goes on when threads
//! have moved, after `thaw_after_s`, or when in a snapshot less than three quarters of the counted lines of a process that
//! does not count as shared were local: that process is in a phase that reads other blocks.
//!
//! Terms: a *block* is `by_use.block_pages` pages that begin at a multiple of it (by default 2 MiB, so that a huge page is
//! never split); an access is *local* if the page is on the thread's own node. Source: shared memory spread, private
//! memory at home: Carrefour (ASPLOS 2013); weights by threads and the counts are chosen here.
//!
//! Properties: by its own accesses, no block is ordered more than twice within `thaw_after_s` while the process's threads
//! stay on their nodes. Every order is to a node on which the process has a placed thread.

mod block;
mod blocks;
mod counted;
mod deal;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use numaherd_files::settings;
use numaherd_topology::{Node, NodeId, Topology};
use numaherd_world::{
    BLOCK_PAGES, MemoryKind, PageOrder, PageOutcome, Pages, Part, ProcessId, Signal, Snapshot,
    Thread, ThreadId,
};

use super::driver::{Access, Driven, PageRule, Wish};
use crate::busy::{LEAST_CPU_SHARE, wanted};
use crate::policy::{Optional, PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;
use block::{Block, Kind, Ordered};
pub use blocks::Blocks;
use counted::Counted;
use deal::{dealt, is_done, is_even, turn_in, whose_turn};

/// The rules that orders name.
pub const RULES: &[Rule] = &[HOME, SPREAD];
const HOME: Rule = Rule {
    name: "by-use: private",
    source: "Carrefour; counts chosen here",
    what: "At least three quarters of the sampled accesses to these pages came from one node: they go there.",
};
const SPREAD: Rule = Rule {
    name: "by-use: shared",
    source: "Carrefour; counts chosen here",
    what: "Threads on several nodes use these pages: blocks of them go to those nodes evenly.",
};

/// The most base pages of a block: 1 GiB of 4 KiB pages, the largest page there is on x86.
const MOST_BLOCK_PAGES: f64 = (1 << 18) as f64;

settings! {
    /// In which pieces `by-use` moves memory.
    #[derive(Copy, Eq)]
    pub struct ByUseSettings {
        /// Pages of a block. Linux moves a huge page as a whole: fewer than it has are for memory without huge pages, of
        /// programs so small that the parts of their threads would meet in one block.
        block_pages: u64 = BLOCK_PAGES, unit: "base pages", range: 1.0..=MOST_BLOCK_PAGES, source: "a huge page on x86";
    }
}

/// Sampled accesses by which a block is judged.
const ENOUGH: u32 = 8;
/// The same, in a process whose blocks count as shared.
const ENOUGH_AMONG_SHARED: u32 = 32;
/// Pairs of accesses to one block by which it is judged whether a process's blocks are alike.
const ENOUGH_PAIRS: u32 = 32;
/// How far pairs may be from all, or from chance, as a share of the way between the two.
const ALIKE: f64 = 0.15;
/// So many blocks must be judged by their own accesses before the others are judged by them (chosen here).
const ENOUGH_JUDGED: u32 = 4;
/// How far local accesses may be from chance, as a share of the way to all, where memory is shared by all: parts of blocks
/// may lie with their users (chosen here).
const LOCAL: f64 = 0.5;
/// How many times as much the memory of one node may be used as that of another once all was dealt (chosen here).
const MOST_UNEVEN: f64 = 1.125;
/// Accesses in a row that were local, or to blocks that stay where they were ordered, after which sampling rests.
const SETTLED: u32 = 128;

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct ByUse {
    thaw_after_ns: u64,
    block_pages: u64,
    /// Processes with placed threads on several nodes: the node of each, ascending.
    nodes: BTreeMap<ProcessId, Vec<NodeId>>,
    blocks: HashMap<(ProcessId, u64), Block>,
    tallies: HashMap<ProcessId, Tally>,
    /// The processes of these with too little memory to deal.
    small: HashSet<ProcessId>,
    /// Processes for which the pages that may be ordered are limited.
    rations: HashMap<ProcessId, Ration>,
    /// Processes whose private memory is as even on the nodes of their threads as dealing would make it.
    even: HashSet<ProcessId>,
    /// When the last snapshot was taken, in ns.
    now_ns: u64,
    /// How many lines were local, for the processes whose lines are counted.
    counted: HashMap<ProcessId, Counted>,
    /// Processes that count as shared since the last batch, with the thread whose access showed it.
    found_shared: Vec<(ProcessId, ThreadId)>,
    /// Blocks that were ordered since the last batch.
    ordered: Vec<(ProcessId, u64)>,
    /// Accesses in a row that were local, or to blocks that stay where they were ordered.
    settled: u32,
    /// When that was enough, in ns.
    rests_since_ns: Option<u64>,
}

/// Pages that may be ordered in all, and those that were.
#[derive(Clone, Copy, Debug, Default)]
struct Ration {
    given: u64,
    spent: u64,
}

impl Ration {
    /// Whether there are so many left.
    fn pays(self, pages: u64) -> bool {
        self.spent.saturating_add(pages) <= self.given
    }
}

/// What was seen of a process's blocks.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Pairs of accesses to one block that had not been judged yet, and those of them from one node.
    pairs: u32,
    same: u32,
    /// Accesses, and those of them to a page that was on the thread's own node.
    accesses: u32,
    local: u32,
    /// Blocks judged by their own accesses, and those of them that are shared.
    judged: u32,
    shared: u32,
    /// When all memory of the process was ordered, or found to be even, in ns.
    at_large_ns: Option<u64>,
    /// Which part went to which node; nothing where it was even.
    dealt: Vec<(NodeId, Part)>,
    /// For each node, the accesses to blocks that lie there.
    on: BTreeMap<NodeId, u32>,
}

impl Tally {
    /// Takes in an access to a block, before the block does.
    fn take(&mut self, block: &Block, access: &Access<'_>) {
        self.accesses += 1;
        self.local += u32::from(!access.is_remote());
        self.pairs += block.all();
        self.same += block.accesses.get(&access.node).copied().unwrap_or(0);
    }

    /// Takes in what a block is by its own accesses.
    fn judge(&mut self, own: Option<Kind>) {
        self.judged += u32::from(own.is_some());
        self.shared += u32::from(own == Some(Kind::Shared));
    }

    /// By how many accesses of its own a block is judged.
    fn enough(&self) -> u32 {
        match self.at_large_ns {
            Some(_) => ENOUGH_AMONG_SHARED,
            None => ENOUGH,
        }
    }

    /// What the process's blocks are, if they are alike. `nodes` are those of its threads; `counted` is the share of their
    /// lines that was local, if they are counted.
    fn kind(&self, nodes: &[NodeId], counted: Option<f64>) -> Option<Kind> {
        if self.pairs < ENOUGH_PAIRS {
            return None;
        }
        let same = f64::from(self.same) / f64::from(self.pairs);
        let local = f64::from(self.local) / f64::from(self.accesses.max(1));
        let most_are_shared = self.judged >= ENOUGH_JUDGED && self.shared * 3 >= self.judged * 2;
        let is_remote = is_remote(local.max(counted.unwrap_or(0.0)), nodes);
        let way = way(same, nodes);
        if (way <= ALIKE || most_are_shared) && is_remote {
            Some(Kind::Shared)
        } else {
            (way >= 1.0 - ALIKE).then_some(Kind::Private)
        }
    }

    /// Notes that a block lies on a node.
    fn lies(&mut self, block: &mut Block, on: NodeId) {
        let (before, counted) = (block.home.replace(on), block.counted);
        if let Some(accesses) = before.and_then(|before| self.on.get_mut(&before)) {
            *accesses -= counted;
        }
        block.counted = block.all();
        *self.on.entry(on).or_default() += block.counted;
    }

    /// Accesses to blocks on a node, and so many more, for each thread there; `nodes` are those of the process's threads.
    fn for_each(&self, node: NodeId, more: f64, nodes: &[NodeId]) -> f64 {
        let accesses = self.on.get(&node).copied().unwrap_or(0);
        let threads = nodes.iter().filter(|&&of| of == node).count();
        (f64::from(accesses) + more) / threads as f64
    }

    /// Where a block that one node uses belongs. Where controllers are evenly loaded since all was dealt, it stays if the
    /// memory of that node would then be used too much more than that of the node where it is.
    fn beside(&self, user: NodeId, block: &Block, nodes: &[NodeId]) -> NodeId {
        let then = self.for_each(user, block.all().into(), nodes);
        let stays = |&home: &NodeId| then > self.for_each(home, 0.0, nodes) * MOST_UNEVEN;
        let even = block.home.filter(|_| self.at_large_ns.is_some());
        even.filter(stays).unwrap_or(user)
    }

    /// Where a block that `users` use belongs; `nodes` are those of the process's threads.
    fn among(&self, users: &[NodeId], block: &Block, nodes: &[NodeId]) -> Option<NodeId> {
        let for_each = |node: NodeId, more| self.for_each(node, more, nodes);
        let least = (users.iter().copied())
            .min_by(|&a, &b| for_each(a, 0.0).total_cmp(&for_each(b, 0.0)))?;
        let its = f64::from(block.all());
        let then = for_each(least, its);
        let stays = |&home: &NodeId| {
            // Beside a user, it stays unless at least as much is left there. Half a block is as much, as samples go.
            let leaves = if users.contains(&home) { its } else { 0.0 };
            then > for_each(home, its / 2.0 - leaves)
        };
        block.home.filter(stays).or(Some(least))
    }

    /// The node whose turn a shared page is: as when all was dealt, while that node has threads of the process.
    fn whose_turn(&self, nodes: &[NodeId], page: u64) -> NodeId {
        turn_in(self.dealt.iter().copied(), page)
            .filter(|node| nodes.contains(node))
            .unwrap_or_else(|| whose_turn(nodes, page))
    }
}

impl ByUse {
    /// The paging; nothing seen yet.
    pub fn paging(settings: &Settings) -> Driven<Self, Blocks> {
        Driven {
            rule: Self {
                thaw_after_ns: settings.paging.thaw_after_s.saturating_mul(1_000_000_000),
                block_pages: settings.by_use.block_pages,
                ..Self::default()
            },
            orders: Blocks::of(settings.by_use.block_pages),
        }
    }

    /// Whether all memory of a process was ordered as shared.
    fn is_at_large(&self, process: ProcessId) -> bool {
        let tally = self.tallies.get(&process);
        tally.is_some_and(|tally| tally.at_large_ns.is_some())
    }

    /// All memory of a process is ordered at once: the orders of this batch for its blocks are dropped, and blocks that had
    /// gone to their user now go where all do.
    fn give_way(&mut self, process: ProcessId, of_this_batch: &[(ProcessId, u64)]) {
        for key in of_this_batch.iter().filter(|(of, _)| *of == process) {
            if let Some(block) = self.blocks.get_mut(key) {
                block.ordered = None;
            }
        }
        let nodes = self.nodes.get(&process).map_or(&[][..], Vec::as_slice);
        let blocks = self.blocks.iter_mut().filter(|((of, _), _)| *of == process);
        for (&(_, number), block) in blocks {
            if let Some(ordered) =
                (block.ordered.as_mut()).filter(|ordered| ordered.kind == Kind::Private)
            {
                ordered.to = whose_turn(nodes, number * self.block_pages);
                (ordered.kind, ordered.is_judged) = (Kind::Shared, false);
            }
        }
    }
}

/// The node of each placed thread of the processes that have them on several nodes.
fn spread_out(placed: &[PlacedThread]) -> BTreeMap<ProcessId, Vec<NodeId>> {
    let mut nodes: BTreeMap<ProcessId, Vec<NodeId>> = BTreeMap::new();
    for thread in placed {
        nodes.entry(thread.process).or_default().push(thread.node);
    }
    nodes.retain(|_, nodes| {
        nodes.sort_unstable();
        nodes.first() != nodes.last()
    });
    nodes
}

/// The processes with busy threads that are not placed: where these will be is not known, and they would wait for memory
/// that went to the others.
fn with_others(placed: &[PlacedThread], snapshot: &Snapshot) -> HashSet<ProcessId> {
    let placed: HashSet<ThreadId> = placed.iter().map(|thread| thread.thread).collect();
    let is_other =
        |thread: &&Thread| wanted(thread) >= LEAST_CPU_SHARE && !placed.contains(&thread.id);
    let others = snapshot.threads.iter().filter(is_other);
    others.map(|thread| thread.process).collect()
}

/// How far a share is from chance, where threads are on these nodes, as a share of the way to all.
fn way(share: f64, nodes: &[NodeId]) -> f64 {
    let of_node = nodes.chunk_by(|a, b| a == b);
    let chance: f64 = of_node
        .map(|on| (on.len() as f64 / nodes.len() as f64).powi(2))
        .sum();
    (share - chance) / (1.0 - chance)
}

/// Whether no more accesses are local than there may be where memory is shared by all.
fn is_remote(local: f64, nodes: &[NodeId]) -> bool {
    way(local, nodes) <= LOCAL
}

/// Whether a process has fewer blocks of memory than `threads`, as far as is known.
fn is_small(snapshot: &Snapshot, process: ProcessId, threads: usize) -> bool {
    let process = snapshot.process(process);
    let residency = process.and_then(|process| process.residency.as_ref());
    residency.is_some_and(|residency| {
        let pages: u64 = residency.pages.iter().map(|(_, pages)| pages).sum();
        pages < BLOCK_PAGES * threads as u64
    })
}

impl PageRule for ByUse {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds {
            also: &[Optional {
                signal: Signal::MemorySamples,
                without: "Memory that threads on several nodes use stays where it is.",
            }],
            ..PagingNeeds::default()
        }
    }

    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        let mut nodes = spread_out(placed);
        // What is known of a process is kept while one of its threads waits for its place.
        let on_several: HashSet<ProcessId> = nodes.keys().copied().collect();
        let is_free =
            |process| (snapshot.process(process)).is_none_or(|known| known.memory_policy.is_none());
        let others = with_others(placed, snapshot);
        nodes.retain(|&process, _| is_free(process) && !others.contains(&process));
        let thaws = |since_ns: u64| snapshot.time_ns.saturating_sub(since_ns) >= self.thaw_after_ns;
        if self.nodes != nodes || self.rests_since_ns.is_some_and(thaws) {
            (self.settled, self.rests_since_ns) = (0, None);
        }
        let is_small =
            |&(&process, on): &(&ProcessId, &Vec<NodeId>)| is_small(snapshot, process, on.len());
        self.small = (nodes.iter().filter(is_small))
            .map(|(&process, _)| process)
            .collect();
        self.even = (nodes.iter())
            .filter(|&(&process, on)| is_even(snapshot, process, on))
            .map(|(&process, _)| process)
            .collect();
        self.now_ns = snapshot.time_ns;
        let far = Counted::take(&mut self.counted, snapshot);
        if far
            .iter()
            .any(|process| nodes.contains_key(process) && !self.is_at_large(*process))
        {
            (self.settled, self.rests_since_ns) = (0, None);
        }
        self.nodes = nodes;
        let ended: HashSet<ProcessId> = (self.tallies.keys().copied())
            .filter(|process| !on_several.contains(process))
            .collect();
        if !ended.is_empty() {
            self.tallies.retain(|process, _| !ended.contains(process));
            self.blocks
                .retain(|(process, _), _| !ended.contains(process));
        }
        if self.settled >= SETTLED && self.rests_since_ns.is_none() {
            self.rests_since_ns = Some(snapshot.time_ns);
        }
    }

    fn rationed(&mut self, rations: &[(ProcessId, u64)]) {
        let before = std::mem::take(&mut self.rations);
        let of = |&(process, given)| {
            let spent = before.get(&process).map_or(0, |ration| ration.spent);
            (process, Ration { given, spent })
        };
        self.rations = rations.iter().map(of).collect();
    }

    fn listens(&self) -> bool {
        let ration = |process| self.rations.get(process);
        let may_move = |process| ration(process).is_none_or(|left| left.pays(self.block_pages));
        self.settled < SETTLED && self.nodes.keys().any(may_move)
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let nodes = self.nodes.get(&access.sample.process)?;
        let number = access.page / self.block_pages;
        let process = access.sample.process;
        let block = self.blocks.entry((process, number)).or_default();
        let now_ns = access.sample.time_ns;
        let is_old = |since_ns| now_ns.saturating_sub(since_ns) >= self.thaw_after_ns;
        let stands = |ordered: &Ordered| nodes.contains(&ordered.to) && !is_old(ordered.since_ns);
        if block.ordered.is_some_and(|ordered| !stands(&ordered)) {
            *block = Block {
                home: block.home,
                counted: block.counted,
                ..Block::default()
            };
        }
        self.settled = match block.ordered.is_some() || !access.is_remote() {
            true => self.settled.saturating_add(1),
            false => 0,
        };
        if block.ordered.is_some_and(|ordered| ordered.is_judged) {
            return None;
        }
        let tally = self.tallies.entry(process).or_default();
        tally.take(block, access);
        block.take(access);
        if let Some(home) = access.home() {
            tally.lies(block, home);
        }
        let lies_evenly = self.even.contains(&process);
        let may_deal = !self.small.contains(&process) && !self.rations.contains_key(&process);
        let is_due = tally.at_large_ns.is_none_or(is_old) && may_deal;
        let counted = self.counted.get(&process).map(|counted| counted.share());
        if is_due && tally.kind(nodes, counted) == Some(Kind::Shared) {
            tally.at_large_ns = Some(now_ns);
            tally.dealt.clear();
            if !lies_evenly {
                tally.dealt.extend(dealt(nodes));
                self.found_shared.push((process, access.sample.thread));
            }
        }
        let user = block.main_user().filter(|node| nodes.contains(node));
        let is_local = counted.is_some_and(|share| !is_remote(share, nodes));
        let own = match block.all() >= tally.enough() {
            true => Some((block.kind(user)).filter(|&kind| kind == Kind::Private || !is_local)?),
            false => None,
        };
        let kind = own.or_else(|| tally.kind(nodes, counted))?;
        let to = match kind {
            Kind::Private if block.is_local() => return None,
            Kind::Private => tally.beside(user?, block, nodes),
            Kind::Shared => match own.and_then(|_| block.few_users(nodes)) {
                None if !tally.dealt.is_empty() => tally.whose_turn(nodes, access.page),
                None if lies_evenly && block.home.is_some_and(|home| nodes.contains(&home)) => {
                    block.home?
                }
                users => tally.among(&users.unwrap_or_else(|| nodes.clone()), block, nodes)?,
            },
        };
        let changes = block.ordered.is_none_or(|before| before.to != to);
        if let Some(ration) = self.rations.get_mut(&process)
            && changes
            && !access.is_on(to)
        {
            if !ration.pays(self.block_pages) {
                return None;
            }
            ration.spent += self.block_pages;
        }
        tally.judge(own);
        tally.lies(block, to);
        block.ordered = Some(Ordered {
            to,
            since_ns: now_ns,
            kind,
            is_judged: own.is_some(),
        });
        if changes {
            self.settled = 0;
            self.ordered.push((process, number));
        }
        changes.then_some(to)
    }

    fn at_large(&mut self, topology: &Topology) -> Vec<PageOrder> {
        let mut orders = Vec::new();
        let ordered = std::mem::take(&mut self.ordered);
        for (process, thread) in std::mem::take(&mut self.found_shared) {
            self.give_way(process, &ordered);
            let nodes = self.nodes.get(&process).map_or(&[][..], Vec::as_slice);
            for (to, part) in dealt(nodes) {
                if !topology.node(to).is_some_and(Node::has_memory) {
                    continue;
                }
                let kind = MemoryKind::Private;
                let pages = format!("{} of {} blocks", part.count, part.of);
                let Reason { rule, why, .. } = shared(pages, to);
                orders.push(PageOrder {
                    process,
                    thread,
                    pages: Pages::OfKind { kind, part },
                    to,
                    rule: Cow::Borrowed(rule.name),
                    why: why.to_string(),
                });
            }
        }
        orders
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let mut dealt: BTreeMap<ProcessId, Vec<(NodeId, Part)>> = BTreeMap::new();
        for outcome in outcomes {
            if let Pages::OfKind { kind, part } = outcome.pages
                && kind == MemoryKind::Private
                && is_done(outcome)
            {
                let parts = dealt.entry(outcome.process).or_default();
                parts.push((outcome.to, part));
            }
        }
        for (process, parts) in dealt {
            let all: u64 = parts.iter().map(|(_, part)| part.count).sum();
            if parts.len() > 1 && all == parts[0].1.of && self.nodes.contains_key(&process) {
                let tally = self.tallies.entry(process).or_default();
                let blocks = self.blocks.iter_mut().filter(|((of, _), _)| *of == process);
                for (&(_, number), block) in blocks {
                    if let Some(on) = turn_in(parts.iter().copied(), number * self.block_pages) {
                        tally.lies(block, on);
                    }
                }
                (tally.at_large_ns, tally.dealt) = (Some(self.now_ns), parts);
            }
        }
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        let block = self
            .blocks
            .get(&(wish.process, wish.page / self.block_pages));
        let to = wish.to;
        // The first of two orders in one batch went to another node.
        let ordered = block.and_then(|block| block.ordered.filter(|ordered| ordered.to == to));
        match ordered.map(|ordered| ordered.kind) {
            Some(Kind::Private) => {
                HOME.because(words!("{pages} are used from node {to}", pages, to))
            }
            _ => shared(pages, to),
        }
    }
}

/// Why pages go to a node although others use them, too.
fn shared(pages: String, to: NodeId) -> Reason {
    SPREAD.because(words!(
        "{pages} are used from several nodes; evenly spread, these are for node {to}",
        pages,
        to
    ))
}

#[cfg(test)]
mod tests;
