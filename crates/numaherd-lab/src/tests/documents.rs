//! The documents match the program: every command in them is one that it understands.
//!
//! Problem: an option that is renamed lives on in the guides, and the person who copies it at night is the first to
//! know. Rule: the program's own definition reads each command line of `numaherd` in a code block of README.md,
//! CONTRIBUTING.md, docs/ and the workloads' page, and each that is between backquotes in the text. In a block, a
//! command is complete. In the text, it may leave out required arguments (`numaherd report`) or name them in
//! capitals, but must not name anything that does not exist.
//!
//! Beyond what clap knows: policies in it are policies, `make` has its targets, and what a command reads from this
//! tree (`scenarios/…`, `data/…`, `scripts/…`) exists.

mod commands;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;
use numaherd_experiment::World;
use numaherd_experiment::scenario::Ours;
use numaherd_policy::registry;

use self::commands::{Found, Place, commands};
use crate::cli::{Cli, Command, Lab, Trace};
use numaherd::{cli as daemon, laboratory};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages that tell people what to type, by their paths from the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("menagerie/README.md")];
    let mut folders = vec![PathBuf::new(), PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the tree") {
            let path = folder.join(entry.expect("can be listed").file_name());
            if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            } else if path.starts_with("docs") && root().join(&path).is_dir() {
                folders.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// What is wrong with a command, if anything is.
fn wrong(found: &Found) -> Option<String> {
    match Path::new(&found.words[0]).file_name()?.to_str()? {
        "numaherd" => match read(&found.words) {
            Ok(names) => unknown(&names).or_else(|| missing(&found.words)),
            Err(error) => {
                let shows = matches!(
                    error.kind(),
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
                );
                let leaves_out = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::ValueValidation
                );
                let fine = shows || (leaves_out && found.place == Place::Text);
                (!fine).then(|| error.to_string())
            }
        },
        "make" => {
            let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
            let mut targets = found.words[1..].iter().filter(|word| !word.contains('='));
            let known = |target: &str| {
                let rule = format!("{target}:");
                makefile.lines().any(|line| line.starts_with(&rule))
            };
            let unknown = targets.find(|target| !known(target))?;
            Some(format!("the Makefile has no target {unknown}"))
        }
        _ => missing(&found.words),
    }
}

/// The policies that a command names, by the definition of the program it belongs to.
pub fn read(words: &[String]) -> Result<Vec<String>, clap::Error> {
    let words = || words.iter().map(OsString::from);
    Ok(match laboratory::arguments(words()) {
        Some(_) => match Cli::try_parse_from(words())?.command {
            Command::Simulate(simulate) => simulate.policies,
            Command::Trace(Trace::Simulate(simulate)) => simulate.policies,
            Command::Lab(Lab::Compare(compare)) => compare.policies,
            _ => Vec::new(),
        },
        None => match daemon::Cli::try_parse_from(words())?.command {
            daemon::Command::Run(run) => run.policy.into_iter().collect(),
            daemon::Command::Policies(policies) => policies.name.into_iter().collect(),
            _ => Vec::new(),
        },
    })
}

/// The first name that is not a policy's.
fn unknown(names: &[String]) -> Option<String> {
    // Placeholders for names are written in capitals; the peers of the lab are not policies.
    let peers = World::Lab.other_policies();
    let concrete =
        |name: &&String| name.chars().any(char::is_lowercase) && !peers.contains(&name.as_str());
    names
        .iter()
        .filter(concrete)
        .find_map(|name| Some(registry::halves(Ours::of(name).policy).err()?.to_string()))
}

/// The first file of this tree that a command reads and that does not exist.
fn missing(words: &[String]) -> Option<String> {
    let of_the_tree = |word: &&String| {
        ["scenarios/", "data/", "scripts/"]
            .iter()
            .any(|folder| word.starts_with(folder))
    };
    let gone = words
        .iter()
        .filter(of_the_tree)
        .find(|word| !root().join(word).exists())?;
    Some(format!("there is no {gone}"))
}

#[test]
fn every_command_in_the_documents_is_one() {
    let mut seen = 0;
    let mut mistakes = String::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).expect("pages are UTF-8");
        for found in commands(&text) {
            seen += 1;
            if let Some(why) = wrong(&found) {
                let first = why.lines().next().unwrap_or_default();
                let command = found.words.join(" ");
                mistakes += &format!(
                    "{}:{}: {command}\n    {first}\n",
                    page.display(),
                    found.line
                );
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes}");
    assert!(
        seen >= 80,
        "only {seen} commands were found: what reads them is broken"
    );
}

#[test]
fn a_mistake_in_a_document_is_found() {
    let told = |text: &str| -> Vec<String> { commands(text).iter().filter_map(wrong).collect() };
    let blocks = "```\nnumaherd run --dryrun\nnumaherd rum\nnumaherd report\n\
                  numaherd run --policy dimo\nnumaherd simulate scenarios/none.toml\nmake tee\n```\n";
    let mistakes = told(blocks);
    assert_eq!(mistakes.len(), 6, "{mistakes:#?}");
    assert!(mistakes[3].contains("did you mean \"dino\"?"));
    assert_eq!(
        told("`numaherd report`, `numaherd run -- CMD`, `make demo`"),
        [""; 0]
    );
    assert_eq!(told("`numaherd explain --pit 3`").len(), 1);
    assert_eq!(
        told("```\nnumaherd simulate all --policies linux,oracle\n```"),
        [""; 0]
    );
}
