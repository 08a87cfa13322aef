//! What `lab compare --json FILE` writes: every figure of every trial, with its scenario and kernel.

use numaherd_experiment::in_lab::{Better, Measure};
use serde::Serialize;
use toml::Table;

use super::Field;
use super::outcome::{Failed, Outcome, Results, Summary};

/// What `--json FILE` holds.
#[derive(Serialize)]
pub(super) struct Recorded<'a> {
    /// Version of this form.
    schema: u32,
    /// The scenarios' files.
    scenarios: Vec<&'a Table>,
    summaries: Vec<Under<'a, Summed>>,
    trials: Vec<Under<'a, &'a Outcome>>,
    failed: Vec<Under<'a, &'a Failed>>,
    /// What could not run at all.
    cannot_run: Vec<Under<'a, &'a Failed>>,
}

/// Something of a scenario on a kernel.
#[derive(Serialize)]
struct Under<'a, T> {
    scenario: &'a str,
    kernel: &'a str,
    #[serde(flatten)]
    what: T,
}

/// A summary, with its unit.
#[derive(Serialize)]
struct Summed {
    unit: String,
    /// Which is better.
    better: Better,
    #[serde(flatten)]
    summary: Summary,
}

impl<'a> Recorded<'a> {
    /// All results of these scenarios.
    pub(super) fn of(fields: &'a [Field]) -> Self {
        fn all<'a, T>(
            fields: &'a [Field],
            of: impl Fn(&'a Field, &'a Results) -> Vec<T>,
        ) -> Vec<Under<'a, T>> {
            let mut all = Vec::new();
            for field in fields {
                for comparison in &field.comparisons {
                    let results = &comparison.results;
                    let (scenario, kernel) =
                        (field.scenario.name.as_str(), results.kernel.as_str());
                    let under = |what| Under {
                        scenario,
                        kernel,
                        what,
                    };
                    all.extend(of(field, results).into_iter().map(under));
                }
            }
            all
        }
        let summed = |field: &'a Field, results: &'a Results| {
            let Measure { unit, better, .. } = field.scenario.measure();
            let summaries = results.summaries(better).into_iter();
            let summed = summaries.map(|summary| Summed {
                unit: unit.clone(),
                better,
                summary,
            });
            summed.collect()
        };
        Self {
            schema: 3,
            scenarios: fields.iter().map(|field| &field.scenario.written).collect(),
            summaries: all(fields, summed),
            trials: all(fields, |_, of| of.outcomes.iter().collect()),
            failed: all(fields, |_, of| of.failed.iter().collect()),
            cannot_run: all(fields, |_, of| of.cannot_run.iter().collect()),
        }
    }
}
