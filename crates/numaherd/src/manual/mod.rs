//! `numaherd manual`: the manual pages and the shells' completions, from the one definition of the
//! command line.
//!
//! A page is made of what the definition says (name, synopsis, description, options, commands, what
//! `--help` ends with), of the program's exit codes, and of what no definition can say: files,
//! environment and examples, in [`pages`]. Nothing of it is committed: whoever packages the program
//! lets it write its own (`scripts/package.sh`), so no page is older than its program.

mod pages;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use self::pages::{Entry, Page};
use crate::cli::{Cli, Manual};
use crate::exit::EXIT_CODES;

/// The program's name, and that of each page's first word.
const PROGRAM: &str = "numaherd";

/// Writes all of it.
///
/// # Errors
/// The folder or a file in it cannot be written.
pub fn manual(options: &Manual) -> Result<()> {
    let Manual { folder, date } = options;
    let mut command = definition();
    let pages = folder.join("man1");
    make(&pages)?;
    each(&command, &mut |command| {
        let path = pages.join(format!("{}.1", page_name(command)));
        let page = page(command, date).context("cannot draw a page")?;
        write(&path, &page)
    })?;
    for (shell, file) in [
        (Shell::Bash, "bash/numaherd"),
        (Shell::Zsh, "zsh/_numaherd"),
        (Shell::Fish, "fish/numaherd.fish"),
    ] {
        let path = folder.join(file);
        make(path.parent().unwrap_or(folder))?;
        let mut completion = Vec::new();
        clap_complete::generate(shell, &mut command, PROGRAM, &mut completion);
        write(&path, &completion)?;
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The command line as people see it: built, and without the commands that they need not know.
fn definition() -> Command {
    let mut command = without_hidden(&Cli::command()).disable_help_subcommand(true);
    command.build();
    command
}

/// The same command with its visible subcommands alone: the shells would offer all.
fn without_hidden(command: &Command) -> Command {
    // A command cannot be taken out of another, so a new one takes the others in. Names live as long
    // as the program, which ends when all is written.
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

/// Calls with the command and all below it.
fn each(command: &Command, call: &mut impl FnMut(&Command) -> Result<()>) -> Result<()> {
    call(command)?;
    command
        .get_subcommands()
        .try_for_each(|one| each(one, call))
}

/// `numaherd-lab-run`.
fn page_name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// One page, in roff.
fn page(command: &Command, date: &str) -> std::io::Result<Vec<u8>> {
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
    let told = pages::of(name);
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
    see_also(command).to_writer(to)?;
    to.flush()?;
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

/// The pages around: the program's own and those beside and below.
fn see_also(command: &Command) -> Roff {
    let name = page_name(command);
    let mut names: Vec<String> = command
        .get_subcommands()
        .map(|one| page_name(one).to_owned())
        .collect();
    let mut above = name;
    while let Some((shorter, _)) = above.rsplit_once('-') {
        above = shorter;
        // `numaherd-as` is none: a command's name may have a dash in it.
        if pages::is_command(above) {
            names.push(above.to_owned());
        }
    }
    names.extend(pages::of(name).beside.iter().map(|&name| name.to_owned()));
    names.sort();
    names.dedup();
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

#[cfg(test)]
mod tests;
