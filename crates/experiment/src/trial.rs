//! One run of jobs on a modelled machine under one policy, by the same loop that herds a live one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::Writer;
use numaherd_herd::{Herd, Summary};
use numaherd_model::{Completion, Hardware, Job, Model, Options, Until, Work};
use numaherd_policy::{CostModel, Means, Policy};
use numaherd_topology::CpuId;
use numaherd_world::{ThreadId, World};

use crate::ExperimentError;

/// What is run.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// The machine.
    pub hardware: &'a Hardware,
    /// What runs on it.
    pub jobs: Vec<Job>,
    /// Until when.
    pub until: Until,
    /// How the model runs; its seed also seeds the policy.
    pub options: Options,
    /// The policy's name.
    pub policy: &'a str,
    /// The policies' settings.
    pub policies: &'a numaherd_policy::Settings,
    /// The loop's settings.
    pub herd: &'a numaherd_herd::Settings,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Completed runs, in the order in which they ended.
    pub completions: Vec<Completion>,
    /// What each job did, in their order.
    pub work: Vec<Work>,
    /// Modelled time in seconds.
    pub seconds: f64,
    /// What the loop saw and did.
    pub summary: Summary,
}

/// Settings of the loop that let a policy act as it was published: nothing is limited or undone.
pub fn as_published() -> numaherd_herd::Settings {
    let mut settings = numaherd_herd::Settings {
        // As long as the others; the loop shortens it where a policy places more often.
        first_interval_ms: 1000,
        ..numaherd_herd::Settings::default()
    };
    let limits = &mut settings.limits;
    limits.moves_per_interval = u32::MAX;
    limits.moves_per_second = 1e9;
    limits.vm_moves_per_second = 1e9;
    limits.bounce_limit = u32::MAX;
    limits.pages_mib_per_s = 1e9;
    limits.process_pages_mib_per_s = 1e9;
    limits.vm_pages_mib_per_s = 1e9;
    limits.node_reserve = 0.0;
    limits.worse.undo = false;
    settings
}

/// Largest ledger of a trial in bytes, before its older half is let go.
const LEDGER_BYTES: u64 = 1 << 30;

/// Runs it.
///
/// # Errors
/// The policy is unknown or needs what the model does not give, or the jobs cannot be run.
pub fn run(trial: &Trial<'_>) -> Result<Ran, ExperimentError> {
    run_recorded(trial, None)
}

/// Runs it and records everything seen, decided and done in a ledger, where one is named.
///
/// # Errors
/// As [`run`]; the ledger cannot be written.
pub fn run_recorded(trial: &Trial<'_>, ledger: Option<&Path>) -> Result<Ran, ExperimentError> {
    let mut model = Model::new(
        trial.hardware.clone(),
        trial.jobs.clone(),
        trial.until,
        trial.options,
    )?;
    let means = Means {
        cost_model: Some(Arc::new(Asked {
            model: model.foresight(),
        })),
    };
    let policy = numaherd_policy::registry::build_with(trial.policy, trial.policies, &means)?;
    let mut settings = trial.herd.clone();
    settings.seed = trial.options.seed;
    let summary = herd(&mut model, policy, settings, ledger)?;
    Ok(Ran {
        completions: model.completions(),
        work: model.work(),
        seconds: model.seconds(),
        summary,
    })
}

/// Runs the loop in a world until that ends, and records it in a ledger, where one is named. A ledger says
/// nothing of when it was written, so that the same trial writes the same.
///
/// # Errors
/// The policy needs what the world does not give; the ledger cannot be written.
pub(crate) fn herd(
    world: &mut dyn World,
    policy: Policy,
    settings: numaherd_herd::Settings,
    ledger: Option<&Path>,
) -> Result<Summary, ExperimentError> {
    let program = concat!("numaherd ", env!("CARGO_PKG_VERSION"));
    let ledger = ledger
        .map(|path| Writer::create(path, program, None, LEDGER_BYTES))
        .transpose()?;
    let never = AtomicBool::new(false);
    Ok(Herd::new(world, policy, settings, ledger, None).run(&never)?)
}

/// The model's answers about layouts, in the form in which policies ask: mean slowdowns.
struct Asked {
    model: numaherd_model::Foresight,
}

impl CostModel for Asked {
    fn cost(&self, layout: &[(ThreadId, CpuId)]) -> Option<f64> {
        self.model.slowdown(layout)
    }

    fn least(&self, _: &[ThreadId]) -> Option<f64> {
        self.model.least_slowdown()
    }
}
