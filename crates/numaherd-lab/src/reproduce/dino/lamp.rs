//! DINO Fig 10 and 13: a web service, four daemons of each kind with one thread for each client; the time of
//! a request. The library's `apache` and `mysql` stand for the daemons.

use anyhow::Result;
use numaherd_experiment::Ran;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::{largest, mean};

use super::cpu;
use super::runs::{Compared, Runs};
use crate::reproduce::testbed::{Effort, Testbed, Workload};

/// Four daemons of each kind (§5.1).
const DAEMONS: [&str; 8] = [
    "apache", "apache", "apache", "apache", "mysql", "mysql", "mysql", "mysql",
];
/// Part of an hour for which the service is observed.
const OF_AN_HOUR: f64 = 1.0 / 12.0;

/// The service.
pub(super) fn workload(testbed: &Testbed, effort: &Effort) -> Result<Workload> {
    let until = effort.part_of_hour(OF_AN_HOUR);
    Ok(Workload::new(cpu::jobs(testbed, &DAEMONS)?, until))
}

pub(super) fn measure(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let per_request = DAEMONS
        .iter()
        .map(|name| {
            Ok(testbed
                .program(name)?
                .request_instructions
                .unwrap_or(f64::NAN))
        })
        .collect::<Result<Vec<f64>>>()?;
    let time = |ran: &Ran, job: usize| ran.work[job].seconds_per_request(per_request[job]);
    let workload = workload(testbed, effort)?;
    let all = Compared::of(testbed, &workload, &time, effort)?;
    let whole = Runs::of(testbed, "dino+whole-set", &workload, &time, effort)?;

    let [plain, migrate, dino] = all.policies().map(|(_, runs)| {
        let gains = runs.improvements(&all.kernel);
        let worst = largest(runs.worst_improvements(&all.kernel));
        (mean(&gains), largest(gains), worst)
    });
    let mut measured = Measured::new();
    measured.figure("fig13-dino-improves-some", dino.1);
    measured.order("fig13-dino-improves-most", [dino.1, plain.1.max(migrate.1)]);
    measured.order("fig13-worst-case", [dino.2, plain.2.max(migrate.2)]);
    let over_whole = mean(all.dino.improvements(&whole));
    measured.figure("fig10-lamp-window-over-whole-set", over_whole);
    let means = [
        ("DI-Plain", plain.0),
        ("DI-Migrate", migrate.0),
        ("DINO", dino.0),
    ];
    measured.detail("lamp-means", changes(means, 1));
    Ok(measured)
}
