//! What the end-to-end tests share: where the tree is and what is in it.

use std::path::{Path, PathBuf};

/// The root of the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is in the root")
        .to_owned()
}

/// Every file below a folder of the tree with one of these endings, in a stable order. Build
/// results and hidden folders are left out.
pub fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("the tree can be listed").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let skipped = name.starts_with('.') || name == "target";
            if path.is_dir() && !skipped {
                open.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A path as it is written in messages: relative to the root.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Lines of a Rust file that belong to no test, with their numbers: each item behind
/// `#[cfg(test)]` is left out. Relies on rustfmt: an item ends at its own indentation.
pub fn production(source: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut lines = (1..).zip(source.lines());
    while let Some((at, line)) = lines.next() {
        let item = line.trim_start();
        if item != "#[cfg(test)]" {
            kept.push((at, line));
            continue;
        }
        let indent = &line[..line.len() - item.len()];
        let ends = |line: &str| {
            line.strip_prefix(indent).is_some_and(|line| {
                let is_whole = line.ends_with([';', '}']) && !line.starts_with([' ', '#', '/']);
                line.starts_with(['}', ')', ']']) || is_whole
            })
        };
        let _ = lines.by_ref().find(|(_, line)| ends(line));
    }
    kept
}
