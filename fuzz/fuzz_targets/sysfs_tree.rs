//! sysfs trees: the live machine's, a captured one, or one that lies.
//!
//! The input is a text of lines `path = contents`, as the fixtures of `crates/topology/tests` are.
//! Braces in a path stand for each number of a list, `{}` in the contents for that number, and `\n`
//! in the contents for a new line. It is unpacked into a directory of its own.
//!
//! Holds: no tree makes the reader panic; a topology that was read can be written as a tree that
//! reads back the same. What no sysfs shows is left out of the comparison, as `sysfs::write` says:
//! latencies and bandwidths, and what there is to know of offline CPUs and nodes.
//!
//! Reader: crates/topology/src/sysfs.rs crates/topology/src/sysfs
#![cfg_attr(feature = "fuzz", no_main)]

use std::fs;
use std::path::Path;

use numaherd_fuzz::temporary;
use numaherd_topology::{CpuSet, Topology, sysfs};

/// Bounds on a tree, so that one input stays cheap; nothing in the reader depends on them.
const MOST_FILES: usize = 400;
const DEEPEST: usize = 12;

numaherd_fuzz::target!(|manifest: &str| {
    let root = temporary();
    if !unpack(manifest, root.path()) {
        return false;
    }
    match sysfs::read(root.path()) {
        Ok(read) => reads_back(&read),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    true
});

fn reads_back(first: &Topology) {
    // The kernel shows sizes of caches in KiB, so a tree that has others was not a kernel's.
    let kernels = |size: Option<u64>| size.is_none_or(|bytes| bytes % 1024 == 0);
    if !first.caches().iter().all(|cache| kernels(cache.size_bytes)) {
        return;
    }
    let second = written_and_read(first);
    if first.nodes().iter().all(|node| node.online) && first.cpus().iter().all(|cpu| cpu.online) {
        assert_eq!(second.name(), first.name());
        assert_eq!(second.nodes(), first.nodes());
        assert_eq!(second.cpus(), first.cpus());
        assert_eq!(second.cores(), first.cores());
        assert_eq!(second.domains(), first.domains());
        assert_eq!(second.caches(), first.caches());
        assert_eq!(second.distances(), first.distances());
    }
    // What is lost is lost the first time.
    assert_eq!(written_and_read(&second), second);
}

fn written_and_read(topology: &Topology) -> Topology {
    let root = temporary();
    numaherd_testing::sysfs::write(topology, root.path())
        .expect("a directory of our own can be written");
    sysfs::read(root.path()).expect("what is written can be read")
}

/// Writes the files; false where the text is no such tree or leads out of it.
fn unpack(manifest: &str, root: &Path) -> bool {
    let mut files = 0;
    for line in manifest.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((path, contents)) = line.split_once(" =") else {
            return false;
        };
        let numbered = path
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        let Some((before, (list, after))) = numbered else {
            files += 1;
            if files > MOST_FILES || !write(root, path, contents) {
                return false;
            }
            continue;
        };
        // A list that is short on paper may name a million numbers.
        let Ok(numbers) = list.parse::<CpuSet>() else {
            return false;
        };
        for number in numbers.iter() {
            let number = number.to_string();
            let path = format!("{before}{number}{}", after.replace("{}", &number));
            files += 1;
            if files > MOST_FILES || !write(root, &path, &contents.replace("{}", &number)) {
                return false;
            }
        }
    }
    true
}

fn write(root: &Path, path: &str, contents: &str) -> bool {
    let inside = |part: &str| {
        !part.is_empty() && part.len() <= 40 && !part.starts_with('.') && !part.contains('\0')
    };
    if path.split('/').count() > DEEPEST || !path.split('/').all(inside) {
        return false;
    }
    let path = root.join(path);
    let folder = path.parent().expect("it is below the root");
    // Where a file and a folder have one name, or a path a wrong end, the first one stays.
    if fs::create_dir_all(folder).is_ok() && !path.is_dir() {
        let contents = contents.trim_start().replace("\\n", "\n") + "\n";
        return fs::write(path, contents).is_ok();
    }
    true
}
