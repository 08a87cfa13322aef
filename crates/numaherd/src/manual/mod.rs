//! The manual pages and the shells' completions, from the definition of the command line.
//!
//! A page holds what the definition says (name, synopsis, description, options, commands, the end of
//! `--help`), the exit codes, and what the definition cannot hold: files, environment and examples. Each
//! program writes the pages of its own commands (`numaherd manual`, `numaherd-lab manual`) when it is
//! packaged (`scripts/package.sh`), so that no page is older than its program.

mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::cli::{Cli, Manual};
use crate::exit::EXIT_CODES;
use crate::laboratory::COMMANDS;

/// The program's name, and the first word of each page's.
const PROGRAM: &str = "numaherd";

/// A file or a variable, and what it is for.
#[derive(Debug)]
pub struct Entry {
    /// The file's path or the variable's name.
    pub name: &'static str,
    /// What it is for.
    pub told: &'static str,
}

/// What the page of a command says beyond the definition of its command line.
#[derive(Debug)]
pub struct Page {
    /// The command, as its page is called: `numaherd-lab-run`.
    pub name: &'static str,
    /// More about it; paragraphs have an empty line between them.
    pub description: &'static str,
    /// The files that it reads or writes.
    pub files: &'static [&'static Entry],
    /// The variables that it reads.
    pub environment: &'static [&'static Entry],
    /// What for, and the line to type.
    pub examples: &'static [(&'static str, &'static str)],
    /// Pages of related commands, beside those above and below it.
    pub beside: &'static [&'static str],
}

impl Page {
    /// A page without a name or text.
    pub const EMPTY: Self = Self {
        name: "",
        description: "",
        files: &[],
        environment: &[],
        examples: &[],
        beside: &[],
    };
}

/// The manual of a program.
#[derive(Debug)]
pub struct Book {
    /// All visible commands that can follow `numaherd`; the completions are made of it.
    pub definition: Command,
    /// The commands whose pages it writes.
    pub pages: &'static [Page],
}

/// The manual of `numaherd`. Of the laboratory's commands it knows the names.
pub fn own() -> Book {
    let of_laboratory = COMMANDS.map(|(name, about)| Command::new(name).about(about));
    Book::new(Cli::command().subcommands(of_laboratory), pages::PAGES)
}

impl Book {
    /// The manual with these pages; `definition` is that of the command line, without hidden commands.
    pub fn new(definition: Command, pages: &'static [Page]) -> Self {
        let mut definition = without_hidden(&definition)
            .name(PROGRAM)
            .disable_help_subcommand(true);
        definition.build();
        Self { definition, pages }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The folder or a file in it cannot be written.
    pub fn write(mut self, options: &Manual) -> Result<()> {
        let Manual { folder, date } = options;
        let sections = folder.join("man1");
        make(&sections)?;
        let names = self.names();
        for command in all(&self.definition) {
            let name = page_name(command);
            if let Some(told) = self.pages.iter().find(|page| page.name == name) {
                let page = page(command, told, &names, date).context("cannot draw a page")?;
                write(&sections.join(format!("{name}.1")), &page)?;
            }
        }
        for (shell, file) in [
            (Shell::Bash, "bash/numaherd"),
            (Shell::Zsh, "zsh/_numaherd"),
            (Shell::Fish, "fish/numaherd.fish"),
        ] {
            let path = folder.join(file);
            make(path.parent().unwrap_or(folder))?;
            let mut completion = Vec::new();
            clap_complete::generate(shell, &mut self.definition, PROGRAM, &mut completion);
            write(&path, &completion)?;
        }
        Ok(())
    }

    /// What the pages of all visible commands are called, whichever program writes them.
    pub fn names(&self) -> BTreeSet<String> {
        let commands = all(&self.definition).into_iter();
        commands
            .map(|command| page_name(command).to_owned())
            .collect()
    }
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
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

/// One page, in roff. `names` are those of all pages.
fn page(
    command: &Command,
    told: &Page,
    names: &BTreeSet<String>,
    date: &str,
) -> std::io::Result<Vec<u8>> {
    let name = page_name(command);
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
        .manual("Numaherd");
    let mut page = Vec::new();
    let to = &mut page;
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    paragraphs(told.description).to_writer(to)?;
    man.render_options_section(to)?;
    if command.has_subcommands() {
        man.render_subcommands_section(to)?;
    }
    let is_program = name == PROGRAM;
    if let Some(help) = command.get_after_help().filter(|_| !is_program) {
        notes(&help.to_string()).to_writer(to)?;
    }
    exit_status(is_program).to_writer(to)?;
    entries("FILES", told.files).to_writer(to)?;
    entries("ENVIRONMENT", told.environment).to_writer(to)?;
    examples(told).to_writer(to)?;
    see_also(command, told, names).to_writer(to)?;
    Ok(page)
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

/// What `--help` ends with; lines that are set in are to be typed and stay as they are.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["NOTES"]);
    let mut set_in = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with(' ') != set_in {
            set_in = !set_in;
            roff.control(if set_in { "EX" } else { "EE" }, []);
        }
        roff.text([roman(line)]);
    }
    if set_in {
        roff.control("EE", []);
    }
    roff
}

/// The exit codes: all on the program's own page, which the others name.
fn exit_status(all: bool) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["EXIT STATUS"]);
    if !all {
        roff.text([
            roman("0 when done; any other is explained in "),
            bold(PROGRAM),
            roman("(1)."),
        ]);
        return roff;
    }
    for line in EXIT_CODES.lines().skip(1) {
        let coded = line.trim_start().split_once("  ");
        match coded.filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((code, meaning)) => {
                roff.control("TP", []);
                roff.text([bold(code)]);
                roff.text([roman(meaning.trim())]);
            }
            None => {
                roff.control("PP", []);
                roff.text([roman(line.trim())]);
            }
        }
    }
    roff
}

fn entries(heading: &str, entries: &[&Entry]) -> Roff {
    let mut roff = Roff::default();
    if entries.is_empty() {
        return roff;
    }
    roff.control("SH", [heading]);
    for Entry { name, told } in entries {
        roff.control("TP", []);
        roff.text([italic(*name)]);
        roff.text([roman(*told)]);
    }
    roff
}

fn examples(page: &Page) -> Roff {
    let mut roff = Roff::default();
    if page.examples.is_empty() {
        return roff;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (told, line) in page.examples {
        roff.control("PP", []);
        roff.text([roman(*told)]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("EX", []);
        roff.text([bold(*line)]);
        roff.control("EE", []);
        roff.control("RE", []);
    }
    roff
}

/// The pages of the commands above, below and beside it.
fn see_also(command: &Command, told: &Page, pages: &BTreeSet<String>) -> Roff {
    let below = command.get_subcommands().map(page_name);
    let above = told
        .name
        .match_indices('-')
        .map(|(dash, _)| &told.name[..dash]);
    // Not every dash ends the name of a command.
    let above = above.filter(|above| pages.contains(*above));
    let names: BTreeSet<&str> = below
        .chain(above)
        .chain(told.beside.iter().copied())
        .collect();
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    let mut inlines = Vec::new();
    for name in names {
        if !inlines.is_empty() {
            inlines.push(roman(", "));
        }
        inlines.push(bold(name));
        inlines.push(roman("(1)"));
    }
    roff.text(inlines);
    roff
}
