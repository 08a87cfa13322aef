//! Moving pages: in batches under a pause target, each page's own status read back.
//!
//! A batch is one question and one `move_pages(2)`. The question tells the pages that are to move
//! from those that are there already and those that are nowhere, so that the kernel is given only
//! pages to move: it then collects them all and moves them in one go, where a single page to pass
//! over would make it move what it had so far, page by page. A batch is as long as `pause target /
//! time per page` of the last ones allows.
//!
//! Transparent huge pages: the kernel takes the whole huge page for any base page in it, and moves
//! it unbroken where the target node has a free one, else splits it (mm/migrate.c). The second base
//! page of it finds it taken and answers `EBUSY`, the others find it moved; so what is busy or
//! unsaid after a move is asked again, and what is on its node by then counts as moved. One huge page
//! is moved as a whole even when an order names only a part of it.
//!
//! The identity of the process is held by a pidfd and checked before each batch.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use numaherd_topology::NodeId;
use numaherd_world::{PageFailure, PageOrder, PageOutcome, Pages, ProcessId};

use crate::files::Root;
use crate::kernel::{Errno, Hands, Hold};
use crate::options::PageOptions;
use crate::proc::{maps, numa_maps};
use crate::stop::Stop;

/// Negative errnos as page statuses give them.
mod status {
    pub(super) const NOT_THERE: i32 = -libc::ENOENT;
    pub(super) const IO: i32 = -libc::EIO;
    pub(super) const SHARED: i32 = -libc::EACCES;
    pub(super) const FAULT: i32 = -libc::EFAULT;
    pub(super) const BUSY: i32 = -libc::EBUSY;
    pub(super) const INVALID: i32 = -libc::EINVAL;
    pub(super) const NO_MEMORY: i32 = -libc::ENOMEM;
    /// What no kernel answers: set before the call, found after it when nothing was written.
    pub(super) const UNSAID: i32 = i32::MIN;
}

fn failure(status: i32) -> PageFailure {
    match status {
        status::NOT_THERE => PageFailure::NotThere,
        status::SHARED => PageFailure::Shared,
        status::BUSY | status::UNSAID => PageFailure::Busy,
        status::NO_MEMORY => PageFailure::NodeFull,
        status::FAULT | status::IO | status::INVALID => PageFailure::Unmovable,
        node if node >= 0 => PageFailure::Busy,
        _ => PageFailure::Other,
    }
}

/// A run of pages: first address and one past the last, both on page boundaries.
type Range = std::ops::Range<u64>;

/// Moves pages, and remembers how long that takes.
#[derive(Debug)]
pub(crate) struct Mover {
    root: Root,
    options: PageOptions,
    page_bytes: u64,
    batch: usize,
    /// When the bandwidth limit lets the next bytes move.
    free_at_ns: u64,
    addresses: Vec<u64>,
    before: Vec<i32>,
    going: Vec<u64>,
    after: Vec<i32>,
}

/// Why an order ended early.
struct Stopped {
    error: Option<String>,
}

impl Mover {
    pub(crate) fn new(root: Root, options: PageOptions, page_bytes: u64) -> Self {
        let batch = options.first_batch.clamp(1, options.largest_batch.max(1));
        Self {
            root,
            options,
            page_bytes,
            batch,
            free_at_ns: 0,
            addresses: Vec::new(),
            before: Vec::new(),
            going: Vec::new(),
            after: Vec::new(),
        }
    }

    /// Carries out orders; one outcome each, in their order. A node that turns out full is not
    /// ordered to again in the same call.
    pub(crate) fn carry_out(
        &mut self,
        hands: &dyn Hands,
        orders: &[PageOrder],
        stop: &Stop,
    ) -> Vec<PageOutcome> {
        let mut maps_of: HashMap<ProcessId, Vec<maps::Mapping>> = HashMap::new();
        let mut full = Vec::new();
        orders
            .iter()
            .map(|order| {
                let mut outcome = nothing_yet(order);
                let ranges = match self.ranges(order, &mut maps_of) {
                    Ok(ranges) => ranges,
                    Err(error) => {
                        outcome.not_tried = asked_for(order.pages);
                        outcome.error = Some(error);
                        return outcome;
                    }
                };
                let started = hands.now_ns();
                self.carry_out_one(hands, order, &ranges, &mut full, stop, &mut outcome);
                outcome.took_ns = hands.now_ns().saturating_sub(started);
                outcome
            })
            .collect()
    }

    fn carry_out_one(
        &mut self,
        hands: &dyn Hands,
        order: &PageOrder,
        ranges: &[Range],
        full: &mut Vec<NodeId>,
        stop: &Stop,
        outcome: &mut PageOutcome,
    ) {
        let mut left: u64 = ranges
            .iter()
            .map(|r| (r.end - r.start) / self.page_bytes)
            .sum();
        let mut stopped = None;
        if full.contains(&order.to) {
            stopped = Some(node_is_full(order));
        }
        let hold = match hands.hold(order.process) {
            Ok(Some(hold)) => Some(hold),
            Ok(None) => {
                stopped = Some(gone(order));
                None
            }
            Err(errno) => {
                stopped = Some(Stopped {
                    error: Some(format!("cannot take hold of {}: {errno}", order.process)),
                });
                None
            }
        };
        if let (None, Some(hold)) = (&stopped, &hold) {
            for range in ranges {
                let mut at = range.start;
                while at < range.end && stopped.is_none() {
                    let pages = ((range.end - at) / self.page_bytes).min(self.batch as u64);
                    let batch = at..at + pages * self.page_bytes;
                    at = batch.end;
                    stopped = self.check(hands, hold, order, stop);
                    if stopped.is_none() {
                        stopped = self.batch(hands, order, &batch, outcome);
                        left -= pages;
                    }
                }
                if stopped.is_some() {
                    break;
                }
            }
        }
        outcome.not_tried += left;
        if outcome.failed.contains_key(&PageFailure::NodeFull) && !full.contains(&order.to) {
            full.push(order.to);
        }
        outcome.error = stopped.and_then(|stopped| stopped.error);
    }

    /// Waits for the bandwidth limit, and looks whether to go on at all.
    fn check(
        &self,
        hands: &dyn Hands,
        hold: &Hold,
        order: &PageOrder,
        stop: &Stop,
    ) -> Option<Stopped> {
        let early = self.free_at_ns.saturating_sub(hands.now_ns());
        if early > 0 {
            hands.wait(Duration::from_nanos(early), stop);
        }
        if stop.is_asked() {
            return Some(Stopped {
                error: Some("stopped on request".to_owned()),
            });
        }
        (!hands.is_alive(hold)).then(|| gone(order))
    }

    /// One question, one move, and what is still open asked again.
    fn batch(
        &mut self,
        hands: &dyn Hands,
        order: &PageOrder,
        range: &Range,
        outcome: &mut PageOutcome,
    ) -> Option<Stopped> {
        let pid = order.process.pid;
        let Ok(node) = i32::try_from(order.to.0) else {
            return Some(Stopped {
                error: Some(format!("there is no node {}", order.to)),
            });
        };
        self.addresses.clear();
        let step = usize::try_from(self.page_bytes).expect("a page fits the address space");
        self.addresses.extend(range.clone().step_by(step));
        self.before.clear();
        self.before.resize(self.addresses.len(), status::UNSAID);
        if let Err(errno) = hands.where_are(pid, &self.addresses, &mut self.before) {
            outcome.not_tried += self.addresses.len() as u64;
            return Some(refusal(order, errno));
        }
        self.going.clear();
        for (&address, &status) in self.addresses.iter().zip(&self.before) {
            match status {
                there if there == node => outcome.already_there += 1,
                elsewhere if elsewhere >= 0 => self.going.push(address),
                error => count(&mut outcome.failed, error, 1),
            }
        }
        if self.going.is_empty() {
            return None;
        }
        self.after.clear();
        self.after.resize(self.going.len(), status::UNSAID);
        let began = hands.now_ns();
        let shared_too = self.options.shared_too;
        let answer = hands.move_pages(pid, &self.going, node, &mut self.after, shared_too);
        let took = hands.now_ns().saturating_sub(began);
        outcome.longest_batch_ns = outcome.longest_batch_ns.max(took);
        if let Err(errno) = answer
            && errno != Errno::NOMEM
        {
            outcome.not_tried += self.going.len() as u64;
            return Some(refusal(order, errno));
        }
        self.ask_again(hands, pid, node, answer != Ok(0));
        let moved = self.after.iter().filter(|&&status| status == node).count() as u64;
        outcome.moved += moved;
        let full = answer == Err(Errno::NOMEM);
        for &status in self.after.iter().filter(|&&status| status != node) {
            // Where the node ran full, the pages still elsewhere are so for that reason.
            let status = if full && status >= 0 {
                status::NO_MEMORY
            } else {
                status
            };
            count(&mut outcome.failed, status, 1);
        }
        self.learn(took, self.going.len());
        self.pay(began, moved);
        full.then(|| node_is_full(order))
    }

    /// Asks where the pages are that the move left open: all of them when the kernel moved fewer
    /// than it was given (it writes no status then), else those that it called busy.
    fn ask_again(&mut self, hands: &dyn Hands, pid: u32, node: i32, all: bool) {
        let open = |status: i32| all || matches!(status, status::UNSAID | status::BUSY);
        let asked: Vec<usize> = (0..self.going.len())
            .filter(|&i| self.after[i] != node && open(self.after[i]))
            .collect();
        if asked.is_empty() {
            return;
        }
        let addresses: Vec<u64> = asked.iter().map(|&i| self.going[i]).collect();
        let mut answers = vec![status::UNSAID; asked.len()];
        // A process that has ended in between answers nothing: its pages stay unsaid, and the next
        // check sees that it is gone.
        if hands.where_are(pid, &addresses, &mut answers).is_ok() {
            for (&i, answer) in asked.iter().zip(answers) {
                // An error status of the move says more than where the page is.
                if answer == node || self.after[i] == status::UNSAID {
                    self.after[i] = answer;
                }
            }
        }
    }

    /// Fits the batch to the pause target by the time that the last one took per page.
    fn learn(&mut self, took_ns: u64, pages: usize) {
        let target = self.options.pause_target.as_nanos() as f64;
        let per_page = took_ns as f64 / pages as f64;
        let fitting = (target / per_page.max(1.0)) as usize;
        // Shrinks at once, grows by doubling: one quick batch is no promise.
        self.batch = fitting
            .min(self.batch.saturating_mul(2))
            .clamp(1, self.options.largest_batch.max(1));
    }

    fn pay(&mut self, began_ns: u64, pages: u64) {
        if let Some(limit) = self.options.bytes_per_second {
            let cost =
                u128::from(pages * self.page_bytes) * 1_000_000_000 / u128::from(limit.max(1));
            let cost = u64::try_from(cost).unwrap_or(u64::MAX);
            self.free_at_ns = self.free_at_ns.max(began_ns).saturating_add(cost);
        }
    }

    /// The address ranges that an order names and the process has.
    fn ranges(
        &self,
        order: &PageOrder,
        maps_of: &mut HashMap<ProcessId, Vec<maps::Mapping>>,
    ) -> Result<Vec<Range>, String> {
        let pid = order.process.pid;
        let read = |file: &str| {
            self.root.read(&format!("proc/{pid}/{file}")).map_err(|error| {
                format!(
                    "cannot read where the pages of {} are (/proc/{pid}/{file}): {error}; it may \
                     have ended, or CAP_SYS_PTRACE is needed",
                    order.process
                )
            })
        };
        let mappings = match maps_of.entry(order.process) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(maps::parse(&read("maps")?))
            }
        };
        let takes = |m: &maps::Mapping| m.movable && (!m.shared || self.options.shared_too);
        let movable = mappings.iter().filter(|mapping| takes(mapping));
        Ok(match order.pages {
            Pages::Window { first, count } => {
                let start = first.saturating_mul(self.page_bytes);
                let end = first.saturating_add(count).saturating_mul(self.page_bytes);
                movable
                    .map(|m| m.start.max(start)..m.end.min(end))
                    .filter(|range| range.start < range.end)
                    .collect()
            }
            // Mappings without a page on another node need no walk. Kernels without NUMA have no
            // numa_maps; there every mapping is walked.
            Pages::All => {
                let elsewhere = read("numa_maps").ok().map(|text| {
                    numa_maps::parse(&text, self.page_bytes)
                        .into_iter()
                        .filter(|m| m.pages.iter().any(|&(on, n)| on != order.to && n > 0))
                        .map(|m| m.start)
                        .collect::<std::collections::BTreeSet<u64>>()
                });
                movable
                    .filter(|m| elsewhere.as_ref().is_none_or(|set| set.contains(&m.start)))
                    .map(|m| m.start..m.end)
                    .collect()
            }
        })
    }
}

fn nothing_yet(order: &PageOrder) -> PageOutcome {
    PageOutcome {
        process: order.process,
        thread: order.thread,
        pages: order.pages,
        to: order.to,
        moved: 0,
        already_there: 0,
        failed: BTreeMap::new(),
        not_tried: 0,
        took_ns: 0,
        longest_batch_ns: 0,
        error: None,
    }
}

fn asked_for(pages: Pages) -> u64 {
    match pages {
        Pages::All => 0,
        Pages::Window { count, .. } => count,
    }
}

fn count(failed: &mut BTreeMap<PageFailure, u64>, status: i32, pages: u64) {
    *failed.entry(failure(status)).or_default() += pages;
}

fn gone(order: &PageOrder) -> Stopped {
    Stopped {
        error: Some(format!(
            "{} has ended; what was left of its pages was not tried",
            order.process
        )),
    }
}

fn node_is_full(order: &PageOrder) -> Stopped {
    Stopped {
        error: Some(format!(
            "node {} has no free memory for pages of {}; free some there, or choose another node",
            order.to, order.process
        )),
    }
}

fn refusal(order: &PageOrder, errno: Errno) -> Stopped {
    let why = match errno {
        Errno::SRCH => return gone(order),
        Errno::PERM => {
            "permission denied: run as its user or as root, or give CAP_SYS_NICE and CAP_SYS_PTRACE"
        }
        Errno::ACCESS => "its cpuset does not let it have memory there",
        Errno::NODEV => "there is no such node online",
        Errno::NOSYS => "this kernel has no move_pages (CONFIG_MIGRATION), or a filter hides it",
        Errno::INVAL => "it has no memory of its own (a kernel thread, or it is ending)",
        _ => "unexpected; see move_pages(2)",
    };
    Stopped {
        error: Some(format!(
            "cannot move pages of {} to node {}: {errno}: {why}",
            order.process, order.to
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Kernel;
    use numaherd_world::ThreadId;
    use proptest::prelude::*;

    const PROCESS: ProcessId = ProcessId { pid: 9, born: 90 };
    const FIRST: u64 = 0x10_0000;

    struct Case {
        kernel: Kernel,
        root: tempfile::TempDir,
        stop: Stop,
        options: PageOptions,
    }

    /// A process with `pages` pages on node 0.
    fn process(pages: u64) -> Case {
        let kernel = Kernel::default();
        kernel.thread(9, 90, "0".parse().unwrap());
        kernel.pages(FIRST, pages, 0);
        kernel.ns_per_page(1000);
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/9");
        std::fs::create_dir_all(&folder).unwrap();
        let (start, end) = (FIRST * 4096, (FIRST + pages) * 4096);
        std::fs::write(
            folder.join("maps"),
            format!(
                "{start:x}-{end:x} rw-p 00000000 00:00 0 \n{end:x}-{:x} rw-s 0 00:01 5 /dev/shm/x\n",
                end + 4096
            ),
        )
        .unwrap();
        std::fs::write(
            folder.join("numa_maps"),
            format!("{start:x} default anon={pages} N0={pages} kernelpagesize_kB=4\n"),
        )
        .unwrap();
        Case {
            kernel,
            root,
            stop: Stop::new().unwrap(),
            options: PageOptions::default(),
        }
    }

    impl Case {
        fn carry_out(&self, orders: &[PageOrder]) -> Vec<PageOutcome> {
            let root = Root::new(self.root.path());
            Mover::new(root, self.options.clone(), 4096).carry_out(&self.kernel, orders, &self.stop)
        }

        fn order(&self, pages: Pages, to: u32) -> PageOutcome {
            self.carry_out(&[order(pages, to)]).remove(0)
        }
    }

    fn order(pages: Pages, to: u32) -> PageOrder {
        PageOrder {
            process: PROCESS,
            thread: ThreadId { tid: 9, born: 90 },
            pages,
            to: NodeId(to),
            rule: "test".into(),
            why: String::new(),
        }
    }

    fn sum(outcome: &PageOutcome) -> u64 {
        outcome.moved
            + outcome.already_there
            + outcome.not_tried
            + outcome.failed.values().sum::<u64>()
    }

    #[test]
    fn a_whole_process_moves() {
        let case = process(3000);
        let outcome = case.order(Pages::All, 2);
        assert_eq!((outcome.moved, outcome.error.clone()), (3000, None));
        assert_eq!(case.kernel.pages_on(2), 3000);
        assert_eq!(sum(&outcome), 3000);
    }

    #[test]
    fn a_window_takes_only_what_the_process_has() {
        let case = process(100);
        case.kernel.pages(FIRST, 10, 1);
        let window = Pages::Window {
            first: FIRST - 50,
            count: 100,
        };
        let outcome = case.order(window, 1);
        assert_eq!((outcome.moved, outcome.already_there), (40, 10));
        assert_eq!(case.kernel.pages_on(0), 50);
    }

    #[test]
    fn absent_pages_are_counted_and_not_handed_to_the_kernel() {
        let case = process(20);
        case.kernel.pages(FIRST + 5, 5, -libc::ENOENT);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 15);
        assert_eq!(outcome.failed, BTreeMap::from([(PageFailure::NotThere, 5)]));
        assert_eq!(case.kernel.batches(), [15]);
    }

    #[test]
    fn each_pages_own_failure_is_named() {
        let case = process(10);
        case.kernel.stuck(FIRST, -libc::EACCES);
        case.kernel.stuck(FIRST + 1, -libc::EFAULT);
        case.kernel.stuck(FIRST + 2, -libc::EBUSY);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 7);
        assert_eq!(
            outcome.failed,
            BTreeMap::from([
                (PageFailure::Shared, 1),
                (PageFailure::Busy, 1),
                (PageFailure::Unmovable, 1)
            ])
        );
    }

    #[test]
    fn a_full_node_ends_the_order_and_all_later_ones_to_it() {
        let case = process(1000);
        case.kernel.free(1, 600);
        let outcomes = case.carry_out(&[
            order(Pages::All, 1),
            order(
                Pages::Window {
                    first: FIRST,
                    count: 1000,
                },
                1,
            ),
        ]);
        assert_eq!(outcomes[0].moved, 600);
        assert!(outcomes[0].failed[&PageFailure::NodeFull] > 0);
        assert!(
            outcomes[0]
                .error
                .as_deref()
                .unwrap()
                .contains("node 1 has no free memory")
        );
        assert_eq!(sum(&outcomes[0]), 1000);
        assert_eq!((outcomes[1].moved, outcomes[1].not_tried), (0, 1000));
        assert!(outcomes[1].error.is_some());
    }

    #[test]
    fn a_process_that_dies_in_the_middle_leaves_the_rest_untried() {
        let case = process(5000);
        case.kernel.dies_after_batches(2);
        let outcome = case.order(Pages::All, 1);
        assert!(outcome.moved > 0 && outcome.not_tried > 0);
        assert!(outcome.error.as_deref().unwrap().contains("has ended"));
        assert_eq!(sum(&outcome), 5000);
    }

    #[test]
    fn a_number_that_is_anothers_by_now_is_not_touched() {
        let case = process(10);
        case.kernel.thread(9, 91, "0".parse().unwrap());
        let outcome = case.order(Pages::All, 1);
        assert_eq!((outcome.moved, outcome.not_tried), (0, 10));
        assert!(case.kernel.batches().is_empty());
    }

    #[test]
    fn refusals_name_what_would_help() {
        for (errno, help) in [
            (Errno::PERM, "CAP_SYS_NICE"),
            (Errno::ACCESS, "cpuset"),
            (Errno::NODEV, "no such node"),
            (Errno::NOSYS, "CONFIG_MIGRATION"),
        ] {
            let case = process(10);
            case.kernel.refuse_next_move(errno);
            let outcome = case.order(Pages::All, 1);
            assert!(
                outcome.error.as_deref().unwrap().contains(help),
                "{outcome:?}"
            );
            assert_eq!(outcome.not_tried, 10);
        }
    }

    #[test]
    fn batches_keep_within_the_pause_target() {
        let case = process(20_000);
        case.kernel.ns_per_page(2000);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 20_000);
        assert!(
            outcome.longest_batch_ns <= 2_500_000,
            "{}",
            outcome.longest_batch_ns
        );
        assert_eq!(case.kernel.batches()[..3], [512, 1024, 1250]);
    }

    #[test]
    fn the_bandwidth_limit_holds() {
        let mut case = process(10_000);
        case.options.bytes_per_second = Some(4096 * 10_000);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 10_000);
        // 10,000 pages at 10,000 a second; the last batch is paid for by whoever comes next.
        let last = *case.kernel.batches().last().unwrap() as u64;
        assert!(
            outcome.took_ns >= (10_000 - last) * 100_000,
            "{}",
            outcome.took_ns
        );
        assert!(case.kernel.waited_ns() > 0);
    }

    #[test]
    fn a_request_to_stop_leaves_the_rest_untried() {
        let case = process(100);
        case.stop.ask();
        let outcome = case.order(Pages::All, 1);
        assert_eq!((outcome.moved, outcome.not_tried), (0, 100));
        assert!(outcome.error.unwrap().contains("on request"));
    }

    #[test]
    fn shared_mappings_are_left_alone_unless_asked_for() {
        let mut case = process(10);
        case.kernel.pages(FIRST + 10, 1, 0);
        let window = Pages::Window {
            first: FIRST,
            count: 11,
        };
        assert_eq!(case.order(window, 1).moved, 10);
        case.options.shared_too = true;
        assert_eq!(case.order(window, 1).moved, 1);
    }

    proptest! {
        #[test]
        fn every_page_of_an_order_is_accounted_for(
            pages in 1u64..3000,
            stuck in proptest::collection::btree_map(
                0u64..3000, prop_oneof![Just(-2), Just(-5), Just(-13), Just(-16), Just(-99)], 0..20),
            free in 0u64..4000,
            batch in 1usize..700,
        ) {
            let mut case = process(pages);
            case.options.first_batch = batch;
            case.kernel.free(3, free);
            for (page, status) in stuck {
                if page < pages {
                    case.kernel.stuck(FIRST + page, status);
                }
            }
            let outcome = case.order(Pages::All, 3);
            prop_assert_eq!(sum(&outcome), pages);
            prop_assert_eq!(outcome.moved, case.kernel.pages_on(3) as u64);
        }
    }
}
