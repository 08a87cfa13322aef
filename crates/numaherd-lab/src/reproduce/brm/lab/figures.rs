//! What the lab measured for BRM, and what follows from it: relative changes and their correlation
//! with run time (§3.2), and strategies against each other (§6.1, §6.2).

use numaherd_experiment::statistics::{Sample, correlation};
use serde::{Deserialize, Serialize};

/// All that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The machine that the guest was made after.
    pub machine: String,
    /// Threads of the benchmark.
    pub threads: u32,
    /// The benchmark under two assignments of its threads (Fig 5, Fig 7).
    pub assignments: Vec<Compared>,
    /// The benchmark under strategies (Fig 8a, Fig 9).
    pub strategies: Vec<Strategies>,
}

/// The two sizes and the length of a run of the micro-benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Private lists of all threads together, in bytes.
    pub working_set_bytes: u64,
    /// What all threads share, in bytes.
    pub sharing_bytes: u64,
    /// How often each thread goes through both; the paper has 1000.
    pub loops: u64,
}

/// A part of Fig 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// (a): nothing shared, working sets from 4 to 128 MB.
    Capacity,
    /// (b): 16 MB, more and more of it shared.
    Sharing,
    /// (c): 128 KB shared, working sets from 4 to 128 MB.
    Both,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Mean run time of the threads in seconds: the paper's measure.
    pub seconds: f64,
    /// Cycles with a request to the uncore outstanding, per request, over all threads.
    pub uncore_penalty: f64,
    /// Cache lines fetched from memory per 1000 instructions, over all threads.
    pub misses_per_1000_instructions: f64,
}

/// The same work under two assignments, its memory on node 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Which part of Fig 5 it is a point of.
    pub part: Part,
    /// What was run.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// All threads on node 0.
    pub intra: Run,
    /// Half of them on node 1.
    pub inter: Run,
}

impl Compared {
    /// (V inter - V intra) / V intra of a figure (§3.2).
    pub fn change(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        figure(&self.inter) / figure(&self.intra) - 1.0
    }
}

/// The correlation of a figure's changes with those of the run time: 1 for a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Correlations {
    /// Of the uncore penalty; the paper has 0.91.
    pub uncore_penalty: f64,
    /// Of misses per 1000 instructions; the paper has 0.61.
    pub miss_rate: f64,
}

/// A binding that holds for a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// How many threads are on each node, in order of the nodes.
    pub threads_on: Vec<u32>,
    /// Run time in seconds.
    pub seconds: f64,
}

/// One size under all strategies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strategies {
    /// What was run.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Loops of the runs in which bindings were tried.
    pub binding_loops: u64,
    /// Every binding that differs in how many threads are on which node.
    pub bindings: Vec<Binding>,
    /// The best of them again, as often as the others.
    pub fixed: Sample,
    /// The kernel alone.
    pub linux: Sample,
    /// BRM.
    pub brm: Sample,
    /// How often BRM moved a thread, for each repeat.
    pub brm_moves: Vec<u64>,
}

impl Strategies {
    /// The binding with the shortest run time.
    pub fn best(&self) -> Option<&Binding> {
        let by_time = |a: &&Binding, b: &&Binding| a.seconds.total_cmp(&b.seconds);
        self.bindings.iter().min_by(by_time)
    }

    /// How much longer BRM takes than the best binding, as a share.
    pub fn behind(&self) -> f64 {
        self.brm.mean() / self.fixed.mean() - 1.0
    }

    /// How much less time BRM takes than the kernel alone, as a share (§6.1).
    pub fn gain(&self) -> f64 {
        1.0 - self.brm.mean() / self.linux.mean()
    }
}

impl Measured {
    /// The correlations over all points of Fig 5; `None` where a figure never changes.
    pub fn correlations(&self) -> Option<Correlations> {
        let changes = |figure: fn(&Run) -> f64| -> Vec<f64> {
            let all = self.assignments.iter();
            all.map(|compared| compared.change(figure)).collect()
        };
        let seconds = changes(|run| run.seconds);
        let with_time = |figure| {
            let found = correlation(&seconds, &changes(figure));
            found.is_finite().then_some(found)
        };
        Some(Correlations {
            uncore_penalty: with_time(|run| run.uncore_penalty)?,
            miss_rate: with_time(|run| run.misses_per_1000_instructions)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, uncore_penalty: f64, misses: f64) -> Run {
        Run {
            seconds,
            uncore_penalty,
            misses_per_1000_instructions: misses,
        }
    }

    fn compared(intra: Run, inter: Run) -> Compared {
        let sizes = Sizes {
            working_set_bytes: 16 << 20,
            sharing_bytes: 0,
            loops: 10,
        };
        Compared {
            part: Part::Capacity,
            sizes,
            intra,
            inter,
        }
    }

    #[test]
    fn a_change_is_relative_to_the_threads_on_one_node() {
        let half = compared(run(2.0, 50.0, 4.0), run(1.0, 40.0, 5.0));
        assert_eq!(half.change(|run| run.seconds), -0.5);
        assert!((half.change(|run| run.uncore_penalty) + 0.2).abs() < 1e-12);
        assert_eq!(half.change(|run| run.misses_per_1000_instructions), 0.25);
    }

    #[test]
    fn correlations_are_of_changes_not_of_values() {
        let measured = Measured {
            machine: "x".into(),
            threads: 4,
            // The penalty changes as the time does, misses the other way.
            assignments: vec![
                compared(run(10.0, 100.0, 8.0), run(5.0, 50.0, 8.0)),
                compared(run(1.0, 70.0, 3.0), run(2.0, 140.0, 1.5)),
            ],
            strategies: Vec::new(),
        };
        let found = measured.correlations().unwrap();
        assert!((found.uncore_penalty - 1.0).abs() < 1e-12);
        assert!((found.miss_rate + 1.0).abs() < 1e-12);
    }

    /// What docs/brm-lab.md shows.
    #[test]
    fn in_the_recorded_run_the_penalty_goes_along_with_run_time_and_better_than_misses_do() {
        let text = include_str!("../../../../../../scenarios/brm/measured/assignments.json");
        let measured: Measured = serde_json::from_str(text).unwrap();
        assert_eq!(measured.assignments.len(), 15, "all points of Fig 5");
        let found = measured.correlations().unwrap();
        assert!(found.uncore_penalty >= 0.9, "{found:?}");
        assert!(found.uncore_penalty > found.miss_rate, "{found:?}");
    }

    #[test]
    fn strategies_are_held_against_the_best_binding() {
        let binding = |threads_on: [u32; 2], seconds| Binding {
            threads_on: threads_on.into(),
            seconds,
        };
        let sizes = compared(run(1.0, 1.0, 1.0), run(1.0, 1.0, 1.0)).sizes;
        let strategies = Strategies {
            sizes,
            binding_loops: 5,
            bindings: vec![binding([4, 0], 3.0), binding([2, 2], 2.0)],
            fixed: Sample(vec![2.0, 2.0]),
            linux: Sample(vec![2.0, 4.0]),
            brm: Sample(vec![2.1]),
            brm_moves: vec![3],
        };
        assert_eq!(strategies.best().unwrap().threads_on, [2, 2]);
        assert!((strategies.behind() - 0.05).abs() < 1e-12);
        assert!((strategies.gain() - 0.3).abs() < 1e-12);
        let deviation = strategies.linux.relative_deviation().unwrap();
        assert!((deviation - 2.0_f64.sqrt() / 3.0).abs() < 1e-12);
        assert_eq!(strategies.brm.relative_deviation(), None);
    }
}
