//! One run of one policy in any world, by the same loop that herds a live machine.
//!
//! A [`Trial`] names the policy, the repeat, the seed and the ledger, the same way for the model ([`OnModel`]),
//! traces ([`crate::OnTrace`]) and the lab's guests. [`crate::Trials`] are all trials of an experiment. Trials are
//! independent: their results do not depend on the order in which they run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::Writer;
use numaherd_herd::{Herd, Summary};
use numaherd_model::{Completion, Hardware, Job, Model, Options, Until, Work};
use numaherd_policy::{CostModel, Home, Means, registry};
use numaherd_topology::CpuId;
use numaherd_world::{MemoryPart, ThreadId, World};

use crate::scenario::LINUX_BALANCING;
use crate::{ExperimentError, Settings};

/// One run of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The policy's name.
    pub policy: String,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// The seed of all random numbers, the world's and the policy's. A repeat has the same seed under every
    /// policy.
    pub seed: u64,
    /// The ledger that records all observations, decisions and actions, if any.
    pub ledger: Option<PathBuf>,
}

impl Trial {
    /// The first run of a policy, from seed 0 and without a ledger.
    pub fn of(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            ..Self::default()
        }
    }

    /// Runs the loop in a world until the world ends. The ledger contains no wall-clock time, so a repeated trial
    /// writes the same ledger.
    ///
    /// # Errors
    /// The policy is unknown or needs signals that the world does not give; the ledger cannot be written.
    pub(crate) fn herd(
        &self,
        world: &mut dyn World,
        settings: &Settings,
        means: &Means,
    ) -> Result<Summary, ExperimentError> {
        let policy = registry::build_with(&self.policy, &settings.policies, means)?;
        let program = concat!("numaherd ", env!("CARGO_PKG_VERSION"));
        let ledger = self.ledger.as_deref();
        let ledger = ledger
            .map(|path| Writer::create(path, program, None, LEDGER_BYTES))
            .transpose()?;
        let herd = numaherd_herd::Settings {
            seed: self.seed,
            ..settings.herd.clone()
        };
        let never = AtomicBool::new(false);
        Ok(Herd::new(world, policy)
            .settings(herd)
            .ledger(ledger)
            .run(&never)?)
    }
}

/// Largest ledger of a trial in bytes; beyond it, the older half is dropped.
const LEDGER_BYTES: u64 = 1 << 30;

/// Jobs on a machine of the contention model.
#[derive(Clone, Copy, Debug)]
pub struct OnModel<'a> {
    /// The machine.
    pub hardware: &'a Hardware,
    /// What runs on it.
    pub jobs: &'a [Job],
    /// The end of a trial.
    pub until: Until,
    /// Of the loop, the policies and the model; the seed is the trial's.
    pub settings: &'a Settings,
}

/// The result of a trial on the model.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Completed runs, in the order in which they ended.
    pub completions: Vec<Completion>,
    /// The work of each job, in their order.
    pub work: Vec<Work>,
    /// Modelled time in seconds.
    pub seconds: f64,
    /// The loop's summary of what it saw and did.
    pub summary: Summary,
}

impl OnModel<'_> {
    /// Runs a trial.
    ///
    /// # Errors
    /// The policy is unknown or needs signals that the model does not give, the jobs cannot be run, or the ledger
    /// cannot be written.
    pub fn run(&self, trial: &Trial) -> Result<Ran, ExperimentError> {
        let balances = trial.policy == LINUX_BALANCING;
        let options = Options {
            seed: trial.seed,
            numa_balancing: balances || self.settings.model.numa_balancing,
            ..self.settings.model
        };
        let (hardware, jobs) = (self.hardware.clone(), self.jobs.to_vec());
        let mut model = Model::new(hardware, jobs, self.until, options)?;
        let cost_model = LayoutCosts(model.cost_model());
        let means = Means {
            cost_model: Some(Arc::new(cost_model)),
        };
        let observed = Trial {
            policy: if balances { "linux" } else { &trial.policy }.to_owned(),
            ..trial.clone()
        };
        let summary = observed.herd(&mut model, self.settings, &means)?;
        Ok(Ran {
            completions: model.completions(),
            work: model.work(),
            seconds: model.seconds(),
            summary,
        })
    }
}

/// The model's costs of layouts in the form that policies expect: mean slowdowns.
struct LayoutCosts(numaherd_model::CostModel);

impl CostModel for LayoutCosts {
    fn cost(&self, layout: &[(ThreadId, CpuId)], homes: &[Home]) -> Option<f64> {
        self.0.slowdown(layout, homes)
    }

    fn least(&self, _: &[ThreadId]) -> Option<f64> {
        self.0.least_slowdown()
    }

    fn parts(&self) -> Vec<MemoryPart> {
        self.0.parts()
    }

    fn joint_least(&self, _: &[ThreadId]) -> Option<f64> {
        self.0.least_joint_slowdown()
    }
}
