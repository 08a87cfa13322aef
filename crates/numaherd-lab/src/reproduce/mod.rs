//! `numaherd reproduce`: the papers' experiments on the contention model and on memory traces, claim by claim.
//!
//! An experiment is a file that measures figures by the ids of claims. What the papers say is data
//! (`data/claims`), and [`Claims::judge`] compares the two. The record of what held is part of the program: a
//! claim that held when it was made and no longer does is an error.

mod adaptive;
mod autonuma;
pub mod brm;
mod dino;
mod inputs;
mod ipm;
mod nmass;
mod page;
mod testbed;
pub mod traces;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use numaherd::exit::{Exit, ended};
use numaherd::print;
use numaherd_experiment::claims::{
    CheckedClaim, Claims, ClaimsError, Measured, Measurement, Paper, Record, RunsOn, Variation,
    Varied,
};
use rayon::prelude::*;

use crate::cli::Reproduce;
use inputs::Inputs;
use testbed::Effort;
use traces::{Traces, where_recorded};

/// What the experiments found.
struct Findings {
    record: Record,
    left_out: Vec<LeftOut>,
}

/// Claims of a paper whose experiments could not run.
struct LeftOut {
    paper: Paper,
    ids: Vec<String>,
    why: String,
}

impl LeftOut {
    /// The claims on traces of a paper.
    fn on_traces(paper: Paper, claims: Claims, why: String) -> Self {
        let mut claims = claims.claims;
        claims.retain(|claim| claim.runs_on == RunsOn::Traces);
        Self {
            paper,
            ids: claims.into_iter().map(|claim| claim.id).collect(),
            why,
        }
    }

    /// The error of a record that would lack them.
    fn refusal(&self) -> anyhow::Error {
        ended(Exit::NotSetUp, format!("{self}; a record needs them all"))
    }
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, name, ids) = (self.ids.len(), self.paper.name(), self.ids.join(", "));
        write!(
            f,
            "{count} of {name}'s claims were not run ({ids}): {}",
            self.why
        )
    }
}

/// Runs the experiments and prints the table.
///
/// # Errors
/// A file cannot be read or written; a claim that held when the record was made no longer holds
/// ([`Exit::ClaimFell`]). Claims that fell are printed, but are no error, in a quick run and with `--record`.
pub fn reproduce(options: &Reproduce) -> Result<ExitCode> {
    let papers = options.paper.0;
    if options.decisions {
        ensure!(
            papers == [Paper::Brm],
            "--decisions shows what brm's decisions rest on: say `numaherd reproduce brm --decisions`"
        );
        print::out(&brm::decisions::tables(&effort(options))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let traces = options.traces.clone().unwrap_or_else(kept_traces);
    // Damaged files are reported before minutes are spent.
    let used: Vec<&str> = papers
        .iter()
        .flat_map(|&paper| machines_of(paper))
        .copied()
        .collect();
    let inputs = Inputs::read(&options.machines, &used)?;
    let before = Record::built_in()?;
    let renewed = match &options.record {
        Some(path) if path.exists() => Some(read(path)?),
        _ => None,
    };
    if options.record.is_some() && options.from.is_none() {
        check_traces(papers, &Traces::within(&traces)?)?;
    }
    if options.fresh_traces {
        Traces::within(&traces)?.forget()?;
    }
    if let Some(folder) = &options.heat_maps {
        ipm::draw(folder, &Traces::within(&traces)?)?;
    }
    let findings = match &options.from {
        Some(path) => Findings {
            record: read(path)?.of(papers),
            left_out: Vec::new(),
        },
        None => run(options, &traces, &inputs)?,
    };
    for left_out in &findings.left_out {
        if options.record.is_some() {
            return Err(left_out.refusal());
        }
        print::say(left_out);
    }
    let others = match &options.from {
        Some(path) => read(path)?,
        None => renewed.unwrap_or_else(|| before.clone()),
    };
    show(options, &findings.record, others)?;
    let fallen = fallen(&findings, &before);
    for line in &fallen {
        print::say(format!(
            "held before and no longer does: {} {} ({}): {}",
            line.paper.name(),
            line.section,
            line.id,
            line.what
        ));
    }
    let as_recorded = is_whole(options) && options.from.is_none();
    let is_error = as_recorded && options.record.is_none();
    if is_error && !fallen.is_empty() {
        return Err(claims_fell(fallen.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// How much is run.
fn effort(options: &Reproduce) -> Effort {
    match options.quick {
        true => Effort::QUICK,
        false => Effort::FULL,
    }
}

/// Whether all is run, as a record has it.
fn is_whole(options: &Reproduce) -> bool {
    !options.quick && options.machines.is_empty()
}

/// Prints the findings and writes the files that the user asked for. `others` has the lines of papers that were
/// not run.
fn show(options: &Reproduce, now: &Record, others: Record) -> Result<()> {
    if let Some(path) = &options.json {
        print::file(path, &now.to_json()?)?;
    }
    if options.json.as_deref() != Some(Path::new("-")) {
        let (table, summary) = (page::table(&now.lines), page::summary(&now.lines));
        print::out(&format!("{table}\n\n{summary}"))?;
    }
    let whole = now.clone().with_others_of(others);
    if let Some(path) = &options.record {
        print::file(path, &whole.to_json()?)?;
    }
    if let Some(path) = &options.markdown {
        print::file(path, &page::page(&whole)?)?;
    }
    Ok(())
}

/// The lines of `before` that held and no longer do, without those that could not be run.
fn fallen<'a>(findings: &Findings, before: &'a Record) -> Vec<&'a CheckedClaim> {
    let was_run = |line: &&CheckedClaim| {
        let mut left_out = findings.left_out.iter();
        !left_out.any(|one| one.paper == line.paper && one.ids.contains(&line.id))
    };
    let fallen = findings.record.fallen(before).into_iter();
    fallen.filter(was_run).collect()
}

/// The error of a run in which so many claims fell.
fn claims_fell(count: usize) -> anyhow::Error {
    let why = format!(
        "{count} of the claims that held when docs/fidelity.json was made no longer hold; correct the \
         model, or renew the record with --record once the cause is clear"
    );
    ended(Exit::ClaimFell, why)
}

/// Checks that a record of these papers will have all their claims, before minutes are spent on the others.
fn check_traces(papers: &[Paper], traces: &Traces) -> Result<()> {
    for &paper in papers {
        if let Some(why) =
            where_recorded(traces.check(paper).map(|()| Measured::new()))?.without_traces
        {
            return Err(LeftOut::on_traces(paper, Claims::built_in(paper)?, why).refusal());
        }
    }
    Ok(())
}

/// What a paper's experiments give under each variation. Most run once, on one core, so that those of several variations run
/// at the same time.
fn under_variations(
    variations: &[Variation],
    paper: Paper,
    effort: &Effort,
    traces: &Path,
) -> Result<Vec<Measured>> {
    let under = |variation: &Variation| {
        let inputs = Inputs::varied(variation)?;
        measure(paper, &effort.at_most(variation.runs), traces, &inputs).with_context(|| {
            format!(
                "cannot run {}'s experiments: {}",
                paper.name(),
                variation.what
            )
        })
    };
    variations.par_iter().map(under).collect()
}

/// Runs the experiments of the papers, one paper after the other, each on all cores; if all is run, again under each
/// variation.
fn run(options: &Reproduce, traces: &Path, inputs: &Inputs) -> Result<Findings> {
    let (mut measurements, mut lines, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut variations = Vec::new();
    for &paper in options.paper.0 {
        let claims = Claims::built_in(paper)?;
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        bar.set_style(style.expect("the template is right"));
        bar.set_message(format!("{}'s experiments", paper.name()));
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let effort = &of_paper(paper, &effort(options));
        let name = paper.name();
        let mut measured = measure(paper, effort, traces, inputs)
            .with_context(|| format!("cannot run {name}'s experiments"))?;
        if is_whole(options) {
            let given = under_variations(&claims.variations, paper, effort, traces)?;
            for (variation, varied) in claims.variations.iter().zip(given) {
                let lines = match variation.runs {
                    0 => claims.clone().measured_in(&varied).judge(&varied)?,
                    _ => claims.judge(&varied)?,
                };
                variations.push(Varied::new(paper, variation, &lines));
                measured.vary(&variation.name, varied);
            }
        }
        bar.finish_and_clear();
        measurements.push(Measurement {
            paper,
            commit: options.commit.clone(),
            runs: effort.runs,
            hour_s: effort.hour_s,
            intervals: (paper == Paper::Ipm).then(|| ipm::intervals(effort) as u64),
        });
        lines.extend(claims.judge(&measured)?);
        if let Some(why) = measured.without_traces {
            left_out.push(LeftOut::on_traces(paper, claims, why));
        }
    }
    Ok(Findings {
        record: Record::new(measurements, lines, variations),
        left_out,
    })
}

/// How much of a paper is run: less where all of it would take hours.
fn of_paper(paper: Paper, effort: &Effort) -> Effort {
    match paper {
        Paper::Ipm => ipm::effort(effort),
        Paper::Adaptive => adaptive::effort(effort),
        Paper::Dino | Paper::NMass | Paper::Brm | Paper::Autonuma => *effort,
    }
}

/// The machines of a paper that `--machine` can replace: those of its experiments on the model.
fn machines_of(paper: Paper) -> &'static [&'static str] {
    match paper {
        Paper::Dino => &dino::MACHINES,
        Paper::NMass => &[nmass::MACHINE],
        Paper::Brm => &[brm::MACHINE],
        Paper::Autonuma => &[autonuma::MACHINE],
        Paper::Ipm | Paper::Adaptive => &[],
    }
}

/// Runs all experiments of a paper; without runs, at least those whose figures are exact. Traces are recorded into a
/// folder where they are not there yet.
fn measure(paper: Paper, effort: &Effort, traces: &Path, inputs: &Inputs) -> Result<Measured> {
    match paper {
        Paper::Dino => dino::measure(effort, &Traces::within(traces)?, inputs),
        Paper::NMass => nmass::measure(effort, inputs),
        Paper::Brm => brm::measure(effort, inputs),
        Paper::Ipm => ipm::measure(effort, &Traces::within(traces)?),
        Paper::Autonuma => autonuma::measure(effort, inputs),
        Paper::Adaptive => adaptive::measure(effort, &Traces::within(traces)?),
    }
}

/// The record in a file that the user named.
fn read(path: &Path) -> Result<Record> {
    Record::read(path).map_err(|error: ClaimsError| ended(Exit::Usage, error.to_string()))
}

/// The default folder of recorded traces: the user's cache, since they can be recorded again.
fn kept_traces() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let folder = cache.filter(|path| path.is_absolute()).or_else(home);
    folder
        .unwrap_or_else(std::env::temp_dir)
        .join("numaherd/traces")
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd::exit;

    /// Every claim of a paper has a figure, and every figure a claim; an exact figure is the record's.
    fn is_judged(paper: Paper, effort: &Effort) {
        let folder = tempfile::tempdir().unwrap();
        traces::made::all(folder.path());
        let measured = measure(paper, effort, folder.path(), &Inputs::default()).unwrap();
        let claims = Claims::built_in(paper).unwrap();
        assert_eq!(measured.without_traces, None);
        let lines = claims.judge(&measured).unwrap();
        assert_eq!(lines.len(), claims.claims.len());
        for (line, claim) in lines.iter().zip(&claims.claims) {
            // In traces that were made up, there may be nothing to measure.
            let is_known = line.ours.is_some() || claim.runs_on == RunsOn::Traces;
            assert!(is_known, "{}", claim.id);
        }
        let record = Record::built_in().unwrap().of(&[paper]);
        for now in lines.iter().filter(|line| measured.is_exact(&line.id)) {
            let known = record.lines.iter().find(|line| line.id == now.id).unwrap();
            assert_eq!(
                (now.ours, now.holds),
                (known.ours, known.holds),
                "{}",
                now.id
            );
        }
    }

    /// One run of so many seconds.
    fn brief(hour_s: f64) -> Effort {
        Effort::new(1, hour_s)
    }

    #[test]
    fn each_claim_of_dino_has_a_figure_and_each_figure_a_claim() {
        is_judged(Paper::Dino, &brief(60.0));
    }

    #[test]
    fn each_claim_of_n_mass_has_a_figure_and_each_figure_a_claim() {
        is_judged(Paper::NMass, &brief(30.0));
    }

    #[test]
    fn each_claim_of_brm_has_a_figure_and_each_figure_a_claim() {
        is_judged(Paper::Brm, &brief(Effort::QUICK.hour_s));
    }

    #[test]
    fn each_claim_of_ipm_has_a_figure_and_each_figure_a_claim() {
        is_judged(Paper::Ipm, &brief(1.0));
    }

    #[test]
    fn a_claim_that_fell_ends_the_program_with_a_code_of_its_own() {
        let error = claims_fell(3);
        assert_eq!(exit::code(&error), ExitCode::from(7));
        assert!(error.to_string().starts_with("3 of the claims"), "{error}");
    }

    #[test]
    fn claims_that_could_not_be_run_have_not_fallen() {
        let before = Record::built_in().unwrap().of(&[Paper::Dino]);
        let mut findings = Findings {
            record: before.clone(),
            left_out: Vec::new(),
        };
        findings
            .record
            .lines
            .retain(|line| !line.id.starts_with("sra-"));
        let fell = |findings: &Findings| -> Vec<String> {
            let fallen = fallen(findings, &before).into_iter();
            fallen.map(|line| line.id.clone()).collect()
        };
        let held = fell(&findings);
        assert!(held.iter().any(|id| id == "sra-every"), "{held:?}");
        findings.left_out.push(LeftOut {
            paper: Paper::Dino,
            ids: held,
            why: "no lab".to_owned(),
        });
        assert!(fell(&findings).is_empty());
    }
}
