//! What brm's decisions on its micro-benchmark rest on (§4.2, §4.4, Fig 8a): `numaherd reproduce brm --decisions`.
//!
//! A candidate remembers one figure of each node: the penalty of all candidates when it was last there. That figure
//! belongs to a *layout*, which also says where the others were. The threads are alike, so a layout is the number of
//! threads on node 0, and there are five; the cost of each is measured with threads bound. Each move of a run is then
//! compared with them:
//!
//! * It is *to see* if the candidate knew nothing of the node, and *by memory* if it did.
//! * What it remembered is of the *same* layout if as many of the others are on node 0 as when it was last on that
//!   node, and of *another* layout if not.
//! * It is *right* if the layout that it leads to takes less time than the one that it leaves.
//!
//! `brm-in-turn` shows what changes if candidates move one at a time, and forget what they know of nodes whenever
//! another has changed the layout.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use numaherd_experiment::statistics::{mean, smallest};
use numaherd_experiment::table::{Table, figure, percent};
use numaherd_herd::ledger::Record;
use numaherd_model::{Job, Until};
use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Plan, Snapshot, ThreadId};
use rayon::prelude::*;

use super::micro::{COMBINED_MIB, MIB, SHARED};
use super::readings::READINGS;
use super::setup::{BRM, IN_TURN, Memory, Setup, Sizes, on_xen};
use crate::reproduce::inputs::Inputs;
use crate::reproduce::testbed::{Effort, increase};

/// Threads of the micro-benchmark, each with a core of its own on either node.
const THREADS: usize = 4;
/// The rule of a move to a node of which nothing is known.
const TO_SEE: &str = "brm: explore";
/// Those of a move to a node that is remembered.
const BY_MEMORY: [&str; 2] = ["brm: bias random pick", "brm-in-turn: go on"];

/// The factor by which a layout may take longer than the best and still be as good.
const AS_GOOD: f64 = 1.01;

/// What a layout costs, threads bound.
struct Layout {
    seconds: f64,
    penalty: f64,
}

/// The layouts of a working set, by the number of threads on node 0.
struct Layouts {
    sizes: Sizes,
    by_count: Vec<Layout>,
}

impl Layouts {
    fn of(setup: &Setup, set_mib: u64) -> Result<Self> {
        let sizes = Sizes {
            lists: set_mib * MIB,
            shared: SHARED,
        };
        let layout = |count: usize| {
            let outcome = setup.outcome(sizes, Memory::Wide, [count, THREADS - count])?;
            Ok(Layout {
                seconds: outcome.seconds,
                penalty: outcome.uncore_penalty.unwrap_or(f64::NAN),
            })
        };
        Ok(Self {
            sizes,
            by_count: (0..=THREADS).map(layout).collect::<Result<_>>()?,
        })
    }

    /// Whether none is better by more than [`AS_GOOD`]. Of small sets, both layouts on a single node are best.
    fn is_best(&self, count: usize) -> bool {
        let least = smallest(self.by_count.iter().map(|layout| &layout.seconds));
        self.by_count[count].seconds <= least * AS_GOOD
    }

    fn is_better(&self, to: usize, from: usize) -> bool {
        self.by_count[to].seconds < self.by_count[from].seconds
    }
}

/// Moves of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moves {
    all: u32,
    right: u32,
}

impl Moves {
    fn count(&mut self, right: bool) {
        self.all += 1;
        self.right += u32::from(right);
    }

    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.right += other.right;
    }

    /// How many, and which share of them was right.
    fn text(self, runs: f64) -> String {
        match self.all {
            0 => "0".to_owned(),
            all => {
                let share = f64::from(self.right) / f64::from(all);
                format!("{:.1} ({} %)", f64::from(all) / runs, percent(share))
            }
        }
    }
}

/// A thread as it is followed through a run.
#[derive(Default)]
struct Followed {
    /// The node that it is on.
    on: usize,
    /// How many of the others were on node 0 when it was last on each node.
    others: [Option<usize>; 2],
}

/// A run, as reconstructed from its decisions.
#[derive(Default)]
struct Run {
    threads: BTreeMap<ThreadId, Followed>,
    ticks: u32,
    ticks_at_best: u32,
    to_see: Moves,
    same_layout: Moves,
    other_layout: Moves,
}

impl Run {
    fn on_node_0(&self) -> usize {
        let threads = self.threads.values();
        threads.filter(|thread| thread.on == 0).count()
    }

    fn sees(&mut self, snapshot: &Snapshot, topology: &Topology, layouts: &Layouts) {
        let node = |cpu| {
            topology
                .node_of(cpu)
                .and_then(|node| topology.node_index(node))
        };
        let known = std::mem::take(&mut self.threads);
        for thread in &snapshot.threads {
            let others = known.get(&thread.id).map(|known| known.others);
            let now = Followed {
                on: node(thread.cpu).unwrap_or(0),
                others: others.unwrap_or_default(),
            };
            self.threads.insert(thread.id, now);
        }
        let all = self.on_node_0();
        for thread in self.threads.values_mut() {
            thread.others[thread.on] = Some(all - usize::from(thread.on == 0));
        }
        // The first and the last threads of a run are alone on the machine.
        if self.threads.len() == THREADS {
            self.ticks += 1;
            self.ticks_at_best += u32::from(layouts.is_best(all));
        }
    }

    fn decides(&mut self, plan: &Plan, topology: &Topology, layouts: &Layouts) {
        if self.threads.len() != THREADS {
            return;
        }
        let from = self.on_node_0();
        for placement in &plan.placements {
            let to_see = placement.rule == TO_SEE;
            let by_memory = BY_MEMORY.contains(&&*placement.rule);
            let (Some(thread), true) = (self.threads.get(&placement.thread), to_see || by_memory)
            else {
                continue;
            };
            let to_node = topology.node_of(placement.to).unwrap_or(NodeId(0));
            let to_node = topology.node_index(to_node).unwrap_or(0);
            let others = from - usize::from(thread.on == 0);
            let right = layouts.is_better(others + usize::from(to_node == 0), from);
            let is_same = thread.others[to_node] == Some(others);
            let moves = match (to_see, is_same) {
                (true, _) => &mut self.to_see,
                (false, true) => &mut self.same_layout,
                (false, false) => &mut self.other_layout,
            };
            moves.count(right);
        }
    }
}

/// Runs a job under a policy, and gives its time with what was decided.
fn watch(
    setup: &Setup,
    policy: &str,
    job: &Job,
    seed: u64,
    layouts: &Layouts,
) -> Result<(f64, Run)> {
    let workload = on_xen(vec![job.clone()], Until::Completions(1));
    let topology = setup.testbed.hardware.topology();
    let mut run = Run::default();
    let watcher = |record: &Record| match record {
        Record::Snapshot(snapshot) => run.sees(snapshot, topology, layouts),
        Record::Placing(placing) => run.decides(&placing.plan, topology, layouts),
        _ => {}
    };
    let model = setup.testbed.watch(policy, &workload, seed, watcher)?;
    let completions = model.completions();
    let first = completions.first().context("the benchmark did not end")?;
    Ok((first.thread_s, run))
}

/// The tables.
///
/// # Errors
/// A run fails.
pub fn tables(effort: &Effort) -> Result<String> {
    let setup = Setup::new(&Inputs::default())?;
    let sets = COMBINED_MIB.into_par_iter();
    let layouts: Vec<Layouts> = sets
        .map(|set| Layouts::of(&setup, set))
        .collect::<Result<_>>()?;
    let mut text = costs(&layouts);
    let (printed, change) = READINGS[3];
    let readings = [
        ("brm", BRM, setup.with(|_| {})),
        (printed, BRM, setup.with(change)),
        ("brm-in-turn", IN_TURN, setup.with(|_| {})),
    ];
    let mut table = Table::new(
        2,
        [
            "set MiB",
            "reading",
            "to see",
            "by memory of the same",
            "of another layout",
            "at the best %",
            "behind it %",
        ],
    );
    for layouts in &layouts {
        let job = setup.long_micro(layouts.sizes)?;
        let best = setup.bindings(std::slice::from_ref(&job), &[1.0])?[0];
        for (name, policy, setup) in &readings {
            let seeds = effort.seeds().into_par_iter();
            let runs = seeds.map(|seed| watch(setup, policy, &job, seed, layouts));
            let runs: Vec<(f64, Run)> = runs.collect::<Result<_>>()?;
            table.row(row(layouts, name, best, &runs));
        }
    }
    text += &format!(
        "\n{}\n\nMoves of a run, with the share of them that led to a layout in which all take less time.\n",
        table.text()
    );
    Ok(text)
}

fn costs(layouts: &[Layouts]) -> String {
    let mut table = Table::new(1, ["set MiB", "4 + 0", "3 + 1", "2 + 2", "1 + 3", "0 + 4"]);
    for layouts in layouts {
        let cell = |layout: &Layout| {
            format!(
                "{} ({})",
                figure(layout.seconds, 2),
                figure(layout.penalty, 0)
            )
        };
        let cells = layouts.by_count.iter().rev().map(cell);
        let set = (layouts.sizes.lists / MIB).to_string();
        table.row(std::iter::once(set).chain(cells));
    }
    format!(
        "{}\n\nSeconds of 1000 loops (and penalty in cycles per request) with threads bound to nodes 0 and 1.\n",
        table.text()
    )
}

fn row(layouts: &Layouts, name: &str, best: f64, runs: &[(f64, Run)]) -> [String; 7] {
    let mut sum = Run::default();
    for (_, run) in runs {
        sum.ticks += run.ticks;
        sum.ticks_at_best += run.ticks_at_best;
        sum.to_see.add(run.to_see);
        sum.same_layout.add(run.same_layout);
        sum.other_layout.add(run.other_layout);
    }
    let count = runs.len() as f64;
    let at_best = f64::from(sum.ticks_at_best) / f64::from(sum.ticks.max(1));
    [
        (layouts.sizes.lists / MIB).to_string(),
        name.to_owned(),
        sum.to_see.text(count),
        sum.same_layout.text(count),
        sum.other_layout.text(count),
        percent(at_best),
        figure(increase(mean(runs.iter().map(|run| run.0)), best), 1),
    ]
}
