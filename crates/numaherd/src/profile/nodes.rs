//! Which nodes a profile is measured on, and the command line of each run.

use std::ffi::OsString;

use anyhow::{Context, Result};
use numaherd_topology::{NodeId, Topology};

use super::measured::Measured;
use crate::cli::Profile as Options;
use crate::exit::{Exit, ended};

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
            ended(
                Exit::Usage,
                format!(
                    "{} {why}, so no program can run with memory far from it; measure in the lab \
                     (without --here)",
                    topology.name()
                ),
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

    /// The command line of one run: this program, kept away from the CPUs that are measured.
    ///
    /// # Errors
    /// This program's own file cannot be named.
    pub fn run(&self, options: &Options, memory: NodeId, modelled: bool) -> Result<Vec<OsString>> {
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
        if let Some(skip) = options.skip {
            words.push(format!("--skip={}ms", skip.as_millis()).into());
        }
        if let Some(length) = options.length {
            words.push(format!("--for={}ms", length.as_millis()).into());
        }
        words.extend(options.waits.then(|| "--waits".into()));
        words.extend(modelled.then(|| "--model".into()));
        words.push("--".into());
        words.extend(options.program.iter().cloned());
        Ok(words)
    }
}

/// What a run printed, or the error that it said.
///
/// # Errors
/// The run's own error, with its exit code.
pub fn read(success: bool, code: Option<i32>, stdout: &[u8], stderr: &[u8]) -> Result<Measured> {
    let said = String::from_utf8_lossy(stderr);
    if success {
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
