//! The pages against the definitions of both programs, and what the shells and groff say of them.

use std::path::PathBuf;
use std::process::Command as Process;

use super::*;
use crate::tests::documents;

const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash/numaherd"),
    ("zsh", "zsh/_numaherd"),
    ("fish", "fish/numaherd.fish"),
];

/// All that is written, in a folder that goes with the test.
fn written(date: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = Manual {
        folder: folder.path().to_owned(),
        date: date.to_owned(),
    };
    write(&options).unwrap();
    folder
}

fn pages_in(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let folders = [NAME, laboratory::PROGRAM].map(|name| folder.path().join(name).join("man1"));
    let listed = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn names() -> BTreeSet<String> {
    let definition = definition();
    let names = all(&definition).into_iter().map(page_name);
    names.map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_page_with_examples_and_every_page_a_command() {
    let pages = Pages::read().unwrap().pages;
    let told: BTreeSet<String> = pages.keys().cloned().collect();
    assert_eq!(told, names());
    for (name, page) in pages {
        assert!(!page.examples.is_empty(), "{name}");
        for beside in &page.see_also {
            assert!(told.contains(beside), "{name} names {beside}");
        }
    }
}

#[test]
fn paragraphs_of_help_are_wrapped_by_the_terminal_alone() {
    for command in all(&definition()) {
        let help = command.get_after_help();
        for line in help.map(ToString::to_string).unwrap_or_default().lines() {
            let is_whole = line.is_empty() || line.starts_with(' ') || line.ends_with(['.', ':']);
            assert!(is_whole, "{}: {line}", page_name(command));
        }
    }
}

#[test]
fn a_page_belongs_to_the_program_that_carries_its_command_out() {
    assert_eq!(program("numaherd"), "numaherd");
    assert_eq!(program("numaherd-config-show"), "numaherd");
    assert_eq!(program("numaherd-trace-sra"), "numaherd-lab");
}

#[test]
fn the_programs_understand_their_examples() {
    for (name, page) in Pages::read().unwrap().pages {
        for [_, line] in &page.examples {
            let is_own = name == NAME || line.starts_with(&name.replace('-', " "));
            assert!(is_own, "{line:?} is no example of {name}");
            if let Err(error) = documents::read(&words(line)) {
                panic!("{line}: {error}");
            }
        }
    }
}

/// A line's words; only double quotes count as quotes.
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
    let program = fs::read_to_string(first.path().join("numaherd/man1/numaherd.1")).unwrap();
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
    for (_, file) in COMPLETIONS {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(
            text.contains("doctor") && text.contains("simulate"),
            "{file}"
        );
        for hidden in ["profile-run", "profile__run", "lab-trial", "lab__trial"] {
            assert!(!text.contains(hidden), "{file} offers {hidden}");
        }
    }
    for hidden in [
        "numaherd-manual",
        "numaherd-profile-run",
        "numaherd-lab-trial",
    ] {
        assert!(!names().contains(hidden), "{hidden}");
    }
}

/// What a program prints about a file, if the program is installed.
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
    for (shell, file) in COMPLETIONS {
        let said = said_by(shell, &["-n"], &folder.path().join(file));
        assert_eq!(said.unwrap_or_default(), "", "{file}");
    }
}
