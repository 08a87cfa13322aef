//! Writes a sysfs tree as the kernel would show it, to test machines that are not available.
//!
//! [`read`](numaherd_topology::sysfs::read) gives back the same topology, except for data that sysfs does not show:
//! latencies and bandwidths, the siblings of offline CPUs and caches that only these have, and memory sizes below 1
//! KiB. Each core and cache is written once and linked from its other CPUs, so large trees are quick to write.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use numaherd_topology::{Cache, CacheKind, Cpu, CpuId, CpuSet, Node, NodeSet, Topology};

/// Writes `topology` as `sys/devices/system/{cpu,node}`, `proc/meminfo` and the host's name below
/// `root`, which is created. Only CPUs and nodes that are online get a directory of their own.
///
/// # Errors
/// The first file or directory that could not be written.
pub fn write(topology: &Topology, root: &Path) -> io::Result<()> {
    let system = root.join("sys/devices/system");
    write_nodes(topology, &Directory::create(system.join("node"))?)?;
    write_cpus(topology, &Directory::create(system.join("cpu"))?)?;
    let total: u64 = topology.nodes().iter().map(|node| node.memory_bytes).sum();
    Directory::create(root.join("proc"))?.file(
        "meminfo",
        format_args!("MemTotal:       {:8} kB", total >> 10),
    )?;
    Directory::create(root.join("proc/sys/kernel"))?.file("hostname", topology.name())
}

fn write_nodes(topology: &Topology, directory: &Directory) -> io::Result<()> {
    let nodes = topology.nodes();
    let those = |wanted: fn(&Node) -> bool| -> NodeSet {
        nodes
            .iter()
            .filter(|node| wanted(node))
            .map(|node| node.id)
            .collect()
    };
    directory.file("possible", those(|_| true))?;
    directory.file("online", those(|node| node.online))?;
    directory.file("has_cpu", those(|node| !node.cpus.is_empty()))?;
    directory.file("has_memory", those(|node| node.memory_bytes > 0))?;
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.online) {
        let of_node = directory.directory(format!("node{}", node.id))?;
        of_node.file("cpulist", &node.cpus)?;
        let row = &topology.distances().rows[at];
        let shown = nodes.iter().zip(row).filter(|(to, _)| to.online);
        let shown: Vec<String> = shown.map(|(_, distance)| distance.to_string()).collect();
        of_node.file("distance", shown.join(" "))?;
        let kib = node.memory_bytes >> 10;
        of_node.file(
            "meminfo",
            format_args!("Node {} MemTotal:       {kib:8} kB", node.id),
        )?;
    }
    Ok(())
}

fn write_cpus(topology: &Topology, directory: &Directory) -> io::Result<()> {
    let cpus = topology.cpus();
    let those = |wanted: fn(&Cpu) -> bool| -> CpuSet {
        cpus.iter()
            .filter(|cpu| wanted(cpu))
            .map(|cpu| cpu.id)
            .collect()
    };
    let online = those(|cpu| cpu.online);
    directory.file("possible", those(|_| true))?;
    directory.file("present", those(|_| true))?;
    directory.file("online", &online)?;
    directory.file("offline", those(|cpu| !cpu.online))?;
    let heterogeneous = cpus.iter().any(|cpu| cpu.capacity != 1024);
    let caches = caches_of_each_cpu(topology);
    for (at, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.online) {
        let of_cpu = directory.directory(format!("cpu{}", cpu.id))?;
        if heterogeneous {
            of_cpu.file("cpu_capacity", cpu.capacity)?;
        }
        let siblings = topology.cores()[cpu.core.index()]
            .cpus
            .intersection(&online);
        let first = siblings.first().and_then(|first| topology.cpu(first));
        match first.filter(|first| first.id != cpu.id && first.package == cpu.package) {
            Some(first) => of_cpu.link("topology", &format!("../cpu{}/topology", first.id))?,
            None => write_place(cpu, &siblings, &of_cpu.directory("topology")?)?,
        }
        if !caches[at].is_empty() {
            let of_caches = of_cpu.directory("cache")?;
            for (index, cache) in caches[at].iter().enumerate() {
                let first = cache.cpus.intersection(&online).first();
                let name = format!("index{index}");
                match first.filter(|&first| first != cpu.id) {
                    None => write_cache(cache, &of_caches.directory(name)?)?,
                    Some(first) => {
                        let target = place_of(&caches, topology, first, cache);
                        of_caches.link(&name, &target)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn write_place(cpu: &Cpu, siblings: &CpuSet, directory: &Directory) -> io::Result<()> {
    directory.file("core_cpus_list", siblings)?;
    directory.file("core_id", cpu.core)?;
    match cpu.package {
        Some(package) => directory.file("physical_package_id", package),
        None => directory.file("physical_package_id", -1),
    }
}

/// The caches of each CPU, in the order of [`Topology::cpus`], nearest first.
fn caches_of_each_cpu(topology: &Topology) -> Vec<Vec<&Cache>> {
    let mut of_cpu = vec![Vec::new(); topology.cpus().len()];
    for cache in topology.caches() {
        for cpu in cache.cpus.iter() {
            if let Some(at) = topology.cpu_index(cpu) {
                of_cpu[at].push(cache);
            }
        }
    }
    of_cpu
}

/// The path to a cache's directory at the first CPU that shares it, relative to another CPU's cache directory.
fn place_of(caches: &[Vec<&Cache>], topology: &Topology, first: CpuId, cache: &Cache) -> String {
    let at = topology
        .cpu_index(first)
        .expect("caches name CPUs that exist");
    let index = caches[at]
        .iter()
        .position(|&other| std::ptr::eq(other, cache));
    let index = index.expect("a CPU has the caches that name it");
    format!("../../cpu{first}/cache/index{index}")
}

fn write_cache(cache: &Cache, directory: &Directory) -> io::Result<()> {
    directory.file("level", cache.level)?;
    directory.file(
        "type",
        match cache.kind {
            CacheKind::Data => "Data",
            CacheKind::Instruction => "Instruction",
            CacheKind::Unified => "Unified",
        },
    )?;
    if let Some(bytes) = cache.size_bytes {
        match bytes.is_multiple_of(1024) {
            true => directory.file("size", format_args!("{}K", bytes >> 10))?,
            false => directory.file("size", bytes)?,
        }
    }
    if let Some(bytes) = cache.line_bytes {
        directory.file("coherency_line_size", bytes)?;
    }
    if let Some(ways) = cache.ways {
        directory.file("ways_of_associativity", ways)?;
    }
    // The kernel keeps offline CPUs in this list (seen in Linux 6.12).
    directory.file("shared_cpu_list", &cache.cpus)
}

struct Directory(PathBuf);

impl Directory {
    fn create(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path).map_err(|error| named(&path, &error))?;
        Ok(Self(path))
    }

    fn directory(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        Self::create(self.0.join(name))
    }

    fn link(&self, name: &str, target: &str) -> io::Result<()> {
        let path = self.0.join(name);
        symlink(target, &path).map_err(|error| named(&path, &error))
    }

    fn file(&self, name: &str, contents: impl Display) -> io::Result<()> {
        let path = self.0.join(name);
        fs::write(&path, format!("{contents}\n")).map_err(|error| named(&path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot write {}: {error}", path.display()),
    )
}
