//! BRM: bias random migration of candidates by the uncore penalty of all.
//!
//! Problem: the best CPU for a thread depends on where its memory is, which threads press on the cache, and
//! which threads it shares data with; each of these alone misleads. Their joint effect is the time that
//! requests to the uncore take (BRM §3). The placement with the shortest time is found by trial (§4).
//!
//! Rule (Algorithm 1, in `brm/algorithm.rs`), each tick of 10 ms, for each candidate
//! ([`crate::candidates`]) that ran:
//! 1. *Update*: its average penalty enters the system-wide penalty ([`crate::uncore`]), which is
//!    recorded as the penalty of the node that the candidate is on. If it was lower on another node, the
//!    candidate becomes more likely to move, otherwise less likely.
//! 2. *Bias random pick*: with that probability it moves to the node with the lowest penalty.
//! 3. After a random time it forgets the penalties of all nodes. A node without a penalty counts as
//!    better than any other, so all nodes are tried again.
//!
//! What the paper leaves open, and what is different on Linux:
//! * *Candidates are held* on their node from the first tick in which they run, and the plan names them
//!   for it: otherwise the kernel would move them between nodes in the middle of a tick, and the penalty
//!   would belong to no node. They are held on the whole node ([`AffinityScope::Node`]): within it the kernel
//!   balances them as it likes, and where it cannot, the governor moves one to an idle node (the paper's
//!   suspended steal, §4.4). A thread that someone else moved simply counts as being on its new node.
//! * *Which threads ran*: Xen ticks on the CPU of the running vCPU, so a sleeping one is neither updated
//!   nor moved. Here a thread ran if it retired an instruction in the interval. An interval is one tick,
//!   however long it is.
//! * *Nodes* are those with online CPUs that the thread may use; other nodes are ignored.
//! * *Which CPU* of a node: the one that threads use and wait for least, then the one whose core
//!   they use least, then the first. Moves of the same tick count.
//! * *After which time* a candidate forgets: from `forget_after_least_ms` to `forget_after_most_ms`, evenly, times
//!   the number of other nodes. Trying a node takes about 12 ticks (the mean number until a probability
//!   that grows by 1 % a tick strikes), and so does leaving it; 0.14 s on the wrong node at the paper's
//!   worst loss (44 %) cost 0.06 s. Every 20 s that is 0.3 %, or 1.2 % if all of the paper's four threads
//!   lose whenever one of them is away. The share does not depend on the number of nodes.
//! * *When they begin*: each candidate at a random time, within 100 ticks for each candidate and
//!   each other node (four times as long as trying a node takes), but at most `forget_after_least_ms`
//!   for each other node. Until then it is held and counts. If all began at once, they would try other nodes
//!   in the same dozen ticks. Each would then record the cost of the others' excursions as the penalty of
//!   its own nodes, and a group that was together would stay scattered until each forgets.
//! * *Lower by how much*: by more than `least_gain` of the system-wide penalty. As printed, any
//!   difference counts: while one thread is away, all others lose by it, and noise alone then moves those
//!   that remember about the same penalty.
//! * *Candidates that come and go* change the mean of the penalties although no thread moved. That is no
//!   reason to move, so recorded penalties exclude it: they are the mean less the sum of all its jumps
//!   for candidates that came or went.
//! * *An average describes one layout*: when a candidate has reached another node, all averages begin
//!   again with the next sample; its own begins with its second sample there, because its caches are cold
//!   during the first (until then it stays, since nothing is known of the node). Otherwise the penalty recorded for a node
//!   on which it spent a few ticks would mostly describe the previous layout. With more than two nodes it would then choose
//!   the wrong one, and the threads that stayed would take the cost of another's excursion for a reason to move: one
//!   excursion scatters a group. `average = "through"` is the other reading.
//! * *Unmanaged threads* and candidates count in the system-wide penalty, since a move may hurt them too.
//!   Unmanaged threads are not moved.
//! * *A thread that is no longer a candidate* is given back to the kernel, which places all others (§4.3).
//!
//! *When they begin*, *lower by how much*, *an average describes one layout* and the middle of *after
//! which time* were chosen with results in sight: the micro-benchmark of §2.2 with 4 MiB of lists
//! and 128 KiB shared, with the penalties that the model predicts for each of its layouts. docs/FIDELITY.md
//! shows the effect (`numaherd reproduce brm`, Fig 8a and 9): threads that share data and start apart
//! come together late, so short runs lose.
//!
//! In *brm-in-turn*, candidates take turns (`brm/turn.rs`). They begin at once, not at random times. They forget after as many
//! times the random time as there are candidates, and whenever another has ended its turn on a new node.
//!
//! Terms: the *uncore* is what is beyond a core's own caches; the *uncore penalty* of a thread is the
//! cycles with a request to it outstanding, per request; the *system-wide penalty* is its mean over
//! candidates; a *candidate* is a thread whose penalty depends on where it is; a *tick* is an interval.
//! Source: Rao, Wang, Zhou, Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore Systems", HPCA
//! 2013: §3 (penalty), §4 and Algorithm 1 (moves), §8 (candidates that are inferred).
//!
//! Properties: plans name only candidates, with CPUs that they may use; a probability is from 0 to 100, and
//! 0 after a move; if penalties depend on its node alone, a thread ends on the node with the least; the same
//! snapshots and the same random numbers give the same plans.
//!
//! Cost: linear in threads; in nodes for each candidate.

use std::time::Duration;

use numaherd_files::{choices, settings};
use numaherd_topology::Topology;
use numaherd_world::{AffinityScope, Signal, Snapshot, Thread};
use rand::Rng;

use crate::candidates::CandidatesBy;
use crate::candidates::{Candidates, Standing};
use crate::memory::PerThread;
use crate::policy::{Needs, Own, Random};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::uncore::SystemPenaltyForm;
use crate::uncore::{self, Average, Part, SystemPenalty};
use crate::words;

mod algorithm;
mod allowed;
mod turn;

pub use algorithm::Steps;
use algorithm::{Picked, Vcpu};
use allowed::{Allowed, AllowedCpus, Loads};
use turn::{Role, Turn};

/// The rules that plans name.
pub const RULES: &[Rule] = &[HOLD, EXPLORE, BIAS, GIVE_BACK];
/// The rules that plans of candidates in turn name.
pub const IN_TURN_RULES: &[Rule] = &[HOLD, EXPLORE, BIAS, TURN, GIVE_BACK];
const HOLD: Rule = Rule {
    name: "brm: hold",
    source: "chosen here",
    what: "A candidate is held on its node, so that its penalty there can be measured; or on another node, if it \
           may no longer run on its own.",
};
const EXPLORE: Rule = Rule {
    name: "brm: explore",
    source: "BRM 4.2, Algorithm 1",
    what: "A candidate goes to a node whose penalty it does not know, or has forgotten.",
};
const BIAS: Rule = Rule {
    name: "brm: bias random pick",
    source: "BRM 4.4, Algorithm 1",
    what: "A candidate goes to the node on which it was when the candidates lost the fewest cycles per request.",
};
const GIVE_BACK: Rule = Rule {
    name: "brm: give back",
    source: "BRM 4.3",
    what: "The thread is no longer a candidate: it gets its own affinity back, and the kernel places it.",
};
const TURN: Rule = Rule {
    name: "brm-in-turn: go on",
    source: "chosen here",
    what: "A candidate that has the turn goes on, or back, to the node with the least penalty.",
};

choices! {
    /// What happens to average penalties when a thread moves to another node: two readings of BRM 5,
    /// which does not say.
    pub enum AverageOver {
        /// All begin again, the thread's own with the second interval there: in the first its caches are cold.
        #[default]
        Anew = "anew",
        /// They continue: for some ten intervals they partly describe the layout before.
        Through = "through",
    }
}

settings! {
    /// Which threads `brm` moves, and how it looks for better nodes.
    #[derive(Copy)]
    pub struct BrmSettings {
        /// What makes a thread a candidate: one that is moved at all.
        candidates: CandidatesBy, source: "BRM 4.3, 8";
        /// Requests to the uncore that make a thread a candidate where no tag decides.
        requests_per_s: f64 = 1e6, unit: "requests per second", range: 0.0..=f64::MAX, source: "chosen here";
        /// A candidate that was on another node, and whose own uncore penalty changed by less than this,
        /// is a candidate no longer.
        least_change: f64 = 0.05, unit: "share of its uncore penalty", range: 0.0..=f64::MAX,
            source: "BRM 8; the figure chosen here";
        /// What a thread knows of nodes is forgotten after a random time: at least this, for each node that
        /// it then has to explore. BRM 4.4 says "random".
        forget_after_least_ms: u64 = 10_000, unit: "ms", range: 1.0..=DAY_MS, because: ", a day", source: "chosen here";
        /// The most that this random time may be, likewise for each node.
        forget_after_most_ms: u64 = 30_000, unit: "ms", range: 1.0..=DAY_MS, because: ", a day", source: "chosen here";
        /// A node counts as better when the system-wide penalty was lower by more than this. BRM prints 0.
        least_gain: f64 = 0.03, unit: "share of the system-wide penalty", range: 0.0..=f64::MAX, source: "chosen here";
        /// What happens to average penalties when a thread moves to another node, which BRM 5 does not say.
        average: AverageOver, source: "BRM 5";
        /// How the probability to move changes on more than two nodes.
        steps: Steps, source: "BRM 4.4; Algorithm 1";
        /// How the system-wide penalty is kept.
        system_penalty: SystemPenaltyForm, source: "BRM 4.2, 8";
    }
    where check = BrmSettings::forget_in_order
}

/// A day in ms, the longest that BRM may remember.
const DAY_MS: f64 = 86_400_000.0;

impl BrmSettings {
    fn forget_in_order(&self, wrong: &mut dyn FnMut(&str, String)) {
        let (least, most) = (self.forget_after_least_ms, self.forget_after_most_ms);
        if most < least {
            let why = format!("must be at least `forget_after_least_ms` ({least}), not {most}");
            wrong("forget_after_most_ms", why);
        }
    }
}

/// How often Xen burns credits and looks whether a vCPU is to be moved (BRM §5).
const TICK: Duration = Duration::from_millis(10);

/// Candidates begin within so many ticks for each candidate and each other node: four times as long as trying a node takes
/// (some 12 until a probability that grows by 1 % a tick strikes, and as many until it strikes again).
const BEGIN_WITHIN_TICKS: u64 = 100;

/// See the top of this file.
#[derive(Debug)]
pub struct Brm {
    settings: BrmSettings,
    candidates: Candidates,
    threads: PerThread<Known>,
    /// Made when the machine is first seen, and anew if it ever has another number of nodes.
    system: Option<(usize, SystemPenalty)>,
    /// How much the system-wide penalty has jumped for candidates that came or went, in cycles per
    /// request.
    jumped: f64,
    /// Whether candidates take turns (`brm/turn.rs`), and whose it is.
    in_turn: bool,
    turn: Option<Turn>,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct Known {
    average: Average,
    /// The node that the average is of, and the last that it came to, by their places in the
    /// topology.
    average_of: Option<usize>,
    came_to: Option<usize>,
    /// Whether the average is of another layout than the present one.
    stale: bool,
    /// The node (by its place in the topology) whose total it counts in, and what it added there.
    counted: Option<(usize, Part)>,
    vcpu: Vcpu,
    /// When it begins to take part, in ns of the snapshots' time.
    begins_ns: Option<u64>,
    /// When it forgets what it knows of nodes, in ns of the snapshots' time.
    forgets_ns: Option<u64>,
}

/// A thread in one interval.
struct Now<'a> {
    thread: &'a Thread,
    candidate: bool,
    /// The node it is on, by its place in the topology.
    node: Option<usize>,
    /// Its uncore penalty in the interval, in cycles per request.
    sample: Option<f64>,
}

impl<'a> Now<'a> {
    fn new(thread: &'a Thread, standing: Standing, topology: &Topology) -> Self {
        let node = topology.node_of(thread.cpu);
        Self {
            thread,
            candidate: standing.is_candidate(),
            node: node.and_then(|node| topology.node_index(node)),
            sample: thread.counts.as_ref().and_then(uncore::sample),
        }
    }

    fn ran(&self) -> bool {
        let counts = self.thread.counts;
        counts.is_some_and(|counts| counts.instructions > 0)
    }
}

impl Brm {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.brm,
            candidates: Candidates::new(settings),
            threads: PerThread::default(),
            system: None,
            jumped: 0.0,
            in_turn: false,
            turn: None,
        }
    }

    /// Nothing seen yet; one candidate at a time.
    pub fn in_turn(settings: &Settings) -> Self {
        Self {
            in_turn: true,
            ..Self::new(settings)
        }
    }
}

impl PlacementRule for Brm {
    fn needs(&self) -> Needs<'_> {
        Needs {
            own: Own {
                interval: Some(TICK),
                scope: Some(AffinityScope::Node),
            },
            ..Needs::of(&[Signal::CpuUse, Signal::UncorePenalty])
        }
    }

    fn seat(&mut self, stage: &Stage<'_>, random: &mut Random) -> Vec<Seat> {
        let (snapshot, topology) = (stage.snapshot, stage.topology);
        let nodes = topology.nodes().len();
        if self.system.as_ref().is_none_or(|&(of, _)| of != nodes) {
            let system = SystemPenalty::new(self.settings.system_penalty, nodes);
            self.system = Some((nodes, system));
            self.threads = PerThread::default();
        }
        let (_, system) = self.system.as_mut().expect("made above");

        // Threads come and go; none has moved yet.
        let before = system.mean();
        let threads = self.threads.line_up_without(&snapshot.threads, |gone| {
            if let Some((node, part)) = gone.counted {
                system.at(node).remove(part);
            }
        });
        let standings = self.candidates.judge(snapshot, topology);
        let all = snapshot.threads.iter().zip(standings);
        let all: Vec<Now<'_>> = all
            .map(|(thread, &standing)| Now::new(thread, standing, topology))
            .collect();
        let mut both = threads.iter().zip(&all);
        let other_layout = both.any(|(known, now)| now.candidate && known.arrives(now));
        for (known, now) in threads.iter_mut().zip(&all) {
            known.learn(now, self.settings.average, other_layout);
            known.come_or_go(now, system);
        }
        let jump = system.mean().zip(before);
        self.jumped += jump.map_or(0.0, |(after, before)| after - before);
        system.tick();

        let allowed = Allowed::new(stage);
        let mut loads = Loads::new(snapshot, topology);
        let mut seats = Vec::new();
        self.turn = self.turn.and_then(|turn| turn.tick(snapshot));
        let mut changed_by = None;
        let candidates = all.iter().filter(|now| now.candidate).count() as u64;
        for (at, now) in all.iter().enumerate().filter(|(_, now)| now.candidate) {
            let known = &mut threads[at];
            known.count(system);
            let (Some(cpus), Some(node), true) = (allowed.of(at), now.node, now.ran()) else {
                continue;
            };
            let role = self
                .turn
                .map_or(Role::Free, |turn| turn.role(now.thread.id));
            let takes_part = self.in_turn
                || known.takes_part(&self.settings, snapshot, candidates, cpus, random);
            if takes_part {
                let each = if self.in_turn { candidates } else { 1 };
                known.forget_in_time(&self.settings, cpus, each, snapshot.time_ns, random);
            }
            let takes_part = takes_part && role != Role::Waits;
            let measured = takes_part && known.is_measured_on(node, self.settings.average);
            let mean = system.seen_from(node).filter(|_| measured);
            let picked = mean.and_then(|mean| {
                let (vcpu, penalty) = (&mut known.vcpu, mean - self.jumped);
                let least_gain = mean * self.settings.least_gain;
                vcpu.update(node, &cpus.nodes, penalty, least_gain, self.settings.steps);
                let picked = match role {
                    Role::Decides => vcpu.best(node),
                    Role::Free | Role::Waits => vcpu.bias_random_pick(random)?,
                };
                (picked.node != node).then_some((penalty, picked))
            });
            if role == Role::Decides && mean.is_some() && picked.is_none() {
                let over = self.turn.take().filter(|turn| turn.has_changed(node));
                changed_by = over.map(|_| at);
            }
            seats.extend(match picked {
                Some((penalty, picked)) => {
                    match &mut self.turn {
                        Some(turn) => turn.moves(),
                        None if self.in_turn => {
                            self.turn = Some(Turn::begins(now.thread.id, node));
                        }
                        None => {}
                    }
                    let there = known.vcpu.penalty_on(picked.node);
                    let reason = because(&picked, penalty, there, self.jumped, node, topology);
                    Some(to_node(now, picked.node, reason, cpus, &mut loads))
                }
                None => hold(now, cpus, &mut loads, topology),
            });
        }
        if let Some(mover) = changed_by {
            let others = threads.iter_mut().enumerate();
            for (_, known) in others.filter(|&(at, _)| at != mover) {
                known.vcpu.forget();
            }
        }
        seats
    }

    fn give_back(&self, _: &Stage<'_>, thread: usize) -> Option<Reason> {
        let standing = self.candidates.standing(thread);
        let no_candidate =
            || GIVE_BACK.because(words!("{standing}", standing = standing.to_string()));
        (!standing.is_candidate()).then(no_candidate)
    }
}

impl Known {
    /// Takes in a thread's interval, and updates whether it counts in the system-wide penalty: a candidate that has an
    /// average counts on its node. Only [`Known::count`] changes how much it counts.
    fn come_or_go(&mut self, now: &Now<'_>, system: &mut SystemPenalty) {
        let counts_in = now.node.filter(|_| now.candidate).zip(self.average.value());
        let counted = counts_in.map(|(node, cycles)| match self.counted {
            Some((_, part)) => (node, part),
            None => (node, Part::of_cycles(cycles)),
        });
        if counted != self.counted {
            if let Some((node, part)) = self.counted {
                system.at(node).remove(part);
            }
            if let Some((node, part)) = counted {
                system.at(node).add(part);
            }
            self.counted = counted;
        }
        if !now.candidate {
            self.vcpu = Vcpu::default();
            (self.begins_ns, self.forgets_ns) = (None, None);
        }
    }

    /// Whether it is seen to run on another node for the first time.
    fn arrives(&self, now: &Now<'_>) -> bool {
        now.sample.is_some() && self.came_to.is_some() && self.came_to != now.node
    }

    /// Takes in the sample of an interval, if there is one; see the top, *an average describes one layout*.
    fn learn(&mut self, now: &Now<'_>, over: AverageOver, other_layout: bool) {
        self.stale |= other_layout;
        let Some(sample) = now.sample else {
            return;
        };
        let arrives = self.arrives(now);
        self.came_to = now.node;
        match over {
            AverageOver::Anew if arrives => return,
            AverageOver::Anew if self.stale => self.average.restart(sample),
            _ => self.average.observe(Some(sample)),
        }
        (self.average_of, self.stale) = (now.node, false);
    }

    /// Whether its average says anything about that node.
    fn is_measured_on(&self, node: usize, over: AverageOver) -> bool {
        match over {
            AverageOver::Anew => self.average_of == Some(node),
            AverageOver::Through => self.average_of.is_some(),
        }
    }

    /// Line 16: brings the system-wide penalty up to date with the thread's average.
    fn count(&mut self, system: &mut SystemPenalty) {
        if let (Some((node, part)), Some(cycles)) = (&mut self.counted, self.average.value()) {
            let now = Part::of_cycles(cycles);
            system.at(*node).update(*part, now);
            *part = now;
        }
    }

    /// Whether it takes part yet: see the top, *when they begin*.
    fn takes_part(
        &mut self,
        settings: &BrmSettings,
        snapshot: &Snapshot,
        candidates: u64,
        cpus: &AllowedCpus,
        random: &mut Random,
    ) -> bool {
        let begins_ns = *self.begins_ns.get_or_insert_with(|| {
            let each = snapshot.interval_ns.saturating_mul(BEGIN_WITHIN_TICKS);
            let most = settings.forget_after_least_ms * 1_000_000;
            let within = each.saturating_mul(candidates).min(most) * cpus.others();
            snapshot
                .time_ns
                .saturating_add(random.random_range(0..=within))
        });
        snapshot.time_ns >= begins_ns
    }

    /// The timer of §4.4: forgets what is known of nodes after a random time.
    fn forget_in_time(
        &mut self,
        settings: &BrmSettings,
        cpus: &AllowedCpus,
        times: u64,
        now_ns: u64,
        random: &mut Random,
    ) {
        if self.forgets_ns.is_some_and(|at| now_ns < at) {
            return;
        }
        if self.forgets_ns.is_some() {
            self.vcpu.forget();
        }
        let ms = settings.forget_after_least_ms..=settings.forget_after_most_ms;
        let period_ns = random.random_range(ms) * 1_000_000 * cpus.others() * times;
        self.forgets_ns = Some(now_ns.saturating_add(period_ns));
    }
}

/// Lines 32 and 11: chooses a core in that node, and moves the thread there.
fn to_node(
    now: &Now<'_>,
    node: usize,
    reason: Reason,
    cpus: &AllowedCpus,
    loads: &mut Loads<'_>,
) -> Seat {
    let cpu = loads.least(cpus.cpus_of(node));
    loads.moves(now.thread, cpu);
    Seat {
        thread: now.thread.id,
        cpu,
        reason,
    }
}

/// Why a candidate moves, and what it moves from. Penalties are given as the mean of the present candidates.
fn because(
    picked: &Picked,
    here: f64,
    there: Option<f64>,
    jumped: f64,
    node: usize,
    topology: &Topology,
) -> Reason {
    let id = |node: usize| topology.nodes()[node].id;
    let (from, to) = (id(node), id(picked.node));
    let chance = match picked.probability {
        Some(percent) => words!("drawn with a probability of {percent} %", percent),
        None => words!("it is its turn"),
    };
    let (rule, why) = match there {
        None => (
            EXPLORE,
            words!("nothing is known of node {to} (any more); ", to),
        ),
        Some(there) => {
            let why = words!(
                "candidates lost {then} cycles per request when it was last on node {to}; ",
                then = there + jumped,
                to,
            );
            (
                if picked.probability.is_some() {
                    BIAS
                } else {
                    TURN
                },
                why,
            )
        }
    };
    rule.because(why.and(chance)).instead_of(words!(
        "stay on node {from}, where candidates lose {now} cycles per request",
        from,
        now = here + jumped,
    ))
}

/// Seats a candidate that has no core, or none that it may use, so that it is held from now on.
fn hold(
    now: &Now<'_>,
    cpus: &AllowedCpus,
    loads: &mut Loads<'_>,
    topology: &Topology,
) -> Option<Seat> {
    let thread = now.thread;
    if thread.assigned.is_some_and(|core| cpus.all.contains(core)) {
        return None;
    }
    let at_home = now.node.filter(|node| cpus.nodes.contains(node));
    let cpu = match at_home {
        _ if cpus.all.contains(thread.cpu) => thread.cpu,
        Some(node) => loads.least(cpus.cpus_of(node)),
        None => loads.least(cpus.all.iter()),
    };
    loads.moves(thread, cpu);
    let node = topology.node_of(cpu).expect("a CPU of the machine");
    let why = match at_home {
        Some(_) => words!(
            "it is on node {node}, and its penalty belongs to that node while it stays there",
            node
        ),
        None => words!(
            "it may no longer use a CPU of its node; node {node} is the least used",
            node
        ),
    };
    Some(Seat {
        thread: thread.id,
        cpu,
        reason: HOLD.because(why),
    })
}

#[cfg(test)]
mod tests;
