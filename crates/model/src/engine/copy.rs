//! Pages that move, as traffic: each is read from its node and written to another by the thread it is
//! moved for, which does nothing else meanwhile.
//!
//! On an idle machine a page takes [`Options::page_move_ns`](crate::Options::page_move_ns), or the time of its lines
//! where that is longer; waits in queues come on top, and other threads wait for its lines as for any others. The copy
//! keeps as many lines in flight as the core can. It occupies one page of the cache.

use numaherd_contention::{Curve, Demands, LINE_BYTES, Running};

use super::{Engine, PAGE_BYTES, Thread};

/// Lines of a page.
pub(super) const PAGE_LINES: f64 = PAGE_BYTES as f64 / LINE_BYTES;
/// A copy is done when fewer pages than this are left: less than a byte.
const DONE: f64 = 1e-4;

/// A page's lines, each from memory: 1000 "instructions" are a page.
pub(super) fn page_lines() -> Curve {
    let bytes = PAGE_BYTES as f64;
    Curve::new(PAGE_LINES, &[(bytes, PAGE_LINES)], bytes).expect("a curve of one point")
}

impl Engine {
    /// The solver's input for a thread that copies pages; `None` where it runs its program.
    pub(super) fn copier(&self, thread: &Thread, cpu_share: f64) -> Option<Running<'_>> {
        let copying = thread.copies.front()?;
        let figures = &self.hardware.figures;
        let seat = self.hardware.seat(thread.cpu);
        let beyond_hit = (figures.latency_ns(seat.node, copying.from) - figures.llc_ns).max(0.0);
        let lines_ns = PAGE_LINES * beyond_hit / figures.in_flight.max(1.0);
        let base_ns = (self.options.page_move_ns - lines_ns).max(0.0);
        let demands = Demands {
            cycles_per_instruction: base_ns / 1000.0 / figures.ns_per_reference_cycle,
            lines: &self.page_lines,
            demand: None,
            misses_in_flight: figures.in_flight,
            written_per_line: 1.0,
        };
        Some(Running {
            writes_to: Some(vec![(copying.to, 1.0)]),
            lane: Some(self.hardware.lane(thread.cpu)),
            ..Running::new(demands, seat, cpu_share, vec![(copying.from, 1.0)])
        })
    }

    /// Ends the copies whose last page has arrived.
    pub(super) fn finish_copies(&mut self) {
        for thread in self.threads.values_mut() {
            if thread
                .copies
                .front()
                .is_some_and(|copying| copying.pages < DONE)
            {
                thread.copies.pop_front();
                self.stale = true;
            }
        }
    }
}
