//! What an action costs, and what is seen of it until it is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::{Pages, ProcessId, ThreadId};

use super::past::{Past, touched};
use super::search::Candidate;
use super::{JUDGED_AFTER, SETTLES_AFTER};
use crate::estimate::{Load, Lost, Measured, Memory, Owner, Picture};
use crate::stage::Stage;

/// Pages count as still moving while that takes more than this share of the time (chosen here).
const STILL_MOVES: f64 = 0.01;

/// For how many ns, at most, threads that do something else than before are watched (chosen here).
const UNCLEAR_AFTER: u64 = 4 * JUDGED_AFTER;
/// The share of their time in which threads must do what they did before for their speeds to be compared (chosen here).
const CLEAR: f64 = 0.5;

/// A process whose memory has grown by more than this share does something else than before (chosen here).
const GROWN: f64 = 0.25;

/// The error of an expected gain besides the gain itself, as a share of threads' speed (chosen here).
const ERROR: f64 = 0.05;

/// What a thread's move costs it at least, in ns: the kernel's part (chosen here).
const MOVE_NS: f64 = 100_000.0;
/// What each line that a moved thread reads anew costs it, in ns (chosen here).
const LINE_NS: f64 = 100.0;

/// What was done, and how fast threads were before and have been since.
pub(super) struct Action {
    /// The threads as they were before.
    pub(super) before: Arc<Picture>,
    /// How they were laid out.
    pub(super) layout: Candidate,
    /// Threads that moved, with the CPU that they came from.
    pub(super) moved: Vec<(ThreadId, CpuId)>,
    /// Threads that were held where they were, and had not been before.
    pub(super) held: Vec<ThreadId>,
    /// Memory that moves.
    pub(super) followed: Vec<Follow>,
    /// What each process was charged, in ns.
    pub(super) charged: Vec<(ProcessId, f64)>,
    /// By what share all threads were expected to become faster.
    expected: f64,
    /// When it is carried out and caches are filled, in ns. Intervals that began earlier do not count.
    settled_ns: u64,
    /// What was seen before.
    past: Past,
    /// What was seen of each thread since the action settled.
    since: BTreeMap<ThreadId, Since>,
    /// Intervals since it settled.
    intervals: u32,
}

/// What was seen of a thread since an action settled.
#[derive(Clone, Copy, Default)]
struct Since {
    /// ns on a CPU.
    ran: f64,
    /// ns on a CPU in intervals for which the past has a look in which it did the same.
    alike: f64,
    /// The sum over these intervals of ns times the speed, as a multiple of that look's.
    times: f64,
    /// Of intervals in which it did the same as in the last look before the action: ns on a CPU, instructions, and lines
    /// from memory per 1000 times these.
    as_last: AsLast,
}

/// See [`Since::as_last`].
#[derive(Clone, Copy, Default)]
struct AsLast {
    ran: f64,
    instructions: f64,
    lines: f64,
}

/// What came of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// How many times as fast threads were as when they did the same before: the mean, weighted by CPU time.
    Counted(f64),
    /// Threads do something else than they did before: how fast they are says nothing about the action.
    Unclear,
    /// No speed was counted.
    Unknown,
}

/// How a process's own memory was ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ordered {
    /// These pages to one node.
    ToOne(Pages),
    /// All of it over the nodes of its threads; samples then show who uses what.
    Dealt,
    /// Not at all: samples show where pages belong, so many of them at most if not all.
    AsUsed(Option<u64>),
}

/// Memory that moves.
pub(super) struct Follow {
    pub(super) process: ProcessId,
    /// What becomes of its memory.
    pub(super) memory: Memory,
    /// How its own memory was ordered.
    pub(super) ordered: Ordered,
    /// Its pages by node (place) at the last look; at first, before any moved.
    pages: Vec<u64>,
    /// The node (place) other than `home` that most of its own memory was on.
    pub(super) from: usize,
    /// The node (place) that most of its common memory was on.
    pub(super) common_from: usize,
}

impl Follow {
    /// Memory that moves: to the node `home` (place), or to several.
    pub(super) fn new(
        owner: &Owner,
        memory: Memory,
        home: Option<usize>,
        ordered: Ordered,
    ) -> Self {
        let most = |pages: &[u64], but: Option<usize>| {
            let nodes = (0..pages.len()).filter(|&node| Some(node) != but);
            nodes.max_by_key(|&node| pages[node]).unwrap_or(0)
        };
        Self {
            process: owner.id,
            memory,
            ordered,
            pages: owner.all_pages().collect(),
            from: most(&owner.pages, home),
            common_from: most(&owner.common, None),
        }
    }

    /// Whether its own memory goes to several nodes, as it is used.
    pub(super) fn is_by_use(&self) -> bool {
        self.memory.follows > 0 && !matches!(self.ordered, Ordered::ToOne(_))
    }

    /// Pages that have moved since the last look: the sum of how many more each node has.
    fn moved(&mut self, picture: &Picture) -> u64 {
        let owner = (picture.processes.iter()).find(|owner| owner.id == self.process);
        owner.map_or(0, |owner| {
            let before = std::mem::replace(&mut self.pages, owner.all_pages().collect());
            let more = before.iter().zip(&self.pages);
            more.map(|(before, now)| now.saturating_sub(*before)).sum()
        })
    }
}

impl Action {
    /// A layout that is to be carried out now.
    pub(super) fn new(
        before: Arc<Picture>,
        layout: Candidate,
        charged: Vec<(ProcessId, f64)>,
        expected: f64,
        past: Past,
    ) -> Self {
        Self {
            expected,
            intervals: 0,
            past,
            before,
            layout,
            moved: Vec::new(),
            held: Vec::new(),
            followed: Vec::new(),
            charged,
            settled_ns: 0,
            since: BTreeMap::new(),
        }
    }

    /// Begins at `now_ns`; returns for how many ns it is carried out. One thread moves all pages, one after the other.
    pub(super) fn begin(&mut self, now_ns: u64) -> u64 {
        let (memory, cpus) = (&self.layout.memory, &self.layout.cpus);
        let own: f64 = (0..memory.len())
            .map(|process| self.before.following(process, memory[process], cpus))
            .sum();
        // Common memory moves once.
        let over = self.before.spread_over(memory, cpus);
        let spreads = (0..memory.len()).filter(|&process| memory[process].spreads);
        let common = spreads.map(|process| self.before.spreading(process, memory, &over));
        let pages = own + common.fold(0.0, f64::max);
        let takes_ns = SETTLES_AFTER + (pages * self.before.page_move_ns) as u64;
        self.settled_ns = now_ns.saturating_add(takes_ns);
        takes_ns
    }

    /// Takes in an interval. Returns whether the action can be judged now.
    pub(super) fn watch(&mut self, stage: &Stage<'_>, picture: &Picture) -> bool {
        let (now_ns, interval_ns) = (stage.snapshot.time_ns, stage.snapshot.interval_ns);
        let moved: u64 = (self.followed.iter_mut())
            .map(|follow| follow.moved(picture))
            .sum();
        if moved as f64 * picture.page_move_ns > STILL_MOVES * interval_ns as f64 {
            // Longer than estimated: accesses to the pages are sampled first.
            self.settled_ns = self.settled_ns.max(now_ns);
            self.since.clear();
            self.intervals = 0;
        }
        if now_ns.saturating_sub(interval_ns) < self.settled_ns {
            return false;
        }
        self.intervals += 1;
        let lasted_ns = interval_ns as f64;
        let grown = self.grown(picture);
        for load in picture.threads.iter().filter(|load| load.speed > 0.0) {
            let ran_ns = stage.thread(load.at).cpu_share * lasted_ns;
            let since = self.since.entry(load.id).or_default();
            since.ran += ran_ns;
            if grown.contains(&load.process) {
                continue;
            }
            if let Some(speed) = self.past.speed(load) {
                since.alike += ran_ns;
                since.times += ran_ns * load.speed / speed;
            }
            if self
                .before
                .thread(load.id)
                .is_some_and(|before| before.does_as(load))
            {
                let instructions = load.speed * ran_ns;
                since.as_last.ran += ran_ns;
                since.as_last.instructions += instructions;
                since.as_last.lines += load.lines * instructions;
            }
        }
        let seen_ns = now_ns.saturating_sub(self.settled_ns);
        let is_clear = self.verdict() != Verdict::Unclear;
        seen_ns
            >= match is_clear {
                true => JUDGED_AFTER,
                false => self.unclear_after(),
            }
    }

    /// The processes (places now) whose memory has grown since: caches hold less of it, wherever their threads run.
    fn grown(&self, picture: &Picture) -> BTreeSet<usize> {
        let pages = |owner: &Owner| owner.all_pages().sum::<u64>() as f64;
        let before = self.before.processes.iter();
        let before: BTreeMap<ProcessId, f64> = before.map(|one| (one.id, pages(one))).collect();
        let has_grown = |owner: &Owner| {
            let before = before.get(&owner.id);
            before.is_some_and(|before| pages(owner) > before * (1.0 + GROWN))
        };
        let all = picture.processes.iter().enumerate();
        all.filter_map(|(at, owner)| has_grown(owner).then_some(at))
            .collect()
    }

    /// For how many ns threads that do something else are watched: no longer than they had been seen before.
    fn unclear_after(&self) -> u64 {
        let touched = touched(&self.before, &self.layout).into_iter();
        let seen = touched.map(|at| self.before.threads[at].age_ns).min();
        seen.unwrap_or(UNCLEAR_AFTER)
            .clamp(JUDGED_AFTER, UNCLEAR_AFTER)
    }

    /// What was measured since the action settled of each thread of [`Self::before`], while it did the same as then.
    pub(super) fn measured(&self) -> Vec<Measured> {
        let of = |load: &Load| match self.since.get(&load.id).map(|since| since.as_last) {
            Some(seen) if seen.instructions > 0.0 => Measured {
                speed: seen.instructions / seen.ran,
                lines: seen.lines / seen.instructions,
            },
            _ => Measured::default(),
        };
        self.before.threads.iter().map(of).collect()
    }

    /// How fast threads have been since the action settled. The threads that it touched must do what they did before.
    pub(super) fn verdict(&self) -> Verdict {
        let sum = |all: Since, at: usize| match self.since.get(&self.before.threads[at].id) {
            Some(since) => Since {
                ran: all.ran + since.ran,
                alike: all.alike + since.alike,
                times: all.times + since.times,
                ..all
            },
            None => all,
        };
        let touched = touched(&self.before, &self.layout).into_iter();
        let touched = touched.fold(Since::default(), sum);
        let all = (0..self.before.threads.len()).filter(|&at| self.before.threads[at].speed > 0.0);
        let all = all.fold(Since::default(), sum);
        match all.alike {
            _ if all.ran == 0.0 => Verdict::Unknown,
            0.0 => Verdict::Unclear,
            _ if touched.alike < touched.ran * CLEAR => Verdict::Unclear,
            alike => Verdict::Counted(all.times / alike),
        }
    }

    /// Whether the action counts as a gain, if all threads became so many times as fast.
    pub(super) fn has_gained(&self, times: f64) -> bool {
        let by_chance = self.past.by_chance();
        has_gained(times - 1.0, self.intervals, self.expected, by_chance)
    }

    /// Cores that putting threads back would gain, by the present estimates; `None` if memory moved.
    pub(super) fn regret(&self, picture: &Picture) -> Option<f64> {
        if !self.followed.is_empty() {
            return None;
        }
        let mut cpus = picture.now();
        for &(thread, cpu) in &self.moved {
            if let Some(at) = picture.place(thread) {
                cpus[at] = cpu;
            }
        }
        let stays = vec![Memory::default(); picture.processes.len()];
        let lost = |lost: &Lost| lost.iter().sum::<f64>() / lost.len() as f64;
        Some(lost(&picture.lost_now()) - lost(&picture.lost(&cpus, &stays)))
    }
}

/// Whether there is a gain, if threads became faster by the share `seen` over so many intervals, and were expected to by
/// `expected`. The variance of `expected` is its own square plus that of [`ERROR`]; `by_chance` is that of one interval.
/// The mean of both shares, each weighted by the inverse of its variance, decides.
fn has_gained(seen: f64, intervals: u32, expected: f64, by_chance: f64) -> bool {
    let error = expected.powi(2) + ERROR.powi(2);
    expected / error + seen * f64::from(intervals) / by_chance > 0.0
}

/// What a layout costs a process for the moves of its threads, in ns.
pub(super) fn moving(picture: &Picture, process: usize, cpus: &[CpuId]) -> f64 {
    let threads = picture.processes[process].threads.iter();
    let loads = threads.map(|&at| (&picture.threads[at], cpus[at]));
    let moved = loads.filter(|&(load, cpu)| picture.is_move(load, cpu));
    moved
        .map(|(load, _)| MOVE_NS + load.held / 64.0 * LINE_NS)
        .sum()
}

/// What the candidate costs each process that it touches, in ns.
pub(super) fn costs(picture: &Picture, candidate: &Candidate) -> Vec<(ProcessId, f64)> {
    let mut costs: BTreeMap<usize, f64> = BTreeMap::new();
    for process in 0..picture.processes.len() {
        let cost = moving(picture, process, &candidate.cpus);
        if cost > 0.0 {
            costs.insert(process, cost);
        }
    }
    // Common memory is charged to each process: all wait while it moves.
    let over = picture.spread_over(&candidate.memory, &candidate.cpus);
    for (process, memory) in candidate
        .memory
        .iter()
        .enumerate()
        .filter(|(_, m)| m.moves())
    {
        let mut pages = picture.following(process, *memory, &candidate.cpus);
        if memory.spreads {
            pages += picture.spreading(process, &candidate.memory, &over);
        }
        *costs.entry(process).or_default() += pages * picture.page_cost_ns();
    }
    let by_id = |(process, cost): (usize, f64)| (picture.processes[process].id, cost);
    costs.into_iter().map(by_id).collect()
}

#[cfg(test)]
mod tests {
    use numaherd_testing::{all_pages, moved};
    use numaherd_world::PageOutcome;

    use super::super::search::{self, Balanced};
    use super::super::tests::{adaptive, buffers, page_orders_of, program, scene};
    use super::*;
    use crate::estimate::Estimator;
    use crate::policy::Place;

    #[test]
    fn memory_stays_where_moving_pages_has_taken_longer_than_it_may_cost() {
        let orders = |each_ns: u64| {
            let mut scene = buffers(false);
            let mut adaptive = adaptive();
            let order = all_pages(&scene.snapshot.threads[0], 1);
            adaptive.moved(&[PageOutcome {
                took_ns: 1_000_000 * each_ns,
                ..moved(&order, 1_000_000)
            }]);
            page_orders_of(&mut adaptive, &mut scene).len()
        };
        // Each process has some 4100 pages, and 100 ms at first.
        assert!(orders(1_000) > 0);
        assert_eq!(orders(1_000_000), 0);
    }

    /// For how long a program is watched, in ms, that is moved when it had been seen for so many, and has done something
    /// else since.
    fn watched_ms(seen_ms: u64) -> u64 {
        let look = |lines: f64| {
            let mut scene = scene();
            program(&mut scene, 1, 0, lines, 0);
            let stage = Stage::of_all(&scene.snapshot, &scene.topology);
            let picture = Estimator::default().observe(&stage);
            (picture, scene)
        };
        let (mut before, _) = look(100.0);
        let (since, mut scene) = look(10.0);
        before.threads[0].age_ns = seen_ms * 1_000_000;
        let before = Arc::new(before);
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let mut past = Past::default();
        past.see(&before, scene.snapshot.time_ns, scene.snapshot.interval_ns);
        let balanced = Balanced::of(&stage, &before);
        let mut layout = search::best(&stage, &before, Vec::new(), &[f64::INFINITY], balanced, 1);
        layout.cpus = vec![CpuId(2)];
        let mut action = Action::new(before, layout, Vec::new(), 0.1, past);
        scene.snapshot.time_ns += action.begin(scene.snapshot.time_ns);
        scene.snapshot.interval_ns = 50_000_000;
        let began_ns = scene.snapshot.time_ns;
        loop {
            scene.snapshot.time_ns += scene.snapshot.interval_ns;
            if action.watch(&Stage::of_all(&scene.snapshot, &scene.topology), &since) {
                assert_eq!(action.verdict(), Verdict::Unclear);
                return (scene.snapshot.time_ns - began_ns) / 1_000_000;
            }
        }
    }

    #[test]
    fn what_does_something_else_is_watched_no_longer_than_it_was_seen_before() {
        assert_eq!(watched_ms(100), JUDGED_AFTER / 1_000_000);
        assert_eq!(watched_ms(400), 400);
        assert_eq!(watched_ms(5000), UNCLEAR_AFTER / 1_000_000);
    }

    #[test]
    fn the_less_is_known_by_chance_the_more_must_be_lost_before_an_action_counts_as_failed() {
        // Where hardly anything is by chance, any loss.
        assert!(!has_gained(-0.001, 1, 0.02, 1e-6));
        assert!(has_gained(0.001, 1, 0.02, 1e-6));
        // With a standard deviation of 5 %, 1.7 % where 2 % were expected, and less the more was seen.
        assert!(has_gained(-0.017, 1, 0.02, 0.0025));
        assert!(!has_gained(-0.018, 1, 0.02, 0.0025));
        assert!(!has_gained(-0.006, 3, 0.02, 0.0025));
        // What was expected counts most where it is much beside its error, and not too much to be true.
        assert!(has_gained(-0.02, 1, 0.06, 0.0025));
        assert!(!has_gained(-0.02, 1, 0.5, 0.0025));
    }
}
