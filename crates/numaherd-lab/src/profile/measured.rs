//! What one run of a program gave, and the ratios that follow from it.

use std::collections::BTreeSet;

use numaherd_topology::CpuSet;
use serde::{Deserialize, Serialize};

/// What one run gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The node whose CPUs it ran on.
    pub cpu_node: u32,
    /// The node that its memory was bound to.
    pub memory_node: u32,
    /// The CPUs it was bound to: one memory domain of `cpu_node`.
    pub cpus: CpuSet,
    /// The processes that were seen.
    pub pids: BTreeSet<u32>,
    /// Instructions that were counted, over all of its threads, the kernel's for them included.
    pub instructions: u64,
    /// Core cycles that were counted.
    pub cycles: u64,
    /// Cache lines from memory that were counted, prefetched ones included where the machine tells.
    pub lines: u64,
    /// Of these, from the node of the core; `None` where the machine does not tell.
    pub local_lines: Option<u64>,
    /// What the program itself did from its start to its end, where that is counted apart.
    pub own: Option<Own>,
    /// Seconds from the beginning of the counted part to the last reading.
    pub seconds: f64,
    /// Seconds from there to the program's end.
    pub whole_seconds: f64,
    /// Seconds of CPU time, over all threads, per second of the counted part.
    pub cpus_used: f64,
    /// Most threads of one process that were at work at the same time.
    pub threads: u32,
    /// Largest resident memory of one process, in bytes.
    pub footprint_bytes: u64,
    /// Lowest share of a thread's time in which its counters ran.
    pub counted_share: f64,
    /// What the counters are.
    pub counters: String,
    /// What they miss, if anything.
    pub caveat: Option<String>,
}

/// What the instructions of a program alone did, without the kernel's for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Its instructions.
    pub instructions: u64,
    /// Lines from memory for it, prefetched ones included.
    pub lines: u64,
}

impl Measured {
    /// Instructions of the whole counted part: the program's own, or else what was counted, scaled
    /// up by the time after the last reading.
    pub fn whole_instructions(&self) -> f64 {
        self.own.map_or_else(
            || self.instructions as f64 * self.whole_seconds / self.seconds,
            |own| own.instructions as f64,
        )
    }

    /// Cycles per instruction. The kernel's cycles count, because the program waits for them. The
    /// kernel's instructions do not, where they are counted apart: they grow with time, not with
    /// work, and are many beside a program's few instructions with long waits.
    pub fn cycles_per_instruction(&self) -> f64 {
        let counted = self.cycles as f64 / self.instructions as f64;
        let Some(own) = self.own else {
            return counted;
        };
        // The program's lines, if it has any, say exactly what share of its work was counted.
        if own.lines.saturating_mul(1000) < own.instructions {
            return counted;
        }
        self.cycles as f64 / self.lines as f64 * own.lines as f64 / own.instructions as f64
    }

    /// Lines from memory per 1000 instructions, of the same instructions.
    pub fn lines_per_1000(&self) -> f64 {
        let (lines, instructions) = match self.own {
            Some(own) => (own.lines, own.instructions),
            None => (self.lines, self.instructions),
        };
        lines as f64 * 1000.0 / instructions as f64
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run of 1 million instructions in a second, changed.
    pub fn measured(change: impl FnOnce(&mut Measured)) -> Measured {
        let mut run = Measured {
            cpu_node: 0,
            memory_node: 0,
            cpus: "0-1".parse().unwrap(),
            pids: BTreeSet::from([8]),
            instructions: 1_000_000,
            own: None,
            cycles: 5_000_000,
            lines: 20_000,
            local_lines: Some(20_000),
            seconds: 0.9,
            whole_seconds: 1.0,
            cpus_used: 1.0,
            threads: 1,
            footprint_bytes: 1 << 20,
            counted_share: 1.0,
            counters: "a test".into(),
            caveat: None,
        };
        change(&mut run);
        run
    }

    #[test]
    fn without_more_knowledge_what_was_counted_is_the_program() {
        let run = measured(|_| ());
        assert_eq!(run.cycles_per_instruction(), 5.0);
        assert_eq!(run.lines_per_1000(), 20.0);
        assert!((run.whole_instructions() - 1e6 / 0.9).abs() < 1e-6);
    }

    /// A fifth of the instructions were the kernel's, and the last eleventh of the run was missed.
    #[test]
    fn the_kernels_instructions_are_no_work_of_the_program() {
        let own = Own {
            instructions: 880_000,
            lines: 22_000,
        };
        let run = measured(|run| run.own = Some(own));
        assert!((run.cycles_per_instruction() - 5e6 / 800_000.0).abs() < 1e-9);
        assert!((run.lines_per_1000() - 25.0).abs() < 1e-9);
        assert_eq!(run.whole_instructions(), 880_000.0);
    }

    #[test]
    fn a_program_without_lines_is_told_by_its_instructions() {
        let own = Own {
            instructions: 1_090_000,
            lines: 3,
        };
        let run = measured(|run| {
            run.own = Some(own);
            run.lines = 2;
        });
        assert_eq!(run.cycles_per_instruction(), 5.0);
    }
}
