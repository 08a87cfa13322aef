//! DINO Fig 9: how many pages K around a sampled access follow a thread, against moving all its pages;
//! eight of the programs that the paper names.

use anyhow::Result;
use numaherd_model::Until;

use super::runs::{Workload, runs};
use super::{Claim, Effort, Ground, Noted, claim, cpu, points};
use crate::reproduce::Says;

/// Of the workload, first the programs of Table 1.
const PROGRAMS: [&str; 8] = [
    "soplex", "milc", "lbm", "gamess", "namd", "mcf", "gcc", "povray",
];
/// K, in base pages.
const WINDOWS: [u64; 3] = [64, 1024, 4096];

/// The most runs with each K: samples every 10 ms make these runs long, and they hardly differ.
const MOST_RUNS: u32 = 3;

/// The claims of Fig 9.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let workload = Workload {
        jobs: cpu::jobs(ground, &PROGRAMS)?,
        until: Until::Completions(3),
        time: &cpu::second,
    };
    let count = effort.runs.min(MOST_RUNS);
    let mut settings = numaherd_policy::Settings::default();
    let whole = runs(ground, &workload, "dino+whole-set", &settings, count)?;
    let mut gains = Vec::new();
    for window in WINDOWS {
        settings.paging.window_pages = window;
        let with = runs(ground, &workload, "dino", &settings, count)?;
        gains.push((window, with.mean_improvement(&whole)));
    }
    let of = |window: u64| {
        gains
            .iter()
            .find(|one| one.0 == window)
            .map_or(f64::NAN, |one| one.1)
    };
    let told: Vec<String> = gains
        .iter()
        .map(|(window, gain)| format!("{window}: {gain:+.1}"))
        .collect();
    let note = format!(
        "mean improvement over moving whole resident sets, % by K: {}. DINO moves threads so seldom here, and \
         a sample every 10 ms fetches a set so soon, that K hardly matters; the composition of the workload \
         is not printed",
        told.join(", ")
    );
    Ok(vec![
        claim(
            "fig9-small-windows-hurt",
            "5.2, Fig 9",
            "for CPU2006, moving a small number of pages (K = 64) is worse than moving whole resident sets",
            "points",
            Says::Ranking,
            -of(WINDOWS[0]),
        )
        .proxy(note.clone()),
        claim(
            "fig9-4096-is-comparable",
            "5.2, Fig 9",
            "K = 4096 is comparable to moving whole resident sets: improvement",
            "%",
            points(0.0),
            of(4096),
        )
        .proxy(note),
        claim(
            "fig9-more-is-better",
            "5.2, Fig 9",
            "K = 4096 is better than K = 64",
            "points",
            Says::Ranking,
            of(4096) - of(WINDOWS[0]),
        )
        .proxy("the composition of the workload is not printed"),
    ])
}
