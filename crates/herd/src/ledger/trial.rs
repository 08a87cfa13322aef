//! What a trial records: a policy and its comparison take turns in blocks (`numaherd trial`).
//!
//! Each record says how the trial is made: any part of a ledger can be read on its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A record of a trial: after each pair of blocks, and when it ends by itself before the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// How it is made.
    #[serde(flatten)]
    pub plan: TrialPlan,
    /// The pair that is complete now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
    /// Why there will be no further pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TrialEnd>,
}

/// How a trial is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialPlan {
    /// The policy that is tried.
    pub policy: String,
    /// What it is compared with: `linux`, or another policy.
    pub against: String,
    /// What progress is counted by, in words.
    pub counter: String,
    /// Whether the user named that counter.
    pub is_named: bool,
    /// How its time is divided.
    #[serde(flatten)]
    pub design: Design,
}

/// How a trial's time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// Length of a block, in ns.
    pub block_ns: u64,
    /// How much of its beginning does not count, in ns.
    pub washout_ns: u64,
    /// Pairs of blocks.
    pub pairs_planned: usize,
    /// Seed of the order within pairs.
    pub seed: u64,
    /// Whether it ends as soon as a difference is shown.
    pub stop_early: bool,
}

impl Design {
    /// Length of a block.
    pub fn block(&self) -> Duration {
        Duration::from_nanos(self.block_ns)
    }

    /// How much of its beginning does not count.
    pub fn washout(&self) -> Duration {
        Duration::from_nanos(self.washout_ns)
    }

    /// How much of a block counts.
    pub fn measured(&self) -> Duration {
        self.block().saturating_sub(self.washout())
    }
}

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The policy that is tried.
    Policy,
    /// What it is compared with.
    Against,
}

/// Both blocks of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Which side came first.
    pub first: Side,
    /// Progress per second under the policy.
    pub policy: f64,
    /// Progress per second under what it is compared with.
    pub against: f64,
}

impl Pair {
    /// The logarithm of the ratio of the two.
    pub fn log_ratio(&self) -> f64 {
        (self.policy / self.against).ln()
    }

    /// How much faster the policy was, as a share.
    pub fn gain(&self) -> f64 {
        self.log_ratio().exp_m1()
    }
}

/// Why a trial ended by itself before its last pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEnd {
    /// A difference was shown.
    Early,
    /// It could not go on: a sentence with the reason.
    Failed(String),
}
