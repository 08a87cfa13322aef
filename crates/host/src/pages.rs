//! Moving pages: in batches under a pause target, each page's own status read back.
//!
//! The kernel is asked at once where a window of pages is ([`crate::ranges`]); this separates the pages to move
//! from those that are already there and those that do not exist. The pages to move go to `move_pages(2)` in
//! batches: given only pages to move, the kernel collects them all and moves them at once, whereas a single page to
//! skip would make it move what it had so far.
//!
//! Pauses: a thread that touches a moving page waits until the page has arrived. The kernel does not unmap all
//! pages of a call at once: up to Linux 6.2 one page at a time, since then at most 512 base pages, or one huge page
//! (`NR_MAX_BATCHED_MIGRATION`). Measured in the lab, 99 of 100 waits are shorter than half of the time that those
//! 512 take. So a call may last longer than the pause target, and must, to be worth its fixed cost; it gets fewer
//! than 512 pages only if half of their time would exceed the target.
//!
//! Transparent huge pages: for any base page in a huge page, the kernel takes all of it, and moves it unbroken if
//! the target node has a free one, else splits it (mm/migrate.c). Its second base page finds it taken and returns
//! `EBUSY`, the others find it moved. That is how huge pages are noticed here (before Linux 6.7, the kernel does
//! not tell where they are). From then on, a run of pages that may be one is given by its first page alone, and all
//! of it is asked for afterwards. A huge page moves as a whole even when an order names only part of it.
//!
//! The identity of the process is held by a pidfd and checked before each batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use numaherd_topology::NodeId;
use numaherd_world::{MemoryKind, PageFailure, PageOrder, PageOutcome, Pages, ProcessId};

use crate::batch_size::{KERNEL_BATCH, Pace};
use crate::files::Root;
use crate::kernel::{Errno, Hold, Kernel, Mapped};
use crate::options::PageOptions;
use crate::proc::maps::Mapping;
use crate::ranges::{self, Known, Span};
use crate::stop::Stop;

/// Negative errnos as in page statuses.
mod status {
    pub(super) const NOT_THERE: i32 = -libc::ENOENT;
    pub(super) const IO: i32 = -libc::EIO;
    pub(super) const SHARED: i32 = -libc::EACCES;
    pub(super) const FAULT: i32 = -libc::EFAULT;
    pub(super) const BUSY: i32 = -libc::EBUSY;
    pub(super) const INVALID: i32 = -libc::EINVAL;
    pub(super) const NO_MEMORY: i32 = -libc::ENOMEM;
    /// On some node other than the target.
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

/// Pages that are asked for at once, which takes about a millisecond.
const WINDOW_PAGES: u64 = 16384;
/// After this many runs wrongly taken for huge pages, an order takes no more for one.
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
}

impl Mover {
    pub(crate) fn new(root: Root, options: PageOptions, page_bytes: u64) -> Self {
        let huge_bytes = root.number("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        let huge_pages = (huge_bytes.unwrap_or(2 << 20) / page_bytes).max(2);
        let most_huge = options.largest_batch / usize::try_from(huge_pages).unwrap_or(usize::MAX);
        Self {
            root,
            page_bytes,
            huge_pages,
            base: Pace::new(options.first_batch, options.largest_batch, KERNEL_BATCH),
            huge: Pace::new(1, most_huge, 1),
            options,
        }
    }

    /// Carries out orders; one outcome each, in their order. A node that proves full gets no more orders in the
    /// same call.
    pub(crate) fn carry_out(
        &mut self,
        kernel: &dyn Kernel,
        orders: &[PageOrder],
        stop: &Stop,
    ) -> Vec<PageOutcome> {
        let mut maps_of: HashMap<ProcessId, Vec<Mapping>> = HashMap::new();
        let mut full = Vec::new();
        let mut outcomes = Vec::with_capacity(orders.len());
        for order in orders {
            let mut outcome = PageOutcome::begun(order);
            match self.spans(order, &mut maps_of) {
                Ok(spans) => {
                    let done = self.carry_out_one(kernel, order, &spans, &full, stop, &mut outcome);
                    outcome.error = done.err().map(|early| early.to_string());
                    let all: u64 = spans.iter().map(|span| self.pages_in(&span.range)).sum();
                    let failed: u64 = outcome.failed.values().sum();
                    let accounted = outcome.moved + outcome.already_there + failed;
                    outcome.not_tried = all.saturating_sub(accounted);
                    if outcome.failed.contains_key(&PageFailure::NodeFull) {
                        full.push(order.to);
                    }
                }
                Err(error) => {
                    outcome.not_tried = match order.pages {
                        Pages::All | Pages::OfKind { .. } => 0,
                        Pages::Window { count, .. } => count,
                    };
                    outcome.error = Some(error);
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn pages_in(&self, range: &Range<u64>) -> u64 {
        (range.end - range.start) / self.page_bytes
    }

    fn spans(
        &self,
        order: &PageOrder,
        maps_of: &mut HashMap<ProcessId, Vec<Mapping>>,
    ) -> Result<Vec<Span>, String> {
        let mappings = match maps_of.entry(order.process) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(ranges::mappings(&self.root, order.process)?),
        };
        Ok(ranges::spans(&self.root, order, mappings, self.page_bytes))
    }

    fn carry_out_one(
        &mut self,
        kernel: &dyn Kernel,
        order: &PageOrder,
        spans: &[Span],
        full: &[NodeId],
        stop: &Stop,
        outcome: &mut PageOutcome,
    ) -> Result<(), Early> {
        if full.contains(&order.to) {
            return Err(Early::NodeFull(order.process, order.to));
        }
        let hold = kernel
            .hold(order.process)
            .map_err(|errno| Early::NoHold(order.process, errno))?;
        let mut work = Work {
            mover: self,
            kernel,
            stop,
            order,
            hold: hold.ok_or(Early::Gone(order.process))?,
            node: i32::try_from(order.to.0).map_err(|_| Early::NoNode(order.to))?,
            huge: false,
            wrong_guesses: 0,
            outcome,
        };
        spans.iter().try_for_each(|span| work.span(span))
    }
}

/// Why an order ended before all of its pages were tried.
#[derive(Debug, thiserror::Error)]
enum Early {
    #[error("{0} has ended; its remaining pages were not moved")]
    Gone(ProcessId),
    #[error("cannot open {0}: {1}")]
    NoHold(ProcessId, Errno),
    #[error("there is no node {0}")]
    NoNode(NodeId),
    #[error(
        "node {1} has no free memory for pages of {0}; free some there, or choose another node"
    )]
    NodeFull(ProcessId, NodeId),
    #[error("stopped on request")]
    Stopped,
    #[error("cannot move pages of {0} to node {1}: {2}: {why}", why = why_refused(*.2))]
    Refused(ProcessId, NodeId, Errno),
}

fn why_refused(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM => {
            "permission denied: run as its user or as root, or give CAP_SYS_NICE and CAP_SYS_PTRACE"
        }
        Errno::ACCESS => "its cpuset does not let it have memory there",
        Errno::NODEV => "there is no such node online",
        Errno::NOSYS => "this kernel has no move_pages (CONFIG_MIGRATION), or a filter hides it",
        _ => "unexpected; see move_pages(2)",
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

    fn addresses(&self, places: impl Iterator<Item = usize>) -> Vec<u64> {
        places.map(|at| self.address(at)).collect()
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

/// The kernel's answer to a move.
struct Answer {
    result: Result<u64, Errno>,
    /// The status of each page.
    after: Vec<i32>,
}

impl Answer {
    fn is_complete(&self) -> bool {
        self.result == Ok(0)
    }

    fn is_full(&self) -> bool {
        self.result == Err(Errno::NOMEM)
    }
}

/// An order being carried out.
struct Work<'a> {
    mover: &'a mut Mover,
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
    /// Processes a range window by window.
    fn span(&mut self, span: &Span) -> Result<(), Early> {
        let page_bytes = self.mover.page_bytes;
        let huge_bytes = self.mover.huge_pages * page_bytes;
        let mut at = span.range.start;
        while at < span.range.end {
            // Windows end where a huge page may, so that none is cut in two.
            let end = (at + WINDOW_PAGES * page_bytes).min(span.range.end);
            let even = end - end % huge_bytes;
            let end = if even > at { even } else { end };
            self.window(&(at..end), span.known)?;
            at = end;
        }
        Ok(())
    }

    fn window(&mut self, range: &Range<u64>, known: Known) -> Result<(), Early> {
        self.check()?;
        let pages = usize::try_from(self.mover.pages_in(range)).expect("a window is small");
        let Mover {
            page_bytes,
            huge_pages,
            ..
        } = *self.mover;
        let mut window = Window {
            first: range.start,
            page_bytes,
            before: Vec::new(),
            node: self.node,
        };
        let present = match known {
            Known::AllElsewhere => Some(vec![true; pages]),
            Known::NoneOnTarget => {
                ranges::present(&self.mover.root, self.order.process, range, page_bytes)
            }
            Known::Nothing => None,
        };
        let status = |there| match there {
            true => status::ELSEWHERE,
            false => status::NOT_THERE,
        };
        window.before = match present {
            Some(present) => present.into_iter().map(status).collect(),
            None => self.where_are(&window.addresses(0..pages))?,
        };
        for &status in &window.before {
            if status == self.node {
                self.outcome.already_there += 1;
            } else if status < 0 {
                self.fail(status, 1);
            }
        }
        let mut at = 0;
        while at < pages {
            if !window.is_elsewhere(at) {
                at += 1;
                continue;
            }
            self.check()?;
            at = if self.huge && window.may_be_huge(at, huge_pages) {
                self.move_huge(&window, at)?
            } else {
                self.move_base(&mut window, at)?
            };
        }
        Ok(())
    }

    /// Moves a batch of runs by their first pages; gives the place after them.
    fn move_huge(&mut self, window: &Window, from: usize) -> Result<usize, Early> {
        let huge_pages = self.mover.huge_pages;
        let run = usize::try_from(huge_pages).expect("a huge page fits the address space");
        let mut firsts = Vec::new();
        let mut at = from;
        while at < window.before.len()
            && firsts.len() < self.mover.huge.batch
            && window.may_be_huge(at, huge_pages)
        {
            firsts.push(window.address(at));
            at += run;
        }
        let answer = self.call(&firsts, |mover| &mut mover.huge)?;
        // If a run's last page moved with its first, it is one huge page, and all of it is there. If one did not,
        // every page is asked for.
        let last = (huge_pages - 1) * window.page_bytes;
        let lasts: Vec<u64> = firsts.iter().map(|first| first + last).collect();
        let now = self.where_are(&lasts)?;
        let mut statuses = now.iter().chain(&answer.after);
        if answer.is_complete() && statuses.all(|&on| on == self.node) {
            self.outcome.moved += (at - from) as u64;
            return Ok(at);
        }
        let addresses = window.addresses(from..at);
        let now = self.where_are(&addresses)?;
        let left: Vec<u64> = std::iter::zip(&addresses, &now)
            .filter(|&(_, &status)| status != self.node)
            .map(|(&address, _)| address)
            .collect();
        self.outcome.moved += (addresses.len() - left.len()) as u64;
        if answer.is_full() {
            self.fail(status::NO_MEMORY, left.len() as u64);
            return Err(Early::NodeFull(self.order.process, self.order.to));
        }
        if !left.is_empty() {
            self.wrong_guesses += 1;
            self.huge = self.wrong_guesses < MOST_WRONG_GUESSES;
            for batch in left.chunks(self.mover.base.batch) {
                self.move_these(batch)?;
            }
        }
        Ok(at)
    }

    /// Moves a batch of single pages; gives the place after them.
    fn move_base(&mut self, window: &mut Window, from: usize) -> Result<usize, Early> {
        let mut going = Vec::new();
        let mut at = from;
        while at < window.before.len() && going.len() < self.mover.base.batch {
            if self.huge && window.may_be_huge(at, self.mover.huge_pages) {
                break;
            }
            if window.is_elsewhere(at) {
                going.push(window.address(at));
            }
            at += 1;
        }
        let knew = self.huge;
        self.move_these(&going)?;
        if self.huge && !knew {
            self.credit_rest_of_huge(window, at)?;
        }
        Ok(at)
    }

    /// Counts the pages that moved with the huge page in which the last batch ended, so that the kernel does not
    /// get them again.
    fn credit_rest_of_huge(&mut self, window: &mut Window, from: usize) -> Result<(), Early> {
        let run = self.mover.huge_pages * window.page_bytes;
        let is_in_run = |at: &usize| !window.address(*at).is_multiple_of(run);
        let rest: Vec<usize> = (from..window.before.len())
            .take_while(is_in_run)
            .filter(|&at| window.is_elsewhere(at))
            .collect();
        let now = self.where_are(&window.addresses(rest.iter().copied()))?;
        for (at, on) in rest.into_iter().zip(now) {
            if on == self.node {
                window.before[at] = on;
                self.outcome.moved += 1;
            }
        }
        Ok(())
    }

    /// Moves these pages, all of them elsewhere, in one call.
    fn move_these(&mut self, going: &[u64]) -> Result<(), Early> {
        let mut answer = self.call(going, |mover| &mut mover.base)?;
        self.ask_again(going, &mut answer);
        let is_full = answer.is_full();
        for status in answer.after {
            // If the node ran full, that is why pages are still elsewhere.
            let is_elsewhere = status >= 0 || status == status::UNSAID;
            match status {
                _ if status == self.node => self.outcome.moved += 1,
                _ if is_full && is_elsewhere => self.fail(status::NO_MEMORY, 1),
                _ => self.fail(status, 1),
            }
        }
        match is_full {
            true => Err(Early::NodeFull(self.order.process, self.order.to)),
            false => Ok(()),
        }
    }

    /// Asks where the pages are that a move left open: all of them if the kernel moved fewer than it was given (it
    /// then writes no status), else those that it called busy.
    fn ask_again(&mut self, going: &[u64], answer: &mut Answer) {
        let is_complete = answer.is_complete();
        let after = &mut answer.after;
        let is_open = |status: i32| !is_complete || matches!(status, status::UNSAID | status::BUSY);
        let asked: Vec<usize> = (0..going.len())
            .filter(|&i| after[i] != self.node && is_open(after[i]))
            .collect();
        let addresses: Vec<u64> = asked.iter().map(|&i| going[i]).collect();
        if addresses.is_empty() {
            return;
        }
        // A process that has ended meanwhile returns nothing: its pages stay unsaid, and the next check finds that
        // it is gone.
        for (&i, on) in asked
            .iter()
            .zip(self.where_are(&addresses).unwrap_or_default())
        {
            if on == self.node {
                // Busy, and yet moved: with another page of the same huge page.
                self.huge |= after[i] == status::BUSY && self.wrong_guesses < MOST_WRONG_GUESSES;
                after[i] = on;
            } else if after[i] == status::UNSAID {
                // An error status of the move says more than the page's place.
                after[i] = on;
            }
        }
    }

    /// Where pages are.
    fn where_are(&self, addresses: &[u64]) -> Result<Vec<i32>, Early> {
        let mut status = vec![status::UNSAID; addresses.len()];
        let asked = self
            .kernel
            .where_are(self.order.process.pid, addresses, &mut status);
        asked.map(|()| status).map_err(|errno| self.refusal(errno))
    }

    /// One call of the kernel, timed for a pace. A full node is an answer, any other error an end.
    fn call(
        &mut self,
        addresses: &[u64],
        pace: impl Fn(&mut Mover) -> &mut Pace,
    ) -> Result<Answer, Early> {
        let mut after = vec![status::UNSAID; addresses.len()];
        let (pid, node) = (self.order.process.pid, self.node);
        let which = match self.order.pages {
            Pages::OfKind { kind, .. } if kind != MemoryKind::Private => Mapped::ByOthersToo,
            _ => Mapped::Alone,
        };
        let began = self.kernel.now_ns();
        let result = self
            .kernel
            .move_pages(pid, addresses, node, &mut after, which);
        let took_ns = self.kernel.now_ns().saturating_sub(began);
        self.outcome.took_ns += took_ns;
        if let Err(errno) = result
            && errno != Errno::NOMEM
        {
            return Err(self.refusal(errno));
        }
        let options = self.mover.options;
        let pace = pace(self.mover);
        pace.learn(&options, took_ns, addresses.len());
        let away_ns = pace.away_ns(took_ns, addresses.len());
        self.outcome.longest_batch_ns = self.outcome.longest_batch_ns.max(away_ns);
        Ok(Answer { result, after })
    }

    fn refusal(&self, errno: Errno) -> Early {
        match errno {
            // INVAL: its memory is gone, although it had some when the order began.
            Errno::SRCH | Errno::INVAL => Early::Gone(self.order.process),
            errno => Early::Refused(self.order.process, self.order.to, errno),
        }
    }

    /// Checks whether to go on.
    fn check(&self) -> Result<(), Early> {
        if self.stop.is_asked() {
            return Err(Early::Stopped);
        }
        match self.kernel.is_alive(&self.hold) {
            true => Ok(()),
            false => Err(Early::Gone(self.order.process)),
        }
    }

    /// Counts pages that were not moved.
    fn fail(&mut self, status: i32, pages: u64) {
        *self.outcome.failed.entry(failure(status)).or_default() += pages;
    }
}

#[cfg(test)]
mod tests;
