//! Finds the policies that are files of their own: those of `src/added/`, and those of the folder
//! that `NUMAHERD_POLICIES` names when the program is built.
//!
//! For each file `some_name.rs` it writes `pub mod some_name;` and puts `some_name::ADDED` into the
//! list that `src/added.rs` includes, so that nobody has to name a file twice.

use std::path::{Path, PathBuf};
use std::{env, fs};

const OUTSIDE: &str = "NUMAHERD_POLICIES";

fn main() {
    println!("cargo::rerun-if-env-changed={OUTSIDE}");
    let mut folders = vec![PathBuf::from("src/added")];
    folders.extend(
        env::var_os(OUTSIDE)
            .filter(|folder| !folder.is_empty())
            .map(PathBuf::from),
    );
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in &folders {
        println!("cargo::rerun-if-changed={}", folder.display());
        files.extend(sources(folder));
    }
    let (mut modules, mut list) = (String::new(), String::new());
    for file in &files {
        let name = module(file);
        modules += &format!("#[path = {file:?}]\npub mod {name};\n");
        list += &format!("    {name}::ADDED,\n");
    }
    let text = format!(
        "{modules}\n/// All lists: the baseline, those of the files by name, and the published policies.\n\
         pub const ALL: &[Added] = &[\n    crate::registry::BASELINE,\n{list}    \
         crate::registry::PUBLISHED,\n];\n"
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("added.rs"), text).expect("OUT_DIR can be written");
}

/// The Rust files of a folder, by their whole paths, in the order of their names.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let folder = fs::canonicalize(folder).unwrap_or_else(|error| {
        panic!(
            "cannot look for policies in {} ({OUTSIDE} is read from crates/policy: give a whole \
             path): {error}",
            folder.display()
        )
    });
    let entries = fs::read_dir(&folder).expect("a folder that is there can be listed");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .collect();
    files.sort();
    files
}

/// What a file is called in Rust.
fn module(file: &Path) -> &str {
    let name = file.file_stem().and_then(|name| name.to_str());
    name.filter(|name| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
    .unwrap_or_else(|| {
        panic!(
            "{} holds a policy: name the file in small letters, digits and _ only",
            file.display()
        )
    })
}
