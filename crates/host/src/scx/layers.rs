//! The layers of scx_layered that stand for a machine's memory domains, and the hint of each.
//!
//! Each domain is a layer that takes the threads with its hint: 1 for the first domain, 2 for the second, and so on. Its
//! threads have the domain's CPUs before all others and spill to CPUs that would idle. Hint 0 is a layer for threads that
//! had a hint and shall have none: taking a hint out of the map leaves a thread in the layer that it is in. The last layer
//! takes the threads that never had one.
//!
//! The layers of domains are of the kind `Confined`: then scx_layered looks for an idle CPU in the domain only. (In one that
//! is `Grouped` it takes an idle CPU of the node where the thread is before one of the domain on another node.) A confined
//! layer that may also preempt takes an idle CPU anywhere when its own are busy, the nearest first: so a thread spills.
//! This is in `pick_idle_cpu` and `layered_enqueue` of scx_layered 1.1.4 (src/bpf/main.bpf.c). The domains own all CPUs, so
//! the other two layers own none: scx_layered keeps a share of each CPU for the threads of layers without CPUs.
//!
//! scx_layered has 16 layers, two of which are not domains. A machine with more domains has a layer for each node.

use numaherd_topology::{CpuId, CpuSet, Topology};
use serde_json::{Value, json};

use crate::error::HostError;

/// The hint of a thread that may run anywhere.
pub(super) const ANYWHERE: u64 = 0;

/// The most places that can be layers (`MAX_LAYERS` in scx_layered's src/bpf/intf.h, without the two that are none).
const MOST: usize = 14;

/// How scx_layered finds the CPUs of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// By the number of the node.
    Node(u32),
    /// By its own number of the last-level cache.
    Cache(usize),
}

/// The places that threads can prefer, in the order of their hints.
#[derive(Clone, Debug)]
pub struct Layers {
    places: Vec<(Found, CpuSet)>,
}

impl Layers {
    /// Those of a machine.
    ///
    /// # Errors
    /// It has too many nodes.
    pub fn of(topology: &Topology) -> Result<Self, HostError> {
        let online = topology.online_cpus();
        let nodes = topology.nodes().iter().map(|node| {
            let cpus = node.cpus.intersection(&online);
            (Found::Node(node.id.0), cpus)
        });
        let has_cpus = |(_, cpus): &(Found, CpuSet)| !cpus.is_empty();
        let nodes: Vec<_> = nodes.filter(has_cpus).collect();
        let domains: Vec<_> = domains(topology, &online)
            .into_iter()
            .filter(has_cpus)
            .collect();
        let places = match domains.len() == nodes.len() || domains.len() > MOST {
            true => nodes,
            false => domains,
        };
        match places.len() <= MOST {
            true => Ok(Self { places }),
            false => Err(HostError::Scx {
                reason: format!(
                    "the machine has {} nodes with CPUs, and scx_layered has layers for {MOST}",
                    places.len()
                ),
                remedy: "use --enforce affinity".to_owned(),
            }),
        }
    }

    /// The hint that has a thread prefer this CPU's place; `None` where the machine has no such CPU online.
    pub(super) fn hint(&self, cpu: CpuId) -> Option<u64> {
        let at = self.places.iter().position(|(_, cpus)| cpus.contains(cpu));
        Some(at? as u64 + 1)
    }

    /// The layers as scx_layered reads them, in JSON.
    pub fn specification(&self) -> String {
        let free = |name: &str, matches: Value| {
            let kind = json!({ "Open": for_all() });
            json!({ "name": name, "matches": matches, "kind": kind })
        };
        let places = self.places.iter().enumerate();
        let places = places.map(|(at, (found, cpus))| place(at, found, cpus.len()));
        let mut layers = vec![free("anywhere", json!([[{ "HintEquals": ANYWHERE }]]))];
        layers.extend(places);
        layers.push(free("rest", json!([[]])));
        Value::from(layers).to_string()
    }
}

/// The layer of a place.
fn place(at: usize, found: &Found, cpus: usize) -> Value {
    let mut kind = for_all();
    match *found {
        Found::Node(node) => kind["nodes"] = json!([node]),
        Found::Cache(cache) => kind["llcs"] = json!([cache]),
    }
    kind["cpus_range"] = json!([cpus, cpus]);
    kind["util_range"] = json!([0.5, 0.8]);
    json!({
        "name": format!("place {at}"),
        "matches": [[{ "HintEquals": at as u64 + 1 }]],
        "kind": { "Confined": kind },
    })
}

/// What each layer says, whatever its kind.
fn for_all() -> Value {
    json!({
        // A thread goes on at home while no other thread of its layer waits there, whoever else does; and it may spill.
        "preempt": true,
        // Threads may go to other nodes and come back at any rate.
        "xnuma_threshold": [0.0, 0.0],
        "xnuma_threshold_delta": [0.0, 0.0],
    })
}

/// The memory domains in the order in which scx_layered numbers last-level caches: node by node in the order of the names
/// of their folders (node10 before node2), and in each by its lowest CPU.
fn domains(topology: &Topology, online: &CpuSet) -> Vec<(Found, CpuSet)> {
    let key = |domain: &&numaherd_topology::Domain| {
        let cpus = domain.cpus.intersection(online);
        (domain.node.0.to_string(), cpus.first())
    };
    let mut domains: Vec<_> = topology.domains().iter().collect();
    domains.retain(|domain| domain.cpus.intersects(online));
    domains.sort_by_key(key);
    let domains = domains.iter().enumerate();
    domains
        .map(|(at, domain)| (Found::Cache(at), domain.cpus.intersection(online)))
        .collect()
}
