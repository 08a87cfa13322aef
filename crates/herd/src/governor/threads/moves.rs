//! How many threads may move: at once, per second, and per second in one virtual machine.

use std::collections::BTreeMap;

use numaherd_world::{ProcessId, Snapshot, Thread};

use crate::governor::rate::TokenBucket;
use crate::governor::{Guard, Verdict, unless};
use crate::settings::Limits;

/// What is left of the moves that may be made.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    per_interval: u32,
    per_second: f64,
    per_machine: f64,
    left: u32,
    /// Whether the rates have changed since the buckets were last filled.
    changed: bool,
    all: Option<TokenBucket>,
    machines: BTreeMap<ProcessId, TokenBucket>,
}

impl Moves {
    /// None made yet.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            per_interval: limits.moves_per_interval,
            per_second: limits.moves_per_second,
            per_machine: limits.vm_moves_per_second,
            left: 0,
            changed: false,
            all: None,
            machines: BTreeMap::new(),
        }
    }

    /// Sets other limits from the next interval on. Earlier moves still count.
    pub(super) fn set(&mut self, limits: &Limits) {
        self.per_interval = limits.moves_per_interval;
        self.per_second = limits.moves_per_second;
        self.per_machine = limits.vm_moves_per_second;
        self.changed = true;
    }

    /// An interval begins.
    pub(super) fn begin(&mut self, snapshot: &Snapshot) {
        self.left = self.per_interval;
        if std::mem::take(&mut self.changed) {
            // The time until now was filled at the former rates.
            for (rate, bucket) in (self.all.iter_mut().map(|all| (self.per_second, all))).chain(
                self.machines
                    .values_mut()
                    .map(|one| (self.per_machine, one)),
            ) {
                bucket.advance(snapshot.time_ns);
                bucket.set(rate, burst(rate));
            }
        }
        let full = |rate: f64| TokenBucket::full(rate, burst(rate), snapshot.time_ns);
        self.all
            .get_or_insert_with(|| full(self.per_second))
            .advance(snapshot.time_ns);
        self.machines
            .retain(|&process, _| snapshot.process(process).is_some());
        for process in snapshot.processes.iter().filter(|p| p.machine.is_some()) {
            self.machines
                .entry(process.id)
                .or_insert_with(|| full(self.per_machine))
                .advance(snapshot.time_ns);
        }
    }

    /// Takes one of the thread's moves, if allowed.
    ///
    /// # Errors
    /// The limit that refuses it.
    pub(super) fn take(&mut self, snapshot: &Snapshot, thread: &Thread) -> Verdict {
        let (most, rate, own) = (self.per_interval, self.per_second, self.per_machine);
        unless(self.left > 0, Guard::Rate, || {
            format!("the limit is {most} thread moves per interval")
        })?;
        let mut buckets = [self.all.as_mut(), self.machines.get_mut(&thread.process)];
        let [all, machine] = buckets
            .each_ref()
            .map(|bucket| bucket.as_ref().is_none_or(|bucket| bucket.allows()));
        unless(all, Guard::Rate, || {
            format!("the limit is {rate} thread moves per second")
        })?;
        unless(machine, Guard::VmRate, || {
            let process = snapshot.process(thread.process);
            let machine = process.and_then(|process| process.machine.as_ref());
            let name = machine.map_or("this one", |machine| &machine.name);
            format!(
                "the limit is {own} moves per second of the threads of one virtual machine, and it \
                 belongs to {name}"
            )
        })?;
        for bucket in buckets.iter_mut().flatten() {
            bucket.take(1.0);
        }
        self.left -= 1;
        Ok(())
    }
}

/// The largest burst of moves: a second's worth, but at least one.
fn burst(rate: f64) -> f64 {
    rate.max(1.0)
}
