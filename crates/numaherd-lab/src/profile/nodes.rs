//! Which nodes a profile is measured on, and the command line of each run.

use std::ffi::OsString;

use anyhow::{Context, Result};
use numaherd_topology::{NodeId, Topology};

use super::measured::Measured;
use crate::cli::Profile as Options;
use numaherd::exit::{Exit, ended};

/// The node that is measured on and the nearest other one with memory.
pub struct Nodes {
    /// The node that the program runs on.
    pub local: NodeId,
    /// The node that is nearest to it.
    pub remote: NodeId,
    /// Nodes whose CPUs the measuring itself may use.
    pub aside: Vec<NodeId>,
}

impl Nodes {
    /// The nodes to measure a machine on.
    ///
    /// # Errors
    /// The machine has no second node with memory, or no node with both CPUs and memory.
    pub fn of(topology: &Topology) -> Result<Self> {
        let online = topology.online_cpus();
        let memory = topology.memory_nodes();
        let has_cpus = |node: NodeId| {
            let node = topology.node(node);
            node.is_some_and(|node| node.cpus.intersects(&online))
        };
        let refuse = |why: &str| {
            ended!(
                Usage,
                "{} {why}, so no program can run with memory far from it; measure in the lab \
                     (without --here)",
                topology.name()
            )
        };
        let local = memory.iter().find(|&node| has_cpus(node));
        let local = local.ok_or_else(|| refuse("has no node with both CPUs and memory"))?;
        let away = |node: NodeId| {
            let place = |node| topology.node_index(node);
            let latency = topology.timing().latency_ns.as_ref();
            latency
                .and_then(|rows| Some(rows[place(local)?][place(node)?]))
                .or_else(|| topology.distance(local, node).map(f64::from))
                .unwrap_or(f64::MAX)
        };
        let remote = memory
            .iter()
            .filter(|&node| node != local)
            .min_by(|&a, &b| away(a).total_cmp(&away(b)))
            .ok_or_else(|| refuse("has one memory node"))?;
        let all = topology.nodes().iter().map(|node| node.id);
        Ok(Self {
            local,
            remote,
            aside: all
                .filter(|&node| node != local && has_cpus(node))
                .collect(),
        })
    }

    /// The memory of each run with the machine's own cache.
    pub fn memories(&self, repeat: u32) -> Vec<NodeId> {
        let times = |node| (0..repeat).map(move |_| node);
        times(self.local).chain(times(self.remote)).collect()
    }

    /// The command line of one run: this program, kept away from the CPUs that are measured, with these further
    /// options.
    ///
    /// # Errors
    /// This program's own file cannot be named.
    pub fn run(&self, options: &Options, memory: NodeId, more: &[&str]) -> Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        if !self.aside.is_empty() {
            let aside: Vec<String> = self.aside.iter().map(NodeId::to_string).collect();
            words.push("numactl".into());
            words.push(format!("--cpunodebind={}", aside.join(",")).into());
            words.push("--".into());
        }
        words.push(std::env::current_exe()?.into());
        words.push("profile-run".into());
        words.push(format!("--cpu-node={}", self.local).into());
        words.push(format!("--memory-node={memory}").into());
        if let Some(skip) = options.part.skip {
            words.push(format!("--skip={}ms", skip.as_millis()).into());
        }
        if let Some(length) = options.part.length {
            words.push(format!("--for={}ms", length.as_millis()).into());
        }
        words.extend(options.part.waits.then(|| "--waits".into()));
        words.extend(more.iter().map(OsString::from));
        words.push("--".into());
        words.extend(options.program.iter().cloned());
        Ok(words)
    }
}

/// What a run printed, or its error.
///
/// # Errors
/// The run's own error, with its exit code.
pub fn read(code: Option<i32>, stdout: &[u8], stderr: &[u8]) -> Result<Measured> {
    let said = String::from_utf8_lossy(stderr);
    if code == Some(0) {
        return serde_json::from_slice(stdout)
            .with_context(|| format!("a run gave no figures; it said {:?}", said.trim()));
    }
    let exit = match code {
        Some(2) => Exit::Usage,
        Some(3) => Exit::SignalMissing,
        Some(4) => Exit::Permission,
        Some(5) => Exit::NotSetUp,
        _ => Exit::Failure,
    };
    let said = said.trim();
    let ours = said.rsplit_once("numaherd: ");
    let message = match ours {
        Some((before, ours)) if before.trim().is_empty() => ours.to_owned(),
        Some((before, ours)) => format!("{ours}; it said: {}", before.trim()),
        None => format!("a run ended without figures: {said}"),
    };
    Err(ended(exit, message))
}

#[cfg(test)]
mod tests {
    use numaherd_topology::{Machine, PerNode};

    use super::*;

    fn nodes(change: impl FnOnce(&mut Machine)) -> Result<Nodes> {
        let mut machine = Machine::preset("lab-4x2").unwrap();
        change(&mut machine);
        Nodes::of(&machine.topology().unwrap())
    }

    #[test]
    fn the_far_node_is_the_nearest_other() {
        let found = nodes(|_| ()).unwrap();
        assert_eq!((found.local, found.remote), (NodeId(0), NodeId(1)));
        assert_eq!(found.aside, [1, 2, 3].map(NodeId));
        // Latency decides where it is known: now the way to node 2 is the shortest.
        let found = nodes(|machine| {
            let rows = machine.memory.latency_ns.as_mut().unwrap();
            (rows[0][2], rows[2][0]) = (100.0, 100.0);
        });
        assert_eq!(found.unwrap().remote, NodeId(2));
        let found = nodes(|machine| {
            machine.memory.latency_ns = None;
            let rows = machine.memory.distance.as_mut().unwrap();
            (rows[0][3], rows[3][0]) = (15, 15);
        });
        assert_eq!(found.unwrap().remote, NodeId(3));
    }

    #[test]
    fn memory_without_cpus_is_far_and_no_place_to_measure_from() {
        let found =
            nodes(|machine| machine.shape.domains_per_node = PerNode::Each(vec![0, 0, 1, 1]))
                .unwrap();
        assert_eq!((found.local, found.remote), (NodeId(2), NodeId(0)));
        assert_eq!(found.aside, [NodeId(3)]);
    }

    #[test]
    fn a_machine_of_one_node_is_refused() {
        let error = nodes(|machine| {
            machine.shape.nodes = 1;
            machine.memory.distance = None;
            machine.memory.latency_ns = None;
        });
        let told = error.err().unwrap().to_string();
        assert!(
            told.contains("has one memory node") && told.contains("lab"),
            "{told}"
        );
    }

    #[test]
    fn a_run_that_fails_hands_its_error_and_code_on() {
        let told = |stderr: &str, code| {
            let error = read(Some(code), b"", stderr.as_bytes()).unwrap_err();
            (numaherd::exit::code(&error), error.to_string())
        };
        let (code, message) = told("usage: x FILE\nnumaherd: x failed (exit status: 2)\n", 1);
        assert_eq!(code, std::process::ExitCode::from(1));
        assert_eq!(message, "x failed (exit status: 2); it said: usage: x FILE");
        let (code, message) = told("numaherd: no counters\n", 3);
        assert_eq!(code, std::process::ExitCode::from(3));
        assert_eq!(message, "no counters");
    }
}
