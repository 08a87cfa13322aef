//! Reads a machine from the Linux kernel's sysfs tree under any root.
//!
//! The root is the directory that holds `sys` (and `proc`): `/` for the live machine, or that of a
//! captured or generated tree. Nothing in a tree is trusted: every file may be missing, wrong,
//! huge, or no regular file. An error names its path, what was found and what to do.
//!
//! What is read, below `sys/devices/system`:
//!
//! | file | what it gives | where it is missing |
//! |---|---|---|
//! | `node/online`, `node/possible` | the nodes; those possible and not online are offline nodes | the `nodeN` directories count |
//! | `node/nodeN/cpulist` | the CPUs (online ones alone) of an online node | an error |
//! | `node/nodeN/meminfo` | its memory | an error, unless `node/has_memory` leaves the node out |
//! | `node/nodeN/distance` | its row of the SLIT, a column per *online* node | the kernel's default, 10 and 20 |
//! | `node/nodeN/access0/initiators/*` | HMAT bandwidth and latency, kept only where complete | unknown |
//! | `cpu/online`, `cpu/present` | the CPUs; those present and not online are offline | `present`: `possible`, then `online` |
//! | `cpu/cpuN/topology/core_cpus_list` | SMT siblings | `thread_siblings_list`, then package and `core_id`, then a core of its own |
//! | `cpu/cpuN/topology/physical_package_id` | the package | unknown |
//! | `cpu/cpuN/cache/indexI/*` | caches | unknown |
//! | `cpu/cpuN/cpu_capacity` | heterogeneous cores | see [`capacity`](self#heterogeneous-cores) |
//!
//! A kernel without `CONFIG_NUMA` has no `node` directory: then there is one node, 0, with all CPUs
//! and the memory of `proc/meminfo`. Distances from and to an offline node are 255, which means
//! unreachable in the SLIT. The machine's name is `proc/sys/kernel/hostname`, else the root's path.
//!
//! # Heterogeneous cores
//! `cpu_capacity` counts if the kernel shows it. Else, on Intel's hybrid machines, which show both
//! `sys/devices/cpu_core` and `cpu_atom`, capacities are in proportion to `acpi_cppc/highest_perf`
//! (which the kernel itself uses for this) or, if that is missing, to `cpufreq/cpuinfo_max_freq`.
//! Otherwise all cores count as equal.
//!
//! Sources: `Documentation/ABI/stable/sysfs-devices-node`, `.../testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/mm/numaperf.rst` (MiB/s and ns of the HMAT figures).

mod caches;
mod cpus;
mod nodes;
mod tree;

use std::path::Path;

use crate::error::ReadError;
use crate::parts::Parts;
use crate::topology::Topology;
use tree::Tree;

/// Reads the machine below `root`, the directory that holds `sys`.
///
/// # Errors
/// [`ReadError`] names the file, what was found in it, and what is wrong or to do.
pub fn read(root: &Path) -> Result<Topology, ReadError> {
    let tree = Tree::new(root);
    let listed = cpus::listed(&tree)?;
    let cpus = cpus::read(&tree, &listed)?;
    let caches = caches::read(&tree, &listed.online)?;
    let (nodes, distances, timing) = nodes::read(&tree, &listed)?;
    let name = match tree.text("proc/sys/kernel/hostname") {
        Ok(Some(name)) if !name.trim().is_empty() => name.trim().to_owned(),
        _ => root.display().to_string(),
    };
    Topology::new(Parts {
        name,
        nodes,
        cpus,
        caches,
        distances,
        timing,
    })
    .map_err(|why| ReadError::invalid(root, why))
}
