//! `numaherd reproduce`: the papers' experiments on the contention model and on memory traces, claim
//! by claim.
//!
//! Every claim is a line: what the paper says, what the model says, whether it holds. The record of
//! what held is part of the program; a claim that held then and does not now is an error.

pub mod brm;
pub mod claim;
pub mod dino;
pub mod ipm;
pub mod nmass;
mod page;
mod record;
pub mod traces;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::cli::{Papers, Reproduce};
pub use claim::{Claim, Kind, Says};
use numaherd::exit::{self, Exit, ended};
use numaherd::print;
use record::{Line, Record};
use traces::Traces;

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

/// Linear correlation of two rows of figures (Pearson's coefficient; of ranks, Spearman's); no number
/// where either does not vary.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let around_mean = |row: &[f64]| -> Vec<f64> {
        let middle = mean(row.iter().copied());
        row.iter().map(|figure| figure - middle).collect()
    };
    let product = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let (one, other) = (around_mean(one), around_mean(other));
    product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt()
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Runs of each experiment with chance in it, each from its own seed; the papers' 10.
    pub runs: u32,
    /// Modelled seconds of experiments of a fixed time; the papers' 3600.
    pub hour_s: f64,
    /// Runs of each experiment on traces, each from its own seed. The papers have 30 of most: chance
    /// is in where the kernel starts threads, and it is the same for all policies of a run.
    pub trace_runs: u32,
    /// How often a run plays its trace over, without a pause: recordings are of a few time steps.
    pub trace_loops: u32,
}

impl Effort {
    /// As the papers ran them.
    pub const FULL: Self = Self {
        runs: 10,
        hour_s: 3600.0,
        trace_runs: 1,
        trace_loops: 1,
    };
    /// For a look: figures with chance in them are further off.
    pub const QUICK: Self = Self {
        runs: 2,
        hour_s: 900.0,
        trace_runs: 1,
        trace_loops: 1,
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
    /// Optimizing virtual machine scheduling in NUMA multicore systems.
    Brm,
    /// Hardware-assisted thread and data mapping in hierarchical multi-core architectures.
    Ipm,
}

impl Paper {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dino, Self::NMass, Self::Brm, Self::Ipm];

    /// What its policy is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dino => "DINO",
            Self::NMass => "N-MASS",
            Self::Brm => "BRM",
            Self::Ipm => "IPM",
        }
    }

    /// Heading of its part of the page.
    fn title(self) -> &'static str {
        match self {
            Self::Dino => "DINO: Blagodurov, Zhuravlev, Dashti, Fedorova, USENIX ATC 2011",
            Self::NMass => "N-MASS: Majo, Gross, ISMM 2011",
            Self::Brm => "BRM: Rao, Wang, Zhou, Xu, HPCA 2013",
            Self::Ipm => "IPM: Cruz, Diener, Pilla, Navaux, ACM TACO 2016",
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
            Self::Brm => {
                "\"Optimizing Virtual Machine Scheduling in NUMA Multicore Systems\", on the model of its \
                 machine, `xeon-e5620-2s`, SMT off, whose remote latency is derived from the paper's own \
                 Fig 4a; Linux stands for Xen's scheduler, and threads for its vCPUs. What the paper leaves open of \
                 its algorithm was chosen with results in sight (`crates/policy/src/placement/brm.rs` names \
                 each choice). The same in the lab: docs/brm-lab.md."
            }
            Self::Ipm => {
                "\"Hardware-Assisted Thread and Data Mapping in Hierarchical Multi-Core Architectures\", on \
                 traces of the menagerie's kernels, recorded in the lab and played on models of its \
                 machines: `ipm-simics-4x2` as printed; `itanium-9030-4s`, `xeon-e5-2650-2s` and \
                 `xeon-x7550-4s` with caches and the TLBs' reach an eighth as large, since inputs are of \
                 class W, or S, where the paper has A and B. Each recording, of one or a few time steps, \
                 is played once from its set-up on. The loop's time is 64 times the modelled one \
                 (docs/trace.md, which also names what was chosen with results in sight)."
            }
        }
    }

    /// Its claims, and of those that could not be run the ids and why: what needs traces, where the
    /// lab that records them is not set up and none are kept.
    fn claims(self, effort: &Effort, traces: &Path) -> Result<(Vec<Claim>, Option<NotRun>)> {
        match self {
            Self::Dino => {
                let mut claims = dino::claims(effort)?;
                let not_run = match dino::sra::claims(&Traces::within(traces)?) {
                    Ok(of_traces) => {
                        claims.extend(of_traces);
                        None
                    }
                    Err(error) if exit::of(&error) == Some(Exit::NotSetUp) => Some(NotRun {
                        paper: self,
                        ids: &dino::sra::IDS,
                        why: format!("{error:#}"),
                    }),
                    Err(error) => return Err(error),
                };
                Ok((claims, not_run))
            }
            Self::NMass => Ok((nmass::claims(effort)?, None)),
            Self::Brm => Ok((brm::claims(effort)?, None)),
            Self::Ipm => Ok((ipm::claims(effort, &Traces::within(traces)?)?, None)),
        }
    }
}

/// Claims of a paper that could not be run.
#[derive(Debug)]
struct NotRun {
    paper: Paper,
    ids: &'static [&'static str],
    why: String,
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
        Papers::Brm => &[Paper::Brm],
        Papers::Ipm => &[Paper::Ipm],
        Papers::All => &Paper::ALL,
    };
    let effort = if options.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    let traces = options.traces.clone().unwrap_or_else(kept_traces);
    if let Some(folder) = &options.heat_maps {
        ipm::draw(folder, &Traces::within(&traces)?, &effort)?;
    }
    // Whatever is wrong with the files is said before minutes are spent.
    let before = Record::built_in()?;
    let renewed = match &options.record {
        Some(path) if path.exists() => Some(Record::read(path)?),
        _ => None,
    };
    let (now, not_run) = match &options.from {
        Some(path) => (Record::read(path)?.of(papers), Vec::new()),
        None => {
            let (lines, not_run) = run(papers, &effort, &traces)?;
            (Record::new(&effort, lines), not_run)
        }
    };
    for not_run in &not_run {
        let told = format!(
            "{} of {}'s claims were not run ({}): {}",
            not_run.ids.len(),
            not_run.paper.name(),
            not_run.ids.join(", "),
            not_run.why
        );
        if options.record.is_some() {
            return Err(ended(
                Exit::NotSetUp,
                format!("{told}; a record needs them all"),
            ));
        }
        eprintln!("numaherd: {told}");
    }
    let was_run = |line: &&Line| {
        let mut left_out = not_run.iter().filter(|not_run| not_run.paper == line.paper);
        !left_out.any(|not_run| not_run.ids.contains(&line.id.as_str()))
    };
    let fallen: Vec<&Line> = now.fallen(&before).into_iter().filter(was_run).collect();
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
fn run(papers: &[Paper], effort: &Effort, traces: &Path) -> Result<(Vec<Line>, Vec<NotRun>)> {
    let (mut lines, mut left_out) = (Vec::new(), Vec::new());
    for &paper in papers {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        bar.set_style(style.expect("the template is right"));
        bar.set_message(format!("{}'s experiments", paper.name()));
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let (claims, not_run) = paper
            .claims(effort, traces)
            .with_context(|| format!("cannot run {}'s experiments", paper.name()))?;
        bar.finish_and_clear();
        lines.extend(claims.into_iter().map(|claim| Line::of(paper, claim)));
        left_out.extend(not_run);
    }
    Ok((lines, left_out))
}

/// Where recorded traces are kept unless said otherwise: beside what else can be made again.
fn kept_traces() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let folder = cache.filter(|path| path.is_absolute()).or_else(home);
    folder
        .unwrap_or_else(std::env::temp_dir)
        .join("numaherd/traces")
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
    fn a_line_correlates_wholly_and_noise_not() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[10.0, 8.0, 6.0]) + 1.0).abs() < 1e-12);
        assert!((correlation(&[0.0, 1.0, 2.0], &[0.0, 2.0, 1.0]) - 0.5).abs() < 1e-12);
        assert!(correlation(&[1.0, 2.0, 3.0], &[1.0, 0.0, 1.0]).abs() < 1e-12);
        assert!(correlation(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn a_claim_that_fell_ends_the_program_with_a_code_of_its_own() {
        assert!(ending(0, true).is_ok());
        assert!(ending(3, false).is_ok(), "the record is renewed");
        let error = ending(3, true).unwrap_err();
        assert_eq!(exit::code(&error), ExitCode::from(7));
        assert!(error.to_string().starts_with("3 of the claims"), "{error}");
    }
}
