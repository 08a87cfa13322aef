//! What the program needs to know of the machine: the nodes, their CPUs, and how much memory is to
//! be had where. Read below a root, so that a test can hand in a tree of its own.

use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

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

    /// The CPUs of `node`, which must have memory. None for a node of memory only.
    pub fn cpus_of_home(&self, node: usize) -> Result<Vec<usize>, Error> {
        let with_memory = self.nodes_with_memory()?;
        if !with_memory.contains(&node) {
            let present = format_list(&with_memory);
            return Err(
                if self.list("sys/devices/system/node/online")?.contains(&node) {
                    Error::NodeWithoutMemory { node, present }
                } else {
                    Error::NoSuchNode { node, present }
                },
            );
        }
        self.list(&format!("sys/devices/system/node/node{node}/cpulist"))
    }

    /// The nodes that have memory.
    pub fn nodes_with_memory(&self) -> Result<Vec<usize>, Error> {
        self.list("sys/devices/system/node/has_memory")
    }

    /// Bytes that a program can take without anything being swapped: of one node what is free or
    /// holds cached files, of the whole machine what the kernel says.
    pub fn available_bytes(&self, node: Option<usize>) -> Result<usize, Error> {
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

    fn list(&self, path: &str) -> Result<Vec<usize>, Error> {
        let text = self.read(path)?;
        parse_list(&text).ok_or_else(|| Error::Malformed {
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

/// The most members that a list is believed to have, and above all their numbers.
const MOST_MEMBERS: usize = 1 << 20;

/// Reads the kernel's list syntax (`0-3,8`); nothing between two commas is no member.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut members = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // A list longer than any machine is a damaged file, not a reason to fill memory.
        if first > last || last >= MOST_MEMBERS || members.len() + (last - first) >= MOST_MEMBERS {
            return None;
        }
        members.extend(first..=last);
    }
    Some(members)
}

/// Writes the kernel's list syntax for ascending `members`.
pub fn format_list(members: &[usize]) -> String {
    members
        .chunk_by(|left, right| left + 1 == *right)
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Three nodes: 0 with CPUs and memory, 1 with CPUs alone, 2 with memory alone.
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
        assert_eq!(machine.cpus_of_home(0).unwrap(), [0, 1, 4]);
        assert_eq!(machine.cpus_of_home(2).unwrap(), [0usize; 0]);
        insta::assert_snapshot!(machine.cpus_of_home(1).unwrap_err(), @"--home 1: the node has CPUs but no memory; choose one of 0,2");
        insta::assert_snapshot!(machine.cpus_of_home(7).unwrap_err(), @"--home 7: the machine has no such memory node; it has 0,2");
    }

    #[test]
    fn memory_to_be_had() {
        let (_root, machine) = machine();
        assert_eq!(machine.available_bytes(None).unwrap(), 1500 << 10);
        assert_eq!(machine.available_bytes(Some(2)).unwrap(), 123 << 10);
        assert!(matches!(
            machine.available_bytes(Some(0)),
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
        let error = machine.cpus_of_home(0).unwrap_err().to_string();
        assert!(
            error.contains("has_memory: \"0-x\" is not a list"),
            "{error}"
        );
    }

    #[test]
    fn a_list_that_repeats_itself_does_not_fill_memory() {
        let range = format!("0-{}", MOST_MEMBERS - 1);
        assert_eq!(parse_list(&format!("{range},{range}")), None);
        assert_eq!(parse_list("0-1048576"), None);
    }

    proptest! {
        #[test]
        fn lists_are_read_back(members in proptest::collection::btree_set(0usize..5000, 0..50)) {
            let members: Vec<usize> = BTreeSet::into_iter(members).collect();
            prop_assert_eq!(parse_list(&format_list(&members)), Some(members));
        }

        #[test]
        fn no_list_makes_it_panic(text in ".{0,24}") {
            let _ = parse_list(&text);
        }
    }
}
