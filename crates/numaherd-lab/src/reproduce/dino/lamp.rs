//! DINO Fig 10 and 13: a web service, four daemons of each kind with a thread per client; the time of
//! a request. Daemons are the library's `apache` and `mysql`, proxies.

use std::time::Duration;

use anyhow::Result;
use numaherd_model::Until;

use super::runs::{DEFAULT, POLICIES, Runs, Workload, runs};
use super::{Claim, Effort, Ground, claim, cpu, largest};
use crate::reproduce::Says;
use numaherd_experiment::trial::Ran;

/// Four daemons of each (§5.1).
const DAEMONS: [&str; 8] = [
    "apache", "apache", "apache", "apache", "mysql", "mysql", "mysql", "mysql",
];
/// Part of an hour that the service is looked at.
const OF_AN_HOUR: f64 = 1.0 / 12.0;

/// The claims of Fig 10 and 13.
pub(super) fn claims(ground: &Ground, effort: &Effort) -> Result<Vec<Claim>> {
    let mut per_request = Vec::new();
    for name in DAEMONS {
        per_request.push(
            ground
                .library
                .get(name)?
                .request_instructions
                .unwrap_or(f64::NAN),
        );
    }
    let workload = Workload {
        jobs: cpu::jobs(ground, &DAEMONS)?,
        until: Until::Time(Duration::from_secs_f64(effort.hour_s * OF_AN_HOUR)),
        time: &|ran: &Ran, job| ran.work[job].seconds_per_request(per_request[job]),
    };
    let settings = numaherd_policy::Settings::default();
    let all = |policy: &str| runs(ground, &workload, policy, &settings, effort.runs);
    let kernel = all(DEFAULT)?;
    let [plain, migrate, dino] = [all(POLICIES[0])?, all(POLICIES[1])?, all(POLICIES[2])?];
    let whole = all("dino+whole-set")?;
    let best = |runs: &Runs| largest(runs.jobs().map(|job| runs.improvement(&kernel, job)));
    let best_worst =
        |runs: &Runs| largest(runs.jobs().map(|job| runs.worst_improvement(&kernel, job)));
    let note = format!(
        "mean improvement, %: DI-Plain {:+.1}, DI-Migrate {:+.1}, DINO {:+.1}; the service is a proxy",
        plain.mean_improvement(&kernel),
        migrate.mean_improvement(&kernel),
        dino.mean_improvement(&kernel),
    );
    Ok(vec![
        claim(
            "fig13-dino-improves-some",
            "5.3, Fig 13",
            "DINO improves the time of a request of some daemon: the most",
            "%",
            Says::Ranking,
            best(&dino),
        )
        .proxy(note.clone()),
        claim(
            "fig13-dino-improves-most",
            "5.3, Fig 13",
            "DINO improves a request's time to a larger extent than the other two",
            "points",
            Says::Ranking,
            best(&dino) - best(&plain).max(best(&migrate)),
        )
        .proxy(note),
        claim(
            "fig13-worst-case",
            "5.3, Fig 13",
            "the same of the longest mean time of a run",
            "points",
            Says::Ranking,
            best_worst(&dino) - best_worst(&plain).max(best_worst(&migrate)),
        )
        .proxy("the service is a proxy"),
        claim(
            "fig10-lamp-window-over-whole-set",
            "5.2, Fig 10",
            "for LAMP, moving K = 4096 pages around each access is better than moving whole resident sets",
            "points",
            Says::Ranking,
            dino.mean_improvement(&whole),
        )
        .proxy(
            "DINO brings each daemon's threads together once, in both cases; whole sets then move once, \
             as they do not while a daemon's threads are apart",
        ),
    ])
}
