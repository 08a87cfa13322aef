//! DINO Fig 9: how many pages K around a sampled access follow a thread, against moving all its pages;
//! eight of the programs that the paper names, all their pages where they started. What is compared is the
//! time for the same work over ten minutes, in which DINO brings them to where it wants them.

use std::time::Duration;

use anyhow::Result;
use numaherd_model::Until;

use super::runs::{Workload, pace, runs};
use super::{Claim, Effort, Ground, claim, cpu, points};
use crate::reproduce::Says;

/// Of the workload, first the programs of Table 1.
const PROGRAMS: [&str; 8] = [
    "soplex", "milc", "lbm", "gamess", "namd", "mcf", "gcc", "povray",
];
/// K, in base pages. Fewer cut the pages into pieces that the model is slow with.
const WINDOWS: [u64; 4] = [16, 64, 4096, 16384];

/// Part of an hour that the workload is looked at.
const OF_AN_HOUR: f64 = 1.0 / 6.0;

/// The claims of Fig 9.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let workload = Workload {
        jobs: cpu::jobs(ground, &PROGRAMS)?,
        until: Until::Time(Duration::from_secs_f64(effort.hour_s * OF_AN_HOUR)),
        time: &pace,
    };
    let mut settings = numaherd_policy::Settings::default();
    let whole = runs(ground, &workload, "dino+whole-set", &settings, effort.runs)?;
    let mut gains = Vec::new();
    for window in WINDOWS {
        settings.paging.window_pages = window;
        let with = runs(ground, &workload, "dino", &settings, effort.runs)?;
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
        "mean improvement over moving whole resident sets, % by K: {}. Memory left behind spreads a thread's \
         lines over two controllers, which here gains about what their longer way costs; the composition of \
         the workload is not printed",
        told.join(", ")
    );
    Ok(vec![
        claim(
            "fig9-small-windows-hurt",
            "5.2, Fig 9",
            "for CPU2006, moving a small number of pages (K = 16) is worse than moving whole resident sets",
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
            "K = 4096 is better than K = 16",
            "points",
            Says::Ranking,
            of(4096) - of(WINDOWS[0]),
        )
        .proxy("the composition of the workload is not printed"),
    ])
}
