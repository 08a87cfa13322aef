//! How many pages are where they belong, by what the mapping goes by: §3.3, Fig 1, and §6.3.
//!
//! A page belongs on the node whose threads make most accesses to it, all counted, threads being where
//! they are at the end of the run; the share is of all pages, as they lie at the end. The paper samples 1 in 10^7 to 10^4 of all accesses of whole programs of
//! larger classes, which gives its pages more samples than ours get at the same rate; so the rates
//! are played as printed, and each line of the sampling says how many samples that came to.

use std::sync::Arc;

use anyhow::Result;
use numaherd_trace::world::SampleEvery;

use super::super::claim::{Says, at_least, at_most, claim, points};
use super::super::mean;
use super::super::traces::{self, named};
use super::Claim;
use super::ground::{Ground, Job, Platform, Played, mean_of};

/// Accesses between two samples (§3.3).
const RATES: [u64; 4] = [10_000_000, 1_000_000, 100_000, 10_000];

/// Fig 1's programs; facesim has no stand-in.
const PROGRAMS: [&str; 3] = ["bt", "ft", "sp"];

fn right(played: &Played) -> f64 {
    played.pages.right as f64 / played.pages.pages as f64 * 100.0
}

/// One program's runs by each metric.
struct Metrics {
    program: &'static str,
    residency: Vec<Arc<Played>>,
    misses: Vec<Arc<Played>>,
    /// By [`RATES`].
    sampled: Vec<Vec<Arc<Played>>>,
}

fn metrics(ground: &Ground<'_>) -> Result<Vec<Metrics>> {
    let mut jobs = Vec::new();
    for program in PROGRAMS {
        let job = |policy| Job::new(Platform::Itanium, named(program), policy);
        jobs.push(job("ipm")?);
        jobs.push(job("tlb-miss-history")?);
        for every in RATES {
            jobs.push(job("sampled")?.with(|o| o.sample_every = SampleEvery::Accesses(every)));
        }
    }
    let mut runs = ground.run(jobs)?.into_iter();
    let mut next = || runs.next().expect("one for each job");
    Ok(PROGRAMS
        .map(|program| Metrics {
            program,
            residency: next(),
            misses: next(),
            sampled: RATES.map(|_| next()).into(),
        })
        .into())
}

/// The lines of Fig 1 and of §6.3's accuracy.
pub(super) fn claims(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let metrics = metrics(ground)?;
    let mut claims = Vec::new();
    for metric in &metrics {
        claims.extend(of_program(metric));
    }
    claims.extend(orders(&metrics));
    claims.extend(races(ground)?);
    Ok(claims)
}

fn of_program(metric: &Metrics) -> Vec<Claim> {
    let program = metric.program;
    if program == "sp" {
        // The paper prints no figures of it.
        return Vec::new();
    }
    let others = metric.sampled.iter().chain([&metric.misses]);
    let best_other = others.map(|runs| mean_of(runs, right)).fold(0.0, f64::max);
    let where_ = "3.3, Fig 1a";
    vec![
        claim(
            format!("fig1-{program}-residency"),
            where_,
            format!("{program}: pages on the right node by TLB residency"),
            "%",
            at_least(85.0),
            mean_of(&metric.residency, right),
        ),
        claim(
            format!("fig1-{program}-others"),
            where_,
            format!("{program}: the same by the best of TLB misses and sampling"),
            "%",
            at_most(60.0),
            best_other,
        )
        .note(
            "pages that a policy never chose a node for count where they lie: by first touch on two \
             nodes, many are right already",
        ),
    ]
}

fn orders(metrics: &[Metrics]) -> Vec<Claim> {
    let all = |pick: &dyn Fn(&Metrics) -> f64| mean(metrics.iter().map(pick));
    let residency = all(&|m| mean_of(&m.residency, right));
    let misses = all(&|m| mean_of(&m.misses, right));
    let by_rate: Vec<f64> = (0..RATES.len())
        .map(|rate| all(&|m| mean_of(&m.sampled[rate], right)))
        .collect();
    let rising = by_rate.windows(2).map(|pair| pair[1] - pair[0]);
    let seconds = |runs: &[Arc<Played>]| mean_of(runs, |f| f.figures.seconds);
    let saved =
        |pick: &dyn Fn(&Metrics) -> f64| all(&|m| (1.0 - pick(m) / seconds(&m.sampled[0])) * 100.0);
    let (time_residency, time_misses) = (
        saved(&|m| seconds(&m.residency)),
        saved(&|m| seconds(&m.misses)),
    );
    let time_sampled = saved(&|m| seconds(&m.sampled[2]));
    let order = |id: &str, where_: &str, what: &str, ours: f64| {
        claim(id, where_, what, "points", Says::Ranking, ours)
    };
    let told = format!(
        "residency {residency:.1} %, misses {misses:.1} %, samples at 1 in 10^7 to 10^4: {} %",
        by_rate
            .iter()
            .map(|share| format!("{share:.1}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let (a, b) = ("3.3, Fig 1a", "3.3, Fig 1b");
    vec![
        order(
            "fig1-residency-misses",
            a,
            "bt, ft, sp: residency finds more right nodes than TLB misses, by",
            residency - misses,
        )
        .note(&*told),
        order(
            "fig1-misses-sampled",
            a,
            "bt, ft, sp: TLB misses find more than samples at 1 in 10^5, by",
            misses - by_rate[2],
        )
        .note(&*told),
        order(
            "fig1-residency-sampled",
            a,
            "bt, ft, sp: residency finds more than samples at 1 in 10^5, by",
            residency - by_rate[2],
        )
        .note(&*told),
        order(
            "fig1-rates",
            a,
            "bt, ft, sp: more samples find more, at each step at least by",
            rising.fold(f64::INFINITY, f64::min),
        )
        .note(&*told),
        order(
            "fig1-time-residency",
            b,
            "bt, ft, sp: residency saves more time than TLB misses, by",
            time_residency - time_misses,
        ),
        order(
            "fig1-time-sampled",
            b,
            "bt, ft, sp: residency saves more time than samples at 1 in 10^5, by",
            time_residency - time_sampled,
        ),
    ]
}

/// Accuracy over all programs, and what races cost of it (§6.3, Simics).
fn races(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let kernels = traces::few();
    let mut jobs = Vec::new();
    for kernel in &kernels {
        jobs.push(Job::new(Platform::Simics, kernel, "ipm")?);
        jobs.push(Job::new(Platform::Simics, kernel, "ipm")?.with(|o| o.races = false));
    }
    let runs = ground.run(jobs)?;
    let (with, without): (Vec<_>, Vec<_>) = runs.chunks(2).map(|pair| (&pair[0], &pair[1])).unzip();
    let share = |runs: &[&Vec<Arc<Played>>]| mean(runs.iter().map(|runs| mean_of(runs, right)));
    let lost = mean(with.iter().map(|runs| {
        mean_of(runs, |f| {
            f.figures
                .unit
                .as_ref()
                .map_or(0.0, |unit| unit.races as f64 / unit.evictions.max(1) as f64)
        })
    }));
    let told = kernels
        .iter()
        .zip(&with)
        .map(|(kernel, runs)| format!("{} {:.1}", kernel.name, mean_of(runs, right)))
        .collect::<Vec<_>>()
        .join(", ");
    Ok(vec![
        claim(
            "accuracy",
            "6.3",
            "pages on the right node, mean of all programs",
            "%",
            points(91.3),
            share(&with),
        )
        .note(told),
        claim(
            "accuracy-race-free",
            "6.3",
            "gained when there are no races",
            "points",
            Says::Point {
                figure: 0.3,
                tolerance: 0.9,
            },
            share(&without) - share(&with),
        )
        .note("tolerance: the most that any of the paper's programs lost"),
        claim(
            "races",
            "6.3",
            "evictions that meet a race",
            "%",
            at_most(0.5),
            lost * 100.0,
        )
        .note("0.12 % on average in the paper, 0.5 % in the worst case"),
    ])
}
