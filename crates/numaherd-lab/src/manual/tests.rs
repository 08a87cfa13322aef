//! The pages of both programs against their definitions, and what the shells and groff say of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use numaherd::cli::Manual;
use numaherd::manual::Page;

use super::*;
use crate::tests::documents;

/// What both programs write, each into a folder of its own in one that goes with the test.
fn written(date: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, book) in [("daemon", numaherd::manual::own()), ("laboratory", own())] {
        let options = Manual {
            folder: folder.path().join(name),
            date: date.to_owned(),
        };
        book.write(&options).unwrap();
    }
    folder
}

/// The files below both programs' folders with these names.
fn both(folder: &tempfile::TempDir, file: &str) -> [PathBuf; 2] {
    ["daemon", "laboratory"].map(|program| folder.path().join(program).join(file))
}

fn pages_in(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let folders = both(folder, "man1").into_iter();
    let listed = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn names() -> BTreeSet<String> {
    own().names()
}

fn pages() -> impl Iterator<Item = &'static Page> {
    numaherd::manual::own().pages.iter().chain(own().pages)
}

#[test]
fn every_command_has_one_page_with_examples_and_every_page_a_command() {
    let told: Vec<&str> = pages().map(|page| page.name).collect();
    for name in names() {
        let pages = told.iter().filter(|told| **told == name).count();
        assert_eq!(pages, 1, "a page in manual/pages.rs of one program: {name}");
    }
    for page in pages() {
        assert!(names().contains(page.name), "{}", page.name);
        assert!(!page.examples.is_empty(), "{}", page.name);
        for beside in page.beside {
            assert!(told.contains(beside), "{} names {beside}", page.name);
        }
    }
}

#[test]
fn the_programs_understand_their_examples() {
    for page in pages() {
        for (_, line) in page.examples {
            let spaced = page.name.replace('-', " ");
            let is_own = page.name == "numaherd" || line.starts_with(&spaced);
            assert!(is_own, "{line:?} is no example of {}", page.name);
            if let Err(error) = documents::read(&words(line)) {
                panic!("{line}: {error}");
            }
        }
    }
}

/// A line's words; of quotes it knows the double ones.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (at, part) in line.split('"').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn a_page_tells_all_sections_and_the_same_bytes_again() {
    let (first, second) = (written("2026-11-20"), written("2026-11-20"));
    let (pages, again) = (pages_in(&first), pages_in(&second));
    assert_eq!(pages.len(), names().len());
    for (page, again) in std::iter::zip(&pages, &again) {
        let text = fs::read_to_string(page).unwrap();
        assert_eq!(text, fs::read_to_string(again).unwrap());
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ] {
            let heading = format!(".SH {section}\n");
            assert!(
                text.contains(&heading),
                "{} has no {section}",
                page.display()
            );
        }
        assert!(text.contains("2026\\-11\\-20") || text.contains("2026-11-20"));
    }
    let program = fs::read_to_string(first.path().join("daemon/man1/numaherd.1")).unwrap();
    for code in 0..=7 {
        assert!(
            program.contains(&format!("\\fB{code}\\fR")),
            "no exit code {code}"
        );
    }
}

#[test]
fn hidden_commands_are_hidden() {
    let folder = written("");
    for file in ["bash/numaherd", "zsh/_numaherd", "fish/numaherd.fish"] {
        for file in both(&folder, file) {
            let text = fs::read_to_string(&file).unwrap();
            let file = file.display();
            assert!(
                text.contains("doctor") && text.contains("simulate"),
                "{file}"
            );
            for hidden in ["profile-run", "profile__run", "lab-trial", "lab__trial"] {
                assert!(!text.contains(hidden), "{file} offers {hidden}");
            }
        }
    }
    let hidden = [
        "numaherd-manual",
        "numaherd-profile-run",
        "numaherd-lab-trial",
    ];
    assert!(hidden.iter().all(|hidden| !names().contains(*hidden)));
}

/// What a program says of a file, where the program is here.
fn said_by(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let output = Process::new(program).args(arguments).arg(file).output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!(
                "skipped: there is no {program} here, {} was not read",
                file.display()
            );
            return None;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{program} {}: {said}",
        file.display()
    );
    Some(said)
}

#[test]
fn groff_finds_nothing_wrong_with_the_pages() {
    let folder = written("2026-11-20");
    for page in pages_in(&folder) {
        let said = said_by("groff", &["-Kutf8", "-Tutf8", "-ww", "-man", "-z"], &page);
        assert_eq!(said.unwrap_or_default(), "", "{}", page.display());
    }
}

#[test]
fn the_shells_read_their_completions() {
    let folder = written("");
    for (shell, file) in [
        ("bash", "bash/numaherd"),
        ("zsh", "zsh/_numaherd"),
        ("fish", "fish/numaherd.fish"),
    ] {
        for file in both(&folder, file) {
            let said = said_by(shell, &["-n"], &file);
            assert_eq!(said.unwrap_or_default(), "", "{}", file.display());
        }
    }
}
