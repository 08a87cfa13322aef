//! Files under a root: /proc, /sys and the cgroup file systems of this machine or of a captured tree.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numaherd_topology::{CpuId, IdSet, NodeId, Topology};
use rustix::fs::RawDir;

/// Most files of /proc and /sys fit into this many bytes, with room to see their end.
const USUAL_BYTES: usize = 4096;

/// The root under which everything is found.
#[derive(Clone, Debug)]
pub struct Root(Arc<Path>);

impl Root {
    pub fn new(root: &Path) -> Self {
        Self(root.into())
    }

    /// Whether this is the machine itself.
    pub fn is_live(&self) -> bool {
        self.0.as_os_str() == "/"
    }

    /// A path under the root; leading slashes do not lead out of it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub fn open(&self, path: &str) -> io::Result<File> {
        File::open(self.path(path))
    }

    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        self.read_into(path, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads into a reused buffer.
    pub fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        // A file by itself would be asked for its length, which says nothing in /proc.
        let mut file = self.open(path)?.take(u64::MAX);
        file.read_to_end(buffer).map(drop)
    }

    /// The text of a file without white space around it; `None` where it is not there.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.read(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number in a file; `None` if there is no file, or no number in it.
    pub fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// The list of CPUs or nodes in a file, likewise.
    pub fn list<T: Copy + Into<u32> + From<u32>>(&self, path: &str) -> Option<IdSet<T>> {
        self.text(path)?.parse().ok()
    }

    /// The numbers after `prefix` in a folder's names, ascending.
    pub fn numbers(&self, path: &str, prefix: &str) -> io::Result<Vec<u32>> {
        let mut bytes = [MaybeUninit::uninit(); USUAL_BYTES];
        let mut folder = RawDir::new(self.open(path)?, &mut bytes);
        let mut numbers: Vec<u32> = Vec::new();
        while let Some(Ok(entry)) = folder.next() {
            let name = entry.file_name().to_str().ok();
            numbers.extend(name.and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The path of a node's meminfo file. A kernel without NUMA has one node and no folder for it.
    pub fn meminfo_of(&self, node: NodeId, topology: &Topology) -> String {
        let of_node = format!("sys/devices/system/node/node{node}/meminfo");
        match topology.nodes().len() == 1 && !self.path(&of_node).exists() {
            true => "proc/meminfo".to_owned(),
            false => of_node,
        }
    }

    /// The CPUs that are online now; `None` if the tree does not say.
    pub fn online_cpus(&self) -> Option<IdSet<CpuId>> {
        self.list("sys/devices/system/cpu/online")
    }
}
