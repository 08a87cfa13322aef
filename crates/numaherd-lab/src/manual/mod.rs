//! The manual pages and the shells' completions of both programs, from the definitions of their command lines.
//!
//! A page contains what the definition says (name, synopsis, description, options, commands, the end of
//! `--help`), the exit codes, and what the definition cannot hold: files, environment and examples
//! (`pages.toml`). `numaherd-lab manual` writes them when the programs are packaged (`scripts/package.sh`), so that
//! no page is older than its program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use numaherd::cli::Cli as Daemon;
use numaherd::exit::EXIT_CODES;
use numaherd::laboratory;
use serde::Deserialize;

use crate::cli::{Cli, Manual};

/// The name that users type, and the first word of each page's name.
const NAME: &str = "numaherd";

/// What pages say beyond the definition of the command lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    /// What each file and variable is for.
    entries: BTreeMap<String, String>,
    /// By the name of the page: `numaherd-lab-run`.
    pages: BTreeMap<String, Page>,
}

/// What the page of a command says beyond its definition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    /// More about it; paragraphs have an empty line between them.
    #[serde(default)]
    description: String,
    /// The files that it reads or writes.
    #[serde(default)]
    files: Vec<String>,
    /// The variables that it reads.
    #[serde(default)]
    environment: Vec<String>,
    /// Pages of related commands, beside those above and below it.
    #[serde(default)]
    see_also: Vec<String>,
    /// What for, and the line to type.
    examples: Vec<[String; 2]>,
}

impl Pages {
    fn read() -> Result<Self> {
        toml::from_str(include_str!("pages.toml")).context("cannot read manual/pages.toml")
    }
}

/// Writes the pages, a folder for each program, and the completions.
///
/// # Errors
/// The folder or a file in it cannot be written.
pub fn write(Manual { folder, date }: &Manual) -> Result<()> {
    let mut definition = definition();
    let pages = Pages::read()?;
    for command in all(&definition) {
        let name = page_name(command);
        let told = pages.pages.get(name);
        let told = told.with_context(|| format!("manual/pages.toml has no page {name}"))?;
        let page = page(command, told, &pages, date).context("cannot draw a page")?;
        let path = folder
            .join(program(name))
            .join("man1")
            .join(format!("{name}.1"));
        write_file(&path, &page)?;
    }
    for (shell, file) in [
        (Shell::Bash, "bash/numaherd"),
        (Shell::Zsh, "zsh/_numaherd"),
        (Shell::Fish, "fish/numaherd.fish"),
    ] {
        let mut completion = Vec::new();
        clap_complete::generate(shell, &mut definition, NAME, &mut completion);
        write_file(&folder.join(file), &completion)?;
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// All visible commands that can follow `numaherd`, of both programs.
fn definition() -> Command {
    let of_laboratory = Cli::command();
    let both = Daemon::command().subcommands(of_laboratory.get_subcommands().cloned());
    let mut definition = without_hidden(&both).disable_help_subcommand(true);
    definition.build();
    definition
}

/// The same command with its visible subcommands alone: shells would offer the hidden ones, too.
fn without_hidden(command: &Command) -> Command {
    // clap cannot remove a subcommand, so this builds a new command. Its names live as long as the
    // program, which ends when all is written.
    let own = |text: &str| -> &'static str { text.to_owned().leak() };
    let mut shown = Command::new(own(command.get_name()))
        .subcommand_required(command.is_subcommand_required_set())
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned());
    if let Some(version) = command.get_version() {
        shown = shown.version(own(version));
    }
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(help) = command.get_after_help() {
        shown = shown.after_help(help.clone());
    }
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.subcommands(visible.map(without_hidden))
}

/// The command and all below it.
fn all(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().flat_map(all);
    std::iter::once(command).chain(below).collect()
}

/// `numaherd-lab-run`.
fn page_name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// The program whose command a page describes.
fn program(page: &str) -> &'static str {
    let mut words = page.split('-').skip(1);
    let is_of_laboratory = words
        .next()
        .is_some_and(|word| !laboratory::about(word).is_empty());
    if is_of_laboratory {
        laboratory::PROGRAM
    } else {
        NAME
    }
}

/// One page, in roff.
fn page(command: &Command, told: &Page, pages: &Pages, date: &str) -> Result<Vec<u8>> {
    let name = page_name(command);
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")))
        .manual("Numaherd");
    let mut page = Vec::new();
    let to = &mut page;
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    paragraphs(&told.description).to_writer(to)?;
    man.render_options_section(to)?;
    if command.has_subcommands() {
        man.render_subcommands_section(to)?;
    }
    let is_program = name == NAME;
    if let Some(help) = command.get_after_help().filter(|_| !is_program) {
        notes(&help.to_string()).to_writer(to)?;
    }
    let exit = if is_program {
        exit_codes()
    } else {
        exit_status()
    };
    exit.to_writer(to)?;
    for (heading, names) in [("FILES", &told.files), ("ENVIRONMENT", &told.environment)] {
        if !names.is_empty() {
            entries(heading, names, &pages.entries)?.to_writer(to)?;
        }
    }
    examples(&told.examples).to_writer(to)?;
    see_also(command, told, &pages.pages).to_writer(to)?;
    Ok(page)
}

fn section(heading: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", [heading]);
    roff
}

/// Text whose paragraphs are set apart by empty lines.
fn paragraphs(text: &str) -> Roff {
    let mut roff = Roff::default();
    for paragraph in text.split("\n\n").filter(|text| !text.is_empty()) {
        roff.control("PP", []);
        roff.text([roman(paragraph.replace('\n', " "))]);
    }
    roff
}

/// What `--help` ends with; indented lines are to be typed and stay as they are.
fn notes(text: &str) -> Roff {
    let mut roff = section("NOTES");
    let mut is_indented = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with(' ') != is_indented {
            is_indented = !is_indented;
            roff.control(if is_indented { "EX" } else { "EE" }, []);
        }
        roff.text([roman(line)]);
    }
    if is_indented {
        roff.control("EE", []);
    }
    roff
}

/// Where the exit codes are explained.
fn exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    let on_page = roman("0 when done; any other is explained in ");
    roff.text([on_page, bold(NAME), roman("(1).")]);
    roff
}

/// All exit codes, for the program's own page.
fn exit_codes() -> Roff {
    let mut roff = section("EXIT STATUS");
    for line in EXIT_CODES.lines().skip(1) {
        let coded = line.trim_start().split_once("  ");
        match coded.filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((code, meaning)) => described(&mut roff, bold(code), meaning.trim()),
            None => {
                roff.control("PP", []);
                roff.text([roman(line.trim())]);
            }
        }
    }
    roff
}

/// A term and what it means.
fn described(roff: &mut Roff, term: Inline, meaning: &str) {
    roff.control("TP", []);
    roff.text([term]);
    roff.text([roman(meaning)]);
}

fn entries(heading: &str, names: &[String], entries: &BTreeMap<String, String>) -> Result<Roff> {
    let mut roff = section(heading);
    for name in names {
        let told = entries.get(name);
        let told = told.with_context(|| format!("manual/pages.toml has no entry {name}"))?;
        described(&mut roff, italic(name.as_str()), told);
    }
    Ok(roff)
}

fn examples(examples: &[[String; 2]]) -> Roff {
    let mut roff = section("EXAMPLES");
    for [told, line] in examples {
        roff.control("PP", []);
        roff.text([roman(told.as_str())]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("EX", []);
        roff.text([bold(line.as_str())]);
        roff.control("EE", []);
        roff.control("RE", []);
    }
    roff
}

/// The pages of the commands above, below and beside it.
fn see_also(command: &Command, told: &Page, pages: &BTreeMap<String, Page>) -> Roff {
    let own = page_name(command);
    let below = command.get_subcommands().map(page_name);
    let above = own.match_indices('-').map(|(dash, _)| &own[..dash]);
    // Not every dash ends the name of a command.
    let above = above.filter(|above| pages.contains_key(*above));
    let beside = told.see_also.iter().map(String::as_str);
    let names: BTreeSet<&str> = below.chain(above).chain(beside).collect();
    let mut roff = section("SEE ALSO");
    let mut inlines = Vec::new();
    for name in names {
        if !inlines.is_empty() {
            inlines.push(roman(", "));
        }
        inlines.extend([bold(name), roman("(1)")]);
    }
    roff.text(inlines);
    roff
}

#[cfg(test)]
mod tests;
