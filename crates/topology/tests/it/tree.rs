//! Unpacks a fixture into a directory of its own.
//!
//! A fixture is a text of lines `path = contents`. Braces in a path stand for each number of a
//! list in the kernel's syntax, and empty braces in path or contents for that number again:
//! `sys/devices/system/cpu/cpu{0-3}/topology/core_id = {}`. In contents, `\n` is a new line. Lines
//! that start with `#` say what the fixture shows.

use std::fs;
use std::path::Path;

use numaherd_topology::CpuSet;
use tempfile::TempDir;

/// The text of a committed fixture.
pub fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tree"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A new directory, in memory where the machine has such a place: large trees are many small files.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Unpacks a fixture's text; the directory goes when the value is dropped.
pub fn unpack(manifest: &str) -> TempDir {
    let root = directory();
    for line in manifest
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let (path, contents) = line.split_once(" =").unwrap_or_else(|| panic!("{line}"));
        let Some((before, rest)) = path.split_once('{') else {
            write(root.path(), path, contents);
            continue;
        };
        let (list, after) = rest.split_once('}').unwrap();
        for number in list.parse::<CpuSet>().unwrap().iter() {
            let path = format!(
                "{before}{number}{}",
                after.replace("{}", &number.to_string())
            );
            write(
                root.path(),
                &path,
                &contents.replace("{}", &number.to_string()),
            );
        }
    }
    root
}

fn write(root: &Path, path: &str, contents: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents.trim().replace("\\n", "\n") + "\n").unwrap();
}
