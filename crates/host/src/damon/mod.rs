//! A second way to move pages: by the kernel's DAMON, which looks whether they are used before it moves them.
//!
//! Problem: a paging that sends memory away because it is unused knows that from samples, seconds old. By then a page
//! may be in use, and its user waits while it moves, and longer at each access after. `move_pages(2)` moves it all the
//! same.
//!
//! Rule: the program names the rules whose orders go through DAMON, and whether used pages stay ([`Moved`]). The orders
//! of one call of the pager for one process and one node are a *job*. Each job has a kdamond, whose scheme covers only
//! the job's addresses: `migrate_cold` where used pages stay, else `migrate_hot`. The filter `young` refuses a page
//! that was used since its accessed bit was last cleared, and clears the bit. So a scheme with that filter passes over
//! its addresses twice, [`UNUSED_US`] apart: the first pass clears old bits, and the second leaves what was used in
//! between. All jobs run at once; then their kdamonds are taken down, whatever came of them.
//!
//! The outcome of an order is read back page by page, as after `move_pages`: the scheme's own figures (`sz_tried`,
//! `sz_applied`) cover the whole job, and do not distinguish missing pages from pages that stay. `sz_tried` shows how
//! far the scheme has come.
//!
//! Choices: operations for fixed addresses (`fvaddr`), because those for `vaddr` widen their regions to all mappings of
//! the process after `update_us`. No quota for the scheme: it charges also what a scheme only looks at, and the
//! governor has granted what an order may move. `target_nid` without weights (`dests`), because an order has one node.
//!
//! DAMON also moves pages that several processes map, which an order for private memory does not mean. So an order goes
//! to `move_pages` unless `pagemap` says that only this process maps its present pages.
//!
//! Limits: it misses accesses through a TLB entry that outlives [`UNUSED_US`], as its documentation says.

mod kdamonds;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use numaherd_topology::NodeId;
use numaherd_world::{PageFailure, PageOrder, PageOutcome, Pages, ProcessId};

use crate::error::HostError;
use crate::files::Root;
use crate::host::Host;
use crate::kernel::{Hold, Kernel, of_root};
use crate::ranges;
use crate::stop::Stop;
use kdamonds::{Kdamonds, Refusal};
pub(crate) use kdamonds::{State, state};

/// How long a page must have been unused, in us: DAMON's default time for adding up accesses (`aggr_us`).
const UNUSED_US: u64 = 100_000;
/// How often a kdamond that waits for that looks for requests, in us (chosen here).
const LOOK_US: u64 = 20_000;
/// The same for one that need not wait: DAMON's default sampling interval (`sample_us`).
const AT_ONCE_US: u64 = 5_000;
/// How long a round may take before its kdamonds are told to stop, in ns (chosen here).
const LIMIT_NS: u64 = 2_000_000_000;

/// Which pages of an order DAMON moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Those that are unused meanwhile.
    Unused,
    /// All.
    All,
}

impl Moved {
    fn action(self) -> &'static str {
        match self {
            Self::Unused => "migrate_cold",
            Self::All => "migrate_hot",
        }
    }

    /// How many passes the scheme makes over its addresses, how many us each takes, and how often its kdamond checks
    /// for requests.
    fn passes(self) -> (u64, u64, u64) {
        match self {
            Self::Unused => (2, UNUSED_US, LOOK_US),
            Self::All => (1, AT_ONCE_US, AT_ONCE_US),
        }
    }
}

/// Moves pages by DAMON.
#[derive(Debug)]
pub struct Damon {
    root: Root,
    /// The rules whose orders it carries out.
    rules: &'static [(&'static str, Moved)],
}

/// Orders for one process's pages to one node.
#[derive(Debug)]
struct Job {
    hold: Hold,
    to: NodeId,
    moved: Moved,
    orders: Vec<Ordered>,
}

/// An order, by its index among all, and where its pages were.
#[derive(Debug)]
struct Ordered {
    place: usize,
    range: Range<u64>,
    before: Vec<i32>,
}

impl Job {
    /// Its addresses, ascending and apart.
    fn regions(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<_> = self.orders.iter().map(|one| one.range.clone()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut regions: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match regions.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => regions.push(range),
            }
        }
        regions
    }
}

impl Damon {
    /// The DAMON of the machine under a root, tried, for the orders of these rules. Takes down what a killed run has
    /// left.
    ///
    /// # Errors
    /// The kernel has none that moves pages of processes, somebody else uses it, or it cannot be written to.
    pub fn find(root: &Path, rules: &'static [(&'static str, Moved)]) -> Result<Self, HostError> {
        let root = Root::new(root);
        let kernel = of_root(&root);
        let tried = Kdamonds::make(&root, &*kernel, 1).and_then(Kdamonds::end);
        tried.map_err(|refusal| HostError::Damon {
            reason: refusal.to_string(),
        })?;
        Ok(Self { root, rules })
    }

    /// Carries out the orders of its own rules. The others, and those that it must leave to `move_pages`, get no
    /// outcome. `miss` is told why it cannot do what it should.
    pub(crate) fn carry_out(
        &self,
        kernel: &dyn Kernel,
        orders: &[PageOrder],
        page_bytes: u64,
        stop: &Stop,
        miss: &mut dyn FnMut(String),
    ) -> Vec<Option<PageOutcome>> {
        let mut outcomes = vec![None; orders.len()];
        let jobs = self.jobs(kernel, orders, page_bytes);
        if jobs.is_empty() {
            return outcomes;
        }
        let began = kernel.now_ns();
        if let Err(refusal) = self.round(kernel, &jobs, stop) {
            miss(format!(
                "{refusal}; what DAMON has not moved, move_pages does"
            ));
            return outcomes;
        }
        let all: usize = jobs.iter().map(|job| job.orders.len()).sum();
        let took_ns = kernel.now_ns().saturating_sub(began) / all as u64;
        for job in &jobs {
            for one in &job.orders {
                let mut outcome = read_back(kernel, job, one, &orders[one.place], page_bytes);
                outcome.took_ns = took_ns;
                outcomes[one.place] = Some(outcome);
            }
        }
        outcomes
    }

    fn jobs(&self, kernel: &dyn Kernel, orders: &[PageOrder], page_bytes: u64) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        for (place, order) in orders.iter().enumerate() {
            let rule = self.rules.iter().find(|(rule, _)| *rule == order.rule);
            let (Some(&(_, moved)), Pages::Window { first, count }) = (rule, order.pages) else {
                continue;
            };
            let start = first.saturating_mul(page_bytes);
            let range = start..start.saturating_add(count.saturating_mul(page_bytes));
            let before = where_are(kernel, order.process, &range, page_bytes);
            let alone = ranges::alone(&self.root, order.process, &range, page_bytes);
            let (Some(before), Some(true)) = (before, alone) else {
                continue;
            };
            let one = Ordered {
                place,
                range,
                before,
            };
            let of_job = |job: &&mut Job| {
                (job.hold.process, job.to, job.moved) == (order.process, order.to, moved)
            };
            match jobs.iter_mut().find(of_job) {
                Some(job) => job.orders.push(one),
                None => {
                    if let Ok(Some(hold)) = kernel.hold(order.process) {
                        jobs.push(Job {
                            hold,
                            to: order.to,
                            moved,
                            orders: vec![one],
                        });
                    }
                }
            }
        }
        jobs
    }

    /// Runs all jobs, as far as they get until the limit.
    fn round(&self, kernel: &dyn Kernel, jobs: &[Job], stop: &Stop) -> Result<(), Refusal> {
        let numbered = || (0_u32..).zip(jobs);
        let count = numbered().count();
        let kdamonds =
            Kdamonds::make(&self.root, kernel, u32::try_from(count).unwrap_or(u32::MAX))?;
        for (number, job) in numbered() {
            describe(&kdamonds, number, job)?;
        }
        for (number, job) in numbered() {
            let begun = kdamonds.tell(number, "state", "on");
            // The kernel took the process that has that number now. If the one meant has ended, this is undone.
            match kernel.is_alive(&job.hold) {
                true => begun?,
                false => drop(kdamonds.tell(number, "state", "off")),
            }
        }
        let end = kernel.now_ns().saturating_add(LIMIT_NS);
        for (number, job) in numbered() {
            while is_at_work(&kdamonds, number, job) && kernel.now_ns() < end && !stop.is_asked() {}
        }
        kdamonds.end()
    }
}

impl Host {
    /// The same host, but DAMON moves pages for orders of its rules.
    #[must_use]
    pub fn with_damon(mut self, damon: Damon) -> Self {
        self.damon = Some(damon);
        self
    }
}

/// Tells a kdamond what to do.
fn describe(kdamonds: &Kdamonds<'_>, number: u32, job: &Job) -> Result<(), Refusal> {
    let context = |path: &str, value: &dyn std::fmt::Display| {
        kdamonds.tell(number, &format!("contexts/0/{path}"), value)
    };
    let (_, every_us, look_us) = job.moved.passes();
    context("operations", &"fvaddr")?;
    context("monitoring_attrs/intervals/sample_us", &look_us)?;
    context("monitoring_attrs/intervals/aggr_us", &every_us)?;
    context("schemes/0/action", &job.moved.action())?;
    context("schemes/0/target_nid", &job.to)?;
    context("schemes/0/apply_interval_us", &every_us)?;
    context("schemes/0/access_pattern/sz/max", &u64::MAX)?;
    for of in ["nr_accesses", "age"] {
        context(&format!("schemes/0/access_pattern/{of}/max"), &u32::MAX)?;
    }
    if job.moved == Moved::Unused {
        context("schemes/0/ops_filters/nr_filters", &1)?;
        context("schemes/0/ops_filters/0/type", &"young")?;
        context("schemes/0/ops_filters/0/matching", &"Y")?;
        context("schemes/0/ops_filters/0/allow", &"N")?;
    }
    context("targets/nr_targets", &1)?;
    context("targets/0/pid_target", &job.hold.process.pid)?;
    let regions = job.regions();
    context("targets/0/regions/nr_regions", &regions.len())?;
    for (region, range) in regions.iter().enumerate() {
        let path = format!("targets/0/regions/{region}");
        context(&format!("{path}/start"), &range.start)?;
        context(&format!("{path}/end"), &range.end)?;
    }
    Ok(())
}

/// Whether a kdamond has passes left to make. Asking takes until it next checks for requests.
fn is_at_work(kdamonds: &Kdamonds<'_>, number: u32, job: &Job) -> bool {
    // It refuses once it has ended, with its process.
    if kdamonds
        .tell(number, "state", "update_schemes_stats")
        .is_err()
    {
        return false;
    }
    let bytes: u64 = job
        .regions()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    let tried = kdamonds.number(number, "contexts/0/schemes/0/stats/sz_tried");
    tried.is_some_and(|tried| tried < bytes.saturating_mul(job.moved.passes().0))
}

/// Where the pages of a range are; `None` if the kernel does not say.
fn where_are(
    kernel: &dyn Kernel,
    process: ProcessId,
    range: &Range<u64>,
    page_bytes: u64,
) -> Option<Vec<i32>> {
    let pages = (range.end - range.start) / page_bytes;
    let addresses: Vec<u64> = (0..pages).map(|at| range.start + at * page_bytes).collect();
    let mut status = vec![-libc::ENOENT; addresses.len()];
    let asked = kernel.where_are(process.pid, &addresses, &mut status);
    asked.ok().map(|()| status)
}

/// What came of an order.
fn read_back(
    kernel: &dyn Kernel,
    job: &Job,
    one: &Ordered,
    order: &PageOrder,
    page_bytes: u64,
) -> PageOutcome {
    let now = where_are(kernel, order.process, &one.range, page_bytes);
    let Some(now) = now.filter(|_| kernel.is_alive(&job.hold)) else {
        let why = format!(
            "{} has ended; what became of its pages is not known",
            order.process
        );
        return PageOutcome::not_tried(order, why);
    };
    let mut outcome = PageOutcome::begun(order);
    let to = i32::try_from(order.to.0).unwrap_or(i32::MAX);
    for (&before, &now) in one.before.iter().zip(&now) {
        match now {
            now if now == to && before != to && before >= 0 => outcome.moved += 1,
            now if now == to => outcome.already_there += 1,
            0.. => *outcome.failed.entry(PageFailure::Busy).or_default() += 1,
            _ => *outcome.failed.entry(PageFailure::NotThere).or_default() += 1,
        }
    }
    outcome
}

/// Takes down what a killed run has left; gives how many kdamonds that were.
///
/// # Errors
/// The kernel does not let them be taken down.
pub fn take_down_kdamonds(root: &Path) -> Result<u32, HostError> {
    let root = Root::new(root);
    let taken = kdamonds::take_down_left(&root, &*of_root(&root));
    taken.map_err(|refusal| HostError::Damon {
        reason: refusal.to_string(),
    })
}
