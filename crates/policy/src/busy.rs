//! Which threads use enough of a CPU to be placed; all others are left to the kernel.
//!
//! Problem: a thread that mostly sleeps needs no core of its own, and a slot dealt to it keeps a
//! busy thread out. Rule: a thread is placed once it wants at least `least_cpu_share` of a CPU in an
//! interval (Clavis: 0.9), until it has wanted less in 7 of its last 10 intervals. This is the vote of the
//! classes (DINO §3.3.3): one quiet interval moves nothing.
//!
//! A thread *wants* what it used and the time that it waited for a CPU: two threads that share one use
//! half of it each, and both are busy. Where waiting is not measured, what a thread used counts alone.
//!
//! With more threads than CPUs, no thread can have 0.9 of one. If the threads of a pool
//! ([`crate::pools`]) together use at least that share of all its CPUs, a thread needs only the
//! share divided by `T = ceil(threads / CPUs)`, DINO's slots per core. The share determines which threads
//! count towards `T`, so both are found together, from the smallest share up. (No source: Clavis was run
//! with at most one thread per core.)
//!
//! Properties: a thread that reaches the share in every interval is always placed; one that never
//! does is never placed; a placed thread stays placed while fewer than 7 of 10 intervals are quiet.

use numaherd_files::settings;
use numaherd_world::{Snapshot, Thread};

use crate::memory::PerThread;
use crate::pools::Pool;

settings! {
    /// Which threads are placed at all.
    #[derive(Copy)]
    pub struct PlacementSettings {
        /// Threads that run and wait for a CPU for less than this share of the time are left to the kernel. When
        /// more threads run than there are CPUs, the share is lower.
        least_cpu_share: f64 = 0.9, unit: "share of a CPU", range: 0.0..=1.0, source: "Clavis";
    }
}

/// Threads that want less of a CPU than this do not count for what a machine loses. Lower than the share from which
/// threads are placed: services lose cores too (chosen here).
pub(crate) const LEAST_CPU_SHARE: f64 = 0.1;
/// Quiet intervals, of [`OF_LAST`], after which a thread is left to the kernel.
const VOTES: u32 = 7;
/// How many last intervals are looked at.
const OF_LAST: u32 = 10;

/// Whether one thread is placed, and its last intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Presence {
    placed: bool,
    /// One bit an interval, the newest lowest: whether it stayed below the share.
    quiet: u16,
}

impl Presence {
    fn observe(&mut self, reached: bool) -> bool {
        self.quiet = (self.quiet << 1 | u16::from(!reached)) & ((1 << OF_LAST) - 1);
        if self.placed {
            self.placed = !self.is_idle();
        } else if reached {
            *self = Self {
                placed: true,
                quiet: 0,
            };
        }
        self.placed
    }

    /// Whether it was quiet in so many of the last intervals that it is left to the kernel.
    fn is_idle(self) -> bool {
        self.quiet.count_ones() >= VOTES
    }
}

/// Remembers which threads are placed.
#[derive(Clone, Debug)]
pub struct Busy {
    least_cpu_share: f64,
    threads: PerThread<Presence>,
}

impl Busy {
    /// Nothing seen yet. `least_cpu_share` is a share of one CPU, 0 to 1.
    pub fn new(least_cpu_share: f64) -> Self {
        Self {
            least_cpu_share,
            threads: PerThread::default(),
        }
    }

    /// Takes in one interval, and fills in the busy threads of the pools.
    pub fn find(&mut self, snapshot: &Snapshot, pools: &mut [Pool]) -> Others {
        let presence = self.threads.line_up(&snapshot.threads);
        let mut others = Others::default();
        for pool in pools {
            let share = least_share(self.least_cpu_share, pool, snapshot);
            for &at in &pool.threads {
                if presence[at].observe(wanted(&snapshot.threads[at]) >= share) {
                    pool.busy.push(at);
                } else if presence[at].is_idle() {
                    others.idle.push(at);
                }
            }
        }
        for (at, thread) in snapshot.threads.iter().enumerate() {
            let reached = wanted(thread) >= self.least_cpu_share;
            if thread.unmanaged.is_some() && presence[at].observe(reached) {
                others.unmanaged.push(at);
            }
        }
        others.idle.sort_unstable();
        others
    }
}

/// Threads that are not to be placed, by place in the snapshot, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Busy threads that may not be placed: they hold slots where they are.
    pub unmanaged: Vec<usize>,
    /// Threads that could be placed and have been idle for so long that they need no CPU of their own.
    pub idle: Vec<usize>,
}

/// The share of a CPU that a thread would have used without waiting for one.
pub(crate) fn wanted(thread: &Thread) -> f64 {
    thread.cpu_share + thread.wait_share
}

/// The share of a CPU that a thread of this pool needs in this interval to be placed.
fn least_share(least: f64, pool: &Pool, snapshot: &Snapshot) -> f64 {
    let threads = || pool.threads.iter().map(|&at| &snapshot.threads[at]);
    let cpus = pool.cpus.len();
    if threads().map(|thread| thread.cpu_share).sum::<f64>() < least * cpus as f64 {
        return least;
    }
    let mut running = threads().filter(|thread| wanted(thread) > 0.0).count();
    loop {
        let share = least / running.div_ceil(cpus).max(1) as f64;
        let reaching = threads().filter(|thread| wanted(thread) >= share).count();
        if reaching >= running {
            return share;
        }
        running = reaching;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::Scene;

    #[test]
    fn seven_quiet_intervals_in_ten_take_a_thread_out_and_one_busy_one_brings_it_back() {
        let mut presence = Presence::default();
        let mut seen = |reached: &[bool]| -> Vec<bool> {
            reached.iter().map(|&r| presence.observe(r)).collect()
        };
        assert_eq!(seen(&[false, true]), [false, true]);
        assert_eq!(
            seen(&[false; 7]),
            [true, true, true, true, true, true, false]
        );
        assert_eq!(seen(&[true, false, true]), [true; 3]);
    }

    #[test]
    fn with_two_threads_to_a_core_half_the_share_is_enough() {
        let mut scene = Scene::uniform(2, 2);
        for _ in 0..8 {
            scene.thread(1, 10.0, 0).cpu_share = 0.5;
        }
        for _ in 0..50 {
            scene.thread(2, 10.0, 0).cpu_share = 0.001;
        }
        let mut pools = crate::pools::pools(&scene.snapshot, &scene.topology);
        Busy::new(0.9).find(&scene.snapshot, &mut pools);
        assert_eq!(pools[0].busy, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn threads_that_wait_for_each_other_are_busy() {
        let mut scene = Scene::uniform(2, 2);
        for cpu in [0, 0, 2] {
            let thread = scene.thread(1, 10.0, cpu);
            (thread.cpu_share, thread.wait_share) = (0.5, 0.5);
        }
        scene.snapshot.threads[2].wait_share = 0.0;
        let mut busy = Busy::new(0.9);
        for _ in 0..20 {
            let mut pools = crate::pools::pools(&scene.snapshot, &scene.topology);
            busy.find(&scene.snapshot, &mut pools);
            assert_eq!(pools[0].busy, [0, 1]);
        }
    }

    #[test]
    fn where_there_is_room_half_a_core_is_not_enough() {
        let mut scene = Scene::uniform(2, 2);
        scene.thread(1, 10.0, 0).cpu_share = 0.5;
        scene.thread(1, 10.0, 0).cpu_share = 0.95;
        let mut pools = crate::pools::pools(&scene.snapshot, &scene.topology);
        Busy::new(0.9).find(&scene.snapshot, &mut pools);
        assert_eq!(pools[0].busy, [1]);
    }
}
