//! The facts about the machine that the program needs: the nodes, their CPUs, and their available
//! memory. Read below a root, so a test can use its own tree.

use crate::error::Error;
use numaherd_topology::{CpuSet, NodeId, NodeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A machine's files.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine whose /proc and /sys are below `root`.
    pub fn at(root: &Path) -> Machine {
        Machine {
            root: root.to_path_buf(),
        }
    }

    /// The CPUs of `node`, which must have memory. Empty for a node of memory only.
    pub fn cpus_of_home(&self, node: NodeId) -> Result<CpuSet, Error> {
        let with_memory = self.nodes_with_memory()?;
        if !with_memory.contains(node) {
            let online: NodeSet = self.list("sys/devices/system/node/online")?;
            let present = with_memory;
            return Err(if online.contains(node) {
                Error::NodeWithoutMemory { node, present }
            } else {
                Error::NoSuchNode { node, present }
            });
        }
        self.list(&format!("sys/devices/system/node/node{node}/cpulist"))
    }

    /// The nodes that have memory.
    pub fn nodes_with_memory(&self) -> Result<NodeSet, Error> {
        self.list("sys/devices/system/node/has_memory")
    }

    /// Bytes that a program can take without swapping: for one node, free memory and cached files;
    /// for the whole machine, the kernel's figure.
    pub fn available_bytes(&self, node: Option<NodeId>) -> Result<usize, Error> {
        let (path, fields): (_, &[&str]) = match node {
            Some(node) => (
                format!("sys/devices/system/node/node{node}/meminfo"),
                &["MemFree", "Active(file)", "Inactive(file)"],
            ),
            None => ("proc/meminfo".to_owned(), &["MemAvailable"]),
        };
        let text = self.read(&path)?;
        let mut bytes = 0;
        for field in fields {
            bytes += kibibytes(&text, field).ok_or_else(|| Error::Malformed {
                path: self.root.join(&path),
                text: text.chars().take(80).collect(),
                expected: "a meminfo file with the amount of free memory",
            })? << 10;
        }
        Ok(bytes)
    }

    fn list<S: FromStr>(&self, path: &str) -> Result<S, Error> {
        let text = self.read(path)?;
        text.parse().map_err(|_| Error::Malformed {
            path: self.root.join(path),
            text: text.trim().to_owned(),
            expected: "a list such as 0-3,8",
        })
    }

    fn read(&self, path: &str) -> Result<String, Error> {
        let path = self.root.join(path);
        fs::read_to_string(&path).map_err(Error::file("read", &path))
    }
}

/// The value of `field` in a meminfo file, of the machine or of a node.
fn kibibytes(text: &str, field: &str) -> Option<usize> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.split_whitespace().last()? == field)
            .then(|| value.trim().strip_suffix(" kB")?.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three nodes: 0 with CPUs and memory, 1 with only CPUs, 2 with only memory.
    fn machine() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/devices/system/node/online", "0-2\n"),
            ("sys/devices/system/node/has_memory", "0,2\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1,4\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            (
                "sys/devices/system/node/node2/meminfo",
                "Node 2 MemTotal:       1000 kB\nNode 2 MemFree:         100 kB\n\
                 Node 2 Active(file):      20 kB\nNode 2 Inactive(file):     3 kB\n",
            ),
            (
                "proc/meminfo",
                "MemTotal: 2000 kB\nMemAvailable:   1500 kB\n",
            ),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::at(root.path());
        (root, machine)
    }

    #[test]
    fn homes_and_their_cpus() {
        let (_root, machine) = machine();
        assert_eq!(
            machine.cpus_of_home(NodeId(0)).unwrap().to_string(),
            "0-1,4"
        );
        assert!(machine.cpus_of_home(NodeId(2)).unwrap().is_empty());
        insta::assert_snapshot!(machine.cpus_of_home(NodeId(1)).unwrap_err(), @"--home 1: the node has CPUs but no memory; choose one of 0,2");
        insta::assert_snapshot!(machine.cpus_of_home(NodeId(7)).unwrap_err(), @"--home 7: the machine has no such memory node; it has 0,2");
    }

    #[test]
    fn memory_to_be_had() {
        let (_root, machine) = machine();
        assert_eq!(machine.available_bytes(None).unwrap(), 1500 << 10);
        assert_eq!(machine.available_bytes(Some(NodeId(2))).unwrap(), 123 << 10);
        assert!(matches!(
            machine.available_bytes(Some(NodeId(0))),
            Err(Error::File { .. })
        ));
    }

    #[test]
    fn a_damaged_list_is_named() {
        let (root, machine) = machine();
        fs::write(
            root.path().join("sys/devices/system/node/has_memory"),
            "0-x\n",
        )
        .unwrap();
        let error = machine.cpus_of_home(NodeId(0)).unwrap_err().to_string();
        assert!(
            error.contains("has_memory: \"0-x\" is not a list"),
            "{error}"
        );
    }
}
