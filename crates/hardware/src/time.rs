//! The rule of modelled time.
//!
//! Each core has its own time. It advances by a fixed time for each instruction, and by the latency
//! of memory accesses that the core cannot hide:
//!
//! 1. A request beyond the first-level cache is *in flight* from its issue until its data arrive.
//! 2. The core runs on while loads are in flight, up to `reorder_window_instructions` beyond the
//!    oldest. There it stops until that load's data arrive. (In-order retirement from a full
//!    reorder buffer.) Instructions within the window hide latency: a lone miss costs nothing up to
//!    the window times the time of an instruction. Some 30 ns are realistic.
//! 3. Stores hold a place among the requests in flight but never stop the core. (Store buffer.)
//! 4. With `in_flight_per_core` requests in flight, the core stops until one of them is done.
//! 5. An access is taken to depend on a load in flight if its address lies less than `dependence_bytes` after the value
//!    that the load returns. It issues only when that value has arrived; the core itself runs on. So a walk through a
//!    linked list takes exactly one latency a step, walks through two lists overlap, and independent accesses overlap
//!    up to the limits above.
//! 6. A translation that the first-level TLB does not have is a load in flight, for as long as the
//!    second level or the hardware's page walk takes. The access to that address, load or store,
//!    depends on it (rule 5). A TLB miss handler in software stops the core for its whole time,
//!    while requests in flight continue.
//!
//! 7. While SMT siblings compute, instructions take longer, and their requests in flight leave less room (see `smt`).
//!
//! Not modelled: dependence other than through a loaded address, such as a scaled index, or a
//! pointer loaded long before and kept in a register.

use crate::smt::Siblings;

/// One request beyond the first-level cache.
#[derive(Clone, Copy, Debug)]
struct Flight {
    done_ps: u64,
    /// Instruction count at which it holds up the core; `u64::MAX` for stores.
    blocks_at: u64,
    /// What a load returns; None for stores.
    value: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Clock {
    ps_per_instruction: u64,
    window: u64,
    in_flight: usize,
    dependence: u64,
    /// Sum of all waits and idle times so far.
    base_ps: u64,
    /// Sum of waits alone.
    stalled_ps: u64,
    /// In program order.
    flights: Vec<Flight>,
    /// When the last request beyond the private caches is done, and the time with any outstanding.
    busy_until_ps: u64,
    busy_ps: u64,
    siblings: Option<Siblings>,
    /// Time lost to siblings in the issue slots.
    yielded_ps: u64,
}

impl Clock {
    pub(crate) fn new(config: &crate::Config, siblings: Option<Siblings>) -> Self {
        Self {
            ps_per_instruction: config.picoseconds_per_instruction,
            window: config.reorder_window_instructions,
            in_flight: config.in_flight_per_core,
            dependence: config.dependence_bytes,
            base_ps: 0,
            stalled_ps: 0,
            flights: Vec::with_capacity(config.in_flight_per_core),
            busy_until_ps: 0,
            busy_ps: 0,
            siblings,
            yielded_ps: 0,
        }
    }

    fn at(&self, instructions: u64) -> u64 {
        self.base_ps + instructions * self.ps_per_instruction
    }

    fn stall(&mut self, ps: u64) {
        self.base_ps += ps;
        self.stalled_ps += ps;
    }

    /// Time of the core when it has executed this many instructions, waits included.
    pub(crate) fn now(&mut self, instructions: u64) -> u64 {
        // Rule 2, in program order: an earlier wait delays the point where a later one begins.
        for index in 0..self.flights.len() {
            let flight = self.flights[index];
            if flight.blocks_at <= instructions {
                self.compute(flight.blocks_at);
                let blocked = self.at(flight.blocks_at);
                self.stall(flight.done_ps.saturating_sub(blocked));
            }
        }
        self.compute(instructions);
        self.at(instructions)
    }

    /// Executes up to this many instructions, slower while siblings compute.
    #[inline]
    fn compute(&mut self, instructions: u64) {
        let Some(siblings) = &mut self.siblings else {
            return;
        };
        let yielded = siblings.compute(instructions, self.ps_per_instruction);
        self.base_ps += yielded;
        self.yielded_ps += yielded;
        siblings.reaches(self.base_ps + instructions * self.ps_per_instruction);
    }

    /// Has nothing to do from the time that was last asked for.
    pub(crate) fn rests(&mut self) {
        if let Some(siblings) = &mut self.siblings {
            siblings.rests();
        }
    }

    /// Stops the core for a time; requests in flight continue.
    pub(crate) fn hold(&mut self, instructions: u64, ps: u64) {
        self.now(instructions);
        self.stall(ps);
    }

    /// Leaves the core idle until this time, if that is in the future.
    pub(crate) fn idle_until(&mut self, instructions: u64, time_ps: u64) {
        let now = self.now(instructions);
        self.base_ps += time_ps.saturating_sub(now);
        self.land(now.max(time_ps), 0);
        if let (Some(siblings), true) = (&mut self.siblings, time_ps > now) {
            siblings.begins(time_ps);
        }
    }

    /// When the request of an access to `address`, made after this many instructions, goes out.
    pub(crate) fn issue(&mut self, instructions: u64, address: u64) -> u64 {
        let mut now = self.now(instructions);
        let mut data = self.land(now, address);
        while self.flights.len() >= self.room() {
            let first = self
                .flights
                .iter()
                .map(|flight| flight.done_ps)
                .min()
                .unwrap_or(now);
            self.stall(first - now);
            now = first;
            data = self.land(now, address);
        }
        data.max(now)
    }

    /// Requests that may be in flight.
    fn room(&self) -> usize {
        let siblings = self.siblings.as_ref();
        siblings.map_or(self.in_flight, |siblings| siblings.leave(self.in_flight))
    }

    /// Forgets requests done by `now`. Returns the arrival of the data that `address` needs, or 0.
    fn land(&mut self, now: u64, address: u64) -> u64 {
        let (mut kept, mut data) = (0, 0);
        for index in 0..self.flights.len() {
            let flight = self.flights[index];
            if flight.done_ps > now {
                let needed = |value| address.wrapping_sub(value) < self.dependence;
                if flight.value.is_some_and(needed) {
                    data = data.max(flight.done_ps);
                }
                self.flights[kept] = flight;
                kept += 1;
            }
        }
        self.flights.truncate(kept);
        data
    }

    /// Notes a request that is done at `done_ps`. `value` is what a load returns, if known; a store
    /// holds up nothing.
    pub(crate) fn fly(&mut self, instructions: u64, done_ps: u64, store: bool, value: Option<u64>) {
        let blocks_at = if store {
            u64::MAX
        } else {
            instructions + self.window
        };
        if let Some(siblings) = &mut self.siblings {
            let now = self.base_ps + instructions * self.ps_per_instruction;
            siblings.fly(done_ps.saturating_sub(now));
        }
        self.flights.push(Flight {
            done_ps,
            blocks_at,
            value: value.filter(|_| !store),
        });
    }

    /// Notes that a request beyond the private caches was outstanding from `issue_ps` to `done_ps`.
    pub(crate) fn outstanding(&mut self, issue_ps: u64, done_ps: u64) {
        self.busy_ps += done_ps.saturating_sub(issue_ps.max(self.busy_until_ps));
        self.busy_until_ps = self.busy_until_ps.max(done_ps);
    }

    pub(crate) fn stalled_ps(&self) -> u64 {
        self.stalled_ps
    }

    pub(crate) fn yielded_ps(&self) -> u64 {
        self.yielded_ps
    }

    pub(crate) fn busy_ps(&self) -> u64 {
        self.busy_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ns an instruction, window of 20, at most 4 in flight.
    fn clock() -> Clock {
        let mut config = crate::Config::of_equal_nodes(1, vec![vec![100.0]], 10.0);
        config.picoseconds_per_instruction = 1000;
        config.reorder_window_instructions = 20;
        config.in_flight_per_core = 4;
        Clock::new(&config, None)
    }

    const NS: u64 = 1000;

    fn load(clock: &mut Clock, instructions: u64, address: u64, value: u64) -> u64 {
        let issue = clock.issue(instructions, address);
        clock.fly(instructions, issue + 100 * NS, false, Some(value));
        issue
    }

    #[test]
    fn a_lone_load_hides_behind_the_window_only() {
        let mut clock = clock();
        load(&mut clock, 10, 0x1000_0000, 0);
        assert_eq!(
            clock.now(30),
            110 * NS,
            "stops 20 instructions after the load"
        );
        assert_eq!(clock.now(1010), 110 * NS + 980 * NS);
        assert_eq!(clock.stalled_ps(), 80 * NS);
    }

    #[test]
    fn a_list_is_walked_at_one_latency_a_step() {
        let mut clock = clock();
        for step in 0..1000u64 {
            let address = step * 0x10_0000;
            load(&mut clock, step * 5, address, address + 0x10_0000);
        }
        assert_eq!(clock.issue(5000, 1000 * 0x10_0000), 1000 * 100 * NS);
    }

    #[test]
    fn independent_loads_overlap_up_to_the_limit() {
        let mut clock = clock();
        let issues: Vec<u64> = (0..6)
            .map(|i| load(&mut clock, i, i * 0x10_0000, 0xdead))
            .collect();
        assert_eq!(issues, [0, NS, 2 * NS, 3 * NS, 100 * NS, 101 * NS]);
    }

    #[test]
    fn stores_do_not_stop_the_core_until_all_places_are_taken() {
        let mut clock = clock();
        for i in 0..4 {
            let issue = clock.issue(i, i * 0x10_0000);
            clock.fly(i, issue + 100 * NS, true, Some(0));
        }
        assert_eq!(clock.now(50), 50 * NS);
        assert_eq!(clock.issue(50, 0), 100 * NS);
    }

    #[test]
    fn idle_time_is_no_stall() {
        let mut clock = clock();
        clock.idle_until(10, 500 * NS);
        assert_eq!(clock.now(10), 500 * NS);
        clock.idle_until(20, 100 * NS);
        assert_eq!(clock.now(20), 510 * NS);
        assert_eq!(clock.stalled_ps(), 0);
    }

    #[test]
    fn busy_time_counts_overlapping_requests_once() {
        let mut clock = clock();
        for (issue, done) in [(0, 100), (1, 101), (50, 60), (200, 250)] {
            clock.outstanding(issue * NS, done * NS);
        }
        assert_eq!(clock.busy_ps(), 151 * NS);
    }
}
