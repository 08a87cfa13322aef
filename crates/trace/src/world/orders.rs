//! Carries out orders: moves threads to other cores, and pages to other nodes.
//!
//! A thread that is moved takes only its own state with it: caches and TLBs are those of the new core. A page that is
//! moved gets another frame; lines of the old frame stay in caches until they are evicted, because nobody asks for them
//! any more. Every translation of the page is invalidated.
//!
//! Moving a page is work of the core that runs the thread it is moved for, as if that thread's fault or an interrupt of
//! its core's unit had caused it. Up to [`BATCH`] pages are moved together, with one interrupt to each other core that
//! runs the process.

use numaherd_topology::NodeId;
use numaherd_world::{
    AffinityOrder, AffinityResult, MemoryKind, PageFailure, PageOrder, PageOutcome, Pages, ThreadId,
};

use super::engine::Engine;
use super::pages::{NotMoved, PageTable};
use super::threads::State;

/// Pages whose translations are invalidated together: as many as fit into one huge page of x86
/// (`NR_MAX_BATCHED_MIGRATION`, recalled).
const BATCH: u64 = 512;

impl Engine {
    /// A thread's number in the trace, if the thread exists now.
    pub(super) fn number(&self, id: ThreadId) -> Option<usize> {
        let number = usize::try_from(id.born).ok()?;
        let thread = self.threads.get(number)?;
        (thread.id == id && thread.is_there(self.goes_round())).then_some(number)
    }

    /// Sets the CPUs that a thread may run on, and moves it there.
    pub(super) fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult {
        let Some(number) = self.number(order.thread) else {
            return AffinityResult::Gone;
        };
        let topology = &self.hardware.topology;
        let allowed = order.cpus.intersection(&self.all_cpus);
        if allowed.is_empty() {
            let error = format!(
                "cannot keep {} to CPUs {:?}: {} has none of them; name CPUs that it has",
                order.thread,
                order.cpus,
                topology.name()
            );
            return AffinityResult::Failed { error };
        }
        let ordered = order.core.and_then(|cpu| topology.cpu_index(cpu));
        let from = self.threads[number].core;
        let stays = allowed.contains(self.cpu(from));
        let to = match ordered {
            Some(core) if allowed.contains(self.cpu(core)) => core,
            _ if stays => from,
            _ => self.least_busy(&allowed),
        };
        let thread = &mut self.threads[number];
        thread.affinity = order.cpus.clone();
        thread.assigned = ordered;
        if to != from {
            self.move_thread(number, to);
        }
        AffinityResult::Done
    }

    fn least_busy(&self, allowed: &numaherd_topology::CpuSet) -> usize {
        (0..self.cores.len())
            .filter(|&core| allowed.contains(self.cpu(core)))
            .min_by_key(|&core| self.cores[core].busy_with())
            .unwrap_or(0)
    }

    /// Puts a thread on another core. [`Engine::settle`] gives work to cores that this leaves idle, after all orders.
    fn move_thread(&mut self, number: usize, to: usize) {
        self.done.thread_moves += 1;
        let cost_ps = self
            .memory
            .options
            .modelled_ps(self.memory.options.thread_move_ns);
        let from = self.threads[number].core;
        let left_ps = self.cores[from].time_ps.max(self.now_ps);
        let runs = self.threads[number].state == State::Ready;
        if runs {
            let ran = self.cores[from].running == Some(number);
            self.leave(number);
            self.cores[to].queue.push_back(number);
            self.waiting += 1;
            if ran {
                self.threads[number].ready_ps = left_ps;
            }
        }
        let thread = &mut self.threads[number];
        thread.core = to;
        thread.owes_ps += cost_ps;
    }

    /// Called after all orders: idle cores take threads that wait.
    pub(super) fn settle(&mut self) {
        for core in 0..self.cores.len() {
            self.fill_core(core);
        }
        for core in 0..self.cores.len() {
            self.refill(core);
        }
    }

    pub(super) fn move_pages(&mut self, order: &PageOrder) -> PageOutcome {
        let mut outcome = PageOutcome::begun(order);
        let is_process = |place: &usize| self.memory.processes[*place].id == order.process;
        let process = (0..self.memory.processes.len()).find(is_process);
        let (Some(process), Some(to)) = (process, self.place_with_memory(order.to)) else {
            outcome.error = Some(format!(
                "cannot move pages of {} to node {}: the trace has no such process, or {} no memory there",
                order.process,
                order.to,
                self.hardware.topology.name()
            ));
            return outcome;
        };
        let places = self.places(process as u32, order.pages, &mut outcome);
        let mut in_batch = 0;
        for place in places {
            match self.relocate(place, to) {
                Ok(()) => {
                    outcome.moved += 1;
                    in_batch += 1;
                }
                Err(NotMoved::AlreadyThere) => outcome.already_there += 1,
                Err(NotMoved::NodeFull) => {
                    *outcome.failed.entry(PageFailure::NodeFull).or_default() += 1;
                    self.done.pages_not_moved += 1;
                }
            }
            if in_batch == BATCH {
                self.charge(order.thread, process as u32, in_batch, &mut outcome);
                in_batch = 0;
            }
        }
        self.charge(order.thread, process as u32, in_batch, &mut outcome);
        outcome
    }

    fn place_with_memory(&self, node: NodeId) -> Option<usize> {
        let place = self.hardware.topology.node_index(node)?;
        self.memory.nearest[place].contains(&place).then_some(place)
    }

    /// The pages of an order that exist; the others are added to the outcome.
    fn places(&self, process: u32, pages: Pages, outcome: &mut PageOutcome) -> Vec<usize> {
        let table = &self.memory.pages;
        let mine = |(place, page): (usize, &super::pages::Page)| {
            (page.process == process).then_some((place, page.number))
        };
        let all = || table.iter().enumerate().filter_map(mine);
        match pages {
            Pages::All => all().map(|(place, _)| place).collect(),
            // In a trace, all memory is private to a process.
            Pages::OfKind { kind, part } => {
                let takes = |number| kind == MemoryKind::Private && part.takes(number);
                let of_kind = all().filter(|&(_, number)| takes(number));
                of_kind.map(|(place, _)| place).collect()
            }
            Pages::Window { first, count } => {
                let last = first.saturating_add(count);
                let places: Vec<usize> = if count <= table.len() as u64 {
                    (first..last)
                        .filter_map(|number| table.find(process, number))
                        .collect()
                } else {
                    let within = |&(_, number): &(usize, u64)| (first..last).contains(&number);
                    all().filter(within).map(|(place, _)| place).collect()
                };
                let absent = count - places.len() as u64;
                if absent > 0 {
                    outcome.failed.insert(PageFailure::NotThere, absent);
                }
                places
            }
        }
    }

    /// Moves one page, and makes all cores forget where it was.
    fn relocate(&mut self, place: usize, to: usize) -> Result<(), NotMoved> {
        if self.memory.pages.get(place).node as usize == to {
            return Err(NotMoved::AlreadyThere);
        }
        self.invalidate(place);
        self.memory.pages.relocate(place, to, self.now_ps)
    }

    /// Removes a page's translation from all cores.
    pub(super) fn invalidate(&mut self, place: usize) {
        let tlb: numaherd_hardware::Page = PageTable::tlb_page(&self.memory.pages, place);
        for (at, core) in self.cores.iter_mut().enumerate() {
            core.forget(&mut self.memory.pages, place);
            let entry = core.core.mmu_mut().and_then(|mmu| mmu.invalidate(tlb));
            if let (Some(entry), Some(unit)) = (entry, &mut self.memory.unit) {
                unit.invalidated(at, entry);
            }
        }
    }

    /// Charges the cores for pages moved together.
    fn charge(&mut self, thread: ThreadId, process: u32, pages: u64, outcome: &mut PageOutcome) {
        if pages == 0 {
            return;
        }
        let options = &self.memory.options;
        let in_a_page = (self.hardware.page_bytes() / 4096).max(1);
        let took_ns = options.page_move_ns * in_a_page * pages;
        let took_ps = options.modelled_ps(took_ns);
        let others_ps = options.modelled_ps(options.shootdown_ns);
        outcome.took_ns += took_ns;
        outcome.longest_batch_ns = outcome.longest_batch_ns.max(took_ns);
        let mover = self.number(thread).map(|number| self.threads[number].core);
        for (at, core) in self.cores.iter_mut().enumerate() {
            let runs = core
                .running
                .is_some_and(|number| self.threads[number].process == process);
            if Some(at) == mover {
                core.idle_until(self.now_ps);
                core.hold(took_ps);
            } else if runs {
                core.hold(others_ps);
            }
        }
    }
}
