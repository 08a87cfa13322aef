//! The room on each node: free memory, and CPUs that were idle during a short look.
//!
//! Counted as by numad, which `numaherd advise` replaces (numad(8)):
//! * Pages of files that have long been unused are free memory (its `-C 1`): the kernel gives them up
//!   before it goes to another node.
//! * A core's first busy CPU takes the whole core but [`SIBLING`]; each sibling has [`SIBLING`] to
//!   give beside it (its `-t 20`).
//!
//! A CPU that is idle nine tenths of the time counts as idle: every machine has clocks and daemons,
//! and a node of eight CPUs should be enough for eight.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use numaherd_topology::{CpuSet, NodeId, Topology};

use crate::error::HostError;
use crate::files::Root;
use crate::proc::cpu_times::{self, CpuTime};
use crate::proc::{meminfo, status};
use crate::stop::Stop;

/// Hundredths of a CPU that one more CPU of the same core is worth.
const SIBLING: u64 = 20;

/// From so many hundredths on a CPU counts as wholly idle.
const AS_GOOD_AS_IDLE: u64 = 90;

/// How long to observe a live machine: 50 clock ticks, so within 2 %.
const LOOK: Duration = Duration::from_millis(500);

/// The room on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    /// The node.
    pub node: NodeId,
    /// Its online CPUs that this program may use.
    pub cpus: CpuSet,
    /// How idle they are, in hundredths of a core.
    pub idle: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
}

/// Observes the machine under a root for half a second, or a captured tree as it is; returns the nodes
/// with memory that this program (and so what it starts) may use.
///
/// # Errors
/// [`HostError::Read`] when /proc or a node's files cannot be read.
pub fn rooms(root: &Path, topology: &Topology) -> Result<Vec<NodeRoom>, HostError> {
    let root = Root::new(root);
    let own = root
        .read("proc/self/status")
        .map(|text| status::parse(&text))
        .unwrap_or_default();
    let online = root.online_cpus().unwrap_or_else(|| topology.online_cpus());
    let usable = own
        .cpus
        .map_or(online.clone(), |own| own.intersection(&online));
    let before = if root.is_live() {
        let before = times(&root)?;
        Stop::new()?.wait(LOOK, &[]);
        before
    } else {
        BTreeMap::new()
    };
    let after = times(&root)?;
    let nodes = topology.nodes().iter().filter(|node| {
        let allowed = own.nodes.as_ref().is_none_or(|own| own.contains(node.id));
        node.online && node.memory_bytes > 0 && allowed
    });
    nodes
        .map(|node| {
            let cpus = node.cpus.intersection(&usable);
            Ok(NodeRoom {
                node: node.id,
                idle: idle(topology, &cpus, &before, &after),
                cpus,
                free_bytes: free(&root, topology, node.id)?,
            })
        })
        .collect()
}

fn times(root: &Root) -> Result<BTreeMap<u32, CpuTime>, HostError> {
    Ok(cpu_times::parse(&read(root, "proc/stat")?))
}

fn read(root: &Root, path: &str) -> Result<Vec<u8>, HostError> {
    root.read(path)
        .map_err(HostError::read(root, path, "are /proc and /sys mounted?"))
}

/// Free memory of a node in bytes.
fn free(root: &Root, topology: &Topology, node: NodeId) -> Result<u64, HostError> {
    let path = &root.meminfo_of(node, topology);
    let text = read(root, path)?;
    let (_, free) = meminfo::parse(&text).ok_or_else(|| HostError::Format {
        path: root.path(path),
        reason: "it does not contain MemTotal and MemFree".to_owned(),
    })?;
    let old_files = meminfo::inactive_file(&text).unwrap_or(0);
    Ok(free.saturating_add(old_files))
}

/// How idle CPUs were between two readings, in hundredths of a core.
fn idle(
    topology: &Topology,
    cpus: &CpuSet,
    before: &BTreeMap<u32, CpuTime>,
    after: &BTreeMap<u32, CpuTime>,
) -> u64 {
    let core_idle = |of_core: CpuSet| {
        let busy: u64 = of_core
            .iter()
            .map(|cpu| {
                let at = |times: &BTreeMap<u32, CpuTime>| times.get(&cpu.0).copied();
                100 - idle_share(at(before), at(after))
            })
            .sum();
        worth(100 * of_core.len() as u64) - worth(busy)
    };
    topology
        .cores()
        .iter()
        .map(|core| core_idle(core.cpus.intersection(cpus)))
        .sum()
}

/// What hundredths of one core's CPUs are worth: the first is a core, more count little.
fn worth(hundredths: u64) -> u64 {
    hundredths.min(100) + hundredths.saturating_sub(100) * SIBLING / 100
}

/// Hundredths of the time between two readings that a CPU was idle; of all its time if there was no
/// tick between them. A CPU without a reading is not idle.
fn idle_share(before: Option<CpuTime>, after: Option<CpuTime>) -> u64 {
    let Some(after) = after else {
        return 0;
    };
    let since_boot = || CpuTime::default().until(&after);
    let known = before.and_then(|before| before.until(&after));
    let (idle, all) = known.or_else(since_boot).unwrap_or((0, 1));
    let share = u64::try_from(u128::from(idle) * 100 / u128::from(all)).unwrap_or(0);
    if share >= AS_GOOD_AS_IDLE { 100 } else { share }
}

#[cfg(test)]
mod tests {
    use numaherd_topology::hwloc;
    use proptest::prelude::*;

    use super::*;

    fn time(idle: u64, busy: u64) -> CpuTime {
        CpuTime {
            idle,
            all: idle + busy,
        }
    }

    #[test]
    fn siblings_add_a_fifth_to_a_core() {
        let topology = hwloc::synthetic("numa:1 core:2 pu:2").unwrap();
        let cpus = topology.online_cpus();
        let hundredths = |times: [CpuTime; 4]| {
            let times = (0..).zip(times).collect();
            idle(&topology, &cpus, &BTreeMap::new(), &times)
        };
        let (at_rest, busy) = (time(100, 0), time(0, 100));
        assert_eq!(hundredths([at_rest; 4]), 240);
        assert_eq!(hundredths([busy, at_rest, at_rest, at_rest]), 140);
        assert_eq!(hundredths([busy, at_rest, busy, at_rest]), 40);
        assert_eq!(hundredths([busy, busy, at_rest, at_rest]), 120);
        assert_eq!(hundredths([busy; 4]), 0);
        assert_eq!(hundredths([time(50, 50), busy, busy, busy]), 10);
    }

    #[test]
    fn what_was_idle_is_told_of_the_time_between_two_readings() {
        let share = |before, after| idle_share(before, after);
        assert_eq!(share(Some(time(1000, 0)), Some(time(1010, 40))), 20);
        // Since boot, where there is no other reading or no tick between them.
        assert_eq!(share(None, Some(time(30, 70))), 30);
        assert_eq!(share(Some(time(30, 70)), Some(time(30, 70))), 30);
        // A little noise is no load.
        assert_eq!(share(None, Some(time(90, 10))), 100);
        assert_eq!(share(None, Some(time(89, 11))), 89);
        // Went offline.
        assert_eq!(share(Some(time(5, 5)), None), 0);
    }

    proptest! {
        #[test]
        fn no_figures_make_a_share_that_cannot_be(
            before in proptest::option::of((any::<u64>(), any::<u64>())),
            after in proptest::option::of((any::<u64>(), any::<u64>())),
        ) {
            let time = |(idle, all)| CpuTime { idle, all };
            prop_assert!(idle_share(before.map(time), after.map(time)) <= 100);
        }
    }
}
