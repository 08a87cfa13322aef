//! `numaherd-lab manual`: the pages of the laboratory's commands, and completions of both programs'.

mod pages;

use clap::CommandFactory;
use numaherd::manual::Book;

use crate::cli::Cli;

/// The laboratory's manual.
pub fn own() -> Book {
    let of_laboratory: Vec<_> = Cli::command().get_subcommands().cloned().collect();
    let both = numaherd::cli::Cli::command().subcommands(of_laboratory);
    Book::new(both, pages::PAGES)
}

#[cfg(test)]
mod tests;
