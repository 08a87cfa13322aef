//! The lab's own report of a guest, as far as a profile needs it.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::measured::{Measured, Own};

/// What is read of the lab's report.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    vcpus: Vec<Vcpu>,
    threads: Vec<Work>,
}

/// Counters of a thread; the kernel's accesses are not modelled, so all lines are its own.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Work {
    tgid: u32,
    user_instructions: u64,
    llc_miss: u64,
    prefetch: u64,
}

/// Counters of a CPU of the guest, over all runs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Vcpu {
    /// Instructions in user mode.
    pub user_instructions: u64,
    /// Accesses to the last-level cache on demand.
    pub llc_access: u64,
    /// Lines from memory on demand.
    pub llc_miss: u64,
    /// Lines from memory by the prefetcher.
    pub prefetch: u64,
    /// Lines written back to memory.
    pub writeback: u64,
}

impl Report {
    /// What some processes did in user mode.
    pub fn own(&self, pids: &BTreeSet<u32>) -> Own {
        let theirs = self.threads.iter().filter(|work| pids.contains(&work.tgid));
        let none = Own {
            instructions: 0,
            lines: 0,
        };
        theirs.fold(none, |sum, work| Own {
            instructions: sum.instructions + work.user_instructions,
            lines: sum.lines + work.llc_miss + work.prefetch,
        })
    }

    /// The sum over the CPUs that the program ran on.
    pub fn of(&self, measured: &Measured) -> Vcpu {
        let ran = |cpu: &usize| measured.cpus.iter().any(|id| id.index() == *cpu);
        let vcpus = self.vcpus.iter().enumerate().filter(|(cpu, _)| ran(cpu));
        vcpus.fold(Vcpu::default(), |sum, (_, vcpu)| Vcpu {
            user_instructions: sum.user_instructions + vcpu.user_instructions,
            llc_access: sum.llc_access + vcpu.llc_access,
            llc_miss: sum.llc_miss + vcpu.llc_miss,
            prefetch: sum.prefetch + vcpu.prefetch,
            writeback: sum.writeback + vcpu.writeback,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::measured::tests::measured;

    #[test]
    fn only_what_the_program_did_is_summed() {
        let text = r#"{"quanta": 7,
            "vcpus": [
                {"user_instructions": 1, "llc_access": 2, "llc_miss": 3, "prefetch": 4, "writeback": 5, "x": 6},
                {"user_instructions": 10, "llc_access": 20, "llc_miss": 30, "prefetch": 40, "writeback": 50},
                {"user_instructions": 100, "llc_access": 200, "llc_miss": 300, "prefetch": 400, "writeback": 500}
            ],
            "threads": [
                {"tid": 8, "tgid": 8, "user_instructions": 1, "llc_miss": 2, "prefetch": 3},
                {"tid": 9, "tgid": 8, "user_instructions": 10, "llc_miss": 20, "prefetch": 30},
                {"tid": 1, "tgid": 1, "user_instructions": 100, "llc_miss": 200, "prefetch": 300}
            ]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        let own = report.own(&BTreeSet::from([8]));
        assert_eq!((own.instructions, own.lines), (11, 55));
        let seen = report.of(&measured(|run| run.cpus = "0,2".parse().unwrap()));
        assert_eq!((seen.user_instructions, seen.llc_access), (101, 202));
        assert_eq!(
            (seen.llc_miss, seen.prefetch, seen.writeback),
            (303, 404, 505)
        );
    }
}
