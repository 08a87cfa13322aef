//! The state of each node: its memory, and how busy all threads of the machine keep its CPUs.
//!
//! Problem: if only the threads of one program or cgroup are watched, CPUs that others keep busy look idle. Rule: the
//! kernel's count of each CPU's time tells, from one look to the next. It counts in ticks, so a short interval is less
//! precise. It is read as the look at the threads begins: a first look at many processes takes a while, in which they
//! run on, and that time would seem to be others'. It is not read if every thread is watched, since that takes the
//! kernel long on large machines.

use std::collections::BTreeMap;

use numaherd_topology::{Node, Topology};
use numaherd_world::NodeState;

use crate::files::Root;
use crate::options::{HostOptions, Selection};
use crate::proc::cpu_times::{self, CpuTime};
use crate::proc::meminfo;

#[derive(Debug)]
pub(crate) struct NodeStates {
    /// Time by CPU at the last look; `None` if every thread is watched.
    times: Option<BTreeMap<u32, CpuTime>>,
}

impl NodeStates {
    pub(crate) fn of(options: &HostOptions) -> Self {
        let all_are_watched =
            options.selection == Selection::Machine && options.only_user.is_none();
        Self {
            times: (!all_are_watched).then(BTreeMap::new),
        }
    }

    /// The present states, given the busy CPUs of each node, by index, until the look began; nodes with unreadable
    /// memory are left out.
    pub(crate) fn read(
        root: &Root,
        topology: &Topology,
        busy_cpus: Option<&[f64]>,
    ) -> Vec<NodeState> {
        let state = |(at, node): (usize, &Node)| {
            let text = root.read(&root.meminfo_of(node.id, topology)).ok()?;
            let (total_bytes, free_bytes) = meminfo::parse(&text)?;
            Some(NodeState {
                id: node.id,
                total_bytes,
                free_bytes,
                old_file_bytes: meminfo::inactive_file(&text).unwrap_or(0),
                busy_cpus: busy_cpus.map(|of_nodes| of_nodes[at]),
            })
        };
        let nodes = topology.nodes().iter().enumerate();
        nodes.filter_map(state).collect()
    }

    /// Busy CPUs of each node, by index, since the last look; `None` without one, or without a tick between the two.
    pub(crate) fn busy_cpus(&mut self, root: &Root, topology: &Topology) -> Option<Vec<f64>> {
        let before = self.times.as_mut()?;
        let now = cpu_times::parse(&root.read("proc/stat").ok()?);
        let busy = |cpu: u32| {
            let (idle, all) = before.get(&cpu)?.until(now.get(&cpu)?)?;
            Some(1.0 - idle as f64 / all as f64)
        };
        let of_node =
            |node: &Node| -> Vec<f64> { node.cpus.iter().filter_map(|cpu| busy(cpu.0)).collect() };
        let of_nodes: Vec<Vec<f64>> = topology.nodes().iter().map(of_node).collect();
        let is_known = of_nodes.iter().any(|cpus| !cpus.is_empty());
        if is_known || before.is_empty() {
            *before = now;
        }
        let sum = |cpus: Vec<f64>| (cpus.iter().sum::<f64>() * 100.0).round() / 100.0;
        is_known.then(|| of_nodes.into_iter().map(sum).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use numaherd_topology::Machine;

    use super::*;

    #[test]
    fn what_all_threads_had_of_each_node_is_told_unless_all_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let machine = Machine::preset("xeon-e5520-2s").unwrap();
        let topology = &machine.topology().unwrap();
        for node in topology.nodes() {
            let path = folder.path().join(root.meminfo_of(node.id, topology));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "Node 0 MemTotal: 1000 kB\nNode 0 MemFree: 500 kB\n").unwrap();
        }
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let stat = |ticks: &[[u64; 2]]| {
            let line = |(cpu, [user, idle]): (usize, &[u64; 2])| {
                format!("cpu{cpu} {user} 0 0 {idle} 0 0 0 0 0 0\n")
            };
            let text: String = ticks.iter().enumerate().map(line).collect();
            fs::write(folder.path().join("proc/stat"), text).unwrap();
        };
        let mut states = NodeStates::of(&HostOptions::new(Selection::Cgroup {
            path: "/a".to_owned(),
        }));
        let mut read = || -> Vec<Option<f64>> {
            let busy_cpus = states.busy_cpus(&root, topology);
            let states = NodeStates::read(&root, topology, busy_cpus.as_deref());
            states.iter().map(|node| node.busy_cpus).collect()
        };
        let nodes: Vec<usize> = topology
            .nodes()
            .iter()
            .map(|node| node.cpus.len())
            .collect();
        let all = nodes.iter().sum();
        stat(&vec![[0, 0]; all]);
        assert_eq!(read(), [None, None], "no look before");
        // The first CPU was busy for all of the time, another half of it.
        let mut ticks = vec![[0, 100]; all];
        let second = topology.nodes()[1].cpus.first().unwrap().index();
        (ticks[0], ticks[second]) = ([100, 0], [50, 50]);
        stat(&ticks);
        assert_eq!(read(), [Some(1.0), Some(0.5)]);
        assert_eq!(read(), [None, None], "no tick since");
        // What CPUs do during a look belongs to the next interval.
        ticks[0] = [100, 200];
        stat(&ticks);
        let busy_cpus = states.busy_cpus(&root, topology);
        ticks[0] = [200, 200];
        stat(&ticks);
        let now = NodeStates::read(&root, topology, busy_cpus.as_deref());
        assert_eq!(now[0].busy_cpus, Some(0.0));
        assert_eq!(states.busy_cpus(&root, topology).unwrap()[0], 1.0);
        let mut of_all = NodeStates::of(&HostOptions::new(Selection::Machine));
        assert_eq!(of_all.busy_cpus(&root, topology), None);
    }
}
