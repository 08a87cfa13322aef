//! The pages against the definition, and the shells' and groff's own word on what is written.

use std::path::PathBuf;
use std::process::Command as Process;

use clap::Parser;

use super::*;

/// What is written, in a folder that goes with the test.
fn written(date: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = Manual {
        folder: folder.path().to_owned(),
        date: date.to_owned(),
    };
    manual(&options).unwrap();
    folder
}

fn pages_in(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.path().join("man1")).unwrap();
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn names() -> Vec<String> {
    let mut names = Vec::new();
    each(&definition(), &mut |command| {
        names.push(page_name(command).to_owned());
        Ok(())
    })
    .unwrap();
    names
}

#[test]
fn every_command_has_a_page_with_examples_and_no_page_is_of_none() {
    let names = names();
    let told: Vec<&str> = pages::all().iter().map(|page| page.name).collect();
    let without: Vec<_> = names
        .iter()
        .filter(|name| !told.contains(&name.as_str()))
        .collect();
    assert!(
        without.is_empty(),
        "say in manual/pages.rs what these are good for: {without:?}"
    );
    for page in pages::all() {
        assert!(names.contains(&page.name.to_owned()), "{}", page.name);
        assert!(!page.examples.is_empty(), "{}", page.name);
        for beside in page.beside {
            assert!(told.contains(beside), "{} names {beside}", page.name);
        }
    }
}

#[test]
fn the_program_understands_its_examples() {
    for page in pages::all() {
        for (_, line) in page.examples {
            let words = words(line);
            let spaced = page.name.replace('-', " ");
            let is_own = page.name == PROGRAM || line.starts_with(&spaced);
            assert!(is_own, "{line:?} is no example of {}", page.name);
            if let Err(error) = Cli::try_parse_from(&words) {
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
    let program = fs::read_to_string(first.path().join("man1/numaherd.1")).unwrap();
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
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.contains("doctor"), "{file}");
        for hidden in ["profile-run", "profile__run", "lab-trial", "lab__trial"] {
            assert!(!text.contains(hidden), "{file} offers {hidden}");
        }
    }
    let hidden = [
        "numaherd-manual",
        "numaherd-profile-run",
        "numaherd-lab-trial",
    ];
    assert!(
        hidden
            .iter()
            .all(|hidden| !names().contains(&(*hidden).to_owned()))
    );
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
        let said = said_by(shell, &["-n"], &folder.path().join(file));
        assert_eq!(said.unwrap_or_default(), "", "{file}");
    }
}
