//! Prints how many lines of Rust each crate has: code, comments (with blank lines), tests. Of this tree, or of
//! another one that is named: `cargo run -p numaherd-tests --bin lines -- ../before`.
//!
//! Tests are the folders `tests`, `benches` and `fuzz`, the crate `testing`, items behind
//! `#[cfg(test)]`, and the files of modules that are behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use numaherd_tests::{files, production, root};

#[derive(Clone, Copy, Default)]
struct Lines {
    code: usize,
    comments: usize,
    tests: usize,
}

impl Lines {
    fn add(&mut self, other: Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
    }

    fn print(self, name: &str) {
        let Self {
            code,
            comments,
            tests,
        } = self;
        let all = code + comments + tests;
        println!("{name:<20}{code:>10}{comments:>10}{tests:>10}{all:>10}");
    }
}

fn main() {
    let tree = std::env::args_os().nth(1).map_or_else(root, PathBuf::from);
    let folders = ["crates", "menagerie", "tests", "fuzz"].map(|folder| tree.join(folder));
    let files: Vec<PathBuf> = (folders.iter())
        .flat_map(|folder| files(&folder.to_string_lossy(), &[".rs"]))
        .collect();
    let behind_test: BTreeSet<PathBuf> = files.iter().flat_map(|file| test_modules(file)).collect();
    let mut crates: BTreeMap<String, Lines> = BTreeMap::new();
    for file in &files {
        let shown = file.strip_prefix(&tree).unwrap_or(file).to_string_lossy();
        let is_test =
            file.ancestors().any(|part| behind_test.contains(part)) || is_for_tests(&shown);
        crates
            .entry(crate_of(&shown))
            .or_default()
            .add(count(file, is_test));
    }
    let mut all = Lines::default();
    println!(
        "{:<20}{:>10}{:>10}{:>10}{:>10}",
        "crate", "code", "comments", "tests", "all"
    );
    for (name, lines) in crates {
        lines.print(&name);
        all.add(lines);
    }
    all.print("all");
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("sources are UTF-8")
}

fn count(file: &Path, is_test: bool) -> Lines {
    let source = read(file);
    let all = source.lines().count();
    if is_test {
        return Lines {
            tests: all,
            ..Lines::default()
        };
    }
    let production = production(&source);
    let is_comment = |line: &str| line.is_empty() || line.starts_with("//");
    let of_code = production.iter().map(|(_, line)| line.trim());
    let code = of_code.filter(|line| !is_comment(line)).count();
    Lines {
        code,
        comments: production.len() - code,
        tests: all - production.len(),
    }
}

/// The crate of a file, by its path in the tree: its folder's name.
fn crate_of(shown: &str) -> String {
    let folders: Vec<&str> = shown.split('/').collect();
    match folders[..] {
        ["crates", "lab", inner @ ("guest" | "plugin"), ..] => format!("lab/{inner}"),
        ["crates", name, ..] => name.to_owned(),
        [name, ..] => name.to_owned(),
        [] => String::new(),
    }
}

fn is_for_tests(shown: &str) -> bool {
    let mut folders = shown.split('/');
    folders.any(|folder| matches!(folder, "tests" | "benches" | "fuzz" | "testing"))
}

/// The files and folders of the modules that a file has behind `#[cfg(test)]`.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let source = read(file);
    let folder = file.parent().expect("a file is in a folder");
    let own = match file.file_stem().and_then(|name| name.to_str()) {
        Some("mod" | "lib" | "main") | None => folder.to_owned(),
        Some(name) => folder.join(name),
    };
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let behind = (0..lines.len()).filter(|&at| lines[at] == "#[cfg(test)]");
    behind
        .filter_map(|at| lines[at + 1..].iter().find(|line| !line.starts_with('#')))
        .filter_map(|line| {
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        })
        .flat_map(|name| [own.join(format!("{name}.rs")), own.join(name)])
        .collect()
}
