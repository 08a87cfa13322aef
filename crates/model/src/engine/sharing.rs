//! Lines that other threads of the process wrote last: which threads have them, and how long a thread waits for them.
//!
//! There are two kinds. Each other thread has an equal part of a program's `shared_written` lines, and no thread waits
//! for a third. Where all threads write one area in the same order ([`SharedWrites`]), the threads that are in the area
//! at the same time go over it together. A line is then a server, and these threads are its customers: a write takes
//! the line from any of the others with equal chance, and between two writes of a thread each of the others has the
//! line once, for the time of its transfer and of one write. A thread that is alone in the area takes each line once,
//! from any thread of the process.

use numaherd_contention::{Seat, Transfers};
use numaherd_topology::CpuId;
use numaherd_world::ThreadId;

use super::{Engine, Thread};
use crate::kernel::Loads;

/// Threads by place, each counted with the share of its time that it is there.
type Seats = Vec<(Seat, f64)>;

impl Engine {
    /// Lines that a thread takes from others, and how long in ns it waits for its turn at each of them, with every
    /// thread on the CPU that `cpu` gives.
    pub(super) fn transfers(
        &self,
        thread: &Thread,
        loads: &Loads,
        cpu: &impl Fn(&Thread) -> CpuId,
    ) -> (Vec<Transfers>, f64) {
        let program = &self.jobs[thread.job].program;
        let phase = self.phase(thread);
        let writes = phase.shared_writes;
        if program.threads == 1 || (program.shared_written == 0.0 && writes.is_none()) {
            return (Vec::new(), 0.0);
        }
        let (mut all, mut there) = (Seats::new(), Seats::new());
        for other in self.others(thread) {
            let at = cpu(other);
            let seat = self.hardware.seat(at);
            count(&mut all, seat, 1.0);
            let phase = self.phase(other);
            if phase.shared_writes.is_some() {
                count(&mut there, seat, loads.share(at, phase.busy));
            }
        }
        let own = self.hardware.seat(cpu(thread));
        let mut transfers = Vec::new();
        let each = program.shared_written / f64::from(program.threads - 1);
        // A profile's base cycles count these lines as hits in the last-level cache; for a shared area they include
        // nothing but the writes.
        let hit_ns = self.hardware.figures.llc_ns;
        self.take(&all, each, own, hit_ns, &mut transfers);
        let Some(writes) = writes else {
            return (transfers, 0.0);
        };
        let met: f64 = there.iter().map(|&(_, threads)| threads).sum();
        if met == 0.0 {
            let known: f64 = all.iter().map(|&(_, threads)| threads).sum();
            if known > 0.0 {
                self.take(&all, writes.lines / known, own, 0.0, &mut transfers);
            }
            return (transfers, 0.0);
        }
        // With fewer than one other thread there on average, this happens only for that part of the time.
        let taken = writes.lines + (writes.writes - writes.lines) * met.min(1.0);
        self.take(&there, taken / met, own, 0.0, &mut transfers);
        let base_ns =
            1000.0 * phase.cycles_per_instruction * self.hardware.figures.ns_per_reference_cycle;
        let turn_ns = base_ns / writes.writes;
        (transfers, self.turns_ns(&there, own, turn_ns))
    }

    /// The other threads of a thread's process.
    fn others(&self, thread: &Thread) -> impl Iterator<Item = &Thread> {
        let first = thread.process.pid;
        let id = move |tid| ThreadId {
            tid,
            born: thread.process.born,
        };
        let last = first + (self.jobs[thread.job].program.threads - 1);
        let range = self.threads.range(id(first)..=id(last));
        range
            .map(|(_, other)| other)
            .filter(|other| other.process == thread.process && other.id != thread.id)
    }

    /// Adds `each` lines from every thread of `from`.
    fn take(
        &self,
        from: &Seats,
        each: f64,
        own: Seat,
        in_base_ns: f64,
        transfers: &mut Vec<Transfers>,
    ) {
        if each > 0.0 {
            transfers.extend(from.iter().map(|&(seat, threads)| Transfers {
                node: seat.node,
                lines: each * threads,
                idle_ns: self.hardware.modified_ns(own, seat),
                in_base_ns,
            }));
        }
    }

    /// Time in ns for which the threads of `there` have a line between two turns of one at `own`: each
    /// fetches it from any of the others, that one included, and keeps it for `turn_ns`.
    fn turns_ns(&self, there: &Seats, own: Seat, turn_ns: f64) -> f64 {
        let met: f64 = there.iter().map(|&(_, threads)| threads).sum();
        let turn = |&(seat, threads): &(Seat, f64)| {
            let from = |owner: Seat| self.hardware.modified_ns(seat, owner);
            let others = there.iter().map(|&(owner, owners)| {
                let without = if owner == seat {
                    1.0_f64.min(owners)
                } else {
                    0.0
                };
                (owners - without) * from(owner)
            });
            let others: f64 = others.sum();
            // The mean over all others but the thread itself, and over the one at `own`.
            let mean = (others + from(own)) / (met - 1.0_f64.min(threads) + 1.0);
            threads * (mean + turn_ns)
        };
        there.iter().map(turn).sum()
    }
}

fn count(seats: &mut Seats, seat: Seat, threads: f64) {
    match seats.iter_mut().find(|(known, _)| *known == seat) {
        Some((_, known)) => *known += threads,
        None => seats.push((seat, threads)),
    }
}
