//! The world's kernel as a scheduler: where threads begin, which runs next, which waits for which.
//!
//! * A thread begins on the least loaded node, there in the least loaded domain, there on the least loaded CPU, as
//!   Linux spreads new threads from the top of its domains down (`find_idlest_group`). Load is the number of threads
//!   that run, wait, or went to sleep less than [`STILL_LOAD_PS`] ago; ties are broken at random, from the seed. A
//!   thread with a CPU given from the start ([`super::Start`]) begins there.
//! * A thread stays on its CPU until it is ordered elsewhere, except in two cases in which Linux balances too. A woken
//!   thread whose CPU is taken goes to an idle CPU of its memory domain. And an idle CPU takes the nearest thread that
//!   waits for another CPU: when a thread of its own has ended, and at every tick ([`TICK_NS`] of the loop's time),
//!   CPUs on which no thread sleeps first. (When a thread goes to sleep, Linux mostly leaves its CPU alone, because it
//!   expects the thread back: `avg_idle` [C].) Neither goes beyond the thread's mask.
//! * Threads that share a CPU take turns.
//! * A CPU that was idle for [`DEEP_IDLE_PS`] has lost its translations.
//! * A sleeping thread continues once it was woken; a wake that comes early is remembered. The first wake to a thread
//!   that does not exist yet makes it. When no thread can run, whoever ends the sleep is not in the trace: then all
//!   threads that do not exist yet begin or, if there are none, the one that has slept longest continues.

use rand::Rng as _;

use super::engine::Engine;
use super::options::Options;
use super::threads::State;

/// A millisecond: a thread that has slept longer does not count as load when new threads are spread. (The kernel's
/// measure fades by half in 32 ms [C], longer than most traces.)
const STILL_LOAD_PS: u64 = 1_000_000_000;
/// Time between ticks, in the loop's time: 4 ms, 250 a second [C].
const TICK_NS: u64 = 4_000_000;
/// 600 us: a core that is idle for longer sleeps so deeply (C6) that its TLBs are empty afterwards; Linux leaves the
/// address space first (`leave_mm`) [C].
const DEEP_IDLE_PS: u64 = 600_000_000;

/// Time between ticks, in modelled time.
pub(super) fn tick_ps(options: &Options) -> u64 {
    options.modelled_ps(TICK_NS).max(1)
}

impl Engine {
    /// At a tick: idle cores take what waits for others.
    pub(super) fn balance(&mut self, now_ps: u64) {
        self.next_tick_ps = now_ps.saturating_add(tick_ps(&self.memory.options));
        if self.waiting == 0 {
            return;
        }
        let mut sleepers = vec![0u32; self.cores.len()];
        for thread in &self.threads {
            if matches!(thread.state, State::Asleep(_)) {
                sleepers[thread.core] += 1;
            }
        }
        let is_idle = |&core: &usize| self.cores[core].running.is_none();
        let mut idle: Vec<usize> = (0..self.cores.len()).filter(is_idle).collect();
        idle.sort_by_key(|&core| sleepers[core]);
        for core in idle {
            // The core was idle until now.
            self.may_forget(core, now_ps);
            self.cores[core].idle_until(now_ps);
            self.refill(core);
        }
    }

    /// Empties the TLBs of a core that has been idle for [`DEEP_IDLE_PS`] by that time.
    pub(super) fn may_forget(&mut self, at: usize, now_ps: u64) {
        let core = &mut self.cores[at];
        let is_idle = core.running.is_none() && !core.is_emptied;
        if !is_idle || now_ps.saturating_sub(core.time_ps) < DEEP_IDLE_PS {
            return;
        }
        core.is_emptied = true;
        if let Some(mmu) = core.core.mmu_mut() {
            mmu.flush();
        }
        if let Some(unit) = &mut self.memory.unit {
            unit.flushed(at);
        }
    }

    /// A thread begins.
    pub(super) fn is_born(&mut self, number: usize, time_ps: u64) {
        self.threads[number].ready_ps = time_ps;
        let core = self.first_core(number);
        let every = self.memory.options.sample_every.every();
        let thread = &mut self.threads[number];
        thread.core = core;
        thread.was_born = true;
        thread.state = State::Ready;
        if thread.until_sample == 0 {
            // Threads that begin together are not sampled together.
            thread.until_sample = 1 + self.random.random_range(0..every);
        }
        self.queue(number, core);
    }

    /// The core that a thread begins on.
    fn first_core(&mut self, number: usize) -> usize {
        let thread = &self.threads[number];
        if thread.was_born {
            return thread.core;
        }
        let given = self
            .memory
            .options
            .start
            .cpus
            .get(number)
            .copied()
            .flatten();
        if let Some(cpu) = given {
            let core = self.hardware.topology.cpu_index(cpu).unwrap_or(0);
            self.threads[number].affinity = std::sync::Arc::new([cpu].into_iter().collect());
            self.threads[number].assigned = Some(core);
            return core;
        }
        let now_ps = self.threads[number].ready_ps;
        let is_load = |state| match state {
            State::Ready => true,
            State::Asleep(since_ps) => now_ps.saturating_sub(since_ps) < STILL_LOAD_PS,
            State::Ended | State::Unborn => false,
        };
        let mut on_core = vec![0u32; self.cores.len()];
        for other in self.threads.iter().filter(|other| is_load(other.state)) {
            on_core[other.core] += 1;
        }
        let config = &self.hardware.config;
        let sums = |of: &dyn Fn(usize) -> usize, parts: usize| {
            let mut sums = vec![(0u32, 0u32); parts];
            for (core, load) in on_core.iter().enumerate() {
                let sum = &mut sums[of(core)];
                *sum = (sum.0 + load, sum.1 + 1);
            }
            // Threads for each core, in 65536ths, so that parts of any size compare.
            let share = |(load, cores): (u32, u32)| u64::from(load << 16) / u64::from(cores.max(1));
            sums.into_iter().map(share).collect::<Vec<u64>>()
        };
        let nodes = sums(&|core| config.node_of_core(core), config.nodes());
        let domains = sums(&|core| config.domain_of_core[core], config.domains());
        let load = |core: usize| {
            (
                nodes[config.node_of_core(core)],
                domains[config.domain_of_core[core]],
                on_core[core],
            )
        };
        let allowed: Vec<usize> = (0..self.cores.len())
            .filter(|&core| self.threads[number].affinity.contains(self.cpu(core)))
            .collect();
        let least = allowed.iter().map(|&core| load(core)).min();
        let equal: Vec<usize> = allowed
            .into_iter()
            .filter(|&core| Some(load(core)) == least)
            .collect();
        equal[self.random.random_range(0..equal.len())]
    }

    /// Makes a thread that can run wait for a core; it gets the core at once if that is idle.
    pub(super) fn queue(&mut self, number: usize, core: usize) {
        self.threads[number].core = core;
        self.cores[core].queue.push_back(number);
        self.waiting += 1;
        self.fill_core(core);
    }

    /// Gives an idle core the next thread that waits for it.
    pub(super) fn fill_core(&mut self, at: usize) {
        if self.cores[at].running.is_some() {
            return;
        }
        let Some(number) = self.cores[at].queue.pop_front() else {
            return;
        };
        self.waiting -= 1;
        self.may_forget(at, self.threads[number].ready_ps);
        let options = &self.memory.options;
        let (switch_ps, slice_ps) = (options.switch_ns * 1000, options.slice_ns * 1000);
        let core = &mut self.cores[at];
        let thread = &mut self.threads[number];
        core.idle_until(thread.ready_ps);
        thread.done.waited_ps += core.time_ps.saturating_sub(thread.ready_ps);
        let owes_ps = std::mem::take(&mut thread.owes_ps);
        let is_other = core.last.is_some_and(|last| last != number);
        core.hold(owes_ps + if is_other { switch_ps } else { 0 });
        core.enter(&mut self.memory.pages, thread.process);
        (core.running, core.last) = (Some(number), Some(number));
        core.is_emptied = false;
        core.slice_end_ps = core.time_ps.saturating_add(slice_ps);
        if let Some(unit) = &mut self.memory.unit {
            unit.run(at, thread.unit);
        }
    }

    /// Takes the running thread off its core.
    pub(super) fn leave(&mut self, number: usize) {
        let at = self.threads[number].core;
        let core = &mut self.cores[at];
        if core.running == Some(number) {
            core.running = None;
            core.core.rests();
        } else if let Some(place) = core.queue.iter().position(|&other| other == number) {
            core.queue.remove(place);
            self.waiting -= 1;
        }
    }

    /// Runs the next thread of a core, or one that waits elsewhere.
    pub(super) fn refill(&mut self, at: usize) {
        self.fill_core(at);
        if self.waiting == 0 || self.cores[at].running.is_some() {
            return;
        }
        let config = &self.hardware.config;
        let cpu = self.cpu(at);
        let distance = |core: usize| {
            if config.domain_of_core[core] == config.domain_of_core[at] {
                0
            } else if config.node_of_core(core) == config.node_of_core(at) {
                1
            } else {
                2
            }
        };
        let candidates = self.cores.iter().enumerate().filter_map(|(core, state)| {
            let waits = |&&number: &&usize| self.threads[number].affinity.contains(cpu);
            let number = *state.queue.iter().find(waits)?;
            let longest_first = usize::MAX - state.queue.len();
            Some((distance(core), longest_first, core, number))
        });
        if let Some((.., number)) = candidates.min() {
            self.leave(number);
            self.queue(number, at);
        }
    }

    /// Ends the running thread of a core.
    pub(super) fn ends(&mut self, number: usize) {
        let at = self.threads[number].core;
        self.leave(number);
        let thread = &mut self.threads[number];
        thread.state = State::Ended;
        thread.ended_ps = self.cores[at].time_ps;
        self.refill(at);
    }

    /// Puts the running thread of a core to sleep, unless it was woken already.
    pub(super) fn sleeps(&mut self, number: usize) {
        let at = self.threads[number].core;
        let now_ps = self.cores[at].time_ps;
        let thread = &mut self.threads[number];
        if self.first_loop.is_none() {
            thread.comes_to_sleep(now_ps);
        }
        if thread.wakes > 0 {
            thread.wakes -= 1;
            if thread.wakes == 0 && thread.woken_ps > now_ps {
                // Its waker's core is ahead: it sleeps until then.
                let woken_ps = thread.woken_ps;
                self.leave(number);
                self.goes_on(number, woken_ps);
            }
            return;
        }
        thread.state = State::Asleep(now_ps);
        self.leave(number);
        self.fill_core(at);
    }

    /// A thread wakes another at that time. Wakes of threads outside the trace are ignored.
    pub(super) fn wakes(&mut self, waker: usize, woken: u64, time_ps: u64) {
        let Ok(number) = usize::try_from(woken) else {
            return;
        };
        let ready_ps = time_ps + self.memory.options.wake_ns * 1000;
        let Some(thread) = self.threads.get(number) else {
            return;
        };
        if self.first_loop.is_none() && thread.state != State::Unborn {
            self.notes_wake(waker, number, ready_ps);
        }
        let thread = &mut self.threads[number];
        match thread.state {
            State::Unborn => self.is_born(number, ready_ps),
            State::Asleep(since_ps) if thread.wakes == 0 => {
                self.goes_on(number, ready_ps.max(since_ps));
            }
            State::Asleep(_) | State::Ready => {
                thread.wakes += 1;
                thread.woken_ps = ready_ps;
            }
            State::Ended => {}
        }
    }

    /// Notes which thread woke which, and which threads this releases from set-up.
    fn notes_wake(&mut self, waker: usize, woken: usize, time_ps: u64) {
        let turn = self.threads[waker].sleeps;
        self.threads[waker].has_woken(woken);
        let times = self.threads[woken].is_woken(waker);
        if times < 2 || self.maker(woken) != Some(waker) {
            return;
        }
        self.threads[woken].is_woken_again(turn, time_ps);
        if self.release != Some((waker, turn)) {
            self.release = Some((waker, turn));
            for thread in &mut self.threads {
                thread.executed_before_release = thread.executed;
            }
        }
        for other in 0..self.threads.len() {
            if self.maker(other) == Some(waker) {
                self.threads[other].sees_release(turn, time_ps);
            }
        }
    }

    /// The thread that made a thread, as far as the first loop has shown: of those that woke it, the one that has
    /// executed least. (Not the first to wake it: a worker that is ahead may wake it before its maker does.)
    pub(super) fn maker(&self, number: usize) -> Option<usize> {
        let wakers = self.threads[number].woken_by.iter().map(|(by, _)| *by);
        wakers.min_by_key(|&by| self.threads[by].executed)
    }

    /// Makes a sleeping thread ready again.
    fn goes_on(&mut self, number: usize, ready_ps: u64) {
        let thread = &mut self.threads[number];
        (thread.state, thread.ready_ps) = (State::Ready, ready_ps);
        let own = thread.core;
        let config = &self.hardware.config;
        let core = if self.cores[own].busy_with() == 0 {
            own
        } else {
            let domain = config.domain_of_core[own];
            let idle = |&core: &usize| {
                config.domain_of_core[core] == domain
                    && self.cores[core].busy_with() == 0
                    && self.threads[number].affinity.contains(self.cpu(core))
            };
            (0..self.cores.len()).find(idle).unwrap_or(own)
        };
        self.queue(number, core);
    }

    /// Ends the running thread's turn if its slice is over and others wait.
    pub(super) fn may_give_way(&mut self, at: usize) {
        let core = &mut self.cores[at];
        if core.time_ps < core.slice_end_ps || core.queue.is_empty() {
            return;
        }
        if let Some(number) = core.running.take() {
            self.threads[number].ready_ps = self.cores[at].time_ps;
            self.queue(number, at);
        }
    }

    /// No thread can run: either someone outside the trace lets one continue, or all have ended.
    pub(super) fn nobody_runs(&mut self) {
        let latest = self.cores.iter().map(|core| core.time_ps).max();
        let now_ps = latest.unwrap_or(0).max(self.now_ps);
        let unborn = |number: &usize| self.threads[*number].state == State::Unborn;
        let unborn: Vec<usize> = (0..self.threads.len()).filter(unborn).collect();
        if !unborn.is_empty() {
            for number in unborn {
                self.is_born(number, now_ps);
            }
            return;
        }
        let asleep = |(number, thread): (usize, &super::threads::Thread)| match thread.state {
            State::Asleep(since_ps) => Some((since_ps, number)),
            _ => None,
        };
        match self.threads.iter().enumerate().filter_map(asleep).min() {
            Some((_, number)) => {
                self.done.released += 1;
                self.goes_on(number, now_ps);
            }
            None => self.next_loop(),
        }
    }
}
