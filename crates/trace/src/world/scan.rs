//! Hint faults, as the kernel's NUMA balancing causes them (`task_numa_work`): once every scan period the next
//! [`super::Options::scan_mib`] of each process's pages are marked, in the order of their addresses and round again.
//! The next access to a marked page, by whichever thread, faults once.
//!
//! Scans run only if a policy asks for hint faults. Scanning itself costs nothing here; faults do. The kernel adapts
//! its scan period to the faults; here it is constant.

use super::engine::Engine;
use super::options::Options;
use super::pages::PageTable;

pub(super) struct Scan {
    pub(super) is_on: bool,
    period_ps: u64,
    next_ps: u64,
    bytes: u64,
    processes: Vec<Scanned>,
}

/// How far the scan of a process has come.
#[derive(Clone, Default)]
struct Scanned {
    /// Virtual page number to continue from.
    from: u64,
    /// Its pages: number and place, ascending.
    pages: Vec<(u64, usize)>,
}

impl Scan {
    pub(super) fn new(options: &Options, processes: usize) -> Self {
        let period_ps = options
            .modelled_ps(options.scan_period_ms * 1_000_000)
            .max(1);
        Self {
            is_on: false,
            period_ps,
            // The kernel, too, waits for a period before the first scan.
            next_ps: period_ps,
            bytes: options.scan_mib << 20,
            processes: vec![Scanned::default(); processes],
        }
    }

    /// When the next scan is due; never while nobody asks for hint faults.
    #[inline]
    pub(super) fn next_ps(&self) -> u64 {
        if self.is_on { self.next_ps } else { u64::MAX }
    }

    #[inline]
    pub(super) fn is_due(&self, now_ps: u64) -> bool {
        self.is_on && now_ps >= self.next_ps
    }

    /// The pages to be marked now.
    fn next(&mut self, pages: &PageTable, page_bytes: u64, now_ps: u64) -> Vec<usize> {
        self.next_ps = now_ps.saturating_add(self.period_ps);
        let most = (self.bytes / page_bytes).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let known: usize = self.processes.iter().map(|of| of.pages.len()).sum();
        for place in known..pages.len() {
            let page = pages.get(place);
            let of = &mut self.processes[page.process as usize];
            of.pages.push((page.number, place));
        }
        let mut marked = Vec::new();
        for of in &mut self.processes {
            of.pages.sort_unstable();
            let start = of.pages.partition_point(|&(number, _)| number < of.from);
            let count = most.min(of.pages.len());
            let round = of.pages.iter().cycle().skip(start).take(count);
            marked.extend(round.map(|&(_, place)| place));
            let next = (start + count).checked_rem(of.pages.len());
            of.from = next.map_or(0, |next| of.pages[next].0);
        }
        marked
    }
}

impl Engine {
    /// Marks the next pages of every process.
    pub(super) fn scan_pages(&mut self, now_ps: u64) {
        let page_bytes = self.hardware.page_bytes();
        for place in self.scan.next(&self.memory.pages, page_bytes, now_ps) {
            self.invalidate(place);
            self.memory.pages.mark(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_hardware::Span;

    #[test]
    fn scans_go_round_in_the_order_of_addresses_and_take_in_new_pages() {
        let span = Span {
            start: 0,
            end: 1 << 30,
            node: 0,
        };
        let mut pages = PageTable::new(1 << 20, &[span], 1);
        let options = Options {
            scan_mib: 2,
            ..Options::default()
        };
        let mut scan = Scan::new(&options, 1);
        let mut next = |pages: &PageTable| -> Vec<u64> {
            let places = scan.next(pages, 1 << 20, 0);
            places
                .iter()
                .map(|&place| pages.get(place).number)
                .collect()
        };
        assert!(next(&pages).is_empty());
        for number in [30, 10, 20] {
            pages.touch(0, number, [0], 0);
        }
        assert_eq!(next(&pages), [10, 20]);
        pages.touch(0, 25, [0], 0);
        assert_eq!(next(&pages), [30, 10]);
        assert_eq!(next(&pages), [20, 25]);
    }
}
