//! `numaherd reproduce`: the papers' experiments on the contention model, claim by claim.
//!
//! Every claim is a line: what the paper says, what the model says, whether it holds. The record of
//! what held is part of the program; a claim that held then and does not now is an error.

pub mod claim;
pub mod dino;
pub mod nmass;
mod page;
mod record;

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::cli::{Papers, Reproduce};
use crate::exit::{Exit, ended};
use crate::print;
pub use claim::{Claim, Kind, Says};
use record::{Line, Record};

/// The programs of CPU2006 (FACTS 1.1); the papers leave out some, unnamed.
const CPU2006: [&str; 29] = [
    "perlbench",
    "bzip2",
    "gcc",
    "bwaves",
    "gamess",
    "mcf",
    "milc",
    "zeusmp",
    "gromacs",
    "cactusADM",
    "leslie3d",
    "namd",
    "gobmk",
    "dealII",
    "soplex",
    "povray",
    "calculix",
    "hmmer",
    "sjeng",
    "GemsFDTD",
    "libquantum",
    "h264ref",
    "tonto",
    "lbm",
    "omnetpp",
    "astar",
    "wrf",
    "sphinx3",
    "xalancbmk",
];

/// The mean of some figures.
fn mean(figures: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = figures
        .into_iter()
        .fold((0.0, 0.0), |(sum, count), figure| {
            (sum + figure, count + 1.0)
        });
    sum / count
}

/// The largest of some figures.
fn largest(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Runs of each experiment with chance in it, each from its own seed; the papers' 10.
    pub runs: u32,
    /// Modelled seconds of experiments of a fixed time; the papers' 3600.
    pub hour_s: f64,
}

impl Effort {
    /// As the papers ran them.
    pub const FULL: Self = Self {
        runs: 10,
        hour_s: 3600.0,
    };
    /// For a look: figures with chance in them are further off.
    pub const QUICK: Self = Self {
        runs: 2,
        hour_s: 900.0,
    };
}

/// A paper whose claims are held against the model, in the order they are shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// A case for NUMA-aware contention management on multicore systems.
    Dino,
    /// Memory management in NUMA multicore systems: trapped between cache contention and
    /// interconnect overhead.
    NMass,
}

impl Paper {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Dino, Self::NMass];

    /// What its policy is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dino => "DINO",
            Self::NMass => "N-MASS",
        }
    }

    /// Heading of its part of the page.
    fn title(self) -> &'static str {
        match self {
            Self::Dino => "DINO: Blagodurov, Zhuravlev, Dashti, Fedorova, USENIX ATC 2011",
            Self::NMass => "N-MASS: Majo, Gross, ISMM 2011",
        }
    }

    /// What its experiments run on.
    fn about(self) -> &'static str {
        match self {
            Self::Dino => {
                "\"A Case for NUMA-aware Contention Management on Multicore Systems\", on the model of its \
                 machine, `opteron-8356-4s`."
            }
            Self::NMass => {
                "\"Memory Management in NUMA Multicore Systems: Trapped between Cache Contention and \
                 Interconnect Overhead\", on the model of its machine, `xeon-e5520-2s`."
            }
        }
    }

    fn claims(self, effort: &Effort) -> Result<Vec<Claim>> {
        match self {
            Self::Dino => dino::claims(effort),
            Self::NMass => nmass::claims(effort),
        }
    }
}

/// Runs the experiments and prints the table.
///
/// # Errors
/// A file cannot be written; a claim that held when the record was made does not hold any more
/// ([`Exit::ClaimFell`]). No such comparison is made of a quick run, and with `--record`, where what
/// fell is only said.
pub fn reproduce(options: &Reproduce) -> Result<ExitCode> {
    let papers = match options.paper {
        Papers::Dino => &[Paper::Dino][..],
        Papers::NMass => &[Paper::NMass],
        Papers::All => &Paper::ALL,
    };
    let effort = if options.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    // Whatever is wrong with the files is said before minutes are spent.
    let before = Record::built_in()?;
    let renewed = match &options.record {
        Some(path) if path.exists() => Some(Record::read(path)?),
        _ => None,
    };
    let now = match &options.from {
        Some(path) => Record::read(path)?.of(papers),
        None => Record::new(&effort, run(papers, &effort)?),
    };
    let fallen = now.fallen(&before);
    let json_only = options.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &options.json {
        write(path, &now.to_json()?)?;
    }
    if !json_only {
        let (table, summary) = (page::table(&now.lines), page::summary(&now.lines));
        print::out(&format!("{table}\n\n{summary}"))?;
    }
    let others = match &options.from {
        Some(path) => Record::read(path)?,
        None => renewed.unwrap_or_else(|| before.clone()),
    };
    let whole = now.clone().with_others_of(others);
    if let Some(path) = &options.record {
        write(path, &whole.to_json()?)?;
    }
    if let Some(path) = &options.markdown {
        write(path, &page::page(&whole))?;
    }
    for line in &fallen {
        eprintln!(
            "numaherd: held before and does not now: {} {} ({}): {}",
            line.paper.name(),
            line.section,
            line.id,
            line.what
        );
    }
    let is_held = !options.quick && options.record.is_none() && options.from.is_none();
    ending(fallen.len(), is_held)
}

/// How a run ends in which so many claims fell; `is_held` is false where that is no error.
fn ending(fallen: usize, is_held: bool) -> Result<ExitCode> {
    if fallen == 0 || !is_held {
        return Ok(ExitCode::SUCCESS);
    }
    let told = format!(
        "{fallen} of the claims that held when docs/fidelity.json was made do not hold any more; mend \
         the model, or renew the record with --record once it is clear why"
    );
    Err(ended(Exit::ClaimFell, told))
}

/// Runs the experiments of some papers, one paper after the other, each on all cores.
fn run(papers: &[Paper], effort: &Effort) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for &paper in papers {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        bar.set_style(style.expect("the template is right"));
        bar.set_message(format!("{}'s experiments", paper.name()));
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let claims = paper
            .claims(effort)
            .with_context(|| format!("cannot run {}'s experiments", paper.name()))?;
        bar.finish_and_clear();
        lines.extend(claims.into_iter().map(|claim| Line::of(paper, claim)));
    }
    Ok(lines)
}

/// Writes a file, or prints where it is called `-`.
fn write(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return print::out(text);
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_fell_ends_the_program_with_a_code_of_its_own() {
        assert!(ending(0, true).is_ok());
        assert!(ending(3, false).is_ok(), "the record is renewed");
        let error = ending(3, true).unwrap_err();
        assert_eq!(crate::exit::code(&error), ExitCode::from(7));
        assert!(error.to_string().starts_with("3 of the claims"), "{error}");
    }
}
