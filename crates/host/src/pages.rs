//! Moving pages: in batches under a pause target, each page's own status read back.
//!
//! A window of pages is asked for at once where they are ([`crate::ranges`]); that tells the pages that are to move
//! from those that are there already and those that are nowhere. What is to move goes to
//! `move_pages(2)` in batches: given only pages to move, the kernel collects them all and moves them
//! in one go, where a single page to pass over would make it move what it had so far.
//!
//! Pauses: a thread that touches a page on its way waits until the page has arrived. The kernel does
//! not take a whole call's pages away at once: up to Linux 6.2 one page at a time, since then at most
//! 512 base pages, or one huge page (`NR_MAX_BATCHED_MIGRATION`). Measured in the lab, 99 of 100
//! waits are shorter than half of the time that those 512 take. So a call may last longer than the
//! pause target, and must where it is to be worth its fixed cost; its pages are only held to fewer
//! than 512 where half of their time would be more than the target.
//!
//! Transparent huge pages: the kernel takes the whole huge page for any base page in it, and moves
//! it unbroken where the target node has a free one, else splits it (mm/migrate.c). Its second base
//! page finds it taken and answers `EBUSY`, the others find it moved. That is how huge pages are
//! noticed here (the kernel does not tell where they are before Linux 6.7); from then on a run of
//! pages that may be one is given by its first page alone, and all of it is asked for afterwards.
//! A huge page is moved as a whole even when an order names only a part of it.
//!
//! The identity of the process is held by a pidfd and checked before each batch.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use numaherd_topology::NodeId;
use numaherd_world::{PageFailure, PageOrder, PageOutcome, Pages, ProcessId};

use crate::batch_size::{KERNEL_BATCH, Pace};
use crate::files::Root;
use crate::kernel::{Errno, Hold, Kernel, Mapped};
use crate::options::PageOptions;
use crate::proc::maps;
use crate::ranges::{self, Known, Span};
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
    /// On some node, and not on the target.
    pub(super) const ELSEWHERE: i32 = i32::MAX;
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

/// Pages that are asked for at once: their question takes about a millisecond.
const WINDOW_PAGES: u64 = 16384;
/// Runs taken for huge pages that were none, after which an order takes no more for one.
const MOST_WRONG_GUESSES: u32 = 3;

/// Moves pages, and remembers how long that takes.
#[derive(Debug)]
pub(crate) struct Mover {
    root: Root,
    options: PageOptions,
    page_bytes: u64,
    /// Base pages in a huge page.
    huge_pages: u64,
    base: Pace,
    huge: Pace,
    /// When the bandwidth limit lets the next bytes move.
    free_at_ns: u64,
}

/// An order being carried out.
struct Work<'a> {
    kernel: &'a dyn Kernel,
    stop: &'a Stop,
    order: &'a PageOrder,
    hold: Hold,
    node: i32,
    /// Whether huge pages have been met.
    huge: bool,
    wrong_guesses: u32,
    outcome: &'a mut PageOutcome,
}

impl Work<'_> {
    fn was_away(&mut self, ns: u64) {
        self.outcome.longest_batch_ns = self.outcome.longest_batch_ns.max(ns);
    }

    fn where_are(&self, addresses: &[u64], status: &mut [i32]) -> Result<(), String> {
        self.kernel
            .where_are(self.order.process.pid, addresses, status)
            .map_err(|errno| refusal(self.order, errno))
    }
}

/// A window of pages and where they were before anything moved.
struct Window {
    first: u64,
    page_bytes: u64,
    before: Vec<i32>,
    node: i32,
}

impl Window {
    fn address(&self, at: usize) -> u64 {
        self.first + at as u64 * self.page_bytes
    }

    fn is_elsewhere(&self, at: usize) -> bool {
        self.before[at] >= 0 && self.before[at] != self.node
    }

    /// Whether a huge page may begin at `at`: aligned, and all of it on one other node.
    fn may_be_huge(&self, at: usize, pages: u64) -> bool {
        let aligned = self.address(at).is_multiple_of(pages * self.page_bytes);
        let run = usize::try_from(pages)
            .ok()
            .and_then(|pages| self.before.get(at..at.checked_add(pages)?));
        aligned
            && self.is_elsewhere(at)
            && run.is_some_and(|run| run.iter().all(|node| *node == run[0]))
    }
}

impl Mover {
    pub(crate) fn new(root: Root, options: PageOptions, page_bytes: u64) -> Self {
        let huge_bytes = root
            .number("sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
            .unwrap_or(2 << 20);
        let huge_pages = (huge_bytes / page_bytes).max(2);
        let most_huge = options.largest_batch / usize::try_from(huge_pages).unwrap_or(usize::MAX);
        Self {
            root,
            page_bytes,
            huge_pages,
            base: Pace::new(options.first_batch, options.largest_batch, KERNEL_BATCH),
            huge: Pace::new(1, most_huge, 1),
            options,
            free_at_ns: 0,
        }
    }

    /// Carries out orders; one outcome each, in their order. A node that turns out full is not
    /// ordered to again in the same call.
    pub(crate) fn carry_out(
        &mut self,
        kernel: &dyn Kernel,
        orders: &[PageOrder],
        stop: &Stop,
    ) -> Vec<PageOutcome> {
        let mut maps_of: HashMap<ProcessId, Vec<maps::Mapping>> = HashMap::new();
        let mut full = Vec::new();
        orders
            .iter()
            .map(|order| {
                let mut outcome = PageOutcome::begun(order);
                let spans = match self.spans(order, &mut maps_of) {
                    Ok(spans) => spans,
                    Err(error) => {
                        outcome.not_tried = asked_for(order.pages);
                        outcome.error = Some(error);
                        return outcome;
                    }
                };
                let started = kernel.now_ns();
                self.carry_out_one(kernel, order, &spans, &mut full, stop, &mut outcome);
                outcome.took_ns = kernel.now_ns().saturating_sub(started);
                outcome
            })
            .collect()
    }

    fn spans(
        &self,
        order: &PageOrder,
        maps_of: &mut HashMap<ProcessId, Vec<maps::Mapping>>,
    ) -> Result<Vec<Span>, String> {
        let mappings = match maps_of.entry(order.process) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(ranges::mappings(&self.root, order.process)?),
        };
        let shared_too = self.options.shared_too;
        Ok(ranges::spans(
            &self.root,
            order,
            mappings,
            self.page_bytes,
            shared_too,
        ))
    }

    fn carry_out_one(
        &mut self,
        kernel: &dyn Kernel,
        order: &PageOrder,
        spans: &[Span],
        full: &mut Vec<NodeId>,
        stop: &Stop,
        outcome: &mut PageOutcome,
    ) {
        let pages_of = |span: &Span| (span.range.end - span.range.start) / self.page_bytes;
        let all: u64 = spans.iter().map(pages_of).sum();
        let held = match (full.contains(&order.to), kernel.hold(order.process)) {
            (true, _) => Err(node_is_full(order)),
            (false, Ok(Some(hold))) => Ok(hold),
            (false, Ok(None)) => Err(gone(order)),
            (false, Err(errno)) => Err(format!("cannot open {}: {errno}", order.process)),
        };
        let done = match (held, i32::try_from(order.to.0)) {
            (Ok(hold), Ok(node)) => {
                let work = Work {
                    kernel,
                    stop,
                    order,
                    hold,
                    node,
                    huge: false,
                    wrong_guesses: 0,
                    outcome,
                };
                self.walk(work, spans)
            }
            (Err(error), _) => Err(error),
            (_, Err(_)) => Err(format!("there is no node {}", order.to)),
        };
        let accounted =
            outcome.moved + outcome.already_there + outcome.failed.values().sum::<u64>();
        outcome.not_tried = all.saturating_sub(accounted);
        if outcome.failed.contains_key(&PageFailure::NodeFull) && !full.contains(&order.to) {
            full.push(order.to);
        }
        outcome.error = done.err();
    }

    /// Goes through the ranges window by window; an error is what ended it early.
    fn walk(&mut self, mut work: Work<'_>, spans: &[Span]) -> Result<(), String> {
        let huge_bytes = self.huge_pages * self.page_bytes;
        for Span { range, known } in spans {
            let mut at = range.start;
            while at < range.end {
                // Windows end where a huge page may, so that none is cut in two.
                let end = (at + WINDOW_PAGES * self.page_bytes).min(range.end);
                let even = end - end % huge_bytes;
                let end = if even > at { even } else { end };
                self.window(&mut work, &(at..end), *known)?;
                at = end;
            }
        }
        Ok(())
    }

    fn window(
        &mut self,
        work: &mut Work<'_>,
        range: &std::ops::Range<u64>,
        known: Known,
    ) -> Result<(), String> {
        self.check(work)?;
        let pages = usize::try_from((range.end - range.start) / self.page_bytes)
            .expect("a window is small");
        let mut window = Window {
            first: range.start,
            page_bytes: self.page_bytes,
            before: vec![status::UNSAID; pages],
            node: work.node,
        };
        let present = match known {
            Known::AllElsewhere => Some(vec![true; pages]),
            Known::NoneOnTarget => {
                ranges::present(&self.root, work.order.process, range, self.page_bytes)
            }
            Known::Nothing => None,
        };
        if let Some(present) = present {
            let status = |there| {
                if there {
                    status::ELSEWHERE
                } else {
                    status::NOT_THERE
                }
            };
            window.before = present.into_iter().map(status).collect();
        } else {
            let addresses: Vec<u64> = (0..pages).map(|at| window.address(at)).collect();
            work.where_are(&addresses, &mut window.before)?;
        }
        for &status in &window.before {
            if status == work.node {
                work.outcome.already_there += 1;
            } else if status < 0 {
                count(&mut work.outcome.failed, status, 1);
            }
        }
        let mut at = 0;
        while at < pages {
            if !window.is_elsewhere(at) {
                at += 1;
                continue;
            }
            self.check(work)?;
            at = if work.huge && window.may_be_huge(at, self.huge_pages) {
                self.move_huge(work, &window, at)?
            } else {
                self.move_base(work, &mut window, at)?
            };
        }
        Ok(())
    }

    /// Moves a batch of runs by their first pages; gives the place after them.
    fn move_huge(
        &mut self,
        work: &mut Work<'_>,
        window: &Window,
        from: usize,
    ) -> Result<usize, String> {
        let run = usize::try_from(self.huge_pages).expect("a huge page fits the address space");
        let mut firsts = Vec::new();
        let mut at = from;
        while firsts.len() < self.huge.batch && window.may_be_huge(at, self.huge_pages) {
            firsts.push(window.address(at));
            at += run;
            if at >= window.before.len() {
                break;
            }
        }
        let mut after = vec![status::UNSAID; firsts.len()];
        let (answer, took_ns) = self.call(work, &firsts, &mut after)?;
        self.huge.learn(&self.options, took_ns, firsts.len());
        let away_ns = self.huge.away_ns(took_ns, firsts.len());
        work.was_away(away_ns);
        // A run whose last page moved with its first is one huge page, and all of it is there. Where
        // one did not, every page is asked for.
        let lasts: Vec<u64> = firsts
            .iter()
            .map(|first| first + (self.huge_pages - 1) * self.page_bytes)
            .collect();
        let mut now = vec![status::UNSAID; lasts.len()];
        work.where_are(&lasts, &mut now)?;
        let whole = answer == Ok(0) && now.iter().chain(&after).all(|&on| on == work.node);
        if whole {
            self.credit(work, (at - from) as u64);
            return Ok(at);
        }
        let addresses: Vec<u64> = (from..at).map(|at| window.address(at)).collect();
        now.clear();
        now.resize(addresses.len(), status::UNSAID);
        work.where_are(&addresses, &mut now)?;
        let left: Vec<u64> = (addresses.iter().zip(&now))
            .filter(|&(_, &status)| status != work.node)
            .map(|(&address, _)| address)
            .collect();
        self.credit(work, (addresses.len() - left.len()) as u64);
        if answer == Err(Errno::NOMEM) {
            count(
                &mut work.outcome.failed,
                status::NO_MEMORY,
                left.len() as u64,
            );
            return Err(node_is_full(work.order));
        }
        if !left.is_empty() {
            work.wrong_guesses += 1;
            work.huge = work.wrong_guesses < MOST_WRONG_GUESSES;
            for batch in left.chunks(self.base.batch) {
                self.move_these(work, batch)?;
            }
        }
        Ok(at)
    }

    /// Moves a batch of single pages; gives the place after them.
    fn move_base(
        &mut self,
        work: &mut Work<'_>,
        window: &mut Window,
        from: usize,
    ) -> Result<usize, String> {
        let mut going = Vec::new();
        let mut at = from;
        while at < window.before.len() && going.len() < self.base.batch {
            if work.huge && window.may_be_huge(at, self.huge_pages) {
                break;
            }
            if window.is_elsewhere(at) {
                going.push(window.address(at));
            }
            at += 1;
        }
        let knew = work.huge;
        self.move_these(work, &going)?;
        if work.huge && !knew {
            self.credit_rest_of_huge(work, window, at)?;
        }
        Ok(at)
    }

    /// Counts what moved along of the huge page that the last batch ended in, so that it is not
    /// given to the kernel again.
    fn credit_rest_of_huge(
        &mut self,
        work: &mut Work<'_>,
        window: &mut Window,
        from: usize,
    ) -> Result<(), String> {
        let run = self.huge_pages * self.page_bytes;
        let end = (from..window.before.len())
            .find(|&at| window.address(at).is_multiple_of(run))
            .unwrap_or(window.before.len());
        let rest: Vec<usize> = (from..end).filter(|&at| window.is_elsewhere(at)).collect();
        let addresses: Vec<u64> = rest.iter().map(|&at| window.address(at)).collect();
        let mut now = vec![status::UNSAID; rest.len()];
        work.where_are(&addresses, &mut now)?;
        for (at, on) in rest.into_iter().zip(now) {
            if on == work.node {
                window.before[at] = on;
                self.credit(work, 1);
            }
        }
        Ok(())
    }

    /// Moves these pages, which were all elsewhere, in one call.
    fn move_these(&mut self, work: &mut Work<'_>, going: &[u64]) -> Result<(), String> {
        let mut after = vec![status::UNSAID; going.len()];
        let (answer, took_ns) = self.call(work, going, &mut after)?;
        self.base.learn(&self.options, took_ns, going.len());
        let away_ns = self.base.away_ns(took_ns, going.len());
        work.was_away(away_ns);
        ask_again(work, going, &mut after, answer != Ok(0));
        let moved = after.iter().filter(|&&status| status == work.node);
        self.credit(work, moved.count() as u64);
        let full = answer == Err(Errno::NOMEM);
        for &status in after.iter().filter(|&&status| status != work.node) {
            // Where the node ran full, the pages still elsewhere are so for that reason.
            let elsewhere = status >= 0 || status == status::UNSAID;
            let status = if full && elsewhere {
                status::NO_MEMORY
            } else {
                status
            };
            count(&mut work.outcome.failed, status, 1);
        }
        if full {
            return Err(node_is_full(work.order));
        }
        Ok(())
    }

    /// One call of the kernel, timed. A full node is an answer, anything else an end.
    fn call(
        &mut self,
        work: &mut Work<'_>,
        addresses: &[u64],
        after: &mut [i32],
    ) -> Result<(Result<u64, Errno>, u64), String> {
        let pid = work.order.process.pid;
        let began = work.kernel.now_ns();
        let which = match self.options.shared_too {
            true => Mapped::ByOthersToo,
            false => Mapped::Alone,
        };
        let answer = work
            .kernel
            .move_pages(pid, addresses, work.node, after, which);
        let took_ns = work.kernel.now_ns().saturating_sub(began);
        self.free_at_ns = self.free_at_ns.max(began);
        match answer {
            Err(errno) if errno != Errno::NOMEM => Err(refusal(work.order, errno)),
            answer => Ok((answer, took_ns)),
        }
    }

    /// Waits for the bandwidth limit, and looks whether to go on at all.
    fn check(&self, work: &Work<'_>) -> Result<(), String> {
        let early = self.free_at_ns.saturating_sub(work.kernel.now_ns());
        if early > 0 && self.options.bytes_per_second.is_some() {
            work.kernel.wait(Duration::from_nanos(early), work.stop);
        }
        if work.stop.is_asked() {
            return Err("stopped on request".to_owned());
        }
        if !work.kernel.is_alive(&work.hold) {
            return Err(gone(work.order));
        }
        Ok(())
    }

    /// Counts moved pages, and charges them to the bandwidth limit.
    fn credit(&mut self, work: &mut Work<'_>, pages: u64) {
        work.outcome.moved += pages;
        if let Some(limit) = self.options.bytes_per_second {
            let cost =
                u128::from(pages * self.page_bytes) * 1_000_000_000 / u128::from(limit.max(1));
            let cost = u64::try_from(cost).unwrap_or(u64::MAX);
            self.free_at_ns = self.free_at_ns.saturating_add(cost);
        }
    }
}

/// Asks where the pages are that a move left open: all of them when the kernel moved fewer than it
/// was given (it writes no status then), else those that it called busy.
fn ask_again(work: &mut Work<'_>, going: &[u64], after: &mut [i32], all: bool) {
    let open = |status: i32| all || matches!(status, status::UNSAID | status::BUSY);
    let asked: Vec<usize> = (0..going.len())
        .filter(|&i| after[i] != work.node && open(after[i]))
        .collect();
    if asked.is_empty() {
        return;
    }
    let addresses: Vec<u64> = asked.iter().map(|&i| going[i]).collect();
    let mut answers = vec![status::UNSAID; asked.len()];
    // A process that has ended in between answers nothing: its pages stay unsaid, and the next
    // check sees that it is gone.
    let pid = work.order.process.pid;
    if work
        .kernel
        .where_are(pid, &addresses, &mut answers)
        .is_err()
    {
        return;
    }
    for (&i, answer) in asked.iter().zip(answers) {
        if answer == work.node {
            // Busy, and yet moved: with another page of the same huge page.
            work.huge |= after[i] == status::BUSY && work.wrong_guesses < MOST_WRONG_GUESSES;
            after[i] = answer;
        } else if after[i] == status::UNSAID {
            // An error status of the move says more than where the page is.
            after[i] = answer;
        }
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

fn gone(order: &PageOrder) -> String {
    format!(
        "{} has ended; its remaining pages were not moved",
        order.process
    )
}

fn node_is_full(order: &PageOrder) -> String {
    format!(
        "node {} has no free memory for pages of {}; free some there, or choose another node",
        order.to, order.process
    )
}

fn refusal(order: &PageOrder, errno: Errno) -> String {
    let why = match errno {
        // INVAL: it has no memory any more, though it had some when the order began.
        Errno::SRCH | Errno::INVAL => return gone(order),
        Errno::PERM => {
            "permission denied: run as its user or as root, or give CAP_SYS_NICE and CAP_SYS_PTRACE"
        }
        Errno::ACCESS => "its cpuset does not let it have memory there",
        Errno::NODEV => "there is no such node online",
        Errno::NOSYS => "this kernel has no move_pages (CONFIG_MIGRATION), or a filter hides it",
        _ => "unexpected; see move_pages(2)",
    };
    format!(
        "cannot move pages of {} to node {}: {errno}: {why}",
        order.process, order.to
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;
    use numaherd_world::ThreadId;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    const PROCESS: ProcessId = ProcessId { pid: 9, born: 90 };
    const FIRST: u64 = 0x10_0000;

    struct Case {
        kernel: FakeKernel,
        root: tempfile::TempDir,
        stop: Stop,
        options: PageOptions,
    }

    /// A process with `pages` pages on node 0.
    fn process(pages: u64) -> Case {
        let kernel = FakeKernel::default();
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
                "{start:x}-{end:x} rw-p 00000000 00:00 0 \n{end:x}-{:x} rw-s 0 00:01 5 \
                 /dev/shm/x\n",
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
        /// Only so many of its pages are there.
        fn resident(&self, pages: u64) {
            let file = self.root.path().join("proc/9/numa_maps");
            let start = FIRST * 4096;
            std::fs::write(file, format!("{start:x} default N0={pages}\n")).unwrap();
        }

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
    fn where_no_page_is_on_the_target_presence_is_enough() {
        let case = process(600);
        case.kernel.pages(FIRST + 100, 50, -libc::ENOENT);
        case.resident(550);
        let pagemap = std::fs::File::create(case.root.path().join("proc/9/pagemap")).unwrap();
        for page in (0..600).filter(|page| !(100..150).contains(page)) {
            let entry = (1u64 << 63).to_ne_bytes();
            pagemap.write_all_at(&entry, (FIRST + page) * 8).unwrap();
        }
        let outcome = case.order(Pages::All, 2);
        assert_eq!(outcome.moved, 550, "{outcome:?}");
        assert_eq!(
            outcome.failed,
            BTreeMap::from([(PageFailure::NotThere, 50)])
        );
        assert_eq!(case.kernel.questions(), 0, "no page's node was asked for");
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
        case.resident(15);
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
    fn calls_keep_within_their_target() {
        let case = process(60_000);
        case.kernel.ns_per_page(2000);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 60_000);
        let batches = case.kernel.batches();
        assert_eq!(batches[..4], [128, 256, 512, 1024]);
        assert_eq!(batches.iter().max(), Some(&12_500), "25 ms of 2 us each");
        assert_eq!(
            outcome.longest_batch_ns,
            512 * 2000,
            "what the kernel takes away at once"
        );
    }

    #[test]
    fn pages_that_take_long_are_held_to_the_pause_target() {
        let case = process(5_000);
        case.kernel.ns_per_page(80_000);
        let outcome = case.order(Pages::All, 1);
        // Half of 125 pages' time is the target of 5 ms.
        assert_eq!(case.kernel.batches()[1..3], [125, 125]);
        assert!(outcome.longest_batch_ns <= 128 * 80_000);
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
    fn huge_pages_are_noticed_and_then_given_by_their_first_page() {
        // Eight huge pages, then 100 base pages; each takes the kernel half a millisecond.
        let case = process(8 * 512 + 100);
        case.kernel.huge(FIRST, 8);
        case.kernel.ns_per_page(500_000);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 8 * 512 + 100, "{outcome:?}");
        assert_eq!((outcome.already_there, outcome.failed.len()), (0, 0));
        assert_eq!(case.kernel.pages_on(1), 8 * 512 + 100);
        let batches = case.kernel.batches();
        assert_eq!(batches[..4], [128, 1, 2, 4], "{batches:?}");
    }

    #[test]
    fn smaller_folios_than_huge_pages_are_not_taken_for_them_for_long() {
        let case = process(16 * 512);
        case.kernel.folios(FIRST, 16 * 512, 16);
        let outcome = case.order(Pages::All, 1);
        assert_eq!(outcome.moved, 16 * 512, "{outcome:?}");
        let single = case.kernel.batches().iter().filter(|b| **b == 1).count();
        assert!(
            single <= MOST_WRONG_GUESSES as usize,
            "{:?}",
            case.kernel.batches()
        );
    }

    #[test]
    fn a_process_that_gave_up_its_memory_is_ending() {
        let case = process(10);
        case.kernel.refuse_next_move(Errno::INVAL);
        let outcome = case.order(Pages::All, 1);
        let error = outcome.error.unwrap();
        assert!(error.starts_with("process 9 has ended"), "{error}");
        assert_eq!(outcome.not_tried, 10);
    }

    /// Ten pages of its own and one in a mapping that could be shared.
    fn with_shared_page(mapped: &str) -> Case {
        let case = process(10);
        case.kernel.pages(FIRST + 10, 1, 0);
        let path = case.root.path().join("proc/9/numa_maps");
        let own = std::fs::read_to_string(&path).unwrap();
        let start = (FIRST + 10) * 4096;
        let shared = format!("{start:x} default file=/dev/shm/x dirty=1 {mapped} N0=1\n");
        std::fs::write(&path, own + &shared).unwrap();
        case
    }

    #[test]
    fn what_could_be_shared_is_moved_while_nobody_shares_it() {
        assert_eq!(with_shared_page("").order(Pages::All, 1).moved, 11);
        let shared = || with_shared_page("mapmax=2");
        assert_eq!(shared().order(Pages::All, 1).moved, 10);
        let mut on_request = shared();
        on_request.options.shared_too = true;
        assert_eq!(on_request.order(Pages::All, 1).moved, 11);
    }

    #[test]
    fn of_a_window_the_kernel_says_which_pages_are_shared() {
        let case = with_shared_page("mapmax=2");
        // EACCES: mapped by another process too.
        case.kernel.stuck(FIRST + 10, -13);
        let window = Pages::Window {
            first: FIRST,
            count: 11,
        };
        let outcome = case.order(window, 1);
        assert_eq!(outcome.moved, 10);
        assert_eq!(outcome.failed, [(PageFailure::Shared, 1)].into());
    }

    proptest! {
        #[test]
        fn every_page_of_an_order_is_accounted_for(
            pages in 1u64..3000,
            stuck in proptest::collection::btree_map(
                0u64..3000, prop_oneof![Just(-2), Just(-5), Just(-13), Just(-16), Just(-99)], 0..20),
            free in 0u64..4000,
            batch in 1usize..700,
            folio in 0u32..10,
        ) {
            let mut case = process(pages);
            case.options.first_batch = batch;
            case.kernel.free(3, free);
            if folio > 0 {
                case.kernel.folios(FIRST, pages, 1 << folio);
            }
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
