//! Carries out orders: puts threads on CPUs, moves pages, and charges what both cost.

use numaherd_topology::CpuId;
use numaherd_world::{
    AffinityOrder, AffinityResult, PageFailure, PageOrder, PageOutcome, Pages, ProcessId, ThreadId,
};

use super::{Copying, Engine, PAGE_BYTES, Refill, Thread};
use crate::memory::Moved;
use crate::program::{LINE_BYTES, Phase};

impl Thread {
    /// Time for one line while it fetches many.
    fn line_ns(&self, phase: &Phase, most_in_flight: f64) -> f64 {
        let in_flight = phase.misses_in_flight.min(most_in_flight).max(1.0);
        self.speed.latency_ns / in_flight
    }

    /// Makes the thread fetch bytes again that were in its cache.
    fn fetch_again(&mut self, bytes: f64, line_ns: f64) {
        let refill_ns = bytes / LINE_BYTES * line_ns;
        if refill_ns > 0.0 {
            self.pause_ns += refill_ns;
            self.refill = Refill {
                left_ns: self.refill.left_ns + refill_ns,
                line_ns,
            };
        }
    }
}

/// The share of the lines that a node answers.
fn answered(memory: &[(usize, f64)], node: usize) -> f64 {
    let there = memory.iter().filter(|&&(home, _)| home == node);
    there.map(|&(_, share)| share).sum()
}

impl Engine {
    /// Puts a thread on a CPU; it pays for the lines that it left behind.
    pub(super) fn move_thread(&mut self, id: ThreadId, to: CpuId) {
        let thread = self.threads.get_mut(&id).expect("a thread that runs");
        if thread.cpu == to {
            return;
        }
        let (from, there) = (self.hardware.seat(thread.cpu), self.hardware.seat(to));
        thread.cpu = to;
        self.stale = true;
        if from.domain != there.domain {
            let phase = &self.jobs[thread.job].program.phases[thread.phase];
            let line_ns = thread.line_ns(phase, self.hardware.figures.in_flight);
            thread.fetch_again(thread.held_bytes, line_ns);
            self.progress[thread.job].work.thread_moves += 1;
        }
    }

    /// Carries out one affinity order.
    pub(crate) fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult {
        let Some(thread) = self.threads.get_mut(&order.thread) else {
            return AffinityResult::Gone;
        };
        thread.affinity = order.cpus.clone();
        thread.assigned = order.core;
        let (cpu, allowed) = (thread.cpu, thread.affinity.clone());
        let to = match order.core {
            Some(core) if allowed.contains(core) => core,
            _ if allowed.contains(cpu) => cpu,
            _ => {
                let loads = self.loads();
                self.new_place(&loads, &allowed)
            }
        };
        self.move_thread(order.thread, to);
        self.stale = true;
        AffinityResult::Done
    }

    /// Carries out one page order.
    pub(crate) fn move_pages(&mut self, order: &PageOrder) -> PageOutcome {
        let mut outcome = PageOutcome::begun(order);
        let Some(to) = self.hardware.topology().node_index(order.to) else {
            outcome.error = Some(format!("there is no node {}", order.to));
            return outcome;
        };
        if !self.processes.contains_key(&order.process) {
            outcome.error = Some(format!("{} has ended", order.process));
            return outcome;
        }
        let moved = self.migrate(order.process, order.pages, to, order.thread);
        outcome.moved = moved.pages();
        outcome.already_there = moved.already_there;
        let failed = [
            (PageFailure::NodeFull, moved.no_room),
            (PageFailure::NotThere, moved.not_there),
        ];
        outcome.failed = failed.into_iter().filter(|&(_, pages)| pages > 0).collect();
        outcome.took_ns = (outcome.moved as f64 * self.options.page_move_ns) as u64;
        outcome.longest_batch_ns = outcome.took_ns;
        outcome
    }

    /// Moves pages of a process to a node; the thread `payer` bears the cost.
    pub(super) fn migrate(
        &mut self,
        id: ProcessId,
        pages: Pages,
        to: usize,
        payer: ThreadId,
    ) -> Moved {
        let bytes = self.hardware.topology().nodes()[to].memory_bytes;
        let room = (bytes / PAGE_BYTES).saturating_sub(self.used_pages[to]);
        let process = self.processes.get_mut(&id).expect("a process that runs");
        let moved = process.memory.migrate(pages, to, room);
        if moved.pages() == 0 {
            return moved;
        }
        for &(from, pages) in &moved.from {
            self.used_pages[from] -= pages;
            self.used_pages[to] += pages;
        }
        let job = process.job;
        let nodes = self.hardware.figures.nodes;
        for thread in self.threads.values_mut().filter(|t| t.process == id) {
            let before = answered(&thread.memory, to);
            thread.memory = process.memory.answered_by(thread.index, nodes);
            if self.options.page_moves_disturb {
                let gone = (answered(&thread.memory, to) - before).max(0.0);
                let phase = &self.jobs[thread.job].program.phases[thread.phase];
                let line_ns = thread.line_ns(phase, self.hardware.figures.in_flight);
                thread.fetch_again(thread.held_bytes * gone, line_ns);
            }
        }
        if let Some(thread) = self.threads.get_mut(&payer) {
            if self.options.page_moves_disturb {
                let copying = |&(from, pages): &(usize, u64)| Copying {
                    from,
                    to,
                    pages: pages as f64,
                };
                thread.copies.extend(moved.from.iter().map(copying));
            } else {
                thread.pause_ns += moved.pages() as f64 * self.options.page_move_ns;
            }
        }
        self.progress[job].work.pages_moved += moved.pages();
        self.stale = true;
        moved
    }
}
