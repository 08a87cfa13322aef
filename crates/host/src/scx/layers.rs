//! The layers of scx_layered that represent a machine's memory domains, and the hint of each.
//!
//! Each domain is a layer that takes the threads with its hint: 1 for the first domain, 2 for the second, and so on.
//! Its threads come first on the domain's CPUs, and spill to CPUs that would idle. Hint 0 is a layer for threads that
//! had a hint and shall have none: removing a hint from the map leaves its thread in the same layer. The last layer
//! takes the threads that never had one.
//!
//! The layers of domains are `Confined`: scx_layered then looks for an idle CPU only in the domain. (For a `Grouped`
//! layer, it prefers an idle CPU of the thread's present node to one of the domain on another node.) A confined layer
//! that may also preempt takes an idle CPU anywhere, the nearest first, when its own are busy: this is how a thread
//! spills. See `pick_idle_cpu` and `layered_enqueue` of scx_layered 1.1.4 (src/bpf/main.bpf.c). The domains own all
//! CPUs, so the other two layers own none: scx_layered keeps a share of each CPU for threads of layers without CPUs.
//!
//! scx_layered has 16 layers, two of which are no domains. A machine with more domains has a layer per node.

use numaherd_topology::{CpuId, CpuSet, Topology};
use serde_json::{Value, json};

use crate::error::HostError;

/// The hint of a thread that may run anywhere.
pub(super) const ANYWHERE: u64 = 0;

/// The most places that can be layers (`MAX_LAYERS` in scx_layered's src/bpf/intf.h, less the two others).
const MOST: usize = 14;

/// How scx_layered finds the CPUs of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// By the node's number.
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

    /// The hint for this CPU's place; `None` if the machine has no such CPU online.
    pub(super) fn hint(&self, cpu: CpuId) -> Option<u64> {
        let at = self.places.iter().position(|(_, cpus)| cpus.contains(cpu));
        Some(at? as u64 + 1)
    }

    /// The layers as JSON for scx_layered.
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

/// The fields of every layer.
fn for_all() -> Value {
    json!({
        // A thread stays at home until another thread of its layer waits there, whoever else does; and it may spill.
        "preempt": true,
        // Threads may change nodes and return at any rate.
        "xnuma_threshold": [0.0, 0.0],
        "xnuma_threshold_delta": [0.0, 0.0],
    })
}

/// The memory domains in the order in which scx_layered numbers last-level caches: node by node by the names of their
/// folders (node10 before node2), and within a node by the lowest CPU.
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
